package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/internal/group"
)

// tight is a store on a file whose disk can be made full, or broken, and whole
// again; used inside a bubble of virtual time only.
type tight struct {
	*testing.T
	*Store
	mu sync.Mutex // held while the writer works
}

// Run is the store's; testing.T has one too.
func (s *tight) Run(ctx context.Context, id string) (bide.Run, error) { return s.Store.Run(ctx, id) }

func newTight(t *testing.T, path string) *tight {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	x := &tight{T: t, Store: s}
	s.group.Close()
	s.group = group.New(func(ops []*op) {
		x.mu.Lock()
		defer x.mu.Unlock()
		s.w.flush(ops)
	})
	return x
}

// pragma sets something on the writer's connection while the writer has nothing
// to do.
func (s *tight) pragma(format string, args ...any) {
	s.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := sqlitex.ExecuteTransient(s.w.conn, "PRAGMA "+fmt.Sprintf(format, args...), nil); err != nil {
		s.Fatal(err)
	}
}

// full lets the file grow no more; lift lets it again.
func (s *tight) full() { s.Helper(); s.pragma("max_page_count = 1") } // SQLite takes its present size
func (s *tight) lift() { s.Helper(); s.pragma("max_page_count = 1000000") }

// broken makes every write fail, however small; mend ends that.
func (s *tight) broken() { s.Helper(); s.pragma("query_only = ON") }
func (s *tight) mend()   { s.Helper(); s.pragma("query_only = OFF") }

// sound checks what the writer believes against itself.
func (s *tight) sound() {
	s.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	held := map[*worker]int64{}
	for k, l := range s.w.leases {
		held[l.worker]++
		if l.k != k || s.w.byKey[l.route.k] != l.route {
			s.Errorf("the lease of run %s is at the wrong place", l.id)
		}
	}
	for _, x := range s.w.workers {
		if held[x] != x.held {
			s.Errorf("worker %s holds %d runs and is said to hold %d", x.id, held[x], x.held)
		}
		delete(held, x)
	}
	for x := range held {
		s.Errorf("worker %s is gone and holds leases for ever", x.id)
	}
	for name, r := range s.w.routes {
		if s.w.byKey[r.k] != r || r.name != name {
			s.Errorf("route %v is known under one name only", name)
		}
	}
	s.crewed()
}

// work runs a worker until the test ends.
func (s *tight) work(workflows ...bide.Definition) {
	w := bide.NewWorker(s.Store, bide.WorkerConfig{MaxWarm: -1, Seed: 1, Logger: slog.New(slog.DiscardHandler)})
	w.Register(workflows...)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	s.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.Errorf("the worker returned %v", err)
		}
	})
	synctest.Wait()
}

func (s *tight) create(n bide.NewRun) string {
	s.Helper()
	n.Workflow, n.Queue = "w", "default"
	c, err := s.Create(s.Context(), []bide.NewRun{n})
	if err != nil || c[0].Err != nil {
		s.Fatal(err, c)
	}
	return c[0].ID
}

// claim takes the runs that are due within d, by hand.
func (s *tight) claim(worker string, ttl, d time.Duration) []bide.Claimed {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), d)
	defer cancel()
	claimed, err := s.Claim(ctx, bide.Claim{Worker: worker, Queues: []string{"default"}, Workflows: []string{"w"}, Max: 9, TTL: ttl})
	if err != nil && ctx.Err() == nil {
		s.Errorf("Claim: %v", err)
	}
	return claimed
}

var large = strings.Repeat("x", 50_000)

// On a full disk nothing is lost and nothing half written; the worker that has
// done a step stays with its result until there is room again.
func TestFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bide.db")
	synctest.Test(t, func(t *testing.T) {
		s := newTight(t, path)
		calls := map[string]int{}
		w := bide.Define("w", func(ctx bide.Context, in string) (int, error) {
			for _, name := range []string{"one", "two", "three"} {
				_, err := bide.Step(ctx, name, func(context.Context) (string, error) {
					calls[name]++
					return large, nil
				})
				if err != nil {
					return 0, err
				}
				if err := bide.Sleep(ctx, time.Hour); err != nil {
					return 0, err
				}
			}
			return 3, nil
		})
		s.work(w)
		client := bide.NewClient(s.Store)
		h, err := w.Start(t.Context(), client, "a", bide.ID("a"))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		s.full()

		before := history(s, "a")
		if _, err := w.Start(t.Context(), client, large, bide.ID("b")); !errors.Is(err, bide.ErrStoreFull) {
			t.Errorf("Start on a full disk: %v, want ErrStoreFull", err)
		}
		if _, err := s.Run(t.Context(), "b"); !errors.Is(err, bide.ErrNotFound) {
			t.Errorf("a run whose start failed: %v, want ErrNotFound", err)
		}
		if err := client.Signal(t.Context(), "a", "s", large); !errors.Is(err, bide.ErrStoreFull) {
			t.Errorf("Signal on a full disk: %v, want ErrStoreFull", err)
		}
		s.sound()

		time.Sleep(90 * time.Minute) // step two is done, and its record finds no room
		s.sound()
		if calls["two"] != 1 || history(s, "a") != before {
			t.Errorf("on a full disk step two was called %d times, the history went from %s to %s", calls["two"], before, history(s, "a"))
		}
		if r, err := s.Run(t.Context(), "a"); err != nil || r.State != bide.Running {
			t.Errorf("the run whose commit finds no room is %v, %v; want running", r.State, err)
		}
		s.lift()
		if n, err := h.Result(t.Context()); n != 3 || err != nil {
			t.Errorf("once there was room: %d, %v", n, err)
		}
		for name, n := range calls {
			if n != 1 {
				t.Errorf("step %s was called %d times", name, n)
			}
		}
		s.sound()
	})
}

func history(s *tight, id string) string {
	records, err := s.History(s.Context(), id, 0, 0)
	if err != nil {
		s.Fatal(err)
	}
	var names []string
	for _, r := range records {
		names = append(names, r.Path+" "+r.Kind.String())
	}
	return strings.Join(names, ", ")
}

// A run that comes due while the disk is in trouble is handed out soon after,
// though nobody asks.
func TestDueWhileBroken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bide.db")
	synctest.Test(t, func(t *testing.T) {
		s := newTight(t, path)
		w := bide.Define("w", func(ctx bide.Context, in string) (string, error) { return in, nil })
		s.work(w)
		h, err := w.Start(t.Context(), bide.NewClient(s.Store), "late", bide.Delay(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		s.broken()
		time.Sleep(2 * time.Minute)
		s.sound()
		s.mend()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if out, err := h.Result(ctx); out != "late" || err != nil {
			t.Errorf("a minute after the disk was mended: %q, %v", out, err)
		}
	})
}

// A worker whose leases lapse while the disk is in trouble loses them all the
// same; none stays with one that is gone.
func TestLapseWhileBroken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bide.db")
	synctest.Test(t, func(t *testing.T) {
		s := newTight(t, path)
		id := s.create(bide.NewRun{})
		if got := s.claim("doomed", time.Minute, time.Second); len(got) != 1 {
			t.Fatalf("claimed %v", got)
		}
		got := make(chan []bide.Claimed, 1)
		go func() { got <- s.claim("heir", time.Hour, 10*time.Minute) }() // is there when the lease lapses
		s.broken()
		time.Sleep(2 * time.Minute)
		s.mend()
		time.Sleep(time.Minute)
		s.sound()
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, l := range s.w.leases {
			if l.worker.id != "heir" {
				t.Errorf("run %s is held by %s, want heir", id, l.worker.id)
			}
		}
		if len(s.w.leases) != 1 {
			t.Errorf("%d leases, want 1", len(s.w.leases))
		}
		if heirs := <-got; len(heirs) != 1 || !heirs[0].Interrupted {
			t.Errorf("the heir got %+v, want the run as one that was interrupted", heirs)
		}
	})
}

// A worker that says goodbye while the disk is in trouble is told so; its runs
// are others' once its leases have lapsed.
func TestGoodbyeWhileBroken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bide.db")
	synctest.Test(t, func(t *testing.T) {
		s := newTight(t, path)
		id := s.create(bide.NewRun{})
		if got := s.claim("leaver", time.Minute, time.Second); len(got) != 1 {
			t.Fatalf("claimed %v", got)
		}
		s.broken()
		if err := s.Commit(t.Context(), bide.Lease{Worker: "leaver"}, bide.Batch{Next: bide.Parked{}}); err == nil {
			t.Error("a goodbye that could not be written returned no error")
		}
		s.sound()
		s.mend()
		if got := s.claim("heir", time.Hour, 2*time.Minute); len(got) != 1 || got[0].Run.ID != id {
			t.Errorf("the next worker got %v, want run %s", got, id)
		}
		s.sound()
	})
}

// A batch that fails is one caller's trouble at most: the others' calls of the
// same moment succeed, and all of the failed one is undone.
func TestOneOfABatchFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bide.db")
	synctest.Test(t, func(t *testing.T) {
		s := newTight(t, path)
		id := s.create(bide.NewRun{})
		l := s.claim("x", time.Hour, time.Second)[0].Lease
		ops := []*op{
			{create: []bide.NewRun{{ID: "fine", Workflow: "v", Queue: "default"}}},
			{commit: true, lease: l, batch: bide.Batch{
				Records: []bide.Record{{Path: "1", Kind: bide.KindStep, Name: "bad"}},
				Values:  map[string]json.RawMessage{"k": json.RawMessage("{")}, // no JSON: it cannot be merged
				Start:   []bide.NewRun{{ID: "never", Workflow: "u", Queue: "default"}},
				Next:    unknownNext{},
			}},
			{signal: true, run: id, msg: bide.Message{Op: bide.OpSignal, Name: "s"}},
			{signal: true, run: "nobody", msg: bide.Message{Op: bide.OpSignal, Name: "s"}},
		}
		for _, o := range ops {
			if err := s.group.Add(o); err != nil {
				t.Fatal(err)
			}
		}
		s.sound()
		if ops[0].err != nil || ops[2].err != nil || !errors.Is(ops[3].err, bide.ErrNotFound) {
			t.Errorf("the others' calls: %v, %v, %v", ops[0].err, ops[2].err, ops[3].err)
		}
		if _, ok := errors.AsType[*bide.InvalidError](ops[1].err); !ok {
			t.Errorf("the failing one: %v, want an InvalidError", ops[1].err)
		}
		if _, err := s.Run(t.Context(), "never"); !errors.Is(err, bide.ErrNotFound) || history(s, id) != "" {
			t.Errorf("the failing commit left something: %v, %q", err, history(s, id))
		}
		if err := s.Commit(t.Context(), l, bide.Batch{Next: bide.Done{}}); err != nil {
			t.Errorf("the lease after a commit that failed: %v", err)
		}
	})
}

type unknownNext struct{ bide.Next }

// Numbers are never given twice: not after a crash, even when the first write of
// all had failed.
func TestNumbersAfterAFailure(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newTight(t, filepath.Join(dir, "bide.db"))
		s.full()
		if _, err := s.Create(t.Context(), []bide.NewRun{{Workflow: "w", Queue: "default", Input: json.RawMessage(large)}}); !errors.Is(err, bide.ErrStoreFull) {
			t.Fatalf("a write on a full disk: %v", err)
		}
		s.lift()
		first := s.create(bide.NewRun{})
		for _, suffix := range []string{"", "-wal"} {
			data, err := os.ReadFile(s.path + suffix)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, "copy.db")+suffix, data, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		next := newTight(t, filepath.Join(dir, "copy.db"))
		ctx := t.Context()
		c, err := next.Create(ctx, []bide.NewRun{{Workflow: "w", Queue: "default"}})
		if err != nil || c[0].Err != nil || len(c[0].ID) <= len(first) { // a number of the next block is longer
			t.Errorf("after %s the next process made %v, %v", first, c, err)
		}
	})
}
