package bide_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bide-dev/bide"
)

// The winner of a race is the same however the workers come and go, since it is
// the one whose kept time is earliest: seeded races of sleeps, signals and steps.
func TestRaceIsDecidedByTime(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		at := rng.Perm(600) // no two at one time
		sleep, step, signal := time.Duration(1+at[0])*time.Second, time.Duration(1+at[1])*time.Second, time.Duration(1+at[2])*time.Second
		want := "sleep"
		if first := min(sleep, step, signal); first == signal {
			want = "signal"
		} else if first == step {
			want = "step"
		}
		returned := 0
		w := bide.Define("race", func(ctx bide.Context, _ int) (string, error) {
			winner, _, err := bide.Race(ctx,
				bide.Branch("sleep", func(ctx bide.Context) (int, error) { return 1, bide.Sleep(ctx, sleep) }),
				bide.Branch("signal", func(ctx bide.Context) (int, error) { return bide.Receive[int](ctx, "go") }),
				bide.Branch("step", func(ctx bide.Context) (int, error) {
					return bide.Step(ctx, "work", func(ctx context.Context) (int, error) {
						select {
						case <-time.After(step):
							returned++
							return 3, nil
						case <-ctx.Done():
							return 0, ctx.Err()
						}
					}, bide.NoTimeout{})
				}))
			if err != nil {
				return "", err
			}
			return winner, bide.Sleep(ctx, 2*time.Hour)
		})
		onStage(t, bide.WorkerConfig{}, w, func(s *stage) {
			run, err := w.Start(s.Context(), s.client, 0)
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(signal, func() { _ = s.client.Signal(s.Context(), run.ID(), "go", 2) })
			time.Sleep(30 * time.Minute)
			history, err := s.client.History(s.Context(), run.ID(), 0)
			if err != nil || !slices.ContainsFunc(history, func(r bide.Record) bool {
				return r.Kind == bide.KindRace && strings.Contains(string(r.Data), want)
			}) {
				t.Errorf("seed %d: sleep %v, step %v, signal %v: %v, %v", seed, sleep, step, signal, script(history), err)
			}
			if now, err := run.Get(s.Context()); err != nil || len(now.Waiting) != 1 || now.Waiting[0].Kind != bide.KindSleep {
				t.Errorf("seed %d: the losers' waits are still there: %v, %v", seed, now.Waiting, err)
			}
			s.stop()
			s.work(bide.WorkerConfig{}, w)
			if got, err := run.Result(s.Context()); got != want || err != nil {
				t.Errorf("seed %d: %s, %v, want %s", seed, got, err, want)
			}
			if (returned > 0) != (want == "step") {
				t.Errorf("seed %d: %s won, the step returned %d times", seed, want, returned)
			}
		})
	}
}

// When the worker was away while several branches came to their end, the winner
// is who would have won had it been there.
func TestRaceAfterAbsence(t *testing.T) {
	w := bide.Define("race", func(ctx bide.Context, _ int) (string, error) {
		winner, _, err := bide.Race(ctx,
			bide.Branch("sleep", func(ctx bide.Context) (int, error) { return 1, bide.Sleep(ctx, time.Hour) }),
			bide.Branch("signal", func(ctx bide.Context) (int, error) { return bide.Receive[int](ctx, "go") }))
		return winner, err
	})
	for want, at := range map[string]time.Duration{"signal": 59 * time.Minute, "sleep": 61 * time.Minute} {
		onStage(t, bide.WorkerConfig{}, w, func(s *stage) {
			run, err := w.Start(s.Context(), s.client, 0)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			s.stop()
			time.Sleep(at - time.Minute)
			if err := s.client.Signal(s.Context(), run.ID(), "go", 2); err != nil {
				t.Fatal(err)
			}
			time.Sleep(24 * time.Hour)
			s.work(bide.WorkerConfig{}, w)
			if got, err := run.Result(s.Context()); got != want || err != nil {
				t.Errorf("%s, %v, want %s", got, err, want)
			}
		})
	}
}

// Branches within branches replay to the same result, in order, with their errors
// joined; an empty race is refused; a future may be asked twice.
func TestBranches(t *testing.T) {
	w := bide.Define("tree", func(ctx bide.Context, depth int) (string, error) {
		var grow func(ctx bide.Context, name string, depth int) (string, error)
		grow = func(ctx bide.Context, name string, depth int) (string, error) {
			if depth == 0 {
				if err := bide.Sleep(ctx, time.Duration(len(name))*time.Minute); err != nil {
					return "", err
				}
				return bide.Step(ctx, "leaf "+name, func(context.Context) (string, error) {
					if name == "rba" {
						return "", bide.Permanent(errors.New("rotten " + name))
					}
					return name, nil
				})
			}
			leaves, err := bide.All(ctx,
				bide.Branch("a", func(ctx bide.Context) (string, error) { return grow(ctx, name+"a", depth-1) }),
				bide.Branch("b", func(ctx bide.Context) (string, error) { return grow(ctx, name+"b", depth-1) }))
			return strings.Join(leaves, " "), err
		}
		f := bide.Go(ctx, "tree", func(ctx bide.Context) (string, error) { return grow(ctx, "r", depth) })
		one, err1 := f.Get(ctx)
		two, err2 := f.Get(ctx)
		_, _, err := bide.Race[int](ctx)
		return fmt.Sprint(one, "|", err1, "|", one == two && err1 == err2, "|", bide.Code(err)), bide.Sleep(ctx, time.Hour)
	})
	onStage(t, bide.WorkerConfig{}, w, func(s *stage) {
		run, err := w.Start(s.Context(), s.client, 2)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			time.Sleep(time.Minute)
			s.stop()
			s.work(bide.WorkerConfig{}, w)
		}
		want := "raa rab  rbb|rotten rba|true|invalid"
		if got, err := run.Result(s.Context()); got != want || err != nil {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	})
}

// A branch that nobody waits for is unwound when the workflow returns: its step's
// context ends, its deferred functions run, and the run's end does not wait.
func TestUnjoinedBranch(t *testing.T) {
	var stopped, deferred atomic.Bool
	w := bide.Define("w", func(ctx bide.Context, _ int) (string, error) {
		bide.Go(ctx, "left", func(ctx bide.Context) (int, error) {
			defer deferred.Store(true)
			return bide.Step(ctx, "endless", func(ctx context.Context) (int, error) {
				<-ctx.Done()
				stopped.Store(true)
				return 0, ctx.Err()
			})
		})
		return "done", bide.Sleep(ctx, time.Second)
	})
	onStage(t, bide.WorkerConfig{}, w, func(s *stage) {
		began := time.Now()
		run, err := w.Start(s.Context(), s.client, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := run.Result(s.Context()); got != "done" || err != nil || time.Since(began) > 2*time.Second {
			t.Errorf("%q, %v after %v", got, err, time.Since(began))
		}
		time.Sleep(time.Second)
		if !stopped.Load() || !deferred.Load() {
			t.Errorf("step stopped: %v, deferred ran: %v", stopped.Load(), deferred.Load())
		}
	})
}

// What a workflow draws, names and reads off its clock is the same on replay, and
// other than any other run's; what it logs is logged once.
func TestDeterministicHelpers(t *testing.T) {
	type draw struct {
		N   int
		ID  string
		Now time.Time
	}
	seen := map[string][]draw{}
	w := bide.Define("w", func(ctx bide.Context, name string) (int, error) {
		for range 3 {
			d := draw{bide.Rand(ctx).IntN(1e9), bide.NewID(ctx), bide.Now(ctx)}
			seen[name] = append(seen[name], d)
			if err := bide.Sleep(ctx, time.Hour); err != nil {
				return 0, err
			}
		}
		return 0, nil
	})
	onStage(t, bide.WorkerConfig{}, w, func(s *stage) {
		for _, name := range []string{"one", "two"} {
			run, err := w.Start(s.Context(), s.client, name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := run.Result(s.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	one, two := seen["one"], seen["two"] // 1, then 1 2, then 1 2 3, then the end: 1 2 3
	if len(one) != 9 || one[0] != one[1] || one[0] != one[3] || one[2] != one[4] || one[5] != one[8] {
		t.Errorf("replays differ: %v", one)
	}
	if one[0].N == one[2].N || one[0].ID == one[2].ID || one[0].ID == two[0].ID || one[0].N == two[0].N {
		t.Errorf("not random: %v, %v", one, two)
	}
	if len(one[0].ID) != 36 || one[0].ID[14] != '4' || !strings.ContainsRune("89ab", rune(one[0].ID[19])) {
		t.Errorf("%s is no UUID of version 4", one[0].ID)
	}
	if d := one[2].Now.Sub(one[0].Now); d != time.Hour {
		t.Errorf("the clock went on by %v over an hour's sleep", d)
	}
}
