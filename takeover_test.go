package bide_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
)

// tkoCut stands between a worker and its store. While cut, signs of life and
// commits fail with a plain error, as a broken network makes them.
type tkoCut struct {
	bide.Store
	cut    atomic.Bool
	mu     sync.Mutex
	denied []error // what commits that reached the store were refused with
}

var errTkoNetwork = errors.New("the network is down")

func (c *tkoCut) Commit(ctx context.Context, l bide.Lease, b bide.Batch) error {
	if c.cut.Load() {
		return errTkoNetwork
	}
	err := c.Store.Commit(ctx, l, b)
	if err != nil && l.Run != "" {
		c.mu.Lock()
		c.denied = append(c.denied, err)
		c.mu.Unlock()
	}
	return err
}

func (c *tkoCut) Claim(ctx context.Context, q bide.Claim) ([]bide.Claimed, error) {
	if c.cut.Load() {
		return nil, errTkoNetwork
	}
	return c.Store.Claim(ctx, q)
}

func (c *tkoCut) refused() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.denied)
}

// tkoWork sets a worker behind a cut to work; it stops when the test ends.
func tkoWork(e *env, workflows ...bide.Definition) *tkoCut {
	e.Helper()
	c := &tkoCut{Store: e.store}
	w := bide.NewWorker(c, e.config())
	w.Register(workflows...)
	ctx, cancel := context.WithCancel(e.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.Run(ctx)
	}()
	e.Cleanup(func() { // before the store is closed
		c.cut.Store(false)
		cancel()
		<-done
	})
	synctest.Wait()
	return c
}

// tkoPeak knows how many are inside at once, and the most that ever were.
type tkoPeak struct{ now, top atomic.Int32 }

func (p *tkoPeak) enter() {
	n := p.now.Add(1)
	for {
		top := p.top.Load()
		if n <= top || p.top.CompareAndSwap(top, n) {
			return
		}
	}
}

func (p *tkoPeak) leave() { p.now.Add(-1) }

func (p *tkoPeak) during(d time.Duration) {
	p.enter()
	defer p.leave()
	time.Sleep(d)
}

// tkoSleep sleeps for as long as its input says.
var tkoSleep = bide.Define("tko-sleep", func(ctx bide.Context, d time.Duration) (string, error) {
	return "slept", bide.Sleep(ctx, d)
})

// TestTakeoverQueues protects queues: a worker takes only runs of its own.
func TestTakeoverQueues(t *testing.T) {
	inBubble(t, func(e *env) {
		who := func(name string) *bide.Workflow[none, string] {
			return bide.Define("tko-who", func(bide.Context, none) (string, error) { return name, nil })
		}
		for _, q := range [][]string{{"a"}, {"b", "c"}} {
			cfg := e.config()
			cfg.Queues = q
			e.workAs(cfg, who(strings.Join(q, "+")))
		}
		for q, want := range map[string]string{"a": "a", "b": "b+c", "c": "b+c"} {
			if got, err := result(e, start(e, who(""), none{}, bide.Queue(q))); got != want || err != nil {
				t.Errorf("a run of queue %s was taken by %q (%v), want %q", q, got, err, want)
			}
		}
		h := start(e, who(""), none{}) // of the queue "default", which nobody serves
		time.Sleep(time.Hour)
		w := e.waitOf(h.ID(), bide.KindQueue)
		if e.wantState(h.ID(), bide.Queued); w.Name != "default" {
			t.Errorf("the run waits for %+v", w)
		}
		e.work(who("default"))
		if got, err := result(e, h); got != "default" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

// TestTakeoverMaxTurns protects a worker from more runs in hand than it was
// configured for, while waits that are parked or warm take no place.
func TestTakeoverMaxTurns(t *testing.T) {
	for _, warm := range []int{-1, 0} {
		inBubble(t, func(e *env) {
			var peak tkoPeak
			w := bide.Define("tko-turns", func(ctx bide.Context, _ int) (int, error) {
				work := func(context.Context) (int, error) { peak.during(time.Second); return 0, nil }
				if _, err := bide.Step(ctx, "a", work); err != nil {
					return 0, err
				}
				if err := bide.Sleep(ctx, 5*time.Second); err != nil {
					return 0, err
				}
				return bide.Step(ctx, "b", work)
			})
			cfg := e.config()
			cfg.MaxTurns, cfg.MaxWarm = 3, warm
			e.workAs(cfg, w)
			began := time.Now()
			var handles []*bide.Handle[int]
			for i := range 12 {
				handles = append(handles, start(e, w, i))
			}
			for _, h := range handles {
				if _, err := result(e, h); err != nil {
					t.Error(err)
				}
			}
			took := time.Since(began)
			if top := peak.top.Load(); warm < 0 && top != 3 || top < 3 {
				t.Errorf("warm %d: at most %d steps ran at once, want 3", warm, top)
			}
			if took > 20*time.Second {
				t.Errorf("warm %d: it took %v: sleeping runs held places", warm, took)
			}
		})
	}
}

// TestTakeoverMaxSteps protects what the steps use: no more calls at once than configured.
func TestTakeoverMaxSteps(t *testing.T) {
	inBubble(t, func(e *env) {
		var peak tkoPeak
		w := bide.Define("tko-steps", func(ctx bide.Context, _ int) (int, error) {
			if _, err := bide.Step(ctx, "a", func(context.Context) (int, error) { peak.during(time.Second); return 0, nil }); err != nil {
				return 0, err
			}
			return bide.Poll(ctx, "b", func(context.Context) (int, error) { peak.during(time.Second); return 1, nil },
				func(int) bool { return true }, bide.NoTimeout{})
		})
		cfg := e.config()
		cfg.MaxSteps = 2
		e.workAs(cfg, w)
		began := time.Now()
		var handles []*bide.Handle[int]
		for i := range 6 {
			handles = append(handles, start(e, w, i))
		}
		for _, h := range handles {
			if _, err := result(e, h); err != nil {
				t.Error(err)
			}
		}
		if top, took := peak.top.Load(), time.Since(began); top != 2 || took < 6*time.Second || took > 7*time.Second {
			t.Errorf("at most %d calls at once, all in %v; want 2 and 6 s", top, took)
		}
	})
}

// TestTakeoverMaxWarm protects memory: only MaxWarm waiting runs stay in it, and of
// longer waits fewer, so that they do not keep short ones out.
func TestTakeoverMaxWarm(t *testing.T) {
	for _, c := range []struct {
		max   int
		wait  time.Duration
		turns int
	}{{-1, sec, 20}, {4, sec, 16}, {4, 5 * sec, 20}, {10, 5 * sec, 18}, {100, 5 * sec, 10}, {100, 11 * sec, 20}} {
		inBubble(t, func(e *env) {
			var turns atomic.Int32
			w := bide.Define("tko-warm", func(ctx bide.Context, _ int) (int, error) {
				turns.Add(1)
				return 0, bide.Sleep(ctx, c.wait)
			})
			cfg := e.config()
			cfg.MaxWarm = c.max
			e.workAs(cfg, w)
			var handles []*bide.Handle[int]
			for i := range 10 {
				handles = append(handles, start(e, w, i))
			}
			time.Sleep(time.Second / 2)
			for _, h := range handles {
				e.wantState(h.ID(), bide.Waiting)
			}
			for _, h := range handles {
				if _, err := result(e, h); err != nil {
					t.Error(err)
				}
			}
			if n := int(turns.Load()); n != c.turns {
				t.Errorf("MaxWarm %d, waits of %v: 10 runs took %d turns, want %d", c.max, c.wait, n, c.turns)
			}
		})
	}
}

// TestTakeoverSleepersHoldNothing protects the promise that a parked run holds no goroutine.
func TestTakeoverSleepersHoldNothing(t *testing.T) {
	inBubble(t, func(e *env) {
		e.work(tkoSleep)
		before := runtime.NumGoroutine()
		var handles []*bide.Handle[string]
		for range 1000 {
			handles = append(handles, start(e, tkoSleep, 24*time.Hour))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := runtime.NumGoroutine() - before; n > 20 {
			t.Errorf("1,000 sleeping runs hold %d goroutines", n)
		}
		for _, h := range handles {
			if out, err := result(e, h); out != "slept" || err != nil {
				t.Fatal(out, err)
			}
		}
	})
}

// TestTakeoverGrace protects a graceful stop: steps in flight that finish within
// the grace keep their results and are not counted as interrupted, a turn whose
// last step finishes completes, waiting runs park.
func TestTakeoverGrace(t *testing.T) {
	inBubble(t, func(e *env) {
		var calls, after atomic.Int32
		flight := func(ctx bide.Context) error {
			_, err := bide.Step(ctx, "flight", func(ctx context.Context) (int, error) {
				calls.Add(1)
				if n := bide.AttemptNumber(ctx); n != 1 {
					t.Errorf("attempt %d", n)
				}
				time.Sleep(5 * time.Second)
				return 1, ctx.Err()
			}, bide.RetryPolicy{MaximumAttempts: 2})
			return err
		}
		last := bide.Define("tko-last", func(ctx bide.Context, _ none) (string, error) { return "ok", flight(ctx) })
		more := bide.Define("tko-more", func(ctx bide.Context, _ none) (string, error) {
			if err := flight(ctx); err != nil {
				return "", err
			}
			_, err := bide.Step(ctx, "after", func(context.Context) (int, error) { after.Add(1); return 1, nil }, bide.RetryPolicy{MaximumAttempts: 1})
			return "ok", err
		})
		hand := e.work(last, more, tkoSleep)
		a, b, c, d := start(e, last, none{}), start(e, more, none{}), start(e, tkoSleep, 8*time.Second), start(e, tkoSleep, time.Hour)
		time.Sleep(time.Second)
		began := time.Now()
		e.ok(hand.stop())
		if took := time.Since(began); took < 4*time.Second || took > 5*time.Second {
			t.Errorf("the stop took %v, want the 4 s that the steps still needed", took)
		}
		e.wantState(a.ID(), bide.Succeeded)
		e.wantState(b.ID(), bide.Queued)
		e.wantScript(b.ID(), "1 step flight")
		e.wantState(c.ID(), bide.Queued)
		e.wantState(d.ID(), bide.Waiting)
		if n := after.Load(); n != 0 {
			t.Errorf("a stopping worker began %d further steps", n)
		}
		e.work(last, more, tkoSleep)
		for _, h := range []*bide.Handle[string]{a, b, c, d} {
			if _, err := result(e, h); err != nil {
				t.Error(err)
			}
		}
		if n, m := calls.Load(), after.Load(); n != 2 || m != 1 {
			t.Errorf("the steps in flight ran %d times, those after %d; want 2 and 1", n, m)
		}
	})
}

// TestTakeoverGraceOver protects runs whose steps outlast the grace: the step's
// context ends, the worker stops, and the step runs again elsewhere.
func TestTakeoverGraceOver(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		inBubble(t, func(e *env) {
			var calls atomic.Int32
			w := bide.Define("tko-long", func(ctx bide.Context, _ none) (string, error) {
				return bide.Step(ctx, "long", func(ctx context.Context) (string, error) {
					if calls.Add(1) > 1 {
						return "again", nil
					}
					if deaf {
						time.Sleep(time.Hour)
					} else {
						<-ctx.Done()
					}
					return "late", nil
				})
			})
			cfg := e.config()
			cfg.GracePeriod = 20 * time.Second
			hand := e.workAs(cfg, w)
			h := start(e, w, none{})
			time.Sleep(time.Second)
			began := time.Now()
			e.ok(hand.stop())
			if took := time.Since(began); took < 20*time.Second || took > 21*time.Second {
				t.Errorf("deaf %v: the stop took %v, want the grace of 20 s", deaf, took)
			}
			if s := e.get(h.ID()).State; s != bide.Queued && s != bide.Waiting {
				t.Errorf("deaf %v: the run is %v", deaf, s)
			}
			e.work(w)
			if out, err := result(e, h); out != "again" || err != nil {
				t.Errorf("deaf %v: got %q, %v", deaf, out, err)
			}
			time.Sleep(2 * time.Hour) // until the deaf one has returned
		})
	}
}

// TestTakeoverLapse protects runs from a worker that cannot reach its store: when
// its lease lapses another goes on, and its own late commits are refused.
func TestTakeoverLapse(t *testing.T) {
	for _, c := range []struct {
		name    string
		limit   int
		failing bool
		calls   int32
		want    func(e *env, out int, err error)
	}{
		{"unbounded", 0, false, 2, func(e *env, out int, err error) {
			if out != 2 || err != nil {
				e.Errorf("got %d, %v", out, err)
			}
		}},
		{"bounded", 2, true, 2, func(e *env, _ int, err error) {
			if r := wantErr[*bide.RetryExhaustedError](e, err); r.Attempts != 2 || r.Reason != bide.ReasonMaxAttempts {
				e.Errorf("got %+v", r)
			}
		}},
		{"at most once", 1, false, 1, func(e *env, _ int, err error) {
			if s := wantErr[*bide.StepInterruptedError](e, err); s.Step != "work" || !errors.Is(err, bide.ErrInterrupted) {
				e.Errorf("got %+v", s)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(e *env) {
				var calls, numbers atomic.Int32
				w := bide.Define("tko-lapse", func(ctx bide.Context, _ none) (int, error) {
					return bide.Step(ctx, "work", func(ctx context.Context) (int, error) {
						n := int(calls.Add(1))
						numbers.Add(int32(bide.AttemptNumber(ctx)))
						if n == 1 {
							time.Sleep(10 * time.Second) // longer than the lease
							return 1, nil
						}
						if c.failing {
							return 0, errors.New("no")
						}
						return n, nil
					}, bide.RetryPolicy{MaximumAttempts: c.limit})
				})
				old := tkoWork(e, w)
				h := start(e, w, none{})
				time.Sleep(500 * time.Millisecond)
				old.cut.Store(true)
				e.work(w)
				time.Sleep(8 * time.Second) // it has taken over by now
				old.cut.Store(false)
				out, err := result(e, h)
				c.want(e, out, err)
				time.Sleep(time.Minute)
				if n := calls.Load(); n != c.calls {
					t.Errorf("the step ran %d times, want %d", n, c.calls)
				}
				if n := numbers.Load(); c.calls == 2 && n != 3 { // 1 and 2: the lost attempt counts
					t.Errorf("the attempts' numbers sum to %d, want 3", n)
				}
				for _, err := range old.refused() {
					if !errors.Is(err, bide.ErrLeaseLost) {
						t.Errorf("a late commit was refused with %v, want ErrLeaseLost", err)
					}
				}
				n := 0
				for _, r := range e.history(h.ID()) {
					if r.Kind == bide.KindStep {
						n++
					}
				}
				if n != 1 {
					t.Errorf("the history is %q", e.script(h.ID()))
				}
			})
		})
	}
}

// TestTakeoverLateCommit protects the history from a worker that was away: what
// it commits after another has taken over is refused, and its turn ends.
func TestTakeoverLateCommit(t *testing.T) {
	inBubble(t, func(e *env) {
		var second, deferred atomic.Int32
		w := bide.Define("tko-late", func(ctx bide.Context, _ none) (int, error) {
			defer func() {
				if bide.Parking(ctx) {
					deferred.Add(1)
				}
			}()
			if _, err := bide.Step(ctx, "first", func(context.Context) (int, error) { time.Sleep(10 * time.Second); return 1, nil }); err != nil {
				return 0, err
			}
			return bide.Step(ctx, "second", func(context.Context) (int, error) { return int(second.Add(1)), nil })
		})
		hand := e.work(w)
		h := start(e, w, none{})
		time.Sleep(500 * time.Millisecond)
		hand.gate.set(frozen)
		e.work(w)
		time.Sleep(30 * time.Second)
		hand.gate.set(passing)
		if out, err := result(e, h); out != 1 || err != nil {
			t.Errorf("got %d, %v", out, err)
		}
		time.Sleep(time.Minute)
		if n := second.Load(); n != 1 {
			t.Errorf("the second step ran %d times", n)
		}
		if n := deferred.Load(); n != 1 {
			t.Errorf("%d deferred functions saw Parking, want that of the lost turn", n)
		}
		e.wantScript(h.ID(), "1 step first", "2 step second")
	})
}

// TestTakeoverPanic protects a run whose workflow code panics: it is not failed,
// says why, backs off, and goes on with mended code.
func TestTakeoverPanic(t *testing.T) {
	inBubble(t, func(e *env) {
		var calls atomic.Int32
		turns := newClock()
		work := func(ctx bide.Context) error {
			_, err := bide.Step(ctx, "work", func(context.Context) (int, error) { calls.Add(1); return 1, nil })
			return err
		}
		broken := bide.Define("tko-panic", func(ctx bide.Context, _ none) (string, error) {
			turns.tick()
			if err := work(ctx); err != nil {
				return "", err
			}
			none := make([]int, 0)
			return "", errors.New(strings.Repeat("x", none[0]))
		})
		hand := e.work(broken)
		h := start(e, broken, none{})
		time.Sleep(20 * time.Second)
		// The first turn made progress, so that the count begins with the second.
		got := turns.ticks()
		var gaps []time.Duration
		for i := 1; i < len(got); i++ {
			gaps = append(gaps, (got[i] - got[i-1]).Round(10*time.Millisecond))
		}
		if want := []time.Duration{1e9, 1e9, 2e9, 4e9, 8e9}; !slices.Equal(gaps, want) && !slices.Equal(gaps, []time.Duration{1e9, 2e9, 4e9, 8e9}) {
			t.Errorf("the turns were %v apart, want %v", gaps, want)
		}
		w := e.waitOf(h.ID(), bide.KindStuck)
		if e.wantState(h.ID(), bide.Waiting); w.LastError == nil || w.Attempt < 4 || w.Name != "tko-panic" || !w.NextAt.After(time.Now()) {
			t.Fatalf("the run waits for %s", jsonOf(t, w))
		}
		if p := wantErr[*bide.PanicError](e, w.LastError.Err()); !strings.Contains(p.Value, "index out of range") || !strings.Contains(p.Stack, "takeover_test.go") {
			t.Errorf("the reason is %+v", p)
		}
		if !strings.Contains(e.logs.String(), "stuck") {
			t.Error("nothing was logged")
		}
		time.Sleep(time.Hour)
		if w := e.waitOf(h.ID(), bide.KindStuck); time.Until(w.NextAt) > 5*time.Minute {
			t.Errorf("the next try is %v away, want at most 5 min", time.Until(w.NextAt))
		}
		e.ok(hand.stop())
		e.work(bide.Define("tko-panic", func(ctx bide.Context, _ none) (string, error) { return "mended", work(ctx) }))
		if out, err := result(e, h); out != "mended" || err != nil {
			t.Errorf("got %q, %v", out, err)
		}
		if n := calls.Load(); n != 1 {
			t.Errorf("the kept step ran %d times", n)
		}
	})
}

// TestTakeoverDiverged protects a live run whose code was changed: it stops where
// the paths part, says path, expected, found and the line, and goes on with code
// that takes the old path.
func TestTakeoverDiverged(t *testing.T) {
	step := func(ctx bide.Context, name string) error {
		_, err := bide.Step(ctx, name, func(context.Context) (int, error) { return 1, nil })
		return err
	}
	old := func(ctx bide.Context, _ none) (string, error) {
		err := errors.Join(step(ctx, "a"), step(ctx, "b"), bide.Sleep(ctx, time.Hour))
		return "old", err
	}
	for _, c := range []struct {
		name, path, expected, found, line string
		changed                           func(bide.Context, none) (string, error)
	}{
		{"renamed", "2", `step "b"`, `step "c"`, "takeover_test.go:", func(ctx bide.Context, _ none) (string, error) {
			return "", errors.Join(step(ctx, "a"), step(ctx, "c"), bide.Sleep(ctx, time.Hour))
		}},
		{"other kind", "2", `step "b"`, `signal "b"`, "takeover_test.go:", func(ctx bide.Context, _ none) (string, error) {
			_ = step(ctx, "a")
			return bide.Receive[string](ctx, "b")
		}},
		{"removed", "2", `step "b"`, `sleep`, "takeover_test.go:", func(ctx bide.Context, _ none) (string, error) {
			return "", errors.Join(step(ctx, "a"), bide.Sleep(ctx, time.Hour))
		}},
		{"added before", "1", `step "a"`, `step "new"`, "takeover_test.go:", func(ctx bide.Context, _ none) (string, error) {
			return "", errors.Join(step(ctx, "new"), step(ctx, "a"), step(ctx, "b"), bide.Sleep(ctx, time.Hour))
		}},
		{"early return", "3", `further records`, `return`, "tko-changed", func(ctx bide.Context, _ none) (string, error) {
			return "", errors.Join(step(ctx, "a"), step(ctx, "b"))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(e *env) {
				e.work(bide.Define("tko-changed", old))
				h := start(e, bide.Define("tko-changed", old), none{})
				time.Sleep(time.Minute)
				e.restart(bide.Define("tko-changed", c.changed))
				time.Sleep(2 * time.Hour)
				w := e.waitOf(h.ID(), bide.KindStuck)
				d := wantErr[*bide.DivergedError](e, w.LastError.Err())
				if d.Path != c.path || !strings.Contains(d.Expected, c.expected) || !strings.Contains(d.Found, c.found) || !strings.Contains(d.Line, c.line) {
					t.Errorf("got %+v, want path %q, expected %q, found %q, line %q", d, c.path, c.expected, c.found, c.line)
				}
				for _, part := range []string{d.Path, d.Expected, d.Found, d.Line} {
					if !strings.Contains(d.Error(), part) {
						t.Errorf("%q does not say %q", d.Error(), part)
					}
				}
				e.restart(bide.Define("tko-changed", old))
				if out, err := result(e, h); out != "old" || err != nil {
					t.Errorf("got %q, %v", out, err)
				}
				e.wantScript(h.ID(), "1 step a", "2 step b", "3 sleep")
			})
		})
	}
}

// TestTakeoverDeferred protects deferred functions: they run when a turn parks,
// can tell that from the end, and a verb that they call then does not return.
func TestTakeoverDeferred(t *testing.T) {
	inBubble(t, func(e *env) {
		var parked, ended, cleaned, beyond, recovered atomic.Int32
		w := bide.Define("tko-deferred", func(ctx bide.Context, _ none) (out string, err error) {
			defer func() {
				if r := recover(); r != nil {
					recovered.Add(1)
				}
			}()
			defer func() {
				if bide.Parking(ctx) {
					parked.Add(1)
					if err != nil {
						t.Errorf("a parking turn shows the error %v", err)
					}
				} else {
					ended.Add(1)
				}
				_, cerr := bide.Step(ctx, "clean", func(context.Context) (int, error) { return int(cleaned.Add(1)), nil })
				beyond.Add(1)
				if cerr != nil {
					t.Errorf("the clean-up failed: %v", cerr)
				}
			}()
			if err := bide.Sleep(ctx, time.Hour); err != nil {
				return "", err
			}
			return "ok", bide.Sleep(ctx, time.Hour)
		})
		e.work(w)
		h := start(e, w, none{})
		if out, err := result(e, h); out != "ok" || err != nil {
			t.Errorf("got %q, %v", out, err)
		}
		got := [5]int32{parked.Load(), ended.Load(), cleaned.Load(), beyond.Load(), recovered.Load()}
		if want := [5]int32{2, 1, 1, 1, 0}; got != want {
			t.Errorf("parked, ended, cleaned, beyond the verb, recovered: %v, want %v", got, want)
		}
		e.wantScript(h.ID(), "1 sleep", "2 sleep", "3 step clean")
	})
}

// TestTakeoverDeferredPanic protects a run whose deferred function panics while
// it parks: that is a fault like any other, and no wait is lost by it.
func TestTakeoverDeferredPanic(t *testing.T) {
	inBubble(t, func(e *env) {
		var turns atomic.Int32
		w := bide.Define("tko-deferred-panic", func(ctx bide.Context, _ none) (string, error) {
			n := turns.Add(1)
			defer func() {
				if n == 1 {
					panic("in a deferred function")
				}
			}()
			return "ok", bide.Sleep(ctx, time.Minute)
		})
		e.work(w)
		began := time.Now()
		h := start(e, w, none{})
		time.Sleep(500 * time.Millisecond)
		if w := e.waitOf(h.ID(), bide.KindStuck); !strings.Contains(w.LastError.Message, "in a deferred function") {
			t.Errorf("the run waits for %s", jsonOf(t, w))
		}
		if out, err := result(e, h); out != "ok" || err != nil {
			t.Errorf("got %q, %v", out, err)
		}
		if took := time.Since(began); took < time.Minute || took > 62*time.Second {
			t.Errorf("it slept %v, want a minute", took)
		}
	})
}

// TestTakeoverGoexit protects a run whose code leaves by runtime.Goexit: it is
// stuck, not ended, and says so; in a step it is a failed attempt.
func TestTakeoverGoexit(t *testing.T) {
	inBubble(t, func(e *env) {
		w := bide.Define("tko-goexit", func(bide.Context, none) (string, error) {
			runtime.Goexit()
			return "", nil
		})
		inStep := bide.Define("tko-goexit-step", func(ctx bide.Context, _ none) (string, error) {
			return bide.Step(ctx, "s", func(context.Context) (string, error) {
				runtime.Goexit()
				return "", nil
			}, bide.RetryPolicy{MaximumAttempts: 1})
		})
		e.work(w, inStep)
		h := start(e, w, none{})
		_, err := result(e, start(e, inStep, none{}))
		if p := wantErr[*bide.PanicError](e, err); !strings.Contains(p.Value, "Goexit") {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		synctest.Wait()
		wait := e.waitOf(h.ID(), bide.KindStuck)
		if p := wantErr[*bide.PanicError](e, wait.LastError.Err()); !strings.Contains(p.Value, "Goexit") {
			t.Errorf("the run waits for %s", jsonOf(t, wait))
		}
	})
}

// TestTakeoverMisuse protects the rule of one verb at a time in a branch: a verb
// from a step's closure, from a foreign goroutine beside another verb, or after
// the end is a MisuseError that names it.
func TestTakeoverMisuse(t *testing.T) {
	inBubble(t, func(e *env) {
		var mu sync.Mutex
		errs := map[string]error{}
		note := func(what string, err error) {
			mu.Lock()
			defer mu.Unlock()
			errs[what] = err
		}
		w := bide.Define("tko-misuse", func(ctx bide.Context, _ none) (string, error) {
			_, err := bide.Step(ctx, "outer", func(context.Context) (int, error) {
				_, err := bide.Step(ctx, "inner", func(context.Context) (int, error) { return 1, nil })
				note("in a step", err)
				note("sleep in a step", bide.Sleep(ctx, time.Second))
				return 1, nil
			})
			if err != nil {
				return "", err
			}
			if _, err := bide.Step(ctx, "slow", func(context.Context) (int, error) {
				done := make(chan struct{})
				go func() {
					defer close(done)
					_, err := bide.Receive[int](ctx, "x")
					note("foreign", err)
				}()
				<-done
				return 1, nil
			}); err != nil {
				return "", err
			}
			note("heartbeat", bide.Heartbeat(ctx, nil))
			go func() {
				time.Sleep(time.Minute)
				_, err := bide.Step(ctx, "late", func(context.Context) (int, error) { return 1, nil })
				note("late", err)
			}()
			return "ok", nil
		})
		e.work(w)
		h := start(e, w, none{})
		if out, err := result(e, h); out != "ok" || err != nil {
			t.Errorf("got %q, %v", out, err)
		}
		time.Sleep(time.Hour)
		mu.Lock()
		defer mu.Unlock()
		for what, verb := range map[string]string{"in a step": `step "inner"`, "sleep in a step": "sleep", "foreign": `signal "x"`, "late": `step "late"`, "heartbeat": "Heartbeat"} {
			if m := wantErr[*bide.MisuseError](e, errs[what]); !strings.Contains(m.Verb, verb) || m.Reason == "" || bide.Code(m) != "misuse" {
				t.Errorf("%s: got %v", what, m)
			}
		}
		e.wantScript(h.ID(), "1 step outer", "2 step slow")
	})
}

// TestTakeoverMutex shows what a mutex held across a verb does, since the code
// after the verb does not run in a turn that parks: the next turn blocks on it.
// The worker says so, with the stack, and a stop does not hang.
func TestTakeoverMutex(t *testing.T) {
	inBubble(t, func(e *env) {
		locked, free := make(chan struct{}, 1), make(chan struct{}, 1) // mutexes that the bubble sees blocked
		w := bide.Define("tko-mutex", func(ctx bide.Context, _ none) (string, error) {
			locked <- struct{}{}
			err := bide.Sleep(ctx, time.Hour)
			<-locked
			return "ok", err
		})
		good := bide.Define("tko-mutex-deferred", func(ctx bide.Context, _ none) (string, error) {
			free <- struct{}{}
			defer func() { <-free }()
			return "ok", bide.Sleep(ctx, time.Hour)
		})
		hand := e.work(w, good)
		h, fine := start(e, w, none{}), start(e, good, none{})
		if out, err := result(e, fine); out != "ok" || err != nil { // a deferred unlock is no trouble
			t.Errorf("got %q, %v", out, err)
		}
		time.Sleep(time.Minute)
		e.wantState(h.ID(), bide.Running)
		if logged := e.logs.String(); !strings.Contains(logged, "pinned") || !strings.Contains(logged, h.ID()) || !strings.Contains(logged, "takeover_test.go") {
			t.Errorf("the log does not tell of the pinned turn: %s", logged)
		}
		began := time.Now()
		e.ok(hand.stop())
		if took := time.Since(began); took > 25*time.Second {
			t.Errorf("the stop took %v", took)
		}
		<-locked // so that the goroutine of the pinned turn can end
	})
}

// TestTakeoverSetUp protects the set-up of a worker from mistakes.
func TestTakeoverSetUp(t *testing.T) {
	panics := func(what, says string, fn func()) {
		t.Helper()
		defer func() {
			t.Helper()
			if r := recover(); r == nil || !strings.Contains(r.(string), says) {
				t.Errorf("%s: recovered %v, want a panic that says %q", what, r, says)
			}
		}()
		fn()
	}
	fn := func(bide.Context, none) (none, error) { return none{}, nil }
	panics("an empty name", "name", func() { bide.Define("", fn) })
	panics("a control character", "name", func() { bide.Define("a\nb", fn) })
	panics("no function", "nil", func() { bide.Define[none, none]("a", nil) })
	inBubble(t, func(e *env) {
		w := bide.NewWorker(e.store, e.config())
		if i := wantErr[*bide.InvalidError](e, w.Run(e.Context())); i.Field != "workflows" {
			t.Errorf("got %v", i)
		}
		one := bide.Define("tko-one", fn)
		w.Register(one, one) // the same one twice is no matter
		w.Register(one)
		panics("two of one name", "tko-one", func() { w.Register(bide.Define("tko-one", fn)) })
	})
}

// TestTakeoverHeartbeat protects steps that tell they are alive: one that falls
// silent is ended and tried again with what it told last.
func TestTakeoverHeartbeat(t *testing.T) {
	inBubble(t, func(e *env) {
		var calls atomic.Int32
		w := bide.Define("tko-beat", func(ctx bide.Context, _ none) (int, error) {
			return bide.Step(ctx, "beat", func(ctx context.Context) (int, error) {
				calls.Add(1)
				from, ok := bide.HeartbeatDetails[int](ctx)
				if n := bide.AttemptNumber(ctx); ok != (n > 1) || ok && from != 5 {
					t.Errorf("attempt %d was given %d, %v", n, from, ok)
				}
				for i := from + 1; i <= 8; i++ {
					if err := bide.Heartbeat(ctx, i); err != nil {
						return 0, err
					}
					if i == 5 && !ok {
						<-ctx.Done() // silent
						return 0, ctx.Err()
					}
					time.Sleep(9 * time.Second)
				}
				return 8, nil
			}, bide.HeartbeatTimeout(10*time.Second), bide.RetryPolicy{InitialInterval: time.Second, NoJitter: true})
		})
		e.work(w)
		began := time.Now()
		h := start(e, w, none{})
		time.Sleep(46500 * time.Millisecond)
		r := e.waitOf(h.ID(), bide.KindRetry)
		if !errors.Is(r.LastError.Err(), bide.ErrTimeout) || !strings.Contains(r.LastError.Message, "heartbeat") || string(r.Details) != "5" {
			t.Errorf("between the attempts the run waits for %s", jsonOf(t, r))
		}
		out, err := result(e, h)
		if took := time.Since(began); out != 8 || err != nil || calls.Load() != 2 || took < 74*time.Second || took > 75*time.Second {
			t.Errorf("got %d, %v in %v after %d calls", out, err, took, calls.Load())
		}
	})
}

// TestTakeoverHeartbeatKept protects what a step told before its worker died: the
// next attempt, elsewhere, gets it.
func TestTakeoverHeartbeatKept(t *testing.T) {
	inBubble(t, func(e *env) {
		w := bide.Define("tko-beat-kept", func(ctx bide.Context, _ none) (string, error) {
			return bide.Step(ctx, "beat", func(ctx context.Context) (string, error) {
				if from, ok := bide.HeartbeatDetails[string](ctx); ok {
					return from, nil
				}
				if err := bide.Heartbeat(ctx, make(chan int)); err == nil {
					t.Error("details that are no JSON were taken")
				}
				if err := bide.Heartbeat(ctx, "half"); err != nil {
					return "", err
				}
				<-ctx.Done()
				return "", ctx.Err()
			})
		})
		old := tkoWork(e, w)
		h := start(e, w, none{})
		time.Sleep(time.Second)
		old.cut.Store(true)
		e.work(w)
		if out, err := result(e, h); out != "half" || err != nil {
			t.Errorf("got %q, %v", out, err)
		}
	})
}

// TestTakeoverGraceOnce protects an at-most-once step that outlasts the grace: it
// is not called again, and the workflow hears that it was interrupted.
func TestTakeoverGraceOnce(t *testing.T) {
	inBubble(t, func(e *env) {
		var calls atomic.Int32
		w := bide.Define("tko-grace-once", func(ctx bide.Context, _ none) (int, error) {
			return bide.Step(ctx, "once", func(ctx context.Context) (int, error) {
				<-ctx.Done()
				return int(calls.Add(1)), nil
			}, bide.RetryPolicy{MaximumAttempts: 1})
		})
		e.work(w)
		h := start(e, w, none{})
		time.Sleep(time.Second)
		e.restart(w)
		_, err := result(e, h)
		if s := wantErr[*bide.StepInterruptedError](e, err); s.Step != "once" || calls.Load() != 1 {
			t.Errorf("got %v after %d calls", err, calls.Load())
		}
	})
}

// TestTakeoverRestarts protects attempts from being counted by graceful stops: a
// bounded step that has not begun, or pauses between two attempts, keeps its count.
func TestTakeoverRestarts(t *testing.T) {
	inBubble(t, func(e *env) {
		var numbers []int
		var mu sync.Mutex
		w := bide.Define("tko-restarts", func(ctx bide.Context, _ none) (int, error) {
			if err := bide.Sleep(ctx, 5*time.Second); err != nil {
				return 0, err
			}
			return bide.Step(ctx, "bounded", func(ctx context.Context) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				numbers = append(numbers, bide.AttemptNumber(ctx))
				if len(numbers) < 3 {
					return 0, errors.New("no")
				}
				return len(numbers), nil
			}, bide.RetryPolicy{MaximumAttempts: 3, InitialInterval: 5 * time.Second, BackoffCoefficient: 1, NoJitter: true})
		})
		e.work(w)
		h := start(e, w, none{})
		for range 14 {
			time.Sleep(time.Second)
			e.restart(w)
		}
		if out, err := result(e, h); out != 3 || err != nil || !slices.Equal(numbers, []int{1, 2, 3}) {
			t.Errorf("got %d, %v with the attempts %v", out, err, numbers)
		}
	})
}

// TestTakeoverBeatsOnly protects runs from a worker whose signs of life are lost
// while all else of it works: its lease lapses, and only one of two goes on.
func TestTakeoverBeatsOnly(t *testing.T) {
	inBubble(t, func(e *env) {
		var second atomic.Int32
		w := bide.Define("tko-beats", func(ctx bide.Context, _ none) (int, error) {
			if _, err := bide.Step(ctx, "first", func(context.Context) (int, error) { time.Sleep(10 * time.Second); return 1, nil }); err != nil {
				return 0, err
			}
			return bide.Step(ctx, "second", func(context.Context) (int, error) { return int(second.Add(1)), nil })
		})
		deaf := &tkoDeaf{Store: e.store}
		worker := bide.NewWorker(deaf, e.config())
		worker.Register(w)
		ctx, cancel := context.WithCancel(e.Context())
		done := make(chan error, 1)
		go func() { done <- worker.Run(ctx) }()
		h := start(e, w, none{})
		time.Sleep(500 * time.Millisecond)
		e.work(w)
		if out, err := result(e, h); out != 1 || err != nil {
			t.Errorf("got %d, %v", out, err)
		}
		time.Sleep(time.Minute)
		cancel()
		e.ok(<-done)
		if n := second.Load(); n != 1 {
			t.Errorf("the second step ran %d times", n)
		}
		e.wantScript(h.ID(), "1 step first", "2 step second")
	})
}

// tkoDeaf is a store that no sign of life reaches.
type tkoDeaf struct{ bide.Store }

func (d *tkoDeaf) Commit(ctx context.Context, l bide.Lease, b bide.Batch) error {
	if l.Run == "" && b.Next == nil {
		return errTkoNetwork
	}
	return d.Store.Commit(ctx, l, b)
}

// TestTakeoverMessageWhileParking protects messages that come while a turn is
// being unwound to park: the next turn takes them up, at once.
func TestTakeoverMessageWhileParking(t *testing.T) {
	inBubble(t, func(e *env) {
		w := bide.Define("tko-parking-message", func(ctx bide.Context, _ none) (string, error) {
			defer func() {
				if bide.Parking(ctx) {
					time.Sleep(time.Second) // the turn is on its way out
				}
			}()
			return bide.Receive[string](ctx, "go")
		})
		e.work(w)
		signaled, canceled := start(e, w, none{}), start(e, w, none{})
		time.Sleep(500 * time.Millisecond)
		began := time.Now()
		e.ok(e.client.Signal(e.Context(), signaled.ID(), "go", "x"))
		e.ok(e.client.Cancel(e.Context(), canceled.ID(), ""))
		time.Sleep(10 * time.Second)
		e.wantState(signaled.ID(), bide.Succeeded)
		e.wantState(canceled.ID(), bide.Canceled)
		for _, h := range []*bide.Handle[string]{signaled, canceled} {
			if at := e.get(h.ID()).EndedAt; at.Sub(began) > 2*time.Second {
				t.Errorf("the run ended %v after its message", at.Sub(began))
			}
		}
	})
}
