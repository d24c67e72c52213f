package bide_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
)

// These tests kill a worker before each single commit that it makes, and after
// each but before the answer, let another take over, and ask that the run ends
// as it would have without the kill: the same result, the same history, each
// finished step once.

// mortal is a store whose process dies at a chosen commit: from then on every
// call fails, as for a process that is no more.
type mortal struct {
	bide.Store
	mu      sync.Mutex
	commits int
	dieAt   int  // 0: never
	after   bool // after the commit is durable, before its answer
	dead    chan struct{}
}

func newMortal(s bide.Store, dieAt int, after bool) *mortal {
	return &mortal{Store: s, dieAt: dieAt, after: after, dead: make(chan struct{})}
}

func (m *mortal) alive() error {
	select {
	case <-m.dead:
		return bide.ErrClosed
	default:
		return nil
	}
}

func (m *mortal) Claim(ctx context.Context, c bide.Claim) ([]bide.Claimed, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-m.dead:
			cancel()
		case <-ctx.Done():
		}
	}()
	claimed, err := m.Store.Claim(ctx, c)
	if m.alive() != nil {
		return nil, bide.ErrClosed
	}
	return claimed, err
}

func (m *mortal) Commit(ctx context.Context, l bide.Lease, b bide.Batch) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.alive(); err != nil {
		return err
	}
	if l.Run == "" && len(b.Facts) == 0 {
		return m.Store.Commit(ctx, l, b)
	}
	m.commits++
	if m.commits != m.dieAt {
		return m.Store.Commit(ctx, l, b)
	}
	if m.after {
		if err := m.Store.Commit(ctx, l, b); err != nil {
			return err
		}
	}
	close(m.dead)
	return bide.ErrClosed
}

// world is what steps have done to the outside.
type world struct {
	mu     sync.Mutex
	calls  map[string]int
	client *bide.Client // by which it delivers webhooks
}

func (w *world) call(ctx context.Context) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := ctx.Value(stepName{}).(string)
	w.calls[name]++
	return w.calls[name]
}

type stepName struct{}

// effect is a step that the world sees.
func effect[T any](ctx bide.Context, w *world, name string, fn func(n int) (T, error), opts ...bide.StepOption) (T, error) {
	return bide.Step(ctx, name, func(ctx context.Context) (T, error) {
		return fn(w.call(context.WithValue(ctx, stepName{}, name)))
	}, opts...)
}

func say(s string) func(int) (string, error) { return func(int) (string, error) { return s, nil } }

// cast are workflows that use every verb between them. Each returns the same
// whatever happens to its worker.
func cast(w *world) map[string]bide.Definition {
	child := bide.Define("child", func(ctx bide.Context, in string) (string, error) {
		if err := bide.Sleep(ctx, time.Minute); err != nil {
			return "", err
		}
		return effect(ctx, w, "child-"+in, say("child of "+in))
	})
	verbs := bide.Define("verbs", func(ctx bide.Context, in string) (string, error) {
		var out []string
		add := func(s string, err error) error {
			if err == nil {
				out = append(out, s)
			}
			return err
		}
		if err := add(effect(ctx, w, "plain", say("plain"))); err != nil {
			return "", err
		}
		if err := bide.Progress(ctx, 10, "begun", bide.AtStep{Index: 1, Count: 9}); err != nil {
			return "", err
		}
		err := add(effect(ctx, w, "flaky", func(n int) (string, error) {
			if n < 3 {
				return "", errors.New("not yet")
			}
			return "flaky", nil
		}, bide.RetryPolicy{InitialInterval: 2 * time.Second, MaximumAttempts: 9}))
		if err != nil {
			return "", err
		}
		// Whether an at-most-once step was interrupted is for it to say, not for
		// the result.
		if _, err := effect(ctx, w, "once", say("sent"), bide.RetryPolicy{MaximumAttempts: 1}); err != nil && !errors.Is(err, bide.ErrInterrupted) {
			return "", err
		}
		if _, err := effect(ctx, w, "hopeless", func(int) (string, error) { return "", bide.Permanent(errors.New("never")) }); err == nil || err.Error() != "never" {
			return "", fmt.Errorf("hopeless gave %v", err)
		}
		if err := bide.Sleep(ctx, 90*time.Second); err != nil {
			return "", err
		}
		if err := bide.SleepUntil(ctx, bide.Now(ctx).Add(2*time.Second)); err != nil {
			return "", err
		}
		if err := add(bide.Receive[string](ctx, "early")); err != nil {
			return "", err
		}
		if _, err := bide.Receive[string](ctx, "nobody", bide.Timeout(3*time.Second)); !errors.Is(err, bide.ErrTimeout) {
			return "", fmt.Errorf("nobody gave %v", err)
		}
		checked, err := bide.Poll(ctx, "job", func(ctx context.Context) (int, error) {
			return w.call(context.WithValue(ctx, stepName{}, "check")), nil
		}, func(n int) bool { return n >= 3 }, bide.Every(time.Minute), bide.Timeout(time.Hour))
		if err := add(fmt.Sprint(checked >= 3), err); err != nil {
			return "", err
		}
		branches, err := bide.All(ctx,
			bide.Branch("a", func(ctx bide.Context) (string, error) { return effect(ctx, w, "all-a", say("a")) }),
			bide.Branch("b", func(ctx bide.Context) (string, error) {
				if err := bide.Sleep(ctx, time.Minute); err != nil {
					return "", err
				}
				return effect(ctx, w, "all-b", say("b"))
			}))
		if err := add(strings.Join(branches, ""), err); err != nil {
			return "", err
		}
		if err := bide.Publish(ctx, "so-far", out); err != nil {
			return "", err
		}
		winner, v, err := bide.Race(ctx,
			bide.Branch("slow", func(ctx bide.Context) (string, error) { return "slow", bide.Sleep(ctx, 24*time.Hour) }),
			bide.Branch("fast", func(ctx bide.Context) (string, error) {
				if err := bide.Sleep(ctx, 15*time.Second); err != nil {
					return "", err
				}
				return effect(ctx, w, "race-fast", say("fast"))
			}))
		if err := add(winner+v, err); err != nil {
			return "", err
		}
		if err := add(bide.Child(ctx, child, "verbs")); err != nil {
			return "", err
		}
		if err := add(bide.Phase(ctx, "phase", func(ctx bide.Context) (string, error) {
			if err := bide.Sleep(ctx, 20*time.Second); err != nil {
				return "", err
			}
			return effect(ctx, w, "in-phase", say("phase"))
		})); err != nil {
			return "", err
		}
		bide.Log(ctx).Debug("done", "id", bide.NewID(ctx), "n", bide.Rand(ctx).IntN(10))
		return strings.Join(out, " "), nil
	})
	saga := bide.Define("saga", func(ctx bide.Context, in string) (string, error) {
		_, err := bide.Saga(ctx, func(ctx bide.Context, undo *bide.Undo) (string, error) {
			for _, name := range []string{"flight", "hotel"} {
				if _, err := effect(ctx, w, "book-"+name, say(name)); err != nil {
					return "", err
				}
				undo.Add("drop-"+name, func(ctx context.Context) error {
					w.call(context.WithValue(ctx, stepName{}, "drop-"+name))
					return nil
				})
			}
			return effect(ctx, w, "pay", func(int) (string, error) { return "", bide.Permanent(errors.New("broke")) })
		})
		return fmt.Sprint("saga: ", err), nil
	})
	again := bide.Define("again", func(ctx bide.Context, n int) (string, error) {
		if _, err := effect(ctx, w, fmt.Sprint("round-", n), say("x")); err != nil {
			return "", err
		}
		if err := bide.Sleep(ctx, 11*time.Second); err != nil {
			return "", err
		}
		if n < 3 {
			return "", bide.ContinueAsNew(ctx, n+1)
		}
		return bide.Receive[string](ctx, "early")
	})
	canceled := bide.Define("canceled", func(ctx bide.Context, in string) (string, error) {
		_, err := bide.Saga(ctx, func(ctx bide.Context, undo *bide.Undo) (string, error) {
			if _, err := effect(ctx, w, "rent", say("rented")); err != nil {
				return "", err
			}
			undo.Add("return", func(ctx context.Context) error {
				w.call(context.WithValue(ctx, stepName{}, "return"))
				return nil
			})
			return "", bide.Sleep(ctx, 1000*time.Hour)
		})
		return "", err
	})
	return map[string]bide.Definition{"child": child, "verbs": verbs, "saga": saga, "again": again, "canceled": canceled, "waits": waits(w)}
}

var inputs = map[string]string{"verbs": `"in"`, "saga": `"in"`, "again": `0`, "canceled": `"in"`, "waits": `"in"`}

// life is one run from its start to its end, with at most one kill.
type life struct {
	commits int // of the first worker
	run     bide.Run
	lines   []string
	calls   map[string]int
}

func live(t *testing.T, workflow string, warm int, home *place, dieAt int, after bool) (l life) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := home.open(t)
		w := &world{calls: map[string]int{}, client: bide.NewClient(store)}
		if _, err := w.client.DeliverEvent(t.Context(), "shop", "order-1", bide.Delivery{Body: []byte(`"paid"`)}); err != nil {
			t.Fatal(err)
		}
		defs := cast(w)
		work := func(ctx context.Context, s bide.Store) <-chan error {
			worker := bide.NewWorker(s, bide.WorkerConfig{MaxWarm: warm, Seed: 1, PublicURL: "https://bide.test", Logger: slog.New(slog.DiscardHandler)})
			worker.Register(slices.Collect(maps.Values(defs))...)
			done := make(chan error, 1)
			go func() { done <- worker.Run(ctx) }()
			return done
		}
		ctx, cancel := context.WithCancel(context.Background())
		doomed := newMortal(store, dieAt, after)
		first := work(ctx, doomed)
		client := bide.NewClient(store, slices.Collect(maps.Values(defs))...)
		id, _, err := client.Start(ctx, workflow, json.RawMessage(inputs[workflow]), bide.ID("it"), bide.FirstSignal("early", "bird"))
		if err != nil {
			t.Fatal(err)
		}
		if workflow == "canceled" {
			cancels := time.AfterFunc(time.Hour, func() {
				if err := bide.NewClient(store).Cancel(ctx, id, "enough"); err != nil {
					t.Error(err)
				}
			})
			defer cancels.Stop()
		}
		select {
		case <-doomed.dead:
			if err := <-first; !errors.Is(err, bide.ErrClosed) {
				t.Errorf("the dead worker returned %v", err)
			}
			if home.lasts() {
				store = home.reopen(t, store)
				client = bide.NewClient(store)
				w.client = client
			}
			kept, before := stepsKept(t, client, id), maps.Clone(w.calls)
			first = work(ctx, store)
			l.run = await(t, client, id)
			for name := range kept {
				if w.calls[name] != before[name] {
					t.Errorf("step %s was kept before the kill and ran again", name)
				}
			}
		case <-time.After(3 * time.Hour):
			l.run = await(t, client, id)
		}
		records, err := client.History(ctx, id, 0)
		if err != nil {
			t.Fatal(err)
		}
		l.lines, l.commits, l.calls = script(records), doomed.commits, w.calls
		cancel()
		if err := <-first; err != nil {
			t.Errorf("the worker returned %v", err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func await(t *testing.T, c *bide.Client, id string) bide.Run {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Hour)
	defer cancel()
	var last bide.Run
	for run, err := range c.Watch(ctx, id) {
		if err != nil {
			t.Fatalf("%v; the run waits for %v", err, last.Waiting)
		}
		last = run
	}
	return last
}

// stepsKept are the names of the steps whose results the history holds.
func stepsKept(t *testing.T, c *bide.Client, id string) map[string]bool {
	records, err := c.History(context.Background(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	kept := map[string]bool{}
	for _, r := range records {
		if r.Kind == bide.KindStep && (r.Error == nil || r.Name != "flaky") {
			kept[r.Name] = true
		}
	}
	return kept
}

// script is a history as lines that are the same however often it was
// interrupted: by path, without times, and without what an interruption may
// rightly change.
func script(records []bide.Record) []string {
	var lines []string
	for _, r := range records {
		if r.Kind == bide.KindContinued {
			continue
		}
		line := fmt.Sprintf("%s %s %s", r.Path, r.Kind, r.Name)
		switch {
		case r.Kind == bide.KindSleep, r.Kind == bide.KindPoll, r.Name == "once":
		case r.Error != nil:
			line += " ! " + r.Error.Message
		default:
			line += " = " + string(r.Data)
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

func TestKilledAtEveryCommit(t *testing.T) {
	points := 0
	for _, workflow := range slices.Sorted(maps.Keys(inputs)) {
		for name, warm := range map[string]int{"parks": -1, "warm": 0} {
			t.Run(workflow+"/"+name, func(t *testing.T) {
				whole := live(t, workflow, warm, inMemory(), 0, false)
				if !whole.run.State.Ended() || whole.commits < 3 {
					t.Fatalf("without a kill: %s after %d commits: %v", whole.run.State, whole.commits, whole.run.Error)
				}
				for dieAt := 1; dieAt <= whole.commits; dieAt++ {
					for _, after := range []bool{false, true} {
						points++
						home := forKill(t, points)
						if home == nil {
							continue
						}
						got := live(t, workflow, warm, home, dieAt, after)
						where := fmt.Sprintf("killed at commit %d of %d (after: %v)", dieAt, whole.commits, after)
						if got.run.State != whole.run.State || string(got.run.Result) != string(whole.run.Result) {
							t.Errorf("%s: %s %s %v, want %s %s", where, got.run.State, got.run.Result, got.run.Error, whole.run.State, whole.run.Result)
						}
						if !slices.Equal(got.lines, whole.lines) {
							t.Errorf("%s: the history differs:\n%s\nwant\n%s", where, strings.Join(got.lines, "\n"), strings.Join(whole.lines, "\n"))
						}
						if got.calls["once"] > 1 {
							t.Errorf("%s: an at-most-once step ran %d times", where, got.calls["once"])
						}
						for step, n := range got.calls {
							if limit := whole.calls[step] + 1; n > limit {
								t.Errorf("%s: step %s ran %d times, at most %d could be", where, step, n, limit)
							}
						}
						if t.Failed() {
							return
						}
					}
				}
			})
		}
	}
	t.Logf("%d kill points", points)
}
