package bide_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bide-dev/bide"
)

// everyFull is a schedule: every full so long.
type everyFull time.Duration

func (d everyFull) Next(after time.Time) time.Time {
	return after.Truncate(time.Duration(d)).Add(time.Duration(d))
}

// scheduleFunc is a schedule too.
type scheduleFunc func(time.Time) time.Time

func (f scheduleFunc) Next(after time.Time) time.Time { return f(after) }

// dated is a loop's function that notes when it ran and for which time.
type dated struct {
	*clock
	fails atomic.Bool
	takes atomic.Int64 // nanoseconds
	due   []time.Duration
}

func newDated() *dated { return &dated{clock: newClock()} }

func (d *dated) run(ctx context.Context) error {
	d.tick()
	d.mu.Lock()
	d.due = append(d.due, bide.ScheduledAt(ctx).Sub(d.began))
	d.mu.Unlock()
	select {
	case <-time.After(time.Duration(d.takes.Load())):
	case <-ctx.Done():
	}
	if d.fails.Load() {
		return errors.New("down")
	}
	return nil
}

func (d *dated) dues() []time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.due)
}

func (d *dated) wantDue(e *env, want ...time.Duration) {
	e.Helper()
	if got := d.dues(); !slices.Equal(got, want) {
		e.Errorf("the iterations were for %v, want %v", got, want)
	}
}

// A loop on a schedule runs at its times, and is told them; failures do not move
// them, and one that takes longer than until the next does not overlap with it.
func TestLoopOnSchedule(t *testing.T) {
	for _, c := range []struct {
		name    string
		misfire bide.Misfire
		fails   bool
		takes   time.Duration
		at, due []time.Duration
	}{
		{"works", bide.MisfireOnce, false, 0, []time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute}, nil},
		{"fails", bide.MisfireOnce, true, 0, []time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute}, nil},
		{"slow", bide.MisfireOnce, false, 70 * sec, []time.Duration{time.Minute, 3 * time.Minute}, nil},
		{"slow, skip", bide.MisfireSkip, false, 70 * sec, []time.Duration{time.Minute, 3 * time.Minute}, nil},
		{"slow, all", bide.MisfireAll, true, 70 * sec, []time.Duration{time.Minute, 130 * sec, 200 * sec},
			[]time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(e *env) {
				d := newDated()
				d.fails.Store(c.fails)
				d.takes.Store(int64(c.takes))
				e.work(bide.Loop("it", d.run, bide.On(everyFull(time.Minute), c.misfire), bide.AttemptTimeout(time.Hour)))
				time.Sleep(230 * sec)
				d.want(e, "iterations", c.at...)
				if c.due == nil {
					c.due = c.at
				}
				d.wantDue(e, c.due...)
				s := e.loopState("it")
				if s.Interval != 0 || s.Effective != 0 || (s.Failures > 0) != c.fails {
					t.Errorf("the state is %s", jsonOf(t, s))
				}
			})
		})
	}
}

// What becomes of the times that passed while nobody was there, or while the loop
// was paused.
func TestLoopMisfire(t *testing.T) {
	const m = time.Minute
	const gather = 20 * time.Millisecond
	for _, c := range []struct {
		name    string
		misfire bide.Misfire
		at, due []time.Duration
	}{
		{"once", bide.MisfireOnce, []time.Duration{m, 330*sec + gather, 6 * m}, []time.Duration{m, 2 * m, 6 * m}},
		{"skip", bide.MisfireSkip, []time.Duration{m, 6 * m}, []time.Duration{m, 6 * m}},
		{"all", bide.MisfireAll, []time.Duration{m, 330*sec + gather, 330*sec + gather, 330*sec + gather, 330*sec + gather, 6 * m},
			[]time.Duration{m, 2 * m, 3 * m, 4 * m, 5 * m, 6 * m}},
	} {
		for _, paused := range []bool{false, true} {
			for _, warm := range []int{0, -1} {
				t.Run(c.name, func(t *testing.T) {
					inBubble(t, func(e *env) {
						d := newDated()
						cfg := e.config()
						cfg.MaxWarm = warm
						loop := bide.Loop("it", d.run, bide.On(everyFull(m), c.misfire))
						h := e.workAs(cfg, loop)
						time.Sleep(90 * sec)
						if paused {
							e.ok(e.client.Loop("it").Pause(e.Context(), false))
						} else {
							e.ok(h.stop())
						}
						time.Sleep(240 * sec)
						if paused {
							e.ok(e.client.Loop("it").Resume(e.Context()))
						} else {
							e.workAs(cfg, loop)
						}
						time.Sleep(time.Minute)
						d.want(e, "iterations", c.at...)
						d.wantDue(e, c.due...)
					})
				})
			}
		}
	}
}

// A time that was missed by less than a second is no misfire: it may lie between
// the end of one worker and the start of the next.
func TestLoopScheduleALittleLate(t *testing.T) {
	inBubble(t, func(e *env) {
		d := newDated()
		loop := bide.Loop("it", d.run, bide.On(everyFull(time.Minute), bide.MisfireSkip))
		h := e.work(loop)
		time.Sleep(59 * sec)
		e.ok(h.stop())
		time.Sleep(sec + sec/2)
		e.work(loop)
		time.Sleep(sec)
		d.want(e, "iterations", 60*sec+sec/2)
		d.wantDue(e, time.Minute)
	})
}

// A trigger is none of the schedule's times: it is for the time at which it came,
// moves no time, and uses none up.
func TestLoopScheduleAndTrigger(t *testing.T) {
	for _, misfire := range []bide.Misfire{bide.MisfireOnce, bide.MisfireSkip, bide.MisfireAll} {
		inBubble(t, func(e *env) {
			d := newDated()
			e.work(bide.Loop("it", d.run, bide.On(everyFull(time.Minute), misfire)))
			time.Sleep(50 * sec)
			e.trigger("it", false)
			time.Sleep(40 * sec)
			d.want(e, "iterations", 50*sec, time.Minute)
			d.wantDue(e, 50*sec, time.Minute)
		})
	}
	inBubble(t, func(e *env) { // while it makes up for missed times
		d := newDated()
		loop := bide.Loop("it", d.run, bide.On(everyFull(time.Minute), bide.MisfireAll))
		h := e.work(loop)
		e.ok(h.stop())
		time.Sleep(130 * sec)
		e.work(loop)
		e.trigger("it", false)
		time.Sleep(sec)
		d.wantDue(e, 130*sec, time.Minute, 2*time.Minute)
	})
}

// A schedule that has changed holds from the start of a worker that has the new
// one, not from the next time of the old one: for a loop that waits, and for one
// that is paused.
func TestLoopScheduleChanges(t *testing.T) {
	for _, paused := range []bool{false, true} {
		inBubble(t, func(e *env) {
			d := newDated()
			loop := func(every time.Duration) *bide.LoopDefinition {
				return bide.Loop("it", d.run, bide.On(everyFull(every), bide.MisfireOnce))
			}
			e.work(loop(24 * time.Hour))
			time.Sleep(30 * sec)
			if paused {
				e.ok(e.client.Loop("it").Pause(e.Context(), false))
			}
			e.restart(loop(time.Minute))
			if paused {
				time.Sleep(sec)
				e.ok(e.client.Loop("it").Resume(e.Context()))
			}
			time.Sleep(100 * sec)
			d.want(e, "iterations", time.Minute, 2*time.Minute)
			e.restart(loop(time.Hour))
			time.Sleep(50 * time.Minute)
			d.want(e, "iterations", time.Minute, 2*time.Minute)
		})
	}
}

// On with an InitialDelay, or RunImmediately, has one iteration before the first
// of its times; a restart does not take it away.
func TestLoopScheduleFirst(t *testing.T) {
	inBubble(t, func(e *env) {
		d := newDated()
		loop := bide.Loop("it", d.run, bide.On(everyFull(time.Minute), bide.MisfireOnce), bide.InitialDelay(10*sec))
		h := e.work(loop)
		e.ok(h.stop())
		e.work(loop)
		time.Sleep(2*time.Minute + sec)
		d.want(e, "iterations", 10*sec, time.Minute, 2*time.Minute)
	})
}

// A schedule that has no time left leaves the loop to triggers.
func TestLoopScheduleIsOver(t *testing.T) {
	inBubble(t, func(e *env) {
		d := newDated()
		last := d.began.Add(2 * time.Minute)
		e.work(bide.Loop("it", d.run, bide.On(scheduleFunc(func(after time.Time) time.Time {
			if next := everyFull(time.Minute).Next(after); !next.After(last) {
				return next
			}
			return time.Time{}
		}), bide.MisfireAll)))
		time.Sleep(24 * time.Hour)
		d.want(e, "iterations", time.Minute, 2*time.Minute)
		e.trigger("it", false)
		time.Sleep(sec)
		d.want(e, "iterations", time.Minute, 2*time.Minute, 24*time.Hour)
	})
}

// A schedule that does not move on, or panics, must not make the loop spin: it is
// stuck, says so, and goes on where it was once the schedule is mended.
func TestLoopScheduleThatStandsStill(t *testing.T) {
	for name, bad := range map[string]scheduleFunc{
		"stands still": func(after time.Time) time.Time { return after },
		"goes back":    func(after time.Time) time.Time { return after.Add(-time.Hour) },
		"panics":       func(time.Time) time.Time { panic("no calendar") },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(e *env) {
				d := newDated()
				var mended atomic.Bool
				mended.Store(true)
				loop := bide.Loop("it", d.run, bide.On(scheduleFunc(func(after time.Time) time.Time {
					if mended.Load() {
						return everyFull(time.Minute).Next(after)
					}
					return bad(after)
				}), bide.MisfireSkip))
				e.work(loop)
				time.Sleep(61 * sec)
				mended.Store(false)
				time.Sleep(10 * time.Minute)
				if n := len(d.ticks()); n < 2 || n > 12 {
					t.Errorf("%d iterations", n)
				}
				if !strings.Contains(e.logs.String(), "stuck") || e.waitOf("loop:it", bide.KindStuck).LastError == nil {
					t.Error("nobody was told")
				}
				if s := e.loopState("it"); s.Iterations == 0 {
					t.Errorf("the state is %s", jsonOf(t, s))
				}
				mended.Store(true)
				before := len(d.ticks())
				time.Sleep(10 * time.Minute)
				if n := len(d.ticks()) - before; n < 5 {
					t.Errorf("%d iterations after the mend", n)
				}
			})
		})
	}
}
