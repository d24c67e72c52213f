package bide_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bide-dev/bide"
)

// roll is who ran when, of many loops.
type roll struct {
	mu    sync.Mutex
	began time.Time
	lines []string
	at    map[string][]time.Duration
}

func newRoll() *roll { return &roll{began: time.Now(), at: map[string][]time.Duration{}} }

func (r *roll) call(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := time.Since(r.began)
	r.lines = append(r.lines, fmt.Sprint(name, " ", at))
	r.at[name] = append(r.at[name], at)
}

// loop is a loop that says its name when it runs.
func (r *roll) loop(name string, opts ...bide.LoopOption) *bide.LoopDefinition {
	return bide.Loop(name, func(context.Context) { r.call(name) }, append(opts, bide.Exact{})...)
}

// of is when the loop ran.
func (r *roll) of(name string) []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.at[name])
}

func (r *roll) want(e *env, want ...string) {
	e.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.lines, want) {
		e.Errorf("the loops ran\n\t%q, want\n\t%q", r.lines, want)
	}
	r.lines = nil
}

// The start of a process is the resume of every loop that is overdue: by interval
// and name, a gap apart, each once. What is not overdue keeps its time.
func TestLoopProcessStartIsStaggered(t *testing.T) {
	for _, warm := range []int{0, -1, 2} {
		t.Run(fmt.Sprint("MaxWarm ", warm), func(t *testing.T) {
			inBubble(t, func(e *env) {
				r := newRoll()
				var loops []bide.Definition
				for _, name := range []string{"b", "e", "a", "d"} {
					loops = append(loops, r.loop(name, bide.Every(10*sec)))
				}
				loops = append(loops, r.loop("day", bide.Every(24*time.Hour)), r.loop("slow", bide.Every(time.Minute)), r.loop("z", bide.Every(5*sec)))
				cfg := e.config()
				cfg.MaxWarm = warm
				h := e.workAs(cfg, loops...)
				time.Sleep(sec)
				e.ok(h.stop())
				time.Sleep(time.Hour - sec)
				e.workAs(cfg, loops...)
				time.Sleep(4 * sec)
				r.want(e, "z 1h0m0.02s", "a 1h0m0.17s", "b 1h0m0.32s", "d 1h0m0.47s", "e 1h0m0.62s", "slow 1h0m0.77s")
				time.Sleep(6*sec + sec/2)
				r.want(e, "z 1h0m5.02s", "z 1h0m10.02s", "a 1h0m10.17s", "b 1h0m10.32s", "d 1h0m10.47s")
			})
		})
	}
}

// Loops that are resumed together are staggered too, with the gap that the worker
// was given.
func TestLoopResumeIsStaggered(t *testing.T) {
	inBubble(t, func(e *env) {
		r := newRoll()
		cfg := e.config()
		cfg.StaggerGap = sec
		e.workAs(cfg, r.loop("c", bide.Every(10*sec)), r.loop("b", bide.Every(10*sec)), r.loop("a", bide.Every(20*sec)), r.loop("fresh", bide.Every(time.Hour)))
		names := []string{"a", "b", "c", "fresh"}
		for _, name := range names {
			e.ok(e.client.Loop(name).Pause(e.Context(), false))
		}
		time.Sleep(time.Minute)
		for _, name := range names {
			e.ok(e.client.Loop(name).Resume(e.Context()))
		}
		time.Sleep(5 * sec)
		r.want(e, "b 1m0.02s", "c 1m1.02s", "a 1m2.02s")
	})
}

// The spreading takes no longer than the shortest interval, be there loops on a
// schedule, which have none, or not.
func TestLoopStaggerEndsInTime(t *testing.T) {
	inBubble(t, func(e *env) {
		r := newRoll()
		var loops []bide.Definition
		for i := range 50 {
			loops = append(loops, r.loop(fmt.Sprintf("l%02d", i), bide.Every(sec+time.Duration(i)*time.Minute)))
		}
		loops = append(loops, r.loop("hourly", bide.On(everyFull(time.Hour), bide.MisfireOnce)))
		h := e.work(loops...)
		e.ok(h.stop())
		time.Sleep(2 * time.Hour)
		e.work(loops...)
		time.Sleep(sec + 30*time.Millisecond)
		base := 2*time.Hour + 20*time.Millisecond
		gap := (sec / 51).Truncate(time.Nanosecond)
		if got := r.of("hourly"); !slices.Equal(got, []time.Duration{base}) {
			t.Errorf("the hourly one ran at %v", got)
		}
		for i := range 50 {
			got, want := r.of(fmt.Sprintf("l%02d", i)), base+time.Duration(i+1)*gap
			if len(got) == 0 || got[0] < want || got[0] > want+time.Microsecond {
				t.Fatalf("the loop %d ran at %v, want %v", i, got, want)
			}
		}
	})
}

// A loop that is triggered while it waits for its place runs then, and not once
// more in its place.
func TestLoopStaggeredHasNoSecondTimer(t *testing.T) {
	inBubble(t, func(e *env) {
		r := newRoll()
		loops := []bide.Definition{r.loop("a", bide.Every(10*sec)), r.loop("b", bide.Every(10*sec)), r.loop("c", bide.Every(10*sec))}
		h := e.work(loops...)
		e.ok(h.stop())
		time.Sleep(time.Minute)
		cfg := e.config()
		cfg.StaggerGap = 2 * sec
		e.workAs(cfg, loops...)
		time.Sleep(sec)
		e.trigger("c", false)
		time.Sleep(10*sec + sec/2)
		r.want(e, "a 1m0.02s", "c 1m1s", "b 1m2.02s", "a 1m10.02s", "c 1m11s")
	})
}

// A group bounds how many of its iterations are in flight in a worker. The time
// spent in the queue is not the iteration's, and takes no place from others.
func TestLoopGroup(t *testing.T) {
	inBubble(t, func(e *env) {
		var peak tkoPeak
		r := newRoll()
		group := bide.Group{Name: "g", Limit: 2}
		var loops []bide.Definition
		for i := range 7 {
			name := fmt.Sprint("g", i)
			loops = append(loops, bide.Loop(name, func(context.Context) { r.call(name); peak.during(sec) },
				bide.Every(30*sec), bide.Exact{}, group, bide.AttemptTimeout(sec+sec/2)))
		}
		loops = append(loops, r.loop("free", bide.Every(31*sec)))
		cfg := e.config()
		cfg.MaxSteps = 3
		e.workAs(cfg, loops...)
		time.Sleep(38 * sec)
		if top := peak.top.Load(); top != 2 {
			t.Errorf("%d of the group were in flight at once, want 2", top)
		}
		var at []time.Duration
		for i := range 7 {
			name := fmt.Sprint("g", i)
			if s := e.loopState(name); s.Outcomes != "s" {
				t.Errorf("loop %s: %s", name, jsonOf(t, s))
			}
			at = append(at, r.of(name)...)
		}
		slices.Sort(at)
		if want := []time.Duration{30 * sec, 30 * sec, 31 * sec, 31 * sec, 32 * sec, 32 * sec, 33 * sec}; !slices.Equal(at, want) {
			t.Errorf("the group ran at %v, want %v", at, want)
		}
		if got := r.of("free"); !slices.Equal(got, []time.Duration{31 * sec}) {
			t.Errorf("the loop of no group ran at %v", got)
		}
	})
}

// A loop that waits for its group can be stopped, and aborted, like any other.
func TestLoopGroupQueueIsLeft(t *testing.T) {
	inBubble(t, func(e *env) {
		r := newRoll()
		group := bide.Group{Name: "g", Limit: 1}
		var loops []bide.Definition
		for _, name := range []string{"a", "b", "c"} {
			loops = append(loops, bide.Loop(name, func(ctx context.Context) error {
				r.call(name)
				select {
				case <-time.After(20 * sec):
				case <-ctx.Done():
				}
				return ctx.Err()
			}, bide.Every(10*sec), bide.Exact{}, group))
		}
		h := e.work(loops...)
		time.Sleep(11 * sec)
		var queued []string
		for _, name := range []string{"a", "b", "c"} {
			if len(r.of(name)) == 0 {
				queued = append(queued, name)
			}
		}
		if len(queued) != 2 {
			t.Fatalf("%q wait for the group", queued)
		}
		e.ok(e.client.Loop(queued[0]).Stop(e.Context()))
		e.ok(e.client.Loop(queued[1]).Pause(e.Context(), true))
		time.Sleep(sec)
		if s := e.loopState(queued[0]); !s.Stopped {
			t.Errorf("the stopped one: %s", jsonOf(t, s))
		}
		if s := e.loopState(queued[1]); !s.Paused || s.Outcomes != "" || !s.InFlight.IsZero() {
			t.Errorf("the aborted one: %s", jsonOf(t, s))
		}
		e.ok(h.stop())
		for _, name := range queued {
			if at := r.of(name); len(at) > 0 {
				t.Errorf("%s ran at %v", name, at)
			}
		}
	})
}
