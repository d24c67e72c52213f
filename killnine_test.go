package bide_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	sqlite3 "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/bide-dev/bide"
)

// A real process works on a real file and is killed with SIGKILL again and
// again. What its steps do to the world stands in a ledger outside the store:
// the witness of what ran, and of what the store had acknowledged.

const (
	killNineDir  = "BIDE_KILLNINE_DIR" // set: this process is the one to be killed
	killNineSeed = "BIDE_KILLNINE_SEED"
	killNineRuns = 50
)

// TestKillNine protects the promise of the whole: kill -9 at any moment loses
// nothing that was acknowledged, and repeats no step whose record was kept.
func TestKillNine(t *testing.T) {
	if dir := os.Getenv(killNineDir); dir != "" {
		if err := killNineProcess(dir); err != nil {
			fmt.Println("error:", err)
			os.Exit(3)
		}
		return
	}
	if testing.Short() {
		t.Skip("kills real processes for some seconds")
	}
	seed, kills, pace := rand.Uint64(), 200, time.Duration(1)
	if slowed() {
		kills, pace = 40, 4
	}
	if onPostgres != "" { // where what the dead held is free when its lease lapses
		kills, pace = 10, 6
	}
	if s := os.Getenv("BIDE_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("BIDE_SEED: %v", err)
		}
		seed = n
	}
	if s := os.Getenv("BIDE_KILLS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			t.Fatalf("BIDE_KILLS is %q; it must be a number above 0", s)
		}
		kills = n
	}
	t.Logf("seed %d (BIDE_SEED=%[1]d replays the moments of the kills)", seed)
	k := &killer{t: t, rng: rand.New(rand.NewPCG(seed, 9)), left: kills, pace: pace}
	for k.left > 0 && !t.Failed() {
		k.file(t.TempDir())
	}
	t.Logf("%d kills of %d processes on %d files (%d checked for integrity), %d effects, %d of them repeats that a kill explains, %d at-most-once steps interrupted",
		kills-k.left, k.processes, k.files, k.checked, k.effects, k.repeats, k.interrupted)
}

// slowed reports whether this program was built with -race: all takes longer.
func slowed() bool {
	info, _ := debug.ReadBuildInfo()
	return info != nil && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// killer is the parent of the processes.
type killer struct {
	t    *testing.T
	rng  *rand.Rand
	left int // kills to go
	pace time.Duration

	processes, files, checked, effects, repeats, interrupted int
}

// file works one file off, from nothing to the end of all its runs.
func (k *killer) file(dir string) {
	k.files++
	kept := map[string]int{} // run and step to the length of the ledger when its record was seen
	for {
		killed := k.process(dir)
		lines := readLedger(k.t, dir)
		k.inspect(dir, lines, kept)
		if k.t.Failed() {
			return
		}
		if !killed {
			k.judge(dir, lines, kept)
			return
		}
		k.left--
		if onPostgres == "" && k.rng.IntN(8) == 0 {
			k.integrity(dir)
		}
	}
}

// process starts a process and kills it soon after it has opened the store, as
// long as there are kills left. It reports false when all runs had ended before.
func (k *killer) process(dir string) (killed bool) {
	k.processes++
	self, err := os.Executable()
	if err != nil {
		k.t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestKillNine$")
	cmd.Env = append(os.Environ(), killNineDir+"="+dir, killNineSeed+"="+strconv.FormatUint(k.rng.Uint64(), 10),
		"GORACE=halt_on_error=1") // a data race is an end too
	stdin, err := cmd.StdinPipe() // its end tells the child that this process is gone
	if err != nil {
		k.t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		k.t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	life := 5*time.Millisecond + time.Duration(k.rng.Int64N(int64(55*time.Millisecond)))
	life *= k.pace
	hung := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer hung.Stop()
	var kill *time.Timer
	var said []string
	done := false
	for out := bufio.NewScanner(stdout); out.Scan(); {
		switch line := out.Text(); line {
		case "open":
			if k.left > 0 {
				kill = time.AfterFunc(life, func() { _ = cmd.Process.Kill() })
				defer kill.Stop()
			}
		case "done":
			done = true
		default:
			said = append(said, line)
		}
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	switch {
	case done:
		return false
	case errors.As(err, &exit) && exit.ExitCode() == -1 && kill != nil:
		return true
	}
	k.t.Fatalf("process %d ended by itself, or hung: %v\n%s", k.processes, err, strings.Join(said, "\n"))
	return false
}

// inspect looks into the file as the killed process left it, without changing
// it: what was acknowledged is there, what is kept has not run again.
func (k *killer) inspect(dir string, lines []ledgerLine, kept map[string]int) {
	store, err := onDisk(dir).look()
	if err != nil {
		k.t.Fatalf("after kill %d: %v", k.processes, err)
	}
	defer store.Close()
	ctx := k.t.Context()
	for _, l := range lines {
		switch l.event {
		case "started":
			if _, err := store.Run(ctx, l.run); err != nil {
				k.t.Errorf("run %s was acknowledged and is lost: %v", l.run, err)
			}
		case "ended":
			if r, err := store.Run(ctx, l.run); err != nil || r.State != bide.Succeeded || string(r.Result) != strconv.Quote(wantOf(l.run)) {
				k.t.Errorf("run %s had ended; now it is %v %s, %v", l.run, r.State, r.Result, err)
			}
		}
	}
	for i, l := range lines {
		if at, ok := kept[l.run+" "+l.step]; ok && l.event == "begin" && i >= at {
			k.t.Errorf("step %s of %s ran again after its record had been kept", l.step, l.run)
		}
	}
	for id, records := range histories(k.t, store) {
		for _, r := range records {
			if _, known := kept[id+" "+r.Name]; !known && r.Kind == bide.KindStep {
				kept[id+" "+r.Name] = len(lines)
			}
		}
	}
}

func histories(t *testing.T, store bide.Store) map[string][]bide.Record {
	t.Helper()
	runs, err := store.Runs(t.Context(), bide.Query{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]bide.Record{}
	for _, r := range runs {
		if all[r.ID], err = store.History(t.Context(), r.ID, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// integrity lets SQLite check a copy of the files.
func (k *killer) integrity(dir string) {
	k.checked++
	copied := filepath.Join(dir, "copy.db")
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(filepath.Join(dir, "bide.db") + suffix)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(copied+suffix, data, 0o600)
		}
		if err != nil {
			k.t.Fatal(err)
		}
	}
	conn, err := sqlite3.OpenConn(copied, sqlite3.OpenReadWrite|sqlite3.OpenWAL)
	if err != nil {
		k.t.Fatal(err)
	}
	said := ""
	err = sqlitex.ExecuteTransient(conn, "PRAGMA integrity_check", &sqlitex.ExecOptions{
		ResultFunc: func(s *sqlite3.Stmt) error { said += s.ColumnText(0); return nil }})
	if err = errors.Join(err, conn.Close()); err != nil || said != "ok" {
		k.t.Errorf("after kill %d: integrity check: %q %v", k.processes, said, err)
	}
}

// judge says whether a file whose runs have all ended tells the whole story.
func (k *killer) judge(dir string, lines []ledgerLine, kept map[string]int) {
	store, err := onDisk(dir).openReal()
	if err != nil {
		k.t.Fatal(err)
	}
	defer store.Close()
	for i := range killNineRuns {
		id := killNineID(i)
		if r, err := store.Run(k.t.Context(), id); err != nil || r.State != bide.Succeeded || string(r.Result) != strconv.Quote(wantOf(id)) {
			k.t.Errorf("run %s is %v with %s %v, %v; want %q", id, r.State, r.Result, r.Error, err, wantOf(id))
		}
	}
	farthest, begun, ended := map[string]int{}, map[string]int{}, map[string]int{}
	for _, l := range lines {
		key := l.run + " " + l.step
		switch l.event {
		case "end":
			ended[key]++
		case "begin":
			k.effects++
			begun[key]++
			rank := slices.IndexFunc(deeds, func(names []string) bool { return slices.Contains(names, l.step) })
			if rank < farthest[l.run] {
				k.t.Errorf("step %s of %s ran again after the run had gone on to %v", l.step, l.run, deeds[farthest[l.run]])
			}
			farthest[l.run] = rank
			if begun[key] > 1 && l.step != "flaky" && l.step != "check" {
				k.repeats++
			}
		}
	}
	for id, records := range histories(k.t, store) {
		for _, r := range records {
			key := id + " " + r.Name
			switch {
			case r.Kind == bide.KindReceive && r.Error == nil:
				begun[key]++ // signals have names of their own
			case r.Kind != bide.KindStep:
			case r.Name == "once" && r.Error != nil:
				k.interrupted++
				if begun[key] > 1 {
					k.t.Errorf("%s: an at-most-once step was called %d times", id, begun[key])
				}
			case r.Name == "once" && (begun[key] != 1 || ended[key] != 1), ended[key] == 0:
				k.t.Errorf("%s: step %s has a record, and the ledger has %d calls and %d ends", id, r.Name, begun[key], ended[key])
			}
		}
	}
	for i := range killNineRuns {
		if id := killNineID(i); begun[id+" go"] != 1 {
			k.t.Errorf("%s received the signal %d times", id, begun[id+" go"])
		}
	}
}

// deeds are the steps in the order in which each of the workflows takes them;
// those in one line run side by side.
var deeds = [][]string{
	{"plain"}, {"flaky"}, {"once"}, {"hopeless"}, {"check"}, {"all-a", "all-b"}, {"race-fast"}, {"in-phase"}, {"last"},
	{"round-0"}, {"round-1"}, {"round-2"},
	{"book-flight"}, {"book-hotel"}, {"pay"}, {"drop-hotel"}, {"drop-flight"},
	{"kid-work"},
}

func killNineID(i int) string {
	return [...]string{"errand", "errand", "errand", "again", "saga"}[i%5] + "-" + strconv.Itoa(i)
}

// wantOf is the result of the run of the id, however often it was killed.
func wantOf(id string) string {
	switch workflow, _, _ := strings.Cut(id, "-"); workflow {
	case "errand":
		return "plain flaky 6 ab fast kid of " + id + " in-phase last"
	case "again":
		return "after 2: now"
	default:
		return "saga: broke, now"
	}
}

// ledgerLine is one event: a step begins or ends, or the store has acknowledged
// that a run is started, a signal sent, a run ended.
type ledgerLine struct{ event, run, step string }

func readLedger(t *testing.T, dir string) (lines []ledgerLine) {
	data, err := os.ReadFile(filepath.Join(dir, "ledger"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) != 4 {
			t.Fatalf("the ledger has a line %q", line)
		}
		lines = append(lines, ledgerLine{f[0], f[1], f[2]})
	}
	return lines
}

// ledger is the child's side of it: one write for a line, at the file's end.
type ledger struct {
	file *os.File
	mu   sync.Mutex
	rng  *rand.Rand
}

func (l *ledger) note(event, run, step string) {
	if _, err := fmt.Fprintf(l.file, "%s %s %s %d\n", event, run, step, os.Getpid()); err != nil {
		panic(err)
	}
}

func (l *ledger) within(d time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Duration(l.rng.Int64N(int64(d)))
}

// deed is a step that the ledger tells of. It takes up to 2 ms.
func (l *ledger) deed(ctx bide.Context, run, name string, fn func(attempt int) error, opts ...bide.StepOption) (string, error) {
	return bide.Step(ctx, name, func(ctx context.Context) (string, error) { return name, l.act(ctx, run, name, fn) }, opts...)
}

func (l *ledger) act(ctx context.Context, run, name string, fn func(attempt int) error) error {
	l.note("begin", run, name)
	select {
	case <-time.After(l.within(2 * time.Millisecond)):
	case <-ctx.Done():
	}
	l.note("end", run, name)
	if fn == nil {
		return nil
	}
	return fn(bide.AttemptNumber(ctx))
}

func never(int) error { return bide.Permanent(errors.New("broke")) }

// killNineCast are workflows that use most verbs, at the speed of the kills.
func killNineCast(l *ledger) (errand, again, saga *bide.Workflow[string, string], kid *bide.Workflow[string, string]) {
	kid = bide.Define("kid", func(ctx bide.Context, id string) (string, error) {
		if err := bide.Sleep(ctx, 10*time.Millisecond); err != nil {
			return "", err
		}
		_, err := l.deed(ctx, id+":kid", "kid-work", nil)
		return "kid of " + id, err
	})
	errand = bide.Define("errand", func(ctx bide.Context, id string) (string, error) {
		var out []string
		var failed error
		add := func(s string, err error) {
			out = append(out, s)
			failed = errors.Join(failed, err)
		}
		add(l.deed(ctx, id, "plain", nil))
		_ = bide.Progress(ctx, 10, "begun")
		add(l.deed(ctx, id, "flaky", func(attempt int) error {
			if attempt < 3 {
				return errors.New("not yet")
			}
			return nil
		}, bide.RetryPolicy{InitialInterval: 5 * time.Millisecond, BackoffCoefficient: 1, NoJitter: true}))
		if _, err := l.deed(ctx, id, "once", nil, bide.RetryPolicy{MaximumAttempts: 1}); err != nil && !errors.Is(err, bide.ErrInterrupted) {
			return "", err
		}
		if _, err := l.deed(ctx, id, "hopeless", never); err == nil {
			return "", errors.New("hopeless succeeded")
		}
		sum := 0
		for range 3 {
			n, err := bide.Receive[int](ctx, "tally")
			if err != nil {
				return "", err
			}
			sum += n
		}
		add(strconv.Itoa(sum), bide.Sleep(ctx, 5*time.Millisecond))
		_, err := bide.Poll(ctx, "check", func(ctx context.Context) (int, error) {
			return bide.AttemptNumber(ctx), l.act(ctx, id, "check", nil)
		}, func(n int) bool { return n >= 3 }, bide.Every(10*time.Millisecond), bide.Timeout(time.Hour))
		failed = errors.Join(failed, err)
		branches, err := bide.All(ctx,
			bide.Branch("a", func(ctx bide.Context) (string, error) { _, err := l.deed(ctx, id, "all-a", nil); return "a", err }),
			bide.Branch("b", func(ctx bide.Context) (string, error) {
				if err := bide.Sleep(ctx, 5*time.Millisecond); err != nil {
					return "", err
				}
				_, err := l.deed(ctx, id, "all-b", nil)
				return "b", err
			}))
		add(strings.Join(branches, ""), err)
		winner, _, err := bide.Race(ctx,
			bide.Branch("slow", func(ctx bide.Context) (string, error) { return "", bide.Sleep(ctx, time.Hour) }),
			bide.Branch("fast", func(ctx bide.Context) (string, error) {
				if err := bide.Sleep(ctx, 10*time.Millisecond); err != nil {
					return "", err
				}
				return l.deed(ctx, id, "race-fast", nil)
			}))
		add(winner, err)
		if err := bide.Publish(ctx, "so-far", out); err != nil {
			return "", err
		}
		add(bide.Child(ctx, kid, id, bide.ID(id+":kid")))
		add(bide.Phase(ctx, "phase", func(ctx bide.Context) (string, error) {
			if err := bide.Sleep(ctx, 20*time.Millisecond); err != nil {
				return "", err
			}
			return l.deed(ctx, id, "in-phase", nil)
		}))
		add(l.deed(ctx, id, "last", nil))
		if err := onlyOnce(ctx); err != nil {
			return "", err
		}
		return strings.Join(out, " "), failed
	})
	again = bide.Define("again", func(ctx bide.Context, in string) (string, error) {
		id, round, _ := strings.Cut(in, "/")
		n, _ := strconv.Atoi(round)
		if _, err := l.deed(ctx, id, fmt.Sprint("round-", n), nil); err != nil {
			return "", err
		}
		if err := bide.Sleep(ctx, 10*time.Millisecond); err != nil {
			return "", err
		}
		if n < 2 {
			return "", bide.ContinueAsNew(ctx, fmt.Sprintf("%s/%d", id, n+1))
		}
		return fmt.Sprintf("after %d: now", n), onlyOnce(ctx)
	})
	saga = bide.Define("saga", func(ctx bide.Context, id string) (string, error) {
		_, err := bide.Saga(ctx, func(ctx bide.Context, undo *bide.Undo) (string, error) {
			for _, name := range []string{"flight", "hotel"} {
				if _, err := l.deed(ctx, id, "book-"+name, nil); err != nil {
					return "", err
				}
				undo.Add("drop-"+name, func(ctx context.Context) error { return l.act(ctx, id, "drop-"+name, nil) })
			}
			return l.deed(ctx, id, "pay", never)
		})
		return fmt.Sprintf("saga: %v, now", err), onlyOnce(ctx)
	})
	return errand, again, saga, kid
}

// onlyOnce receives the signal, and makes sure that it does not come twice.
func onlyOnce(ctx bide.Context) error {
	if v, err := bide.Receive[string](ctx, "go"); err != nil || v != "now" {
		return fmt.Errorf("go brought %q, %w", v, err)
	}
	for _, name := range []string{"go", "tally"} {
		if v, err := bide.Receive[any](ctx, name, bide.Timeout(5*time.Millisecond)); !errors.Is(err, bide.ErrTimeout) {
			return fmt.Errorf("%s came too often: %v, %w", name, v, err)
		}
	}
	return nil
}

// killNineProcess is the life of a process that is to be killed. It does again
// only what no process before it was told had been done.
func killNineProcess(dir string) error {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(4)
	}()
	seed, err := strconv.ParseUint(os.Getenv(killNineSeed), 10, 64)
	if err != nil {
		return err
	}
	store, err := onDisk(dir).openReal()
	if err != nil {
		return err
	}
	fmt.Println("open")
	file, err := os.OpenFile(filepath.Join(dir, "ledger"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	told, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	said := map[string]bool{}
	for line := range strings.Lines(string(told)) {
		if f := strings.Fields(line); len(f) == 4 {
			said[strings.Join(f[:3], " ")] = true
		}
	}
	l := &ledger{file: file, rng: rand.New(rand.NewPCG(seed, 1))}
	errand, again, saga, kid := killNineCast(l)
	warm := -1 // every wait parks
	if seed%3 > 0 {
		warm = 20
	}
	cfg := bide.WorkerConfig{MaxWarm: warm, Seed: seed | 1, Logger: slog.New(slog.DiscardHandler)}
	if onPostgres != "" {
		cfg.Lease = 500 * time.Millisecond
	}
	worker := bide.NewWorker(store, cfg)
	worker.Register(errand, again, saga, kid)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- worker.Run(ctx) }()

	client := bide.NewClient(store, errand, again, saga)
	errs := make(chan error, killNineRuns)
	for i := range killNineRuns {
		go func() { errs <- patron(ctx, client, l, killNineID(i), said) }()
	}
	for range killNineRuns {
		if err := <-errs; err != nil {
			return err
		}
	}
	cancel()
	if err := errors.Join(<-stopped, store.Close()); err != nil {
		return err
	}
	fmt.Println("done")
	return nil
}

// patron starts a run, sends it its signals, some of them twice, waits for its
// end, and notes each acknowledgement. A signal that was acknowledged is not sent
// again: were it lost, the run would never end.
func patron(ctx context.Context, c *bide.Client, l *ledger, id string, said map[string]bool) error {
	workflow, _, _ := strings.Cut(id, "-")
	input, _ := json.Marshal(id)
	if !said["started "+id+" -"] {
		if _, _, err := c.Start(ctx, workflow, input, bide.ID(id)); err != nil {
			return err
		}
		l.note("started", id, "-")
	}
	type signal struct {
		name, key string
		value     any
	}
	signals := []signal{{"go", "go", "now"}}
	if workflow == "errand" {
		signals = append(signals, signal{"tally", "t1", 1}, signal{"tally", "t2", 2}, signal{"tally", "t3", 3})
	}
	for _, s := range signals {
		if said["sent "+id+" "+s.key] {
			continue
		}
		<-time.After(l.within(15 * time.Millisecond))
		for again := true; again; again = l.within(4) == 0 {
			if err := c.Signal(ctx, id, s.name, s.value, bide.Key(s.key)); err != nil && !errors.Is(err, bide.ErrRunEnded) {
				return err
			}
		}
		l.note("sent", id, s.key)
	}
	if said["ended "+id+" -"] {
		return nil
	}
	for run, err := range c.Watch(ctx, id) {
		if err != nil {
			return err
		}
		if run.State.Ended() && run.State != bide.Succeeded {
			return fmt.Errorf("run %s is %s: %v", id, run.State, run.Error.Err())
		}
	}
	l.note("ended", id, "-")
	return nil
}
