package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/sqlite"
)

func newLoop() *cobra.Command {
	loop := &cobra.Command{
		Use:   "loop",
		Short: "Run loops of a file; list, trigger, pause those of workers",
		Args:  arguments(cobra.NoArgs, "bide loop run|list|show|trigger|pause|resume|reset-backoff"),
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	loop.AddCommand(newLoopRun(), newLoopList(), newLoopShow(), newLoopTrigger(), newLoopPause(), newLoopResume(), newLoopReset())
	return loop
}

func newLoopRun() *cobra.Command {
	var file, db string
	c := &cobra.Command{
		Use:   "run -f FILE",
		Short: "Run the loops of a file until Ctrl-C",
		Long: `Run the loops of a file until Ctrl-C. Each asks its URL, waits its interval from
the end of the answer, and asks again. A failure doubles the interval, up to
max_multiplier times; a success brings it back at once.

The file is a list, in YAML:

  - name: news
    url: https://example.org/news.json
    every: 30s
    headers: {Authorization: "Bearer ${env:TOKEN}"}
    until: body.ok == true            # CEL; an answer of which it is false is a failure
    fail_when: body.errors > 3.0
    condition: now.getHours("Europe/Berlin") >= 8   # CEL; while it is false nothing is asked
    max_multiplier: 8                 # of the interval, after failures
    exact: false                      # true: no jitter
    run_immediately: true             # else the first answer comes after one interval

Further keys are those of a request: method, body, timeout, accept, max_body,
max_redirects, not_found_grace.

With --db what the loops know, their back-off and their last answers outlive the
program.`,
		Args: arguments(cobra.NoArgs, "bide loop run -f FILE"),
		RunE: func(c *cobra.Command, _ []string) error {
			if file == "" {
				return usage("-f is missing; write bide loop run -f FILE")
			}
			return runLoops(c, file, db)
		},
	}
	c.Flags().StringVarP(&file, "file", "f", "", "`FILE` with the loops")
	c.Flags().StringVar(&db, "db", "", "`FILE` that keeps their state")
	setting(c.Flags(), "db")
	return c
}

func runLoops(c *cobra.Command, file, db string) error {
	if isPostgres(db) {
		return usage("--db %s: what these loops know is kept in a file; --db '' keeps nothing", shownDB(db))
	}
	loops, err := readLoops(file)
	if err != nil {
		return err
	}
	show := newScreen(c.ErrOrStderr())
	table := &loopTable{screen: show, known: map[string]*loopLine{}}
	if db == "" {
		db = ":memory:"
	}
	store, err := sqlite.Open(db)
	if err != nil {
		return err
	}
	defer store.Close()
	worker := bide.NewWorker(store, bide.WorkerConfig{GracePeriod: 2 * time.Second,
		Logger: slog.New(slog.NewTextHandler(show, &slog.HandlerOptions{Level: slog.LevelError}))})
	for _, loop := range loops {
		worker.Register(loop)
		table.known[loop.Name()] = &loopLine{}
	}
	show.say("Running %s of %s; Ctrl-C ends it.", count(len(loops), "loop"), file)

	ctx, cancel := context.WithCancel(c.Context())
	stopped := make(chan error, 1)
	go func() {
		defer cancel() // should it fail, there is nothing to look at
		stopped <- worker.Run(ctx)
	}()
	table.follow(ctx, bide.NewClient(store))
	if err := <-stopped; err != nil {
		return err
	}
	kept := ""
	if db != ":memory:" {
		kept = "; " + db + " keeps where they stand"
	}
	show.verdict(red, "interrupted", kept)
	return &endedError{exitInterrupted}
}

// loopTable shows the loops: on a terminal as a table that is drawn over, elsewhere
// as a line for each change.
type loopTable struct {
	screen *screen
	known  map[string]*loopLine // those of the file
}

// loopLine is what was last printed of a loop.
type loopLine struct {
	said string
	at   time.Time
}

const lookEvery = drawEvery / 5

// follow shows the loops until ctx ends.
func (t *loopTable) follow(ctx context.Context, client *bide.Client) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	defer t.screen.clear()
	for {
		states, err := client.Loops(ctx)
		switch {
		case err != nil: // the worker says what is wrong with the store
		case t.screen.live():
			t.screen.draw(t.table(states))
		default:
			t.print(states)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (t *loopTable) table(states []bide.LoopState) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "LOOP\tSTATE\tINTERVAL\tNEXT\tRUNS\tLAST ERROR")
	for i := range states {
		s := &states[i]
		if t.known[s.Name] == nil {
			continue
		}
		next := "-"
		if !s.NextAt.IsZero() {
			next = short(max(time.Until(s.NextAt), 0).Round(time.Second))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\n", s.Name, loopWord(s), interval(s), next, s.Iterations, lastError(s))
	}
	_ = w.Flush() // into memory
	return strings.TrimSuffix(b.String(), "\n")
}

// print says what has changed, and of what goes on as it was a line a minute.
func (t *loopTable) print(states []bide.LoopState) {
	for i := range states {
		s := &states[i]
		line, word := t.known[s.Name], loopWord(s)
		if line == nil || word == waiting || word == asking {
			continue
		}
		said := word + ", every " + interval(s)
		if e := lastError(s); e != "" {
			said += ", " + e
		}
		if said == line.said && time.Since(line.at) < quietFor {
			continue
		}
		line.said, line.at = said, time.Now()
		t.screen.say("%s: %s, run %d", s.Name, said, s.Iterations)
	}
}

const (
	waiting = "waiting"
	asking  = "asking"
)

func loopWord(s *bide.LoopState) string {
	switch {
	case s.Paused:
		return "paused"
	case !s.InFlight.IsZero():
		return asking
	case s.Skipped != "":
		return "skipped (" + s.Skipped + ")"
	case s.Failures > 0:
		return "failing"
	case s.Iterations == 0:
		return waiting
	}
	return "ok"
}

// interval is how far apart the iterations are now, and why.
func interval(s *bide.LoopState) string {
	if s.Multiplier > 1 {
		return fmt.Sprintf("%s (x%d)", short(s.Effective), s.Multiplier)
	}
	return short(s.Effective)
}

// lastError is the error that a loop is failing with.
func lastError(s *bide.LoopState) string {
	if s.Failures == 0 || s.LastError == nil {
		return ""
	}
	return s.LastError.Message
}
