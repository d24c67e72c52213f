package bide_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bide-dev/bide"
)

func (e *env) trigger(name string, force bide.Force) bide.Triggered {
	e.Helper()
	got, err := e.client.Loop(name).Trigger(e.Context(), force)
	if err != nil {
		e.Fatal(err)
	}
	return got
}

func (e *env) wantTriggered(got bide.Triggered, iteration int, coalesced bool) {
	e.Helper()
	if want := (bide.Triggered{Iteration: iteration, Coalesced: coalesced}); got != want {
		e.Errorf("the trigger gave %+v, want %+v", got, want)
	}
}

// A trigger of an idle loop runs it now, warm or parked, and begins the interval
// anew.
func TestLoopTriggerIdle(t *testing.T) {
	for _, warm := range []int{0, -1} {
		inBubble(t, func(e *env) {
			ran := newClock()
			cfg := e.config()
			cfg.MaxWarm = warm
			e.workAs(cfg, bide.Loop("it", func(context.Context) { ran.tick() }, bide.Every(10*sec), bide.Exact{}))
			time.Sleep(14 * sec)
			e.wantTriggered(e.trigger("it", false), 2, false)
			time.Sleep(5 * time.Millisecond) // until it is committed
			if s := e.loopState("it"); s.Iterations != 2 {
				t.Errorf("it stands at iteration %d", s.Iterations)
			}
			time.Sleep(25 * sec)
			ran.want(e, "iterations", 10*sec, 14*sec, 24*sec, 34*sec)
		})
	}
}

// Client.Check is a trigger too; what else may be done to a live wait is refused.
func TestLoopOtherActs(t *testing.T) {
	inBubble(t, func(e *env) {
		ran := newClock()
		e.work(bide.Loop("it", func(context.Context) { ran.tick() }, bide.Every(10*sec), bide.Exact{}))
		time.Sleep(2 * sec)
		e.ok(e.client.Check(e.Context(), "loop:it", "it"))
		time.Sleep(sec)
		for _, err := range []error{e.client.Complete(e.Context(), "loop:it", "it", "pause"), e.client.Fail(e.Context(), "loop:it", "it", "no"),
			e.client.Extend(e.Context(), "loop:it", "it", time.Hour)} {
			if invalid, ok := errors.AsType[*bide.InvalidError](err); !ok || invalid.Field != "wait" {
				t.Errorf("%v", err)
			}
		}
		time.Sleep(20 * sec)
		ran.want(e, "iterations", 2*sec, 12*sec, 22*sec)
	})
}

// However many triggers come while an iteration is in flight, exactly one more
// follows it at once: whoever asked sees what was there after the asking.
func TestLoopTriggerInFlight(t *testing.T) {
	inBubble(t, func(e *env) {
		ran := newClock()
		e.work(bide.Loop("it", func(context.Context) { ran.tick(); time.Sleep(3 * sec) }, bide.Every(10*sec), bide.Exact{}))
		time.Sleep(10*sec + 100*time.Millisecond)
		for range 5 {
			e.wantTriggered(e.trigger("it", false), 2, true)
			time.Sleep(500 * time.Millisecond)
		}
		time.Sleep(sec) // into the one that follows
		e.wantTriggered(e.trigger("it", false), 3, true)
		time.Sleep(30 * sec)
		ran.want(e, "iterations", 10*sec, 13*sec, 16*sec, 29*sec, 42*sec)
	})
}

// A trigger goes before the time that comes meanwhile; there are not two.
func TestLoopTriggerAtTheTime(t *testing.T) {
	inBubble(t, func(e *env) {
		ran := newClock()
		loop := bide.Loop("it", func(context.Context) { ran.tick() }, bide.Every(10*sec), bide.Exact{})
		h := e.work(loop)
		time.Sleep(sec)
		e.ok(h.stop())
		time.Sleep(20 * sec)
		for range 3 {
			e.trigger("it", false)
		}
		e.work(loop)
		time.Sleep(sec)
		ran.want(e, "iterations", 21*sec)
	})
}

// A paused loop refuses a trigger, unless forced: then it runs once and stays
// paused, over all restarts.
func TestLoopTriggerPaused(t *testing.T) {
	for _, warm := range []int{0, -1} {
		inBubble(t, func(e *env) {
			ran := newClock()
			cfg := e.config()
			cfg.MaxWarm = warm
			loop := bide.Loop("it", func(context.Context) { ran.tick(); time.Sleep(sec) }, bide.Every(10*sec), bide.Exact{})
			h := e.workAs(cfg, loop)
			time.Sleep(12 * sec)
			it := e.client.Loop("it")
			e.ok(it.Pause(e.Context(), false))
			time.Sleep(18 * sec)
			_, err := it.Trigger(e.Context(), false)
			if x := wantErr[*bide.InvalidError](e, err); x.Field != "loop" || !strings.Contains(x.Reason, "paused") {
				t.Errorf("the error is %v", err)
			}
			e.wantTriggered(e.trigger("it", true), 2, false) // at 30: it is overdue, too
			time.Sleep(3 * sec)
			if s := e.loopState("it"); !s.Paused || s.Iterations != 2 {
				t.Errorf("after the forced one: %s", jsonOf(t, s))
			}
			e.wantTriggered(e.trigger("it", true), 3, false) // at 33: it is not
			time.Sleep(100 * sec)
			e.ok(h.stop())
			e.workAs(cfg, loop)
			time.Sleep(67 * sec)
			e.wantTriggered(e.trigger("it", true), 4, false) // at 200
			time.Sleep(2 * sec)
			ran.want(e, "iterations", 10*sec, 30*sec, 33*sec, 200*sec)
			e.ok(it.Resume(e.Context()))
			time.Sleep(10 * sec)
			ran.want(e, "after the resume", 10*sec, 30*sec, 33*sec, 200*sec, 211*sec)
		})
	}
}

// A crash in a forced iteration lets it run again, and pauses the loop then.
func TestLoopTriggerPausedAndCrash(t *testing.T) {
	inBubble(t, func(e *env) {
		ran := newClock()
		loop := func() *bide.LoopDefinition {
			return bide.Loop("it", func(context.Context) { ran.tick(); time.Sleep(sec) }, bide.Every(10*sec), bide.Exact{})
		}
		h := e.work(loop())
		e.ok(e.client.Loop("it").Pause(e.Context(), false))
		time.Sleep(sec)
		e.trigger("it", true)
		time.Sleep(500 * time.Millisecond)
		h.kill()
		e.work(loop())
		time.Sleep(time.Minute)
		if s := e.loopState("it"); !s.Paused || s.Outcomes != "is" || len(ran.ticks()) != 2 {
			t.Errorf("ran at %v: %s", ran.ticks(), jsonOf(t, s))
		}
	})
}

// A trigger outlives a crash of the iteration that it began.
func TestLoopTriggerOutlivesACrash(t *testing.T) {
	for _, after := range []time.Duration{time.Millisecond, 500 * time.Millisecond} {
		inBubble(t, func(e *env) {
			d := newDated()
			d.takes.Store(int64(sec))
			loop := func() *bide.LoopDefinition {
				return bide.Loop("it", d.run, bide.Every(time.Hour), bide.Exact{})
			}
			h := e.work(loop())
			time.Sleep(sec)
			e.trigger("it", false)
			time.Sleep(after)
			h.kill()
			e.work(loop())
			time.Sleep(time.Minute)
			d.wantDue(e, sec, sec)
			if s := e.loopState("it"); s.Outcomes != "is" || !s.InFlight.IsZero() {
				t.Errorf("the state is %s", jsonOf(t, s))
			}
		})
	}
}

// The condition is obeyed by a trigger; that it was against it is said.
func TestLoopTriggerAndCondition(t *testing.T) {
	inBubble(t, func(e *env) {
		ran := newClock()
		var open atomic.Bool
		e.work(bide.Loop("it", func(context.Context) { ran.tick() }, bide.Every(10*sec), bide.Exact{},
			bide.Condition(func(context.Context) bool { return open.Load() })))
		time.Sleep(3 * sec)
		e.wantTriggered(e.trigger("it", false), 1, false)
		time.Sleep(5 * time.Millisecond) // until it is committed
		if s := e.loopState("it"); s.Skipped != "condition" || s.Iterations != 0 || s.Outcomes != "-" {
			t.Errorf("the state is %s", jsonOf(t, s))
		}
		open.Store(true)
		time.Sleep(sec)
		e.wantTriggered(e.trigger("it", false), 1, false)
		time.Sleep(5 * time.Millisecond) // until it is committed
		if s := e.loopState("it"); s.Skipped != "" || s.Iterations != 1 {
			t.Errorf("the state is %s", jsonOf(t, s))
		}
		ran.want(e, "iterations", 4*sec+5*time.Millisecond)
	})
}

// A trigger of a loop that is not there, or is stopped, says so.
func TestLoopTriggerWithoutLoop(t *testing.T) {
	inBubble(t, func(e *env) {
		if _, err := e.client.Loop("it").Trigger(e.Context(), false); !errors.Is(err, bide.ErrNotFound) {
			t.Errorf("of an unknown loop: %v", err)
		}
		e.work(bide.Loop("it", func(context.Context) {}, bide.Every(10*sec)))
		e.ok(e.client.Loop("it").Stop(e.Context()))
		time.Sleep(sec)
		if _, err := e.client.Loop("it").Trigger(e.Context(), true); !errors.Is(err, bide.ErrRunEnded) {
			t.Errorf("of a stopped loop: %v", err)
		}
	})
}
