package bide_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bide-dev/bide"
)

// The state has all that there is to know of a loop, in Go and in JSON.
func TestLoopStateFields(t *testing.T) {
	inBubble(t, func(e *env) {
		s := newScripted("csff")
		e.work(bide.Loop("it", s.run, bide.Every(10*sec), bide.Adaptive{Min: sec, Max: time.Minute}, bide.Exact{}))
		time.Sleep(31 * sec) // changed at 10, worked at 15, failed at 20 and 30, next at 50
		st := e.loopState("it")
		at := func(d time.Duration) time.Time { return s.began.Add(d).UTC() }
		want := bide.LoopState{Name: "it", Interval: 10 * sec, Effective: 20 * sec, Iterations: 4, NextAt: at(50 * sec), LastAt: at(30 * sec),
			LastSuccessAt: at(15 * sec), LastError: &bide.Failure{Type: "*errors.errorString", Message: "down"}, LastErrorAt: at(30 * sec), Outcomes: "csff"}
		want.Failures, want.Multiplier, want.Base = 2, 4, 5*sec
		if got, want := jsonOf(t, st), jsonOf(t, want); got != want {
			t.Errorf("the state is\n%s, want\n%s", got, want)
		}
		// and the run says it as what it waits for
		w := e.waitOf("loop:it", bide.KindLoop)
		if w.Name != "it" || w.Attempt != 4 || w.Streak != 2 || !w.NextAt.Equal(at(50*sec)) || w.LastError.Message != "down" || w.Loop.Outcomes != "csff" {
			t.Errorf("the wait is %s", jsonOf(t, w))
		}
		e.wantState("loop:it", bide.Waiting)
	})
}

// Client.Loops lists the loops of all workers by name, and nothing else.
func TestLoopList(t *testing.T) {
	inBubble(t, func(e *env) {
		none := func(context.Context) {}
		e.work(bide.Loop("b", none, bide.Every(10*sec), bide.Exact{}), bide.Loop("a", none, bide.Every(10*sec)), tkoSleep)
		e.work(bide.Loop("c", none, bide.Every(24*time.Hour)))
		start(e, tkoSleep, time.Hour)
		_, err := tkoSleep.Start(e.Context(), e.client, time.Hour, bide.ID("loop:d"))
		if x := wantErr[*bide.InvalidError](e, err); x.Field != "id" {
			t.Errorf("the id of a loop for a run: %v", err)
		}
		e.ok(e.client.Loop("a").Pause(e.Context(), false))
		time.Sleep(25 * sec)
		list, err := e.client.Loops(e.Context())
		e.ok(err)
		var got []string
		for _, s := range list {
			got = append(got, fmt.Sprint(s.Name, " ", s.Paused, " ", s.Iterations))
		}
		if want := []string{"a true 0", "b false 2", "c false 0"}; !slices.Equal(got, want) {
			t.Errorf("the loops are %q, want %q", got, want)
		}
		if _, err := e.client.Loop("x").State(e.Context()); !errors.Is(err, bide.ErrNotFound) {
			t.Errorf("the state of an unknown loop: %v", err)
		}
	})
}

// More loops than a page of runs holds.
func TestLoopListPages(t *testing.T) {
	inBubble(t, func(e *env) {
		var loops []bide.Definition
		for i := range 1005 {
			loops = append(loops, bide.Loop(fmt.Sprintf("l%04d", i), func(context.Context) {}, bide.Every(time.Hour)))
		}
		e.work(loops...)
		time.Sleep(sec)
		list, err := e.client.Loops(e.Context())
		if err != nil || len(list) != 1005 || list[0].Name != "l0000" || list[1004].Name != "l1004" {
			t.Errorf("%d loops, %v", len(list), err)
		}
	})
}

// A loop leaves no records, however long it runs, and what it keeps stays small,
// however long its errors are. Of its outcomes the last 100 are kept. It is never
// a failed run.
func TestLoopStaysSmall(t *testing.T) {
	deep := errors.New(strings.Repeat("deep ", 200))
	for range 10 {
		deep = fmt.Errorf("in: %w", errors.Join(deep, &bide.InvalidError{Field: strings.Repeat("x", 300)}))
	}
	for _, c := range []struct {
		name  string
		hours int
		fails func() error
	}{
		{"plain", 3, func() error { return errors.New("down") }},
		{"long", 1, func() error { return errors.New(strings.Repeat("é", 1<<13)) }},
		{"deep", 1, func() error { return deep }},
		{"panic", 1, func() error { panic(strings.Repeat("x", 1<<13)) }},
		{"registered", 1, func() error { return &bide.InvalidError{Field: "x", Reason: strings.Repeat("y", 1<<13)} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(e *env) {
				var calls atomic.Int64
				e.work(bide.Loop("it", func(ctx context.Context) error {
					n := calls.Add(1)
					if err := bide.Publish(ctx, "n", n%7); err != nil {
						return err
					}
					if err := bide.Observe(ctx, bide.Observation{ETag: `W/"0123456789abcdef"`, LastModified: "Wed, 21 Oct 2015 07:28:00 GMT"}); err != nil {
						return err
					}
					if n%3 == 0 {
						return c.fails()
					}
					return nil
				}, bide.Every(10*sec), bide.MaxMultiplier(1), bide.Adaptive{Min: 5 * sec, Max: 10 * sec}, bide.Breaker{Failures: 100, Rate: 1}))
				for range 3 * c.hours {
					time.Sleep(20 * time.Minute)
					if size := len(jsonOf(t, e.get("loop:it").Waiting)); size > 2<<10 {
						t.Fatalf("the state takes %d bytes", size)
					}
					failed, err := e.client.Runs(e.Context(), bide.Query{States: []bide.State{bide.Failed, bide.TimedOut, bide.Canceled, bide.Terminated}})
					if err != nil || len(failed) > 0 {
						t.Errorf("failed runs: %v, %v", failed, err)
					}
				}
				n := int(calls.Load())
				if h := e.history("loop:it"); len(h) != 0 || n < 400*c.hours {
					t.Errorf("%d records after %d iterations", len(h), n)
				}
				s := e.loopState("it")
				if len(s.Outcomes) != 100 || strings.Count(s.Outcomes, "f") < 33 || s.Iterations < n-1 || s.LastError == nil {
					t.Errorf("after %d iterations: %s", n, jsonOf(t, s))
				}
				var value int
				if found, err := e.client.Loop("it").Value(e.Context(), "n", &value); !found || err != nil {
					t.Errorf("the value: %v, %v", found, err)
				}
			})
		})
	}
}

// ResetBackoff forgets the failures: the next comes one interval after the last
// ended, or now if that has passed.
func TestLoopResetBackoff(t *testing.T) {
	for _, c := range []struct{ reset, next time.Duration }{{74 * sec, 80 * sec}, {90 * sec, 90 * sec}} {
		inBubble(t, func(e *env) {
			s := newScripted("fffs")
			e.work(bide.Loop("it", s.run, bide.Every(10*sec), bide.Exact{})) // fails at 10, 30 and 70; next at 150
			time.Sleep(c.reset)
			e.ok(e.client.Loop("it").ResetBackoff(e.Context()))
			time.Sleep(sec / 10)
			if st := e.loopState("it"); st.Failures != 0 || st.Multiplier != 1 || st.Effective != 10*sec || st.LastError == nil {
				t.Errorf("the state is %s", jsonOf(t, st))
			}
			time.Sleep(c.next + 11*sec - c.reset)
			s.want(e, "iterations", 10*sec, 30*sec, 70*sec, c.next, c.next+10*sec)
		})
	}
}

// A loop that is registered with another interval keeps its state, and its next
// time follows the new interval at once: from the end of the last iteration.
func TestLoopReregistered(t *testing.T) {
	for _, c := range []struct {
		name      string
		at        time.Duration
		interval  time.Duration
		want      []time.Duration // after the iteration at 1h
		failing   bool
		effective time.Duration
	}{
		{"shorter", time.Hour + 4*sec, 10 * sec, []time.Duration{time.Hour + 10*sec, time.Hour + 20*sec}, false, 10 * sec},
		{"shorter, passed", time.Hour + 14*sec, 10 * sec, []time.Duration{time.Hour + 14*sec, time.Hour + 24*sec}, false, 10 * sec},
		{"longer", time.Hour + 4*sec, 2 * time.Hour, []time.Duration{3 * time.Hour}, false, 2 * time.Hour},
		{"failing", time.Hour + 4*sec, 10 * sec, []time.Duration{time.Hour + 20*sec, time.Hour + 30*sec}, true, 20 * sec},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(e *env) {
				s := newScripted("s")
				if c.failing {
					s.script = "fs"
				}
				loop := func(every time.Duration) *bide.LoopDefinition {
					return bide.Loop("it", s.run, bide.Every(every), bide.Exact{})
				}
				e.work(loop(time.Hour))
				time.Sleep(c.at)
				e.restart(loop(c.interval))
				time.Sleep(time.Millisecond * 5)
				if st := e.loopState("it"); st.Interval != c.interval || st.Effective != c.effective || st.Iterations < 1 {
					t.Errorf("the state is %s", jsonOf(t, st))
				}
				time.Sleep(c.want[len(c.want)-1] - c.at)
				s.want(e, "iterations", append([]time.Duration{time.Hour}, c.want...)...)
				if st := e.loopState("it"); st.Iterations != len(c.want)+1 {
					t.Errorf("the state is %s", jsonOf(t, st))
				}
			})
		})
	}
}

// Options come and go between versions of a program: from an interval to a
// schedule and back, with and without Adaptive.
func TestLoopOptionsChange(t *testing.T) {
	inBubble(t, func(e *env) {
		s := newScripted("cccccs")
		loop := func(opts ...bide.LoopOption) *bide.LoopDefinition {
			return bide.Loop("it", s.run, append(opts, bide.Exact{})...)
		}
		e.work(loop(bide.Every(40*sec), bide.Adaptive{Min: 10 * sec, Max: time.Hour}))
		time.Sleep(71 * sec) // 40, 60, 70
		e.restart(loop(bide.Every(40 * sec)))
		time.Sleep(50 * sec) // 80 as planned, then 120
		e.restart(loop(bide.On(everyFull(time.Minute), bide.MisfireOnce)))
		time.Sleep(60 * sec)                  // 180
		e.restart(loop(bide.Every(30 * sec))) // 181; 210
		time.Sleep(30 * sec)
		s.want(e, "iterations", 40*sec, 60*sec, 70*sec, 80*sec, 120*sec, 180*sec, 210*sec)
		if st := e.loopState("it"); st.Iterations != 7 || st.Interval != 30*sec || st.Effective != 30*sec {
			t.Errorf("the state is %s", jsonOf(t, st))
		}
	})
}

// A loop stays in the queue in which it began; the log says so.
func TestLoopQueue(t *testing.T) {
	inBubble(t, func(e *env) {
		ran := newClock()
		loop := func(opts ...bide.LoopOption) *bide.LoopDefinition {
			return bide.Loop("it", func(context.Context) { ran.tick() }, append(opts, bide.Every(10*sec), bide.Exact{})...)
		}
		cfg := e.config()
		cfg.Queues = []string{"side"}
		h := e.workAs(cfg, loop(bide.Queue("side")))
		time.Sleep(11 * sec)
		e.ok(h.stop())
		if q := e.get("loop:it").Queue; q != "side" {
			t.Errorf("the loop is in the queue %q", q)
		}
		e.work(loop())
		time.Sleep(20 * sec)
		ran.want(e, "iterations", 10*sec)
		if !strings.Contains(e.logs.String(), "a loop stays in the queue that it began in") {
			t.Errorf("the log tells\n%s", e.logs)
		}
	})
}

// An iteration's idempotency key is its own, and the same when a crash has it
// called again.
func TestLoopIdempotencyKey(t *testing.T) {
	inBubble(t, func(e *env) {
		var mu sync.Mutex
		var keys []string
		var numbers []int
		loop := func() *bide.LoopDefinition {
			return bide.Loop("it", func(ctx context.Context) {
				mu.Lock()
				keys, numbers = append(keys, bide.IdempotencyKey(ctx)), append(numbers, bide.AttemptNumber(ctx))
				mu.Unlock()
				time.Sleep(sec)
			}, bide.Every(10*sec), bide.Exact{})
		}
		h := e.work(loop())
		time.Sleep(21*sec + sec/2)
		h.kill()
		e.work(loop())
		time.Sleep(10 * sec)
		mu.Lock()
		defer mu.Unlock()
		if len(keys) != 3 || keys[0] == keys[1] || keys[1] != keys[2] || len(keys[0]) != 32 {
			t.Errorf("the keys are %q", keys)
		}
		if !slices.Equal(numbers, []int{1, 2, 3}) {
			t.Errorf("the iterations' numbers are %v", numbers)
		}
	})
}
