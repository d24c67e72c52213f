package bide_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bide-dev/bide"
)

// Of a loop that several workers have, one at a time runs an iteration, warm or
// parked, while workers come, go and crash; and the loop goes on all the while.
func TestLoopOneInFlight(t *testing.T) {
	for _, interval := range []time.Duration{sec, 15 * sec} {
		inBubble(t, func(e *env) {
			var peak tkoPeak
			var rng atomic.Pointer[rand.Rand]
			rng.Store(rand.New(rand.NewPCG(5, uint64(interval))))
			ran := newClock()
			loop := func() *bide.LoopDefinition { // as in a process of its own
				return bide.Loop("it", func(context.Context) error {
					ran.tick()
					peak.during(time.Duration(len(ran.ticks())%20) * 100 * time.Millisecond) // less than the lease
					if len(ran.ticks())%5 == 0 {
						return errors.New("down")
					}
					return nil
				}, bide.Every(interval), bide.MaxMultiplier(2))
			}
			var live []*hand
			longest, last := time.Duration(0), time.Duration(0)
			for range 300 {
				switch n := rng.Load().IntN(4); {
				case len(live) < 2 || len(live) < 4 && n == 0:
					live = append(live, e.work(loop()))
				case n == 1:
					h := live[0]
					live = live[1:]
					e.ok(h.stop())
				case n == 2:
					live[0].kill()
					live = live[1:]
				}
				time.Sleep(time.Duration(rng.Load().Int64N(int64(10 * sec))))
			}
			for _, at := range ran.ticks() {
				longest, last = max(longest, at-last), at
			}
			if top := peak.top.Load(); top != 1 {
				t.Errorf("every %v: %d iterations at once", interval, top)
			}
			// the interval, twice if it failed or was interrupted twice, a lapse, and as much again
			if limit := 3*interval + 4*testLease + 3*sec; longest > limit || len(ran.ticks()) < 40 {
				t.Errorf("every %v: %d iterations, with a pause of %v", interval, len(ran.ticks()), longest)
			}
		})
	}
}

// A worker whose lease is lost hears of it: the context of its iteration ends, its
// outcome is dropped, and the loop is another's.
func TestLoopLeaseLost(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		inBubble(t, func(e *env) {
			var saw atomic.Pointer[error]
			var calls, inFlight tkoPeak
			clock := newClock()
			loop := bide.Loop("it", func(ctx context.Context) error {
				calls.enter()
				clock.tick()
				if calls.now.Load() == 1 {
					inFlight.enter()
					if deaf {
						time.Sleep(20 * sec)
					} else {
						<-ctx.Done()
					}
					err := ctx.Err()
					saw.Store(&err)
					inFlight.leave()
					return nil
				}
				inFlight.during(time.Millisecond)
				return nil
			}, bide.Every(5*sec), bide.Exact{}, bide.AttemptTimeout(time.Hour))
			old := tkoWork(e, loop)
			time.Sleep(5*sec + sec/2)
			old.cut.Store(true)
			e.work(loop) // of the same process
			time.Sleep(30 * sec)
			if err := saw.Load(); err == nil || !errors.Is(*err, context.Canceled) {
				t.Errorf("the iteration saw %v", err)
			}
			s := e.loopState("it")
			if top := inFlight.top.Load(); top != 1 {
				t.Errorf("deaf %v: %d in flight at once", deaf, top)
			}
			if !strings.HasPrefix(s.Outcomes, "i") || !strings.HasSuffix(s.Outcomes, "ss") || s.Failures != 0 {
				t.Errorf("deaf %v: the state is %s", deaf, jsonOf(t, s))
			}
			if deaf != strings.Contains(s.Outcomes, "-") {
				t.Errorf("deaf %v: outcomes %q", deaf, s.Outcomes)
			}
		})
	}
}

// An iteration of more than 50 ms is shown in flight, and no longer when it is
// over, or when the next worker has found out that its process crashed.
func TestLoopInFlightIsShown(t *testing.T) {
	inBubble(t, func(e *env) {
		var takes atomic.Int64
		takes.Store(int64(3 * sec))
		loop := func() *bide.LoopDefinition {
			return bide.Loop("it", func(context.Context) { time.Sleep(time.Duration(takes.Load())) }, bide.Every(10*sec), bide.Exact{})
		}
		began := time.Now()
		h := e.work(loop())
		time.Sleep(10*sec + 20*time.Millisecond)
		if s := e.loopState("it"); !s.InFlight.IsZero() {
			t.Errorf("too early: %s", jsonOf(t, s))
		}
		time.Sleep(40 * time.Millisecond)
		if s := e.loopState("it"); !s.InFlight.Equal(began.Add(10 * sec)) {
			t.Errorf("in flight: %s", jsonOf(t, s))
		}
		time.Sleep(4 * sec)
		if s := e.loopState("it"); !s.InFlight.IsZero() || s.Iterations != 1 {
			t.Errorf("then: %s", jsonOf(t, s))
		}
		time.Sleep(10 * sec) // into the second
		h.kill()
		takes.Store(int64(time.Millisecond))
		if s := e.loopState("it"); !s.InFlight.Equal(began.Add(23 * sec)) {
			t.Errorf("after the crash: %s", jsonOf(t, s))
		}
		e.work(loop())
		time.Sleep(5 * sec)
		if s := e.loopState("it"); !s.InFlight.IsZero() || s.Outcomes != "sis" || s.Iterations != 3 || s.LastError.Code != "interrupted" {
			t.Errorf("after the takeover: %s", jsonOf(t, s))
		}
	})
}

// A state that is read while a worker has just taken the loop up is whole.
func TestLoopStateOfAClaimedLoop(t *testing.T) {
	inBubble(t, func(e *env) {
		cfg := e.config()
		cfg.MaxWarm = -1
		e.workAs(cfg, bide.Loop("it", func(context.Context) { time.Sleep(30 * time.Millisecond) }, bide.Every(10*sec), bide.Exact{}))
		time.Sleep(20*sec + 40*time.Millisecond) // in the second, which is not shown
		if s := e.loopState("it"); s.Iterations != 1 || s.Outcomes != "s" {
			t.Errorf("the state is %s", jsonOf(t, s))
		}
		e.wantState("loop:it", bide.Running)
		e.wantTriggered(e.trigger("it", false), 2, false)
	})
}

// An iteration that kills its process is begun again at once the first time; if it
// does so again and again it is kept at a distance, more each time. That holds for
// its very first one, for those that were triggered, and for a schedule.
func TestLoopThatKillsItsProcess(t *testing.T) {
	for _, c := range []struct {
		name    string
		opts    []bide.LoopOption
		trigger bool
	}{
		{"interval", []bide.LoopOption{bide.Every(10 * sec), bide.Exact{}}, false},
		{"first", []bide.LoopOption{bide.Every(10 * sec), bide.Exact{}, bide.RunImmediately{}}, false},
		{"triggered", []bide.LoopOption{bide.Every(10 * sec), bide.Exact{}}, true},
		{"schedule", []bide.LoopOption{bide.On(everyFull(time.Minute), bide.MisfireSkip)}, false},
	} {
		for _, shown := range []bool{false, true} { // in flight, when it kills
			t.Run(c.name, func(t *testing.T) {
				inBubble(t, func(e *env) {
					kills := newClock()
					var harmless atomic.Bool
					loop := func() *bide.LoopDefinition {
						return bide.Loop("it", func(context.Context) {
							if shown {
								time.Sleep(100 * time.Millisecond)
							}
							if !harmless.Load() {
								kills.tick()
								e.hands[len(e.hands)-1].kill()
							}
						}, c.opts...)
					}
					work := func(d time.Duration) { // for so long, as a supervisor does
						for range d / sec {
							if n := len(e.hands); n == 0 || e.hands[n-1].gate.pass() != nil {
								e.work(loop())
								if n == 0 && c.trigger {
									time.Sleep(sec)
									e.trigger("it", false)
								}
							}
							time.Sleep(sec)
						}
					}
					work(time.Hour)
					at := kills.ticks()
					for i := range at {
						switch {
						case i == 0:
						case i == 1:
							if d := at[1] - at[0]; d > testLease+2*sec {
								t.Errorf("shown %v: the second try came after %v", shown, d)
							}
						case at[i]-at[i-1] < 40*sec || i > 2 && c.name != "schedule" && at[i]-at[i-1] < 80*sec:
							t.Errorf("shown %v: it killed at %v", shown, at)
						}
					}
					if len(at) < 20 || t.Failed() {
						t.Fatalf("it killed %d times", len(at))
					}
					s := e.loopState("it")
					if s.Failures < len(at)-1 || !strings.HasPrefix(s.Outcomes, "iiii") || !strings.Contains(e.logs.String(), "loop backs off") {
						t.Errorf("%d kills: %s", len(at), jsonOf(t, s))
					}
					harmless.Store(true)
					work(5 * time.Minute)
					if s := e.loopState("it"); s.Failures != 0 || !strings.HasSuffix(s.Outcomes, "s") {
						t.Errorf("when it kills no more: %s", jsonOf(t, s))
					}
				})
			})
		}
	}
}

// A crash between two iterations, or one that has failed before, is no reason to
// keep a loop at a distance.
func TestLoopCrashOfOthers(t *testing.T) {
	inBubble(t, func(e *env) {
		d := newDated()
		loop := func() *bide.LoopDefinition {
			return bide.Loop("it", d.run, bide.On(everyFull(time.Minute), bide.MisfireSkip))
		}
		h := e.work(loop())
		d.fails.Store(true)
		time.Sleep(61 * sec)
		d.fails.Store(false)
		h.kill() // between two
		h = e.work(loop())
		time.Sleep(30 * sec)
		if s := e.loopState("it"); s.Outcomes != "f" {
			t.Errorf("after a crash between two: %s", jsonOf(t, s))
		}
		d.takes.Store(int64(10 * sec))
		time.Sleep(30 * sec)
		h.kill() // in the second, which the first has failed before
		e.work(loop())
		time.Sleep(20 * sec)
		if s := e.loopState("it"); s.Outcomes != "fis" {
			t.Errorf("after a crash in one: %s", jsonOf(t, s))
		}
		d.wantDue(e, time.Minute, 2*time.Minute, 2*time.Minute)
	})
}

// A worker that stops lets the iteration in flight finish; one that outlasts the
// grace is counted as interrupted and comes again.
func TestLoopWorkerStops(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		inBubble(t, func(e *env) {
			ran := newClock()
			var takes atomic.Int64
			takes.Store(int64(5 * sec))
			loop := func() *bide.LoopDefinition {
				return bide.Loop("it", func(ctx context.Context) {
					ran.tick()
					wake := ctx.Done()
					if deaf {
						wake = nil
					}
					select {
					case <-time.After(time.Duration(takes.Load())):
					case <-wake:
					}
				}, bide.Every(20*sec), bide.Exact{})
			}
			h := e.work(loop())
			time.Sleep(21 * sec)
			e.ok(h.stop())
			if s := e.loopState("it"); s.Outcomes != "s" || time.Since(ran.began) != 25*sec {
				t.Errorf("stopped after %v: %s", time.Since(ran.began), jsonOf(t, s))
			}
			h = e.work(loop())
			takes.Store(int64(time.Minute))
			time.Sleep(21 * sec) // the next is at 45
			e.ok(h.stop())
			if d := time.Since(ran.began); d != 56*sec {
				t.Errorf("stopped after %v, want the grace", d)
			}
			if strings.Contains(e.logs.String(), "stuck") {
				t.Errorf("it is said to be stuck:\n%s", e.logs)
			}
			takes.Store(int64(sec))
			e.work(loop())
			time.Sleep(50 * sec)
			if s := e.loopState("it"); !strings.HasPrefix(s.Outcomes, "sis") || !s.InFlight.IsZero() {
				t.Errorf("deaf %v, ran at %v: %s", deaf, ran.ticks(), jsonOf(t, s))
			}
		})
	}
}
