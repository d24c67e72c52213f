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
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
)

// brnParks is a worker configuration under which every wait parks.
func brnParks(e *env) bide.WorkerConfig {
	cfg := e.config()
	cfg.MaxWarm = -1
	return cfg
}

func brnNap(d time.Duration) func(bide.Context) (int, error) {
	return func(ctx bide.Context) (int, error) { return int(d / time.Second), bide.Sleep(ctx, d) }
}

// TestBrnStress protects the outcome of races, nested and in a row, from workers
// that stop and crash at random times: it is the one that the clock alone gives.
func TestBrnStress(t *testing.T) {
	for seed := range uint64(40) {
		inBubble(t, func(e *env) {
			rng := rand.New(rand.NewPCG(seed, 3))
			// No two at one second, so that the winner is known; the steps lie
			// between the restarts, which would begin them anew.
			at := rng.Perm(900)
			sleepA, signalA, sleepB, sleepC := at[0]+1, at[1]+1, at[2]+1, at[3]+1
			first := min(sleepA, signalA, max(sleepB, sleepC))
			want := map[int]string{sleepA: "sleep", signalA: "signal", max(sleepB, sleepC): "both"}[first]
			second := "next"
			w := bide.Define("brn-stress", func(ctx bide.Context, _ none) (string, error) {
				winner, _, err := bide.Race(ctx,
					bide.Branch("sleep", brnNap(time.Duration(sleepA)*time.Second)),
					bide.Branch("signal", func(ctx bide.Context) (int, error) { return bide.Receive[int](ctx, "go") }),
					bide.Branch("both", func(ctx bide.Context) (int, error) {
						_, err := bide.All(ctx, bide.Branch("b", brnNap(time.Duration(sleepB)*time.Second)), bide.Branch("c", brnNap(time.Duration(sleepC)*time.Second)))
						return 0, err
					}))
				if err != nil {
					return "", err
				}
				if _, err := bide.Step(ctx, "after", func(context.Context) (int, error) { return 0, nil }); err != nil {
					return "", err
				}
				again, _, err := bide.Race(ctx, bide.Branch("long", brnNap(time.Hour)), bide.Branch("next", brnNap(time.Minute)))
				return winner + " " + again, err
			})
			cfg := e.config()
			if seed%2 == 0 {
				cfg = brnParks(e)
			}
			hand := e.workAs(cfg, w)
			h := start(e, w, none{}, bide.ID("it"))
			time.AfterFunc(time.Duration(signalA)*time.Second, func() { _ = e.client.Signal(e.Context(), "it", "go", 1) })
			for range 6 {
				time.Sleep(time.Duration(rng.IntN(150_000)+1) * time.Millisecond)
				if rng.IntN(2) == 0 {
					hand.crash()
				} else {
					e.ok(hand.stop())
				}
				time.Sleep(time.Duration(rng.IntN(20_000)) * time.Millisecond)
				hand = e.workAs(cfg, w)
			}
			if got, err := result(e, h); got != want+" "+second || err != nil {
				t.Errorf("seed %d: %q, %v, want %s (sleep %d, signal %d, both %d)", seed, got, err, want, sleepA, signalA, max(sleepB, sleepC))
			}
			if r := e.get("it"); len(r.Waiting) > 0 {
				t.Errorf("seed %d: it still waits for %v", seed, r.Waiting)
			}
			time.Sleep(time.Hour)
		})
	}
}

// TestBrnLoser protects the winner's world from the loser: its step's context
// ends, what it returns, publishes and reports later is dropped, its waits and
// children are gone, and the signal it waited for is left to others.
func TestBrnLoser(t *testing.T) {
	inBubble(t, func(e *env) {
		child := bide.Define("brn-child", func(ctx bide.Context, _ none) (none, error) { return none{}, bide.Sleep(ctx, 100*time.Hour) })
		canceled, returned := newClock(), newClock()
		w := bide.Define("brn-loser", func(ctx bide.Context, _ none) (string, error) {
			winner, _, err := bide.Race(ctx,
				bide.Branch("step", func(ctx bide.Context) (int, error) {
					return bide.Step(ctx, "stubborn", func(ctx context.Context) (int, error) {
						e.ok(bide.Publish(ctx, "who", "loser, early"))
						context.AfterFunc(ctx, canceled.tick)
						time.Sleep(20 * time.Second)
						returned.tick()
						_ = bide.Publish(ctx, "who", "loser, late")
						_ = bide.Progress(ctx, 99, "loser, late")
						_ = bide.Heartbeat(ctx, "loser, late")
						return 1, nil
					})
				}),
				bide.Branch("signal", func(ctx bide.Context) (int, error) { return bide.Receive[int](ctx, "go") }),
				bide.Branch("child", func(ctx bide.Context) (int, error) {
					_, err := bide.Child(ctx, child, none{}, bide.ID("child"))
					return 0, err
				}),
				bide.Branch("poll", func(ctx bide.Context) (int, error) {
					return bide.Poll(ctx, "it", func(context.Context) (int, error) { return 0, nil }, func(int) bool { return false }, bide.Every(time.Hour), bide.NoTimeout{})
				}),
				bide.Branch("nested", func(ctx bide.Context) (int, error) {
					f := bide.Go(ctx, "inner", brnNap(50*time.Hour))
					return f.Get(ctx)
				}),
				bide.Branch("timer", brnNap(5*time.Second)))
			if err != nil {
				return "", err
			}
			if _, err := bide.Step(ctx, "next", func(context.Context) (int, error) { time.Sleep(30 * time.Second); return 0, nil }); err != nil {
				return "", err
			}
			n, err := bide.Receive[int](ctx, "go")
			return fmt.Sprint(winner, " ", n), err
		})
		e.work(w, child)
		h := start(e, w, none{}, bide.ID("it"))
		time.Sleep(6 * time.Second)
		if r := e.get("it"); len(r.Waiting) != 0 {
			t.Errorf("after the race it waits for %v", r.Waiting)
		}
		canceled.want(e, "the loser's context ended", 5*time.Second)
		e.wantState("child", bide.Canceled)
		time.Sleep(time.Minute)
		if r := e.get("it"); string(r.Values["who"]) != `"loser, early"` || r.Progress != nil {
			t.Errorf("after a late end at %v: %s, %+v", returned.ticks(), r.Values["who"], r.Progress)
		}
		e.ok(e.client.Signal(e.Context(), "it", "go", 8))
		if got, err := result(e, h); got != "timer 8" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		for _, r := range e.history("it") {
			if r.Name == "stubborn" {
				t.Errorf("the late result is in the history: %+v", r)
			}
		}
	})
}

// TestBrnLateSignal protects a signal that came after a race was over by its kept
// times, while no worker was there: it is not lost with the losing branch.
func TestBrnLateSignal(t *testing.T) {
	inBubble(t, func(e *env) {
		w := bide.Define("brn-late", func(ctx bide.Context, _ none) (string, error) {
			winner, _, err := bide.Race(ctx,
				bide.Branch("signal", func(ctx bide.Context) (int, error) { return bide.Receive[int](ctx, "go") }),
				bide.Branch("timer", brnNap(time.Hour)))
			if err != nil {
				return "", err
			}
			n, err := bide.Receive[int](ctx, "go", bide.Timeout(time.Hour))
			return fmt.Sprint(winner, " ", n, " ", bide.Code(err)), nil
		})
		hand := e.work(w)
		h := start(e, w, none{})
		time.Sleep(time.Minute)
		e.ok(hand.stop())
		time.Sleep(2 * time.Hour)
		e.ok(e.client.Signal(e.Context(), h.ID(), "go", 8))
		time.Sleep(time.Hour)
		e.work(w)
		if got, err := result(e, h); got != "timer 8 " || err != nil {
			t.Errorf("%q, %v; the signal should be left for who asks next", got, err)
		}
	})
}

// TestBrnLeftByWinner protects the turn from a branch that the winner of a race
// started and did not wait for: it is unwound with the race, as it is not there on
// replay.
func TestBrnLeftByWinner(t *testing.T) {
	inBubble(t, func(e *env) {
		var stopped atomic.Int32
		w := bide.Define("brn-left", func(ctx bide.Context, _ none) (none, error) {
			_, _, err := bide.Race(ctx,
				bide.Branch("quick", func(ctx bide.Context) (int, error) {
					bide.Go(ctx, "sleeps", brnNap(50*time.Hour))
					bide.Go(ctx, "works", func(ctx bide.Context) (int, error) {
						return bide.Step(ctx, "endless", func(ctx context.Context) (int, error) {
							<-ctx.Done()
							stopped.Add(1)
							return 0, ctx.Err()
						}, bide.NoTimeout{})
					})
					return 1, bide.Sleep(ctx, time.Second)
				}),
				bide.Branch("slow", brnNap(time.Hour)))
			if err != nil {
				return none{}, err
			}
			return none{}, bide.Sleep(ctx, 10*time.Hour)
		})
		e.work(w)
		h := start(e, w, none{})
		time.Sleep(time.Hour)
		if r := e.get(h.ID()); r.State != bide.Waiting || len(r.Waiting) != 1 || stopped.Load() != 1 {
			t.Errorf("an hour later the run is %v and waits for %v; the step was stopped %d times", r.State, r.Waiting, stopped.Load())
		}
		e.restart(w)
		if r := e.get(h.ID()); len(r.Waiting) != 1 {
			t.Errorf("after a restart it waits for %v", r.Waiting)
		}
		if _, err := result(e, h); err != nil {
			t.Error(err)
		}
	})
}

// TestBrnInnerRaceChild protects against children that outlive the race they lost:
// also those that an inner race, over in an earlier turn, had started.
func TestBrnInnerRaceChild(t *testing.T) {
	inBubble(t, func(e *env) {
		child := bide.Define("brn-child", func(ctx bide.Context, _ none) (none, error) { return none{}, bide.Sleep(ctx, 100*time.Hour) })
		w := bide.Define("brn-inner", func(ctx bide.Context, _ none) (string, error) {
			winner, _, err := bide.Race(ctx,
				bide.Branch("outer", func(ctx bide.Context) (int, error) {
					_, _, err := bide.Race(ctx, bide.Branch("starts", func(ctx bide.Context) (int, error) {
						_, err := bide.StartChild(ctx, child, none{}, bide.ID("child"))
						return 0, err
					}))
					if err != nil {
						return 0, err
					}
					return 0, bide.Sleep(ctx, 50*time.Hour)
				}),
				bide.Branch("timer", brnNap(time.Hour)))
			if err != nil {
				return "", err
			}
			return winner, bide.Sleep(ctx, time.Hour)
		})
		e.workAs(brnParks(e), w, child)
		h := start(e, w, none{})
		time.Sleep(90 * time.Minute)
		e.wantState("child", bide.Canceled)
		if got, err := result(e, h); got != "timer" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// TestBrnRaceByKeptTimes protects the winner from a long absence of the worker: it
// is who would have won, also when all could end by then, and by name order at a tie.
func TestBrnRaceByKeptTimes(t *testing.T) {
	for _, c := range []struct {
		name     string
		branches []bide.NamedBranch[int]
		want     string
	}{
		{"the earlier", []bide.NamedBranch[int]{bide.Branch("late", brnNap(2*time.Hour)), bide.Branch("early", brnNap(time.Hour))}, "early"},
		{"the first of a tie", []bide.NamedBranch[int]{bide.Branch("one", func(ctx bide.Context) (int, error) {
			return 1, bide.SleepUntil(ctx, bide.Now(ctx).Truncate(time.Hour).Add(2*time.Hour))
		}),
			bide.Branch("two", func(ctx bide.Context) (int, error) {
				return 2, bide.SleepUntil(ctx, bide.Now(ctx).Truncate(time.Hour).Add(2*time.Hour))
			})}, "one"},
		{"a timeout before a sleep", []bide.NamedBranch[int]{bide.Branch("sleep", brnNap(2*time.Hour)),
			bide.Branch("timeout", func(ctx bide.Context) (int, error) {
				if _, err := bide.Receive[int](ctx, "x", bide.Timeout(time.Hour)); !errors.Is(err, bide.ErrTimeout) {
					return 0, err
				}
				return 1, nil
			})}, "timeout"},
		{"one that need not wait", []bide.NamedBranch[int]{bide.Branch("sleep", brnNap(time.Hour)), bide.Branch("now", func(bide.Context) (int, error) { return 1, nil })}, "now"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(e *env) {
				w := bide.Define("brn-kept", func(ctx bide.Context, _ none) (string, error) {
					winner, _, err := bide.Race(ctx, c.branches...)
					return winner, err
				})
				hand := e.work(w)
				h := start(e, w, none{})
				time.Sleep(time.Minute)
				e.ok(hand.stop())
				time.Sleep(50 * time.Hour)
				e.work(w)
				if got, err := result(e, h); got != c.want || err != nil {
					t.Errorf("%q, %v, want %s", got, err, c.want)
				}
			})
		})
	}
}

// TestBrnRaceErrors protects what a race returns: the winner's error too, the same
// on replay; a value that cannot be kept; none at all.
func TestBrnRaceErrors(t *testing.T) {
	inBubble(t, func(e *env) {
		var seen []string
		w := bide.Define("brn-errors", func(ctx bide.Context, _ none) (none, error) {
			w1, v1, err1 := bide.Race(ctx, bide.Branch("fails", func(bide.Context) (int, error) { return 5, fmt.Errorf("x: %w", errBroke) }), bide.Branch("slow", brnNap(time.Hour)))
			w2, _, err2 := bide.Race(ctx, bide.Branch("odd", func(bide.Context) (func(), error) { return func() {}, nil }))
			w3, _, err3 := bide.Race[int](ctx)
			w4, v4, err4 := bide.Race(ctx, bide.Branch("", func(bide.Context) (int, error) { return 3, nil }))
			seen = append(seen, fmt.Sprint(w1, v1, err1, errors.Is(err1, errBroke), w2, bide.Code(err2), w3, bide.Code(err3), w4, v4, err4))
			return none{}, bide.Sleep(ctx, time.Hour)
		})
		if _, err := run(e, w, none{}); err != nil {
			t.Error(err)
		}
		want := "fails0x: account is empty trueoddcodecinvalid3 <nil>"
		for _, s := range seen {
			if strings.ReplaceAll(s, " ", "") != strings.ReplaceAll(want, " ", "") {
				t.Errorf("%q, want %q", s, want)
			}
		}
		if len(seen) != 2 {
			t.Errorf("%d turns", len(seen))
		}
	})
}

// TestBrnAll protects All: every value in its place, every error joined, none cut short.
func TestBrnAll(t *testing.T) {
	inBubble(t, func(e *env) {
		var seen []string
		w := bide.Define("brn-all", func(ctx bide.Context, _ none) ([]int, error) {
			fail := func(err error) func(bide.Context) (int, error) {
				return func(ctx bide.Context) (int, error) {
					return bide.Step(ctx, "fails", func(context.Context) (int, error) { return 0, bide.Permanent(err) })
				}
			}
			values, err := bide.All(ctx, bide.Branch("a", brnNap(3*time.Hour)), bide.Branch("b", fail(errBroke)), bide.Branch("c", brnNap(time.Hour)), bide.Branch("b", fail(&shortfall{2, nil})))
			short, ok := errors.AsType[*shortfall](err)
			seen = append(seen, fmt.Sprint(values, ok && short.Missing == 2, errors.Is(err, errBroke), err))
			if none, err := bide.All[int](ctx); len(none) > 0 || err != nil {
				t.Errorf("All of none: %v, %v", none, err)
			}
			return values, bide.Sleep(ctx, time.Hour)
		})
		e.workAs(brnParks(e), w)
		if got, err := result(e, start(e, w, none{})); !slices.Equal(got, []int{10800, 0, 3600, 0}) || err != nil {
			t.Errorf("%v, %v", got, err)
		}
		for _, s := range seen {
			if s != seen[0] || !strings.Contains(s, "true true") { //nolint:dupword // the values of a list
				t.Errorf("%q, at first %q", s, seen[0])
			}
		}
	})
}

// TestBrnFuture protects a branch's outcome: it may be asked for twice, late, and
// from another branch; one that panics stops the turn, not the run.
func TestBrnFuture(t *testing.T) {
	inBubble(t, func(e *env) {
		mended := false
		w := bide.Define("brn-future", func(ctx bide.Context, _ none) (string, error) {
			f := bide.Go(ctx, "f", func(ctx bide.Context) (int, error) {
				if err := bide.Sleep(ctx, time.Minute); err != nil {
					return 0, err
				}
				if !mended {
					panic("ouch")
				}
				return 7, fmt.Errorf("and %w", errBroke)
			})
			g := bide.Go(ctx, "g", func(ctx bide.Context) (string, error) { v, err := f.Get(ctx); return fmt.Sprint(v, err), nil })
			a, err := f.Get(ctx)
			if serr := bide.Sleep(ctx, time.Hour); serr != nil {
				return "", serr
			}
			b, err2 := f.Get(ctx)
			c, err3 := g.Get(ctx)
			return fmt.Sprint(a, err, b, err2, c, err3), nil
		})
		e.work(w)
		h := start(e, w, none{})
		time.Sleep(10 * time.Minute)
		if stuck := e.waitOf(h.ID(), bide.KindStuck); stuck.LastError == nil || !strings.Contains(stuck.LastError.Message, "ouch") {
			t.Errorf("%+v", stuck)
		}
		mended = true
		if got, err := result(e, h); strings.ReplaceAll(got, " ", "") != strings.Repeat("7andaccountisempty", 3)+"<nil>" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// TestBrnUnjoined protects the end of a run from branches that nobody waits for:
// it does not wait, their steps' contexts end, their deferred functions run, their
// waits are gone.
func TestBrnUnjoined(t *testing.T) {
	inBubble(t, func(e *env) {
		var stopped, deferred atomic.Int32
		w := bide.Define("brn-unjoined", func(ctx bide.Context, _ none) (string, error) {
			bide.Go(ctx, "step", func(ctx bide.Context) (int, error) {
				defer func() { deferred.Add(1) }()
				return bide.Step(ctx, "endless", func(ctx context.Context) (int, error) { <-ctx.Done(); stopped.Add(1); return 0, ctx.Err() })
			})
			bide.Go(ctx, "sleep", func(ctx bide.Context) (int, error) {
				defer func() {
					if !bide.Parking(ctx) {
						deferred.Add(1)
					}
				}()
				return 0, bide.Sleep(ctx, 100*time.Hour)
			})
			return "done", bide.Sleep(ctx, 30*time.Second)
		})
		e.work(w)
		h := start(e, w, none{})
		began := time.Now()
		if got, err := result(e, h); got != "done" || err != nil || time.Since(began) != 30*time.Second {
			t.Errorf("%q, %v after %v", got, err, time.Since(began))
		}
		synctest.Wait()
		if r := e.get(h.ID()); stopped.Load() != 1 || deferred.Load() != 2 || len(r.Waiting) > 0 {
			t.Errorf("stopped %d, deferred %d, waiting %v", stopped.Load(), deferred.Load(), r.Waiting)
		}
	})
}

// TestBrnChild protects children: their results, their failures, ids that are
// taken, and their end with their parent's unless they are detached.
func TestBrnChild(t *testing.T) {
	inBubble(t, func(e *env) {
		child := bide.Define("brn-child", func(ctx bide.Context, d time.Duration) (string, error) {
			if d < 0 {
				return "", fmt.Errorf("negative: %w", errBroke)
			}
			return "slept", bide.Sleep(ctx, d)
		})
		var seen []string
		w := bide.Define("brn-parent", func(ctx bide.Context, _ none) (none, error) {
			a, err := bide.Child(ctx, child, time.Minute)
			_, err2 := bide.Child(ctx, child, -1)
			failed := wantErr[*bide.RunError](e, err2)
			_, err3 := bide.Child(ctx, child, time.Second, bide.ID("taken"))
			conflict := wantErr[*bide.ConflictError](e, err3)
			c1, err4 := bide.StartChild(ctx, child, time.Hour, bide.ID("own"))
			c2, err5 := bide.StartChild(ctx, child, time.Hour, bide.ID("own")) // its own, found again
			_, err6 := bide.StartChild(ctx, child, time.Hour, bide.Fail)
			_, err7 := bide.StartChild(ctx, child, time.Hour, bide.ID("with space"))
			own, err8 := c2.Result(ctx)
			_, err9 := bide.StartChild(ctx, child, 100*time.Hour, bide.ID("ends"))
			_, err10 := bide.StartChild(ctx, child, 100*time.Hour, bide.ID("stays"), bide.Detached{})
			seen = append(seen, fmt.Sprint(a, err, failed.State, errors.Is(err2, errBroke), conflict.ID, c1.ID(), err4, err5, bide.Code(err6), bide.Code(err7), own, err8, err9, err10))
			return none{}, bide.Sleep(ctx, time.Hour)
		})
		e.workAs(brnParks(e), w, child)
		start(e, child, time.Hour, bide.ID("taken"))
		h := start(e, w, none{})
		if _, err := result(e, h); err != nil {
			t.Error(err)
		}
		want := "slept<nil> failed true taken own <nil> <nil> invalid invalid slept <nil> <nil> <nil>" //nolint:dupword // the values of a list
		for _, s := range seen {
			if strings.ReplaceAll(s, " ", "") != strings.ReplaceAll(want, " ", "") {
				t.Errorf("%q, want %q", s, want)
			}
		}
		time.Sleep(time.Minute)
		e.wantState("ends", bide.Canceled)
		e.wantState("stays", bide.Waiting)
		e.wantState("taken", bide.Succeeded)
	})
}

// TestBrnPhase protects phases: a record with the time they took, the part's own
// errors, exact over restarts, and misuse of the outer context named.
func TestBrnPhase(t *testing.T) {
	inBubble(t, func(e *env) {
		w := bide.Define("brn-phase", func(ctx bide.Context, _ none) (string, error) {
			v, err := bide.Phase(ctx, "outer", func(in bide.Context) (string, error) {
				if err := bide.Sleep(ctx, time.Second); bide.Code(err) != "misuse" {
					t.Errorf("the outer context inside a phase: %v", err)
				}
				inner, err := bide.Phase(in, "inner", func(in bide.Context) (int, error) {
					all, err := bide.All(in, bide.Branch("a", brnNap(time.Minute)), bide.Branch("b", brnNap(2*time.Minute)))
					return len(all), err
				})
				if err != nil {
					return "", err
				}
				return fmt.Sprint("inner ", inner), bide.Sleep(in, time.Hour)
			})
			if err != nil {
				return "", err
			}
			_, failed := bide.Phase(ctx, "fails", func(ctx bide.Context) (int, error) {
				return bide.Step(ctx, "it", func(context.Context) (int, error) { return 0, bide.Permanent(errBroke) })
			})
			return fmt.Sprint(v, " ", errors.Is(failed, errBroke)), bide.Sleep(ctx, time.Hour)
		})
		e.work(w)
		h := start(e, w, none{})
		for range 4 {
			time.Sleep(25 * time.Minute)
			e.restart(w)
		}
		if got, err := result(e, h); got != "inner 2 true" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		took := map[string]time.Duration{}
		for _, r := range e.history(h.ID()) {
			if r.Kind == bide.KindPhase {
				took[r.Name] = r.Took
				if (r.Error != nil) != (r.Name == "fails") {
					t.Errorf("%+v", r)
				}
			}
		}
		if len(took) != 3 || took["inner"] != 2*time.Minute || took["outer"] != 62*time.Minute || took["fails"] != 0 {
			t.Errorf("phases took %v", took)
		}
	})
}

// TestBrnQuietReplay protects logs, progress and values from being said again by
// a turn that replays up to a wait, of whatever kind: a poll's thousand turns
// would say them a thousand times.
func TestBrnQuietReplay(t *testing.T) {
	for name, wait := range map[string]func(bide.Context) error{
		"sleep":   func(ctx bide.Context) error { return bide.Sleep(ctx, 10*time.Hour) },
		"receive": func(ctx bide.Context) error { _, err := bide.Receive[int](ctx, "go"); return err },
		"poll": func(ctx bide.Context) error {
			_, err := bide.Poll(ctx, "p", func(ctx context.Context) (bool, error) {
				_ = bide.Publish(ctx, "who", "the check")
				return bide.AttemptNumber(ctx) > 20, nil
			}, func(done bool) bool { return done }, bide.Every(time.Minute), bide.NoTimeout{})
			return err
		},
		"step": func(ctx bide.Context) error {
			_, err := bide.Step(ctx, "s", func(ctx context.Context) (int, error) {
				if bide.AttemptNumber(ctx) < 9 {
					return 0, errBroke
				}
				return 0, nil
			}, bide.RetryPolicy{InitialInterval: 20 * time.Second, NoJitter: true})
			return err
		},
		"branch": func(ctx bide.Context) error {
			_, err := bide.All(ctx, bide.Branch("a", func(ctx bide.Context) (int, error) {
				bide.Log(ctx).Info("said in the branch")
				return bide.Receive[int](ctx, "go")
			}))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(e *env) {
				w := bide.Define("brn-quiet", func(ctx bide.Context, _ none) (none, error) {
					bide.Log(ctx).Info("said before")
					e.ok(bide.Publish(ctx, "who", "the workflow"))
					e.ok(bide.Progress(ctx, 10, "said before"))
					if err := wait(ctx); err != nil {
						return none{}, err
					}
					bide.Log(ctx).Info("said after")
					return none{}, bide.Sleep(ctx, time.Hour)
				})
				e.workAs(brnParks(e), w)
				h := start(e, w, none{})
				began := time.Now().UTC()
				time.Sleep(10*time.Minute + 30*time.Second)
				e.restart(w)
				if p := e.get(h.ID()).Progress; p == nil || p.UpdatedAt.Sub(began) > time.Second {
					t.Errorf("the progress was said again: %+v, it began at %v", p, began)
				}
				if who := string(e.get(h.ID()).Values["who"]); name == "poll" && who != `"the check"` {
					t.Errorf("a replay published over what the check had: %s", who)
				}
				e.ok(e.client.Signal(e.Context(), h.ID(), "go", 1))
				if _, err := result(e, h); err != nil {
					t.Error(err)
				}
				for _, line := range []string{"said before", "said after", "said in the branch"} {
					n := strings.Count(e.logs.String(), line)
					if want := 1; n != want && (n > 1 || line != "said in the branch") {
						t.Errorf("%q was logged %d times", line, n)
					}
				}
			})
		})
	}
}

// TestBrnDraws protects what a workflow draws: the same on replay, and other in
// each branch, run and generation.
func TestBrnDraws(t *testing.T) {
	inBubble(t, func(e *env) {
		drawn := map[string]map[string]bool{} // by place: what was drawn there
		note := func(ctx bide.Context, place string) {
			if drawn[place] == nil {
				drawn[place] = map[string]bool{}
			}
			drawn[place][fmt.Sprint(bide.NewID(ctx), bide.Rand(ctx).Uint64(), bide.Now(ctx))] = true
		}
		w := bide.Define("brn-draws", func(ctx bide.Context, in []int) (none, error) {
			id := fmt.Sprint(in)
			note(ctx, id+" root")
			f := bide.Go(ctx, "f", func(ctx bide.Context) (int, error) { return 0, bide.Sleep(ctx, time.Second) })
			if err := bide.Sleep(ctx, time.Minute); err != nil {
				return none{}, err
			}
			note(ctx, id+" root later")
			_, err := bide.Phase(ctx, "p", func(ctx bide.Context) (int, error) { note(ctx, id+" phase"); return 0, bide.Sleep(ctx, time.Minute) })
			if err != nil {
				return none{}, err
			}
			if _, err := f.Get(ctx); err != nil {
				return none{}, err
			}
			if in[1] < 2 {
				return none{}, bide.ContinueAsNew(ctx, []int{in[0], in[1] + 1})
			}
			return none{}, nil
		})
		e.workAs(brnParks(e), w)
		for i := range 2 {
			if _, err := result(e, start(e, w, []int{i, 0})); err != nil {
				t.Error(err)
			}
		}
		all := map[string]bool{}
		for place, draws := range drawn {
			if len(draws) != 1 {
				t.Errorf("%s: %v", place, draws)
			}
			for d := range draws {
				all[d] = true
			}
		}
		if len(drawn) != 2*3*3 || len(all) != len(drawn) {
			t.Errorf("%d places, %d different draws", len(drawn), len(all))
		}
	})
}

// TestBrnProgress protects what is said of a run's progress.
func TestBrnProgress(t *testing.T) {
	inBubble(t, func(e *env) {
		var h *bide.Handle[none]
		w := bide.Define("brn-progress", func(ctx bide.Context, _ none) (none, error) {
			at := func(i int) bide.AtStep { return bide.AtStep{Index: i, Count: 3} }
			for _, bad := range []error{bide.Progress(ctx, -.1, ""), bide.Progress(ctx, 100.1, ""), bide.Progress(ctx, 5, "", bide.AtStep{Index: 0, Count: 3}),
				bide.Progress(ctx, 5, "", bide.AtStep{Index: 4, Count: 3}), bide.Progress(ctx, 5, "", bide.AtStep{})} {
				wantErr[*bide.InvalidError](e, bad)
			}
			for _, p := range []struct {
				percent, want float64
				opt           []bide.ProgressOption
			}{{30, 30, nil}, {20, 30, nil}, {100, 100, nil}, {5, 5, []bide.ProgressOption{at(1)}}, {3, 5, []bide.ProgressOption{at(1)}}, {0, 0, []bide.ProgressOption{at(2)}}} {
				e.ok(bide.Progress(ctx, p.percent, fmt.Sprint(p.percent), p.opt...))
				_, err := bide.Step(ctx, "look", func(context.Context) (none, error) {
					if got := e.get("it").Progress; got == nil || got.Percent != p.want || got.Message != fmt.Sprint(p.percent) || (got.Step != nil) != (p.opt != nil) {
						t.Errorf("after %v: %+v", p, got)
					}
					return none{}, nil
				})
				e.ok(err)
			}
			return none{}, bide.Sleep(ctx, time.Hour)
		})
		e.work(w)
		h = start(e, w, none{}, bide.ID("it"))
		if _, err := result(e, h); err != nil {
			t.Error(err)
		}
		wantErr[*bide.MisuseError](e, bide.Progress(e.Context(), 5, ""))
		wantErr[*bide.MisuseError](e, bide.Publish(e.Context(), "k", 5))
	})
}

// TestBrnGenerations protects a run that goes on for ever: its id, and each signal
// that it has not received, over two hundred generations with workers that come
// and go.
func TestBrnGenerations(t *testing.T) {
	inBubble(t, func(e *env) {
		var got []int
		w := bide.Define("brn-again", func(ctx bide.Context, n int) (int, error) {
			v, err := bide.Receive[int](ctx, "n")
			if err != nil {
				return 0, err
			}
			if _, err := bide.Step(ctx, "note", func(context.Context) (int, error) { got = append(got, v); return 0, nil }); err != nil {
				return 0, err
			}
			if n < 200 {
				return 0, bide.ContinueAsNew(ctx, n+1)
			}
			return n, nil
		})
		e.work(w)
		h := start(e, w, 0, bide.ID("it"))
		for i := range 201 {
			e.ok(e.client.Signal(e.Context(), "it", "n", i))
			if i%10 == 9 {
				time.Sleep(time.Second)
			}
			if i%67 == 66 {
				e.restart(w)
			}
		}
		if n, err := result(e, h); n != 200 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		r := e.get("it")
		if r.Generation != 200 || len(got) != 201 || !slices.IsSorted(got) || got[200] != 200 {
			t.Errorf("generation %d, got %v", r.Generation, got)
		}
	})
}

// TestBrnSaga protects compensations: the last first, each once, on an error and on
// a cancel, each even if another fails, over a restart in their middle.
func TestBrnSaga(t *testing.T) {
	for name, c := range map[string]struct {
		cancel, broken, restart bool
		undone                  string
	}{
		"on an error":            {undone: "cba"},
		"on a cancel":            {cancel: true, undone: "cba"},
		"one fails":              {broken: true, undone: "ca"},
		"restart":                {restart: true, undone: "cba"},
		"restart after a cancel": {cancel: true, restart: true, undone: "cba"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(e *env) {
				var undone string
				w := bide.Define("brn-saga", func(ctx bide.Context, _ none) (string, error) {
					return bide.Saga(ctx, func(ctx bide.Context, undo *bide.Undo) (string, error) {
						for _, s := range []string{"a", "b", "c"} {
							if _, err := bide.Step(ctx, s, func(context.Context) (int, error) { return 0, nil }); err != nil {
								return "", err
							}
							undo.Add("undo "+s, func(ctx context.Context) error {
								if s == "b" && c.broken {
									return bide.Permanent(&shortfall{9, nil})
								}
								if s == "b" && bide.AttemptNumber(ctx) < 3 {
									return errors.New("not yet")
								}
								undone += s
								return ctx.Err()
							}, bide.RetryPolicy{InitialInterval: time.Minute, NoJitter: true})
						}
						if c.cancel {
							return "", bide.Sleep(ctx, 100*time.Hour)
						}
						return "", errBroke
					})
				})
				e.work(w)
				h := start(e, w, none{})
				if c.cancel {
					time.Sleep(time.Hour)
					e.ok(e.client.Cancel(e.Context(), h.ID(), "enough"))
				}
				if c.restart {
					time.Sleep(90 * time.Second)
					e.restart(w)
				}
				_, err := result(e, h)
				x := wantErr[*bide.RunError](e, err)
				if undone != c.undone || c.cancel != (x.State == bide.Canceled) || !c.cancel && !errors.Is(err, errBroke) {
					t.Errorf("undone %q, %v", undone, err)
				}
				if short, ok := errors.AsType[*shortfall](err); ok != c.broken || ok && short.Missing != 9 {
					t.Errorf("the compensation's error: %v", err)
				}
			})
		})
	}
	t.Run("not on success", func(t *testing.T) {
		inBubble(t, func(e *env) {
			w := bide.Define("brn-saga-ok", func(ctx bide.Context, _ none) (string, error) {
				return bide.Saga(ctx, func(ctx bide.Context, undo *bide.Undo) (string, error) {
					undo.Add("undo", func(context.Context) error { t.Error("undone"); return nil })
					return "fine", bide.Sleep(ctx, time.Hour)
				})
			})
			if out, err := run(e, w, none{}); out != "fine" || err != nil {
				t.Errorf("%q, %v", out, err)
			}
		})
	})
}
