package bide_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/wait"
)

// between checks that each pause lies in its range: what a breaker draws has
// jitter of up to a fifth.
func (c *clock) between(e *env, pauses ...[2]time.Duration) {
	e.Helper()
	at, ticks := time.Duration(0), c.ticks()
	if len(ticks) != len(pauses) {
		e.Errorf("%d iterations at %v, want %d", len(ticks), ticks, len(pauses))
		return
	}
	for i, tick := range ticks {
		if d := tick - at; d < pauses[i][0] || d > pauses[i][1] {
			e.Errorf("pause %d of %v is %v, want %v", i, ticks, d, pauses[i])
		}
		at = tick
	}
}

func flatly(d time.Duration) [2]time.Duration { return [2]time.Duration{d, d} }
func cooldown(d time.Duration) [2]time.Duration {
	return [2]time.Duration{d, d + d/5 + time.Microsecond}
}

func (e *env) wantBreaker(s bide.LoopState, want wait.BreakerState) {
	e.Helper()
	if s.Breaker == nil || s.Breaker.State(time.Now()) != want {
		e.Errorf("the breaker is not %v: %s", want, jsonOf(e.T, s))
	}
}

// Failures in a row open the breaker; while it is open its cool-down replaces the
// multiplier, doubled by each probe that fails, up to the longest; the first that
// works closes it, and all is as it was.
func TestLoopBreaker(t *testing.T) {
	inBubble(t, func(e *env) {
		s := newScripted("fffffffss")
		loop := bide.Loop("it", s.run, bide.Every(10*sec), bide.Exact{},
			bide.Breaker{Failures: 3, Cooldown: 100 * sec, MaxCooldown: 300 * sec})
		e.work(loop)
		time.Sleep(70*sec + sec) // failed at 10, 30, 70
		st := e.loopState("it")
		e.wantBreaker(st, wait.Open)
		if d := st.NextAt.Sub(st.Breaker.RetryAt); d < 0 || d > time.Microsecond || st.Failures != 3 || st.Skipped != "" {
			t.Errorf("the state is %s", jsonOf(t, st))
		}
		e.restart(loop) // the breaker is kept
		time.Sleep(1000 * sec)
		e.restart(loop)
		time.Sleep(700 * sec)
		st = e.loopState("it")
		e.wantBreaker(st, wait.Closed)
		if st.Breaker.Reopens != 0 || st.Failures != 0 || st.Effective != 10*sec {
			t.Errorf("closed again: %s", jsonOf(t, st))
		}
		first := clock{at: s.ticks()[:9]}
		first.between(e, flatly(10*sec), flatly(20*sec), flatly(40*sec), cooldown(100*sec), cooldown(200*sec), cooldown(300*sec),
			cooldown(300*sec), cooldown(300*sec), flatly(10*sec))
		if logs := e.logs.String(); strings.Count(logs, "breaker is open") != 5 || strings.Count(logs, "breaker is closed") != 1 {
			t.Errorf("the log tells\n%s", logs)
		}
	})
}

// A share of failures opens it too.
func TestLoopBreakerRate(t *testing.T) {
	inBubble(t, func(e *env) {
		s := newScripted(strings.Repeat("sf", 50))
		e.work(bide.Loop("it", s.run, bide.Every(sec), bide.MaxMultiplier(1), bide.Exact{}, bide.Breaker{}))
		time.Sleep(21 * sec)
		st := e.loopState("it")
		e.wantBreaker(st, wait.Open)
		if st.Iterations != 20 {
			t.Errorf("it opened after %d iterations", st.Iterations)
		}
	})
}

// What the server says about when to come back is the cool-down, if it is longer.
func TestLoopBreakerHeedsTheServer(t *testing.T) {
	inBubble(t, func(e *env) {
		clock := newClock()
		e.work(bide.Loop("it", func(context.Context) error {
			clock.tick()
			if len(clock.ticks()) == 1 {
				return wait.After(errors.New("down for an hour"), time.Hour)
			}
			return nil
		}, bide.Every(10*sec), bide.Exact{}, bide.Breaker{Failures: 1, Cooldown: 30 * sec}))
		time.Sleep(time.Hour + 15*sec)
		clock.want(e, "iterations", 10*sec, time.Hour+10*sec)
	})
}

// A trigger is the probe of an open breaker: it runs now, and closes it or not.
func TestLoopBreakerTrigger(t *testing.T) {
	inBubble(t, func(e *env) {
		s := newScripted("fffs")
		e.work(bide.Loop("it", s.run, bide.Every(10*sec), bide.Exact{}, bide.Breaker{Failures: 2, Cooldown: 1000 * sec, MaxCooldown: 2 * time.Hour}))
		time.Sleep(35 * sec) // failed at 10 and 30
		e.wantBreaker(e.loopState("it"), wait.Open)
		e.trigger("it", false)
		time.Sleep(sec)
		st := e.loopState("it")
		e.wantBreaker(st, wait.Open)
		if d := time.Until(st.NextAt); st.Iterations != 3 || d < 1900*sec {
			t.Errorf("after a probe that failed, in %v: %s", d, jsonOf(t, st))
		}
		e.trigger("it", false)
		time.Sleep(sec)
		e.wantBreaker(e.loopState("it"), wait.Closed)
		time.Sleep(10 * sec)
		s.want(e, "iterations", 10*sec, 30*sec, 35*sec, 36*sec, 46*sec)
	})
}

// A skip and an abort tell the breaker nothing: its cool-down, its counts and its
// probe are as they were.
func TestLoopBreakerAndSkip(t *testing.T) {
	inBubble(t, func(e *env) {
		s := newScripted("ff-s")
		var allowed atomic.Bool
		allowed.Store(true)
		e.work(bide.Loop("it", s.run, bide.Every(10*sec), bide.Exact{}, bide.Breaker{Failures: 2, Cooldown: 1000 * sec, MaxCooldown: time.Hour},
			bide.Condition(func(context.Context) bool { return allowed.Load() })))
		time.Sleep(35 * sec)
		before := e.loopState("it")
		allowed.Store(false)
		e.trigger("it", false)
		time.Sleep(sec)
		st := e.loopState("it")
		if jsonOf(t, st.Breaker) != jsonOf(t, before.Breaker) || !st.NextAt.Equal(before.NextAt) || st.Skipped != "condition" {
			t.Errorf("the skip made %s of %s", jsonOf(t, st), jsonOf(t, before))
		}
		allowed.Store(true)
		time.Sleep(1200 * sec) // the probe skips, by its function, and comes again
		e.wantBreaker(e.loopState("it"), wait.Closed)
		if got := e.loopState("it").Outcomes; !strings.HasPrefix(got, "ff--s") {
			t.Errorf("the outcomes are %q", got)
		}
	})
}

// A probe that crashed holds its slot for as long as an iteration may take, and no
// longer.
func TestLoopBreakerProbeCrashes(t *testing.T) {
	inBubble(t, func(e *env) {
		clock := newClock()
		loop := func() *bide.LoopDefinition {
			return bide.Loop("it", func(context.Context) error {
				clock.tick()
				if n := len(clock.ticks()); n == 1 {
					return errors.New("down")
				}
				time.Sleep(5 * sec)
				return nil
			}, bide.Every(10*sec), bide.Exact{}, bide.Breaker{Failures: 1, Cooldown: 30 * sec}, bide.AttemptTimeout(20*sec))
		}
		h := e.work(loop())
		for e.loopState("it").InFlight.IsZero() || len(clock.ticks()) < 2 {
			time.Sleep(sec)
		}
		h.kill()
		e.work(loop())
		time.Sleep(time.Minute)
		st := e.loopState("it")
		e.wantBreaker(st, wait.Closed)
		if !strings.HasPrefix(st.Outcomes, "fi") || !strings.HasSuffix(st.Outcomes, "s") || len(st.Breaker.Probes) != 0 {
			t.Errorf("the state is %s", jsonOf(t, st))
		}
	})
}

// ResetBackoff closes an open breaker.
func TestLoopBreakerReset(t *testing.T) {
	inBubble(t, func(e *env) {
		s := newScripted("ffs")
		e.work(bide.Loop("it", s.run, bide.Every(10*sec), bide.Exact{}, bide.Breaker{Failures: 2, Cooldown: time.Hour, MaxCooldown: time.Hour}))
		time.Sleep(35 * sec)
		e.ok(e.client.Loop("it").ResetBackoff(e.Context()))
		time.Sleep(sec)
		e.wantBreaker(e.loopState("it"), wait.Closed)
		time.Sleep(10 * sec)
		s.want(e, "iterations", 10*sec, 30*sec, 40*sec)
	})
}

// A breaker that is open does not move the times of a schedule: it passes over
// those of its cool-down, under any misfire policy.
func TestLoopBreakerAndSchedule(t *testing.T) {
	for _, m := range []bide.Misfire{bide.MisfireOnce, bide.MisfireSkip, bide.MisfireAll} {
		inBubble(t, func(e *env) {
			d := newDated()
			d.fails.Store(true)
			e.work(bide.Loop("it", d.run, bide.On(everyFull(time.Minute), m), bide.Breaker{Failures: 2, Cooldown: 5 * time.Minute}))
			time.Sleep(2*time.Minute + sec)
			d.fails.Store(false)
			time.Sleep(8 * time.Minute)
			// open from 2:00 until between 7:00 and 8:00
			due := d.dues()
			if n := len(due); n < 4 || n > 6 || due[2] < 7*time.Minute || due[2] > 8*time.Minute || due[n-1] != 10*time.Minute {
				t.Errorf("the iterations were for %v", due)
			}
			d.want(e, "iterations", due...)
		})
	}
}

// A loop whose Breaker option was taken away forgets it.
func TestLoopBreakerRemoved(t *testing.T) {
	inBubble(t, func(e *env) {
		s := newScripted("f")
		loop := func(opts ...bide.LoopOption) *bide.LoopDefinition {
			return bide.Loop("it", s.run, append(opts, bide.Every(10*sec), bide.MaxMultiplier(1), bide.Exact{})...)
		}
		e.work(loop(bide.Breaker{Failures: 1, Cooldown: time.Minute}))
		time.Sleep(11 * sec)
		e.wantBreaker(e.loopState("it"), wait.Open)
		e.restart(loop())
		e.trigger("it", false)
		time.Sleep(25 * sec)
		s.want(e, "iterations", 10*sec, 11*sec, 21*sec, 31*sec)
		if st := e.loopState("it"); st.Breaker != nil {
			t.Errorf("the state is %s", jsonOf(t, st))
		}
		e.restart(loop(bide.Breaker{Failures: 1, Cooldown: time.Minute})) // and back again
		time.Sleep(6 * sec)
		e.wantBreaker(e.loopState("it"), wait.Open)
	})
}
