package bide_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/internal/timeline"
)

// jump sets the wall clock forward, or back, for the rest of the test.
func (e *env) jump(d time.Duration) {
	timeline.Jump(d)
	e.Cleanup(func() { timeline.Jump(-d) })
}

// A wall clock that is set forward, or a machine that was suspended, makes each
// overdue wait end once; one that is set back makes none later than the time it was
// given. What goes by a date waits for the date.
func TestClockJumps(t *testing.T) {
	for name, warm := range map[string]int{"parked": -1, "warm": 0} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(e *env) {
				start := time.Now()
				var mu sync.Mutex
				at := map[string][]time.Duration{}
				note := func(what string) int {
					mu.Lock()
					defer mu.Unlock()
					at[what] = append(at[what], time.Since(start).Round(time.Second))
					return len(at[what])
				}
				noted := func(what string) []time.Duration {
					mu.Lock()
					defer mu.Unlock()
					return slices.Clone(at[what])
				}
				poll := bide.Define("poll", func(ctx bide.Context, n int) (int, error) {
					return bide.Poll(ctx, "p", func(context.Context) (int, error) {
						return note("poll"), nil
					}, func(x int) bool { return x >= n }, bide.Every(9*time.Second), bide.Exact{}, bide.NoTimeout{})
				})
				sleep := bide.Define("sleep", func(ctx bide.Context, d time.Duration) (int, error) {
					err := bide.Sleep(ctx, d)
					note("sleep")
					return 0, err
				})
				until := bide.Define("until", func(ctx bide.Context, d time.Duration) (int, error) {
					err := bide.SleepUntil(ctx, start.Add(d))
					note("until")
					return 0, err
				})
				loop := bide.Loop("l", func(context.Context) { note("loop") }, bide.Every(20*time.Second), bide.Exact{})
				cfg := e.config()
				cfg.MaxWarm = warm
				e.workAs(cfg, poll, sleep, until, loop)
				run := func(w *bide.Workflow[time.Duration, int], d time.Duration) {
					if _, err := w.Start(e.Context(), e.client, d); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := poll.Start(e.Context(), e.client, 6); err != nil {
					t.Fatal(err)
				}
				run(sleep, 40*time.Second)
				run(until, 6*time.Hour+40*time.Second)
				time.Sleep(5 * time.Second)
				e.jump(-6 * time.Hour)
				time.Sleep(75 * time.Second) // to 80 s
				if want := []time.Duration{0, 9 * sec, 18 * sec, 27 * sec, 36 * sec, 45 * sec}; !slices.Equal(noted("poll"), want) {
					t.Errorf("clock set back: checks at %v, want %v", noted("poll"), want)
				}
				if want := []time.Duration{40 * sec}; !slices.Equal(noted("sleep"), want) {
					t.Errorf("clock set back: slept until %v, want %v", noted("sleep"), want)
				}
				loops := noted("loop")
				if want := []time.Duration{20 * sec, 40 * sec, 60 * sec, 80 * sec}; !slices.Equal(loops, want) && !slices.Equal(loops, want[:3]) {
					t.Errorf("clock set back: the loop ran at %v, want %v", loops, want)
				}
				before := len(loops)
				run(sleep, 5*time.Hour)
				time.Sleep(5 * time.Second)
				e.jump(12*time.Hour + 5*time.Second) // and forward, past all of them
				time.Sleep(31 * time.Second)         // the clock is looked at as often
				if len(noted("sleep")) != 2 || noted("sleep")[1] > 2*time.Minute {
					t.Errorf("clock set forward: slept until %v", noted("sleep"))
				}
				if len(noted("until")) != 1 || noted("until")[0] > 2*time.Minute {
					t.Errorf("clock set forward: the date came at %v", noted("until"))
				}
				if loops = noted("loop")[before:]; len(loops) == 0 || len(loops) > 3 {
					t.Errorf("clock set forward: the loop ran at %v, want it once and then as ever", loops)
				}
			})
		})
	}
}

// A date is waited for on the wall clock, also when that was set back.
func TestClockBackAndADate(t *testing.T) {
	inBubble(t, func(e *env) {
		start := time.Now()
		until := bide.Define("until", func(ctx bide.Context, d time.Duration) (time.Duration, error) {
			err := bide.SleepUntil(ctx, start.Add(d))
			return time.Since(start), err
		})
		e.work(until)
		h, err := until.Start(e.Context(), e.client, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Minute)
		e.jump(-6 * time.Hour)
		if took, err := h.Result(e.Context()); err != nil || took.Round(time.Second) != 7*time.Hour {
			t.Errorf("the date came after %v, %v; want 7 h", took, err)
		}
	})
}
