package bide_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
)

// stage is a store with one worker, in virtual time.
type stage struct {
	*testing.T
	store  bide.Store
	client *bide.Client
	stop   func()
}

// onStage runs fn with a worker of the workflow.
func onStage(t *testing.T, cfg bide.WorkerConfig, workflow bide.Definition, fn func(s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := inMemory().open(t)
		s := &stage{T: t, store: store, client: bide.NewClient(store, workflow)}
		s.work(cfg, workflow)
		fn(s)
		s.stop()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}

// work starts a worker; s.stop stops it.
func (s *stage) work(cfg bide.WorkerConfig, workflow bide.Definition) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	worker := bide.NewWorker(s.store, cfg)
	worker.Register(workflow)
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()
	s.stop = func() {
		cancel()
		if err := <-done; err != nil {
			s.Error(err)
		}
	}
}

// tries runs a workflow of one step and returns when its attempts began, counted
// from the first, and the workflow's error.
func tries(t *testing.T, fn func(n int) error, opts ...bide.StepOption) (at []time.Duration, failure error) {
	t.Helper()
	var first time.Time
	w := bide.Define("tries", func(ctx bide.Context, _ int) (int, error) {
		return bide.Step(ctx, "it", func(context.Context) (int, error) {
			if first.IsZero() {
				first = time.Now()
			}
			at = append(at, time.Since(first).Round(time.Millisecond))
			return len(at), fn(len(at))
		}, opts...)
	})
	onStage(t, bide.WorkerConfig{Seed: 1}, w, func(s *stage) {
		run, err := w.Start(s.Context(), s.client, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, failure = run.Result(s.Context())
	})
	return at, failure
}

type hinted struct{ after time.Duration }

func (h *hinted) Error() string                         { return "come back later" }
func (h *hinted) NextRetryDelay() (time.Duration, bool) { return h.after, true }

// The delays of a policy are exactly those of its formula, and what ends a step
// ends it when it should.
func TestRetryPolicy(t *testing.T) {
	always := func(int) error { return errors.New("down") }
	seconds := func(s ...float64) (out []time.Duration) {
		for _, x := range s {
			out = append(out, time.Duration(x*float64(time.Second)))
		}
		return out
	}
	exhausted := func(reason string, n int) func(error) bool {
		return func(err error) bool {
			e, ok := errors.AsType[*bide.RetryExhaustedError](err)
			return ok && e.Reason == reason && e.Attempts == n && e.LastErr != nil
		}
	}
	says := func(text string) func(error) bool {
		return func(err error) bool {
			e, ok := errors.AsType[*bide.RunError](err)
			return ok && e.Err != nil && e.Err.Error() == text
		}
	}
	invalid := func(field string) func(error) bool {
		return func(err error) bool {
			e, ok := errors.AsType[*bide.InvalidError](err)
			return ok && e.Field == field
		}
	}
	for name, c := range map[string]struct {
		fn   func(int) error
		opts []bide.StepOption
		at   []time.Duration
		err  func(error) bool
	}{
		"defaults double from a second": {always, []bide.StepOption{bide.RetryPolicy{NoJitter: true, MaximumAttempts: 5}},
			seconds(0, 1, 3, 7, 15), exhausted(bide.ReasonMaxAttempts, 5)},
		"coefficient and cap": {always, []bide.StepOption{bide.RetryPolicy{InitialInterval: 2 * time.Second, BackoffCoefficient: 3,
			MaximumInterval: 10 * time.Second, MaximumAttempts: 5, NoJitter: true}}, seconds(0, 2, 8, 18, 28), exhausted(bide.ReasonMaxAttempts, 5)},
		"once": {always, []bide.StepOption{bide.RetryPolicy{MaximumAttempts: 1}}, seconds(0), says("down")},
		"an error's delay replaces one pause and resets nothing": {func(n int) error {
			if n == 2 {
				return &hinted{time.Hour}
			}
			return errors.New("down")
		}, []bide.StepOption{bide.RetryPolicy{NoJitter: true, MaximumAttempts: 4}}, seconds(0, 1, 3601, 3605), exhausted(bide.ReasonMaxAttempts, 4)},
		"RetryAfter does the same": {func(int) error { return bide.RetryAfter(errors.New("busy"), 7*time.Second) },
			[]bide.StepOption{bide.RetryPolicy{MaximumAttempts: 3}}, seconds(0, 7, 14), exhausted(bide.ReasonMaxAttempts, 3)},
		"the total fails at once": {always, []bide.StepOption{bide.RetryPolicy{NoJitter: true}, bide.Timeout(10 * time.Second)},
			seconds(0, 1, 3, 7), exhausted(bide.ReasonTotalTimeout, 4)},
		"permanent by value": {func(n int) error {
			if n == 2 {
				return fmt.Errorf("wrapped: %w", bide.Permanent(errors.New("no")))
			}
			return errors.New("down")
		}, []bide.StepOption{bide.RetryPolicy{NoJitter: true}}, seconds(0, 1), says("wrapped: no")},
		"permanent by type": {func(int) error {
			return fmt.Errorf("open: %w", &fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist})
		},
			[]bide.StepOption{bide.RetryPolicy{NonRetryableErrorTypes: []string{"*fs.PathError"}}}, seconds(0), says("open: open x: file does not exist")},
		"permanent by predicate": {always, []bide.StepOption{bide.RetryPolicy{RetryIf: func(error) bool { return false }}}, seconds(0), says("down")},
		"a panic is an error like another": {func(n int) error {
			if n == 1 {
				panic("ouch")
			}
			return nil
		}, []bide.StepOption{bide.RetryPolicy{NoJitter: true}}, seconds(0, 1), func(err error) bool { return err == nil }},
		"negative attempts":       {always, []bide.StepOption{bide.RetryPolicy{MaximumAttempts: -1}}, nil, invalid("RetryPolicy.MaximumAttempts")},
		"a coefficient below 1":   {always, []bide.StepOption{bide.RetryPolicy{BackoffCoefficient: 0.5}}, nil, invalid("RetryPolicy.BackoffCoefficient")},
		"a coefficient of NaN":    {always, []bide.StepOption{bide.RetryPolicy{BackoffCoefficient: math.NaN()}}, nil, invalid("RetryPolicy.BackoffCoefficient")},
		"a negative interval":     {always, []bide.StepOption{bide.RetryPolicy{InitialInterval: -1}}, nil, invalid("RetryPolicy.InitialInterval")},
		"no total":                {always, []bide.StepOption{bide.Timeout(0)}, nil, invalid("Timeout")},
		"no attempt timeout":      {always, []bide.StepOption{bide.AttemptTimeout(-1)}, nil, invalid("AttemptTimeout")},
		"no heartbeat timeout":    {always, []bide.StepOption{bide.HeartbeatTimeout(0)}, nil, invalid("HeartbeatTimeout")},
		"a negative max interval": {always, []bide.StepOption{bide.RetryPolicy{MaximumInterval: -1}}, nil, invalid("RetryPolicy.MaximumInterval")},
	} {
		t.Run(name, func(t *testing.T) {
			at, err := tries(t, c.fn, c.opts...)
			if fmt.Sprint(at) != fmt.Sprint(c.at) {
				t.Errorf("attempts at %v, want %v", at, c.at)
			}
			if !c.err(err) {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

// Full jitter never exceeds the pause it is of, and is not always the same.
func TestRetryJitter(t *testing.T) {
	at, _ := tries(t, func(int) error { return errors.New("down") }, bide.RetryPolicy{MaximumAttempts: 20, MaximumInterval: 8 * time.Second})
	short := 0
	for i := 1; i < len(at); i++ {
		pause, most := at[i]-at[i-1], min(time.Second<<(i-1), 8*time.Second)
		if pause < 0 || pause > most+time.Millisecond {
			t.Errorf("pause %d is %v, at most %v", i, pause, most)
		}
		if pause < most/2 {
			short++
		}
	}
	if short < 3 || short > 16 {
		t.Errorf("%d of %d pauses are below half", short, len(at)-1)
	}
}

// An attempt ends at its timeout whether its function heeds the context or not;
// what it returns later is dropped.
func TestAttemptTimeout(t *testing.T) {
	for name, heeds := range map[string]bool{"heeds": true, "ignores": false} {
		t.Run(name, func(t *testing.T) {
			var deadline atomic.Int64 // abandoned attempts live on
			w := bide.Define("w", func(ctx bide.Context, _ int) (string, error) {
				return bide.Step(ctx, "slow", func(ctx context.Context) (string, error) {
					if d, ok := ctx.Deadline(); ok {
						deadline.Store(int64(time.Until(d)))
					}
					if bide.AttemptNumber(ctx) == 3 {
						return "third", nil
					}
					if heeds {
						derived, cancel := context.WithTimeout(ctx, time.Hour)
						defer cancel()
						<-derived.Done()
						return "", derived.Err()
					}
					time.Sleep(time.Hour)
					return "late", nil
				}, bide.AttemptTimeout(5*time.Second), bide.RetryPolicy{NoJitter: true})
			})
			onStage(t, bide.WorkerConfig{}, w, func(s *stage) {
				began := time.Now()
				run, err := w.Start(s.Context(), s.client, 0)
				if err != nil {
					t.Fatal(err)
				}
				got, err := run.Result(s.Context())
				if got != "third" || err != nil || time.Since(began).Round(time.Second) != 13*time.Second || time.Duration(deadline.Load()) != 5*time.Second {
					t.Errorf("%q, %v after %v, deadline in %v", got, err, time.Since(began), time.Duration(deadline.Load()))
				}
				time.Sleep(3 * time.Hour) // the late ones come in
			})
		})
	}
}

// A step that stops beating is given up, and the next attempt begins where the
// last heartbeat said.
func TestHeartbeat(t *testing.T) {
	var resumed []int
	w := bide.Define("w", func(ctx bide.Context, _ int) (int, error) {
		return bide.Step(ctx, "copy", func(ctx context.Context) (int, error) {
			at, _ := bide.HeartbeatDetails[int](ctx)
			resumed = append(resumed, at)
			for i := at; i < 10; i++ {
				if err := bide.Heartbeat(ctx, i); err != nil {
					return 0, err
				}
				if i == 4 && len(resumed) == 1 {
					<-ctx.Done() // hangs
					return 0, ctx.Err()
				}
				time.Sleep(time.Second)
			}
			return 10, nil
		}, bide.HeartbeatTimeout(3*time.Second), bide.RetryPolicy{NoJitter: true})
	})
	onStage(t, bide.WorkerConfig{GracePeriod: time.Second}, w, func(s *stage) {
		run, err := w.Start(s.Context(), s.client, 0)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(11*time.Second + 500*time.Millisecond) // 4 s, 3 s of silence, 1 s pause, 3.5 s and the grace of 1 s
		s.stop()
		s.work(bide.WorkerConfig{}, w)
		if n, err := run.Result(s.Context()); n != 10 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if fmt.Sprint(resumed) != "[0 4 8]" {
			t.Errorf("attempts began at %v, want 0, then 4, and 8 after the worker changed", resumed)
		}
	})
	if err := bide.Heartbeat(t.Context(), 1); bide.Code(err) != "misuse" {
		t.Errorf("outside a step: %v", err)
	}
}

// The key is the same for every attempt of a step and no other's.
func TestIdempotencyKey(t *testing.T) {
	keys := map[string]int{}
	w := bide.Define("w", func(ctx bide.Context, round int) (int, error) {
		for _, name := range []string{"a", "b"} {
			if _, err := bide.Step(ctx, name, func(ctx context.Context) (int, error) {
				keys[bide.IdempotencyKey(ctx)]++
				if bide.AttemptNumber(ctx) < 3 {
					return 0, errors.New("again")
				}
				return 0, nil
			}); err != nil {
				return 0, err
			}
		}
		if round < 2 {
			return 0, bide.ContinueAsNew(ctx, round+1)
		}
		return 0, nil
	})
	onStage(t, bide.WorkerConfig{}, w, func(s *stage) {
		for range 2 {
			run, err := w.Start(s.Context(), s.client, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := run.Result(s.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	if len(keys) != 2*3*2 { // runs, rounds, steps
		t.Errorf("%d keys", len(keys))
	}
	for key, n := range keys {
		if n != 3 || len(key) != 32 {
			t.Errorf("key %q was given %d times", key, n)
		}
	}
}

// Do is a step: kept, retried, and its error is its own.
func TestDo(t *testing.T) {
	inBubble(t, func(e *env) {
		var calls atomic.Int32
		flow := bide.Define("flow", func(ctx bide.Context, fail bool) (int32, error) {
			err := bide.Do(ctx, "mail", func(context.Context) error {
				if n := calls.Add(1); fail {
					return bide.Permanent(errors.New("no such address"))
				} else if n < 3 {
					return errors.New("busy")
				}
				return nil
			})
			if err != nil {
				return 0, err
			}
			err = bide.Sleep(ctx, time.Hour) // the next turn does not call again
			return calls.Load(), err
		})
		e.work(flow)
		if n, err := result(e, start(e, flow, false)); err != nil || n != 3 {
			t.Errorf("%d calls, %v", n, err)
		}
		if _, err := result(e, start(e, flow, true)); err == nil || !strings.Contains(err.Error(), "no such address") {
			t.Error(err)
		}
	})
}
