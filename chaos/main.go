// Chaos runs a cluster of real processes on a real Postgres, does to it what
// happens to clusters, and checks that the promises of bide were kept:
//
//	go run ./chaos -for 2m -seed 7
//
// Two workers on the database, one through a server, and two servers; each of their
// connections goes through a proxy of its own. Processes are killed and stopped,
// connections cut in several ways, the database crashes, its disk fills up, clocks
// jump. Meanwhile runs that use every verb are started, and have done to them what
// their verbs need: signals, webhooks, events; they are canceled, paused, retried,
// and their waits checked, completed, failed, extended. A witness outside records
// each side effect. In the end all is healed, and the checker reads what the runs say
// of themselves, what the store has of them, and what the witness saw.
//
// What is late is a fault only while nothing is wrong, and once what was wrong can
// have been noticed: see wrongs. The directory that is kept when a promise is broken
// has the evidence, the logs of the processes, and what the database had, second by
// second.
//
// What goes wrong when is drawn from the seed; what it meets is up to the machine.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

type config struct {
	total time.Duration
	seed  uint64
	rate  int
	dir   string
	keep  bool
	less  string
	late  time.Duration

	without []string // less, kind by kind
}

func main() {
	if text := os.Getenv(roleEnv); text != "" {
		fmt.Fprintln(os.Stderr, play(text))
		os.Exit(1)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	cancel()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var c config
	fs := flag.NewFlagSet("chaos", flag.ContinueOnError)
	fs.DurationVar(&c.total, "for", 2*time.Minute, "how long things go wrong")
	fs.Uint64Var(&c.seed, "seed", 0, "what goes wrong when; 0 is a random one")
	fs.IntVar(&c.rate, "rate", 8, "runs started a second")
	fs.StringVar(&c.less, "without", "", "kinds of faults to leave out, as in \"full,skew\"")
	fs.DurationVar(&c.late, "late", 2*time.Second, "how late a timer may be while nothing is wrong; more on a machine that has other things to do")
	fs.StringVar(&c.dir, "dir", "", "where the temporary directory is made")
	fs.BoolVar(&c.keep, "keep", false, "keep the directory, with the processes' logs; it is kept anyway if a promise is broken")
	if err := fs.Parse(args); err != nil {
		return err
	}
	switch {
	case fs.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case c.total < 10*time.Second:
		return errors.New("-for must be at least 10s")
	case c.late < time.Second:
		return errors.New("-late must be at least 1s")
	case c.rate < 1 || c.rate > 1000:
		return errors.New("-rate must be from 1 to 1000")
	}
	if c.less != "" {
		c.without = strings.Split(c.less, ",")
	}
	for _, name := range c.without {
		if !slices.ContainsFunc(kinds, func(k kind) bool { return k.name == name }) {
			return fmt.Errorf("-without %q is none of the kinds of faults", name)
		}
	}
	if c.seed == 0 {
		c.seed = rand.Uint64()>>32 + 1
	}
	found, err := chaos(ctx, c, out)
	if err == nil && len(found) > 0 {
		again := fmt.Sprintf("go run ./chaos -for %v -rate %d -seed %d", c.total, c.rate, c.seed)
		if c.less != "" {
			again += " -without " + c.less
		}
		err = fmt.Errorf("%d promises were broken; again: %s", len(found), again)
	}
	return err
}

const (
	lease    = 2500 * time.Millisecond
	patience = time.Minute // for all runs to end once all is healed
)

// chaos runs it all, and returns what was broken.
func chaos(ctx context.Context, cfg config, out io.Writer) (found []violation, err error) {
	dir, err := os.MkdirTemp(cfg.dir, "bide-chaos-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // the database has a user of its own
		return nil, err
	}
	began := time.Now()
	var mu sync.Mutex
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, "%8.3f  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	say("seed %d, for %v, in %s", cfg.seed, cfg.total, dir)
	living, die := context.WithCancel(ctx)
	defer die()
	p := newPatrons(living, cfg.seed)
	c, err := newCluster(living, dir, lease, p.answer, say)
	if err != nil {
		return nil, err
	}
	defer func() {
		c.close()
		if err != nil || len(found) > 0 || cfg.keep {
			say("logs and evidence are in %s", dir)
			return
		}
		err = os.RemoveAll(dir)
	}()
	if err := p.join(c); err != nil {
		return nil, err
	}
	if err := c.watchRows(living); err != nil {
		return nil, err
	}
	say("all is up")
	stalls := watchStalls(living, c.db.DSN)

	working, rest := context.WithTimeout(living, cfg.total)
	defer rest()
	var work sync.WaitGroup
	work.Go(func() { p.serve(working, cfg.rate) })
	s := c.scene()
	s.left = append(s.left, cfg.without...)
	err = c.storm(living, plan(cfg.seed, cfg.total, s))
	<-working.Done()
	work.Wait()
	if err = errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	say("all is healed")
	outcomes := p.settle(living, patience)
	ledger, err := p.entries(living)
	listed, lerr := p.list(living)
	letGo, gerr := c.letGo()
	if err = errors.Join(err, lerr, gerr); err != nil {
		return nil, err
	}
	ev := evidence{Seed: cfg.seed, Lease: lease, Late: cfg.late, Events: c.witness.history(), Windows: c.suffered(), Stalls: stalls(), LetGo: letGo, Outcomes: outcomes, Ledger: ledger, Listed: listed}
	found = check(ev)
	say("%s", summary(ev, found))
	text, err := json.Marshal(ev)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "evidence.json"), text, 0o600)
	}
	for i, v := range found {
		if i == 20 {
			say("and %d more", len(found)-i)
			break
		}
		say("BROKEN (seed %d): %s: %s at %s: %s", cfg.seed, v.Rule, v.Job, clock(v.At), v.What)
		for _, e := range v.Events {
			say("    %s %-5s %-14s %-18s attempt %d on %s call %s prev %s", clock(e.Sent), e.What, e.Job, e.Place, e.Attempt, e.Node, e.Call, e.Prev)
		}
	}
	return found, err
}

func summary(ev evidence, found []violation) string {
	ended, kinds := 0, map[string]int{}
	for _, o := range ev.Outcomes {
		if o.State == "succeeded" {
			ended++
		}
	}
	for _, w := range ev.Windows {
		kinds[w.Kind]++
	}
	return fmt.Sprintf("seed %d: %d runs, %d succeeded, %d effects seen, faults %v, %d stalls of the machine: %d promises broken",
		ev.Seed, len(ev.Outcomes), ended, len(ev.Events), kinds, len(ev.Stalls), len(found))
}
