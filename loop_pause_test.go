package bide_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bide-dev/bide"
)

// kill is a crash that nobody waits for: of the worker nothing reaches the store
// any more, and the function in flight goes on.
func (h *hand) kill() {
	h.gate.set(dead)
	h.cancel()
}

// Control is what a loop pauses itself with, after a forced iteration.
func (g *gate) Control(ctx context.Context, run string, c bide.Command) error {
	if err := g.pass(); err != nil {
		return err
	}
	return g.Store.Control(ctx, run, c)
}

// A pause lasts until the resume, over restarts, and is shown.
func TestLoopPauseLasts(t *testing.T) {
	for _, warm := range []int{0, -1} {
		inBubble(t, func(e *env) {
			ran := newClock()
			cfg := e.config()
			cfg.MaxWarm = warm
			loop := bide.Loop("it", func(context.Context) { ran.tick() }, bide.Every(10*sec), bide.Exact{})
			h := e.workAs(cfg, loop)
			time.Sleep(12 * sec)
			it := e.client.Loop("it")
			e.ok(it.Pause(e.Context(), false))
			e.ok(it.Pause(e.Context(), false)) // twice is no error
			time.Sleep(time.Hour)
			e.ok(h.stop())
			e.workAs(cfg, loop)
			time.Sleep(time.Hour)
			if s := e.loopState("it"); !s.Paused || !s.NextAt.IsZero() || s.Iterations != 1 || s.Stopped {
				t.Errorf("the state is %s", jsonOf(t, s))
			}
			ran.want(e, "iterations", 10*sec)
			e.ok(it.Resume(e.Context()))
			time.Sleep(15 * sec)
			back := 12*sec + 2*time.Hour + 20*time.Millisecond // it is stale
			ran.want(e, "iterations", 10*sec, back, back+10*sec)
		})
	}
}

// A loop that is resumed before its time keeps the rest of its interval.
func TestLoopResumeKeepsTheRemainingTime(t *testing.T) {
	for _, c := range []struct{ interval, pause, resume time.Duration }{{10 * sec, 12 * sec, 19 * sec}, {time.Hour, 3700 * sec, 7000 * sec}} {
		inBubble(t, func(e *env) {
			ran := newClock()
			e.work(bide.Loop("it", func(context.Context) { ran.tick() }, bide.Every(c.interval), bide.Exact{}))
			time.Sleep(c.pause)
			e.ok(e.client.Loop("it").Pause(e.Context(), false))
			time.Sleep(c.resume - c.pause)
			e.ok(e.client.Loop("it").Resume(e.Context()))
			time.Sleep(3*c.interval - c.resume + sec)
			ran.want(e, "iterations", c.interval, 2*c.interval, 3*c.interval)
		})
	}
}

// An iteration that is in flight at the pause finishes and is counted; nothing
// follows, be it triggered or overdue.
func TestLoopPauseInFlight(t *testing.T) {
	for _, triggered := range []bool{false, true} {
		inBubble(t, func(e *env) {
			ran := newClock()
			loop := bide.Loop("it", func(ctx context.Context) error {
				ran.tick()
				time.Sleep(3 * sec)
				return ctx.Err()
			}, bide.Every(10*sec), bide.Exact{})
			e.work(loop)
			time.Sleep(11 * sec)
			if triggered {
				e.trigger("it", false)
			}
			e.ok(e.client.Loop("it").Pause(e.Context(), false))
			if s := e.loopState("it"); !s.Paused || s.InFlight.IsZero() {
				t.Errorf("in flight: %s", jsonOf(t, s))
			}
			time.Sleep(time.Minute)
			if s := e.loopState("it"); !s.Paused || s.Outcomes != "s" || s.Iterations != 1 || !s.InFlight.IsZero() {
				t.Errorf("then: %s", jsonOf(t, s))
			}
			ran.want(e, "iterations", 10*sec)
			e.ok(e.client.Loop("it").Resume(e.Context()))
			time.Sleep(5 * sec)
			back := 71 * sec
			if !triggered {
				back += 20 * time.Millisecond
			}
			ran.want(e, "iterations", 10*sec, back)
		})
	}
}

// A pause holds back a loop that makes up for many missed times, after the one
// in flight.
func TestLoopPauseWhileCatchingUp(t *testing.T) {
	inBubble(t, func(e *env) {
		ran := newClock()
		loop := bide.Loop("it", func(context.Context) { ran.tick(); time.Sleep(sec) }, bide.On(everyFull(10*sec), bide.MisfireAll))
		h := e.work(loop)
		e.ok(h.stop())
		time.Sleep(time.Hour)
		h = e.work(loop)
		time.Sleep(5*sec + sec/2)
		e.ok(e.client.Loop("it").Pause(e.Context(), false))
		time.Sleep(time.Minute)
		if n := len(ran.ticks()); n != 6 {
			t.Errorf("%d iterations, want the 6 that had begun", n)
		}
		e.ok(e.client.Loop("it").Resume(e.Context()))
		time.Sleep(sec / 2)
		e.ok(h.stop()) // and so does the end of the worker
		if n := len(ran.ticks()); n != 7 {
			t.Errorf("%d iterations, want 7", n)
		}
	})
}

// An abort cancels the iteration in flight, whether it heeds that or not, and
// counts it as neither success nor failure.
func TestLoopPauseAbort(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		inBubble(t, func(e *env) {
			ran := newClock()
			var saw atomic.Pointer[error]
			e.work(bide.Loop("it", func(ctx context.Context) error {
				ran.tick()
				if len(ran.ticks()) == 3 {
					if deaf {
						time.Sleep(30 * sec)
						return nil
					}
					<-ctx.Done()
					err := ctx.Err()
					saw.Store(&err)
					return err
				}
				return errors.New("down")
			}, bide.Every(10*sec), bide.Exact{}, bide.Breaker{Failures: 3}))
			time.Sleep(71 * sec) // 10, 30, 70
			before := e.loopState("it")
			e.trigger("it", false)
			e.ok(e.client.Loop("it").Pause(e.Context(), true))
			time.Sleep(100 * time.Millisecond)
			s := e.loopState("it")
			if s.PaceState != before.PaceState || s.Failures != 2 || s.Iterations != 2 || s.Outcomes != "ff" || !s.LastAt.Equal(before.LastAt) ||
				!s.InFlight.IsZero() || !s.Paused || s.Breaker.Failures != 2 || !s.Breaker.OpenedAt.IsZero() {
				t.Errorf("deaf %v: an abort made %s of %s", deaf, jsonOf(t, s), jsonOf(t, before))
			}
			if err := saw.Load(); !deaf && (err == nil || !errors.Is(*err, context.Canceled)) {
				t.Errorf("the function saw %v", err)
			}
			time.Sleep(time.Minute)
			ran.want(e, "iterations", 10*sec, 30*sec, 70*sec)
			e.ok(e.client.Loop("it").Resume(e.Context()))
			time.Sleep(sec)
			if n := len(ran.ticks()); n != 4 { // the trigger still stands
				t.Errorf("%d iterations after the resume, want 4", n)
			}
		})
	}
}

// An abort of a loop that has nothing in flight is a pause.
func TestLoopPauseAbortIdle(t *testing.T) {
	inBubble(t, func(e *env) {
		ran := newClock()
		e.work(bide.Loop("it", func(context.Context) { ran.tick(); time.Sleep(sec) }, bide.Every(10*sec), bide.Exact{}))
		time.Sleep(sec)
		e.ok(e.client.Loop("it").Pause(e.Context(), true))
		time.Sleep(sec)
		e.ok(e.client.Loop("it").Resume(e.Context()))
		time.Sleep(20 * sec)
		ran.want(e, "iterations", 10*sec, 21*sec)
	})
}

// Stop ends a loop for good, and cancels what is in flight; Client.Retry lets it
// begin again as if it were new. Neither is ever seen as a failed run.
func TestLoopStop(t *testing.T) {
	for _, inFlight := range []bool{false, true} {
		inBubble(t, func(e *env) {
			ran := newClock()
			loop := bide.Loop("it", func(ctx context.Context) error {
				if ran.tick(); inFlight {
					<-ctx.Done()
				}
				return ctx.Err()
			}, bide.Every(10*sec), bide.Exact{})
			e.work(loop)
			time.Sleep(11 * sec)
			it := e.client.Loop("it")
			e.ok(it.Stop(e.Context()))
			e.ok(it.Stop(e.Context()))
			time.Sleep(sec)
			e.wantState("loop:it", bide.Canceled)
			if s := e.loopState("it"); !s.Stopped || !s.NextAt.IsZero() || s.Name != "it" {
				t.Errorf("the state is %s", jsonOf(t, s))
			}
			e.restart(loop)
			time.Sleep(time.Hour)
			ran.want(e, "iterations", 10*sec)
			if err := it.Resume(e.Context()); !errors.Is(err, bide.ErrRunEnded) {
				t.Errorf("a resume of a stopped loop: %v", err)
			}
			e.ok(e.client.Retry(e.Context(), "loop:it"))
			again := time.Since(ran.began) + 10*sec
			time.Sleep(11 * sec)
			ran.want(e, "iterations", 10*sec, again)
			if s := e.loopState("it"); s.Stopped {
				t.Errorf("after the retry: %s", jsonOf(t, s))
			}
		})
	}
}
