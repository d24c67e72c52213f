package bide_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/bide-dev/bide"
)

// scripted is a loop's function by a script: a letter an iteration, as in
// LoopState.Outcomes, and p to panic, t to time out; the last one for ever. Its
// clock ticks at each iteration.
type scripted struct {
	*clock
	script string
}

func newScripted(script string) *scripted { return &scripted{newClock(), script} }

func (s *scripted) run(ctx context.Context) (bide.Result, error) {
	s.tick()
	n := len(s.ticks()) - 1
	switch s.script[min(n, len(s.script)-1)] {
	case 'f':
		return bide.LoopOK, errors.New("down")
	case 'c':
		return bide.LoopChanged, nil
	case 'u':
		return bide.LoopUnchanged, nil
	case '-':
		return bide.LoopSkip, nil
	case 'p':
		panic("ouch")
	case 't':
		<-ctx.Done()
		return bide.LoopOK, ctx.Err()
	}
	return bide.LoopOK, nil
}

func since(e *env, c *clock, t time.Time) time.Duration {
	e.Helper()
	if t.IsZero() {
		return -1
	}
	return t.Sub(c.began)
}

// Each form of a loop's function, and each result, counts as what it is.
func TestLoopOutcomes(t *testing.T) {
	down := errors.New("down")
	result := func(r bide.Result, err error) func() *bide.LoopDefinition {
		return defined(func(context.Context) (bide.Result, error) { return r, err })
	}
	for _, c := range []struct {
		name    string
		loop    func() *bide.LoopDefinition
		outcome string
		message string // of the error, in part
		ended   time.Duration
	}{
		{"func()", defined(func(context.Context) {}), "s", "", 0},
		{"nil", defined(func(context.Context) error { return nil }), "s", "", 0},
		{"error", defined(func(context.Context) error { return down }), "f", "down", 0},
		{"permanent error", defined(func(context.Context) error { return bide.Permanent(down) }), "f", "down", 0},
		{"true", defined(func(context.Context) bool { return true }), "s", "", 0},
		{"false", defined(func(context.Context) bool { return false }), "f", "said that it failed", 0},
		{"LoopOK", result(bide.LoopOK, nil), "s", "", 0},
		{"LoopFail", result(bide.LoopFail, nil), "f", "said that it failed", 0},
		{"LoopChanged", result(bide.LoopChanged, nil), "c", "", 0},
		{"LoopUnchanged", result(bide.LoopUnchanged, nil), "u", "", 0},
		{"LoopSkip", result(bide.LoopSkip, nil), "-", "", 0},
		{"result and error", result(bide.LoopChanged, down), "f", "down", 0},
		{"skip and error", result(bide.LoopSkip, down), "f", "down", 0},
		{"no result", result(0, nil), "f", "0 is none of the constants", 0},
		{"unknown result", result(99, nil), "f", "99 is none of the constants", 0},
		{"panic", defined(func(context.Context) { panic("ouch") }), "f", "panic: ouch", 0},
		{"Goexit", defined(func(context.Context) { runtime.Goexit() }), "f", "runtime.Goexit", 0},
		{"timeout", defined(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }), "f", "timed out after 1s", sec},
		{"timeout, deaf", defined(func(context.Context) { time.Sleep(5 * sec) }), "f", "timed out after 1s", sec},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(e *env) {
				clock := newClock()
				e.work(c.loop())
				time.Sleep(19 * sec)
				s := e.loopState("it")
				skip, failed := c.outcome == "-", c.outcome == "f"
				want := bide.LoopState{Name: "it", Outcomes: c.outcome, Interval: 10 * sec, Effective: 10 * sec, Iterations: 1, Hash: s.Hash}
				want.Multiplier = 1
				last, success, next := 10*sec+c.ended, 10*sec, 20*sec+c.ended
				switch {
				case failed:
					want.Failures, want.Multiplier, want.Effective = 1, 2, 20*sec
					success, next = -1, next+10*sec
				case skip:
					want.Iterations, want.Skipped = 0, "function"
					last, success = -1, -1
				}
				if s.Name != want.Name || s.Outcomes != want.Outcomes || s.PaceState != want.PaceState || s.Interval != want.Interval ||
					s.Effective != want.Effective || s.Iterations != want.Iterations || s.Skipped != want.Skipped || s.Paused || !s.InFlight.IsZero() {
					t.Errorf("the state is %s, want %s", jsonOf(t, s), jsonOf(t, want))
				}
				if got := since(e, clock, s.LastAt); got != last {
					t.Errorf("LastAt is %v, want %v", got, last)
				}
				if got := since(e, clock, s.LastSuccessAt); got != success {
					t.Errorf("LastSuccessAt is %v, want %v", got, success)
				}
				if got := since(e, clock, s.NextAt); got != next {
					t.Errorf("NextAt is %v, want %v", got, next)
				}
				if failed {
					if s.LastError == nil || !strings.Contains(s.LastError.Message, c.message) || !s.LastErrorAt.Equal(s.LastAt) {
						t.Errorf("LastError is %+v at %v, want %q", s.LastError, s.LastErrorAt, c.message)
					}
				} else if s.LastError != nil {
					t.Errorf("LastError is %v", s.LastError)
				}
			})
		})
	}
}

// defined is a loop of the function, every 10 s.
func defined[F bide.LoopFunc](fn F) func() *bide.LoopDefinition {
	return func() *bide.LoopDefinition {
		return bide.Loop("it", fn, bide.Every(10*sec), bide.Exact{}, bide.AttemptTimeout(sec))
	}
}

// A skip, by the function or by the condition, changes neither a counter nor
// LastAt; the next time comes after the interval as the failures have made it.
func TestLoopSkipChangesNothing(t *testing.T) {
	for _, by := range []string{"function", "condition"} {
		t.Run(by, func(t *testing.T) {
			inBubble(t, func(e *env) {
				s := newScripted("ff---s")
				opts := []bide.LoopOption{bide.Every(10 * sec), bide.Exact{}}
				if by == "condition" {
					s.script = "ffs"
					asked := 0
					opts = append(opts, bide.Condition(func(context.Context) bool {
						asked++
						if skip := asked >= 3 && asked <= 5; skip {
							s.tick()
							return false
						}
						return true
					}))
				}
				run := s.run
				if by == "condition" {
					n := 0
					run = func(ctx context.Context) (bide.Result, error) {
						s.tick()
						if n++; n <= 2 {
							return bide.LoopFail, nil
						}
						return bide.LoopOK, nil
					}
				}
				e.work(bide.Loop("it", run, opts...))
				time.Sleep(40 * sec)
				before := e.loopState("it")
				time.Sleep(120 * sec)
				after := e.loopState("it")
				// failed at 10 and 30; 40 s each from there
				s.want(e, "iterations and skips", 10*sec, 30*sec, 70*sec, 110*sec, 150*sec)
				if after.PaceState != before.PaceState || !after.LastAt.Equal(before.LastAt) || after.Iterations != before.Iterations ||
					after.Failures != 2 || !after.LastErrorAt.Equal(before.LastErrorAt) || after.Effective != 40*sec {
					t.Errorf("a skip made %s of %s", jsonOf(t, after), jsonOf(t, before))
				}
				if after.Skipped != by || after.Outcomes != "ff---" {
					t.Errorf("skipped by %q, outcomes %q", after.Skipped, after.Outcomes)
				}
				time.Sleep(31 * sec)
				if s := e.loopState("it"); s.Skipped != "" || s.Failures != 0 || s.Iterations != 3 || s.Outcomes != "ff---s" {
					t.Errorf("after an iteration that was none skipped: %s", jsonOf(t, s))
				}
			})
		})
	}
}

// A condition that panics is a failure, not a skip: somebody has to hear of it.
func TestLoopConditionPanics(t *testing.T) {
	inBubble(t, func(e *env) {
		ran := newClock()
		e.work(bide.Loop("it", func(context.Context) { ran.tick() }, bide.Every(10*sec), bide.Exact{},
			bide.Condition(func(context.Context) bool { panic("who?") })))
		time.Sleep(11 * sec)
		if s := e.loopState("it"); s.Failures != 1 || s.LastError == nil || s.LastError.Message != "panic: who?" {
			t.Errorf("the state is %s", jsonOf(t, s))
		}
		ran.want(e, "iterations")
	})
}

// A function that has not heeded its context is not called once more before it has
// returned: such times are skipped.
func TestLoopDeafFunctionIsNotOverlapped(t *testing.T) {
	inBubble(t, func(e *env) {
		var peak tkoPeak
		ran := newClock()
		e.work(bide.Loop("it", func(context.Context) { ran.tick(); peak.during(30 * sec) }, bide.Every(5*sec), bide.Exact{}, bide.AttemptTimeout(sec)))
		time.Sleep(28 * sec)
		// Begun at 5, given up at 6; 16 and 26 find it still there; until 35.
		if s := e.loopState("it"); s.Outcomes != "f--" || s.Skipped != "busy" || s.Iterations != 1 || s.Failures != 1 {
			t.Errorf("the state is %s", jsonOf(t, s))
		}
		time.Sleep(42 * sec)
		ran.want(e, "iterations", 5*sec, 36*sec)
		if top := peak.top.Load(); top != 1 {
			t.Errorf("%d iterations at once", top)
		}
	})
}
