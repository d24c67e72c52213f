package bide_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/wait"
)

// The interval counts from the end of an iteration: it is a delay, not a rate.
func TestLoopFixedDelay(t *testing.T) {
	inBubble(t, func(e *env) {
		ran := newClock()
		e.work(bide.Loop("it", func(context.Context) { ran.tick(); time.Sleep(3 * sec) }, bide.Every(10*sec), bide.Exact{}))
		time.Sleep(60 * sec)
		ran.want(e, "iterations", 10*sec, 23*sec, 36*sec, 49*sec)
	})
}

// When the first iteration comes.
func TestLoopFirstIteration(t *testing.T) {
	for _, c := range []struct {
		name string
		opt  []bide.LoopOption
		want []time.Duration
	}{
		{"after one interval", nil, []time.Duration{10 * sec, 20 * sec}},
		{"RunImmediately", []bide.LoopOption{bide.RunImmediately{}}, []time.Duration{0, 10 * sec, 20 * sec}},
		{"InitialDelay", []bide.LoopOption{bide.InitialDelay(3 * sec)}, []time.Duration{3 * sec, 13 * sec, 23 * sec}},
		{"long InitialDelay", []bide.LoopOption{bide.InitialDelay(22 * sec)}, []time.Duration{22 * sec}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(e *env) {
				ran := newClock()
				loop := bide.Loop("it", func(context.Context) { ran.tick() }, append(c.opt, bide.Every(10*sec), bide.Exact{})...)
				h := e.work(loop)
				time.Sleep(sec)
				e.ok(h.stop()) // that a process is started anew makes no loop new
				e.work(loop)
				time.Sleep(24 * sec)
				ran.want(e, "iterations", c.want...)
			})
		})
	}
}

// However many times have passed while nobody was there, one iteration makes up
// for them.
func TestLoopMissedTimesAreOneIteration(t *testing.T) {
	inBubble(t, func(e *env) {
		ran := newClock()
		loop := bide.Loop("it", func(context.Context) { ran.tick() }, bide.Every(10*sec), bide.Exact{})
		h := e.work(loop)
		time.Sleep(11 * sec)
		e.ok(h.stop())
		time.Sleep(3000 * sec)
		e.work(loop)
		time.Sleep(25 * sec)
		back := 3011*sec + 20*time.Millisecond // stragglers gather for so long
		ran.want(e, "iterations", 10*sec, back, back+10*sec, back+20*sec)
	})
}

// paceModel is what the spec says of a loop's pauses, written down once more.
type paceModel struct {
	interval, least, most time.Duration
	cap                   int
	adaptive              bool

	base                time.Duration
	failures, unchanged int
}

func (m *paceModel) after(letter byte) time.Duration {
	switch letter {
	case 'f', 'p', 't':
		m.failures++
	case 's', 'c', 'u':
		m.failures = 0
	}
	if m.adaptive {
		switch letter {
		case 'c':
			m.base, m.unchanged = max(m.least, m.base/2), 0
		case 'u':
			if m.unchanged++; m.unchanged == 3 {
				m.base, m.unchanged = min(m.most, m.base+m.base/2), 0
			}
		}
	}
	return m.base * time.Duration(min(math.Pow(2, float64(m.failures)), float64(m.cap)))
}

// Whatever the outcomes, each pause is the one of the spec: the adaptive base
// times the multiplier, which failures double up to the cap and a success resets.
func TestLoopPausesByOutcomes(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 40 {
		interval := time.Duration(1+rng.IntN(60)) * sec
		m := paceModel{interval: interval, base: interval, cap: 1 + rng.IntN(20), adaptive: rng.IntN(2) == 0}
		opts := []bide.LoopOption{bide.Every(interval), bide.MaxMultiplier(m.cap), bide.Exact{}, bide.AttemptTimeout(sec)}
		if m.adaptive {
			m.least, m.most = interval/8, interval*6
			opts = append(opts, bide.Adaptive{Min: m.least, Max: m.most})
		}
		letters := make([]byte, 30)
		for i := range letters {
			letters[i] = "sfcu-pt"[rng.IntN(7)]
		}
		inBubble(t, func(e *env) {
			s := newScripted(string(letters))
			e.work(bide.Loop("it", s.run, opts...))
			at, want := interval, []time.Duration{interval}
			for _, letter := range letters[:len(letters)-1] {
				if letter == 't' {
					at += sec
				}
				at += m.after(letter)
				want = append(want, at)
			}
			time.Sleep(at + time.Millisecond)
			s.want(e, string(letters), want...)
			got := e.loopState("it").Outcomes
			if script := strings.NewReplacer("p", "f", "t", "f").Replace(string(letters[:len(got)])); got != script || len(got) < len(letters)-1 {
				t.Errorf("the outcomes are %q, want %q", got, script)
			}
		})
		if t.Failed() {
			return
		}
	}
}

// Without Exact a pause is drawn once, within a tenth of the interval, and is not
// drawn anew by another process.
func TestLoopJitter(t *testing.T) {
	inBubble(t, func(e *env) {
		ran := newClock()
		loop := bide.Loop("it", func(context.Context) { ran.tick() }, bide.Every(100*sec))
		h := e.work(loop)
		var next time.Time
		for range 20 {
			time.Sleep(50 * sec)
			next = e.loopState("it").NextAt
			e.ok(h.stop())
			cfg := e.config()
			cfg.Seed = uint64(len(ran.ticks())) + 2
			h = e.workAs(cfg, loop)
			if s := e.loopState("it"); !s.NextAt.Equal(next) {
				t.Errorf("another process drew %v anew: %v", next, s.NextAt)
			}
			time.Sleep(time.Until(next) + sec)
		}
		var short, long int
		at := time.Duration(0)
		for _, tick := range ran.ticks() {
			switch d := tick - at; {
			case d < 90*sec || d > 110*sec+time.Millisecond:
				t.Errorf("a pause of %v", d)
			case d < 100*sec:
				short++
			default:
				long++
			}
			at = tick
		}
		if n := len(ran.ticks()); n != 20 || short < 4 || long < 4 {
			t.Errorf("%d iterations, %d of them early and %d late", n, short, long)
		}
	})
}

// Jitter makes no pause shorter than MinInterval.
func TestLoopMinInterval(t *testing.T) {
	inBubble(t, func(e *env) {
		ran := newClock()
		e.work(bide.Loop("it", func(context.Context) { ran.tick() }, bide.Every(10*sec), bide.MinInterval(10*sec)))
		time.Sleep(30 * 11 * sec)
		at, longer := time.Duration(0), 0
		for _, tick := range ran.ticks() {
			if tick-at < 10*sec {
				t.Errorf("a pause of %v", tick-at)
			}
			if tick-at > 10*sec+time.Millisecond {
				longer++
			}
			at = tick
		}
		if longer < 5 || len(ran.ticks()) < 30 {
			t.Errorf("%d iterations, %d with jitter", len(ran.ticks()), longer)
		}
	})
}

// An iteration tells that nothing has changed by its result, by Observe, or by
// publishing the same JSON again.
func TestLoopAdaptive(t *testing.T) {
	type page struct{ A, B int }
	for _, c := range []struct {
		name string
		fn   func(ctx context.Context, n int) (bide.Result, error)
		want string // outcomes
	}{
		{"results", func(_ context.Context, n int) (bide.Result, error) {
			return []bide.Result{bide.LoopChanged, bide.LoopUnchanged, bide.LoopOK, bide.LoopUnchanged}[n%4], nil
		}, "cusucusu"},
		{"publish", func(ctx context.Context, n int) (bide.Result, error) {
			return bide.LoopOK, bide.Publish(ctx, "page", page{1, n / 3})
		}, "cuucuucu"},
		{"publish maps", func(ctx context.Context, n int) (bide.Result, error) {
			return bide.LoopOK, bide.Publish(ctx, "page", map[string]int{"b": n / 4, "a": 1})
		}, "cuuucuuu"},
		{"publish two", func(ctx context.Context, n int) (bide.Result, error) {
			return bide.LoopOK, errors.Join(bide.Publish(ctx, "a", n/2), bide.Publish(ctx, "b", 1))
		}, "cucucucu"},
		{"observe", func(ctx context.Context, n int) (bide.Result, error) {
			return bide.LoopOK, bide.Observe(ctx, bide.Observation{Unchanged: n%2 == 1})
		}, "susususu"},
		{"errors", func(ctx context.Context, n int) (bide.Result, error) {
			if n%2 == 1 {
				return bide.LoopChanged, errors.New("down")
			}
			return bide.LoopOK, bide.Publish(ctx, "a", n/4)
		}, "cfufcfuf"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(e *env) {
				ran := newClock()
				m := paceModel{base: 16 * sec, least: sec, most: 100 * sec, cap: 8, adaptive: true}
				e.work(bide.Loop("it", func(ctx context.Context) (bide.Result, error) {
					ran.tick()
					return c.fn(ctx, len(ran.ticks())-1)
				}, bide.Every(16*sec), bide.Adaptive{Min: sec, Max: 100 * sec}, bide.Exact{}))
				at := 16 * sec
				want := []time.Duration{at}
				for i := range c.want {
					at += m.after(c.want[i])
					want = append(want, at)
				}
				time.Sleep(at - time.Millisecond)
				if s := e.loopState("it"); s.Outcomes != c.want {
					t.Errorf("the outcomes are %q, want %q", s.Outcomes, c.want)
				}
				time.Sleep(2 * time.Millisecond)
				ran.want(e, "iterations", want...)
			})
		})
	}
}

// The base that a loop has found is kept when its process ends.
func TestLoopAdaptiveBaseIsKept(t *testing.T) {
	inBubble(t, func(e *env) {
		s := newScripted("cccs")
		loop := bide.Loop("it", s.run, bide.Every(80*sec), bide.Adaptive{Min: 10 * sec, Max: 100 * sec}, bide.Exact{})
		e.work(loop)
		time.Sleep(141 * sec) // 80, 120, 140
		e.restart(loop)
		time.Sleep(20 * sec)
		s.want(e, "iterations", 80*sec, 120*sec, 140*sec, 150*sec, 160*sec)
		if st := e.loopState("it"); st.Base != 10*sec || st.Effective != 10*sec || st.Interval != 80*sec {
			t.Errorf("the state is %s", jsonOf(t, st))
		}
	})
}

// No iteration comes before the server wants it, whether it said so with an error
// or with an answer; nor before MinInterval.
func TestLoopHeedsTheServer(t *testing.T) {
	for _, c := range []struct {
		name string
		fn   func(context.Context) error
		next time.Duration
	}{
		{"with an error", func(context.Context) error { return wait.After(errors.New("slow down"), 5*time.Minute) }, 5 * time.Minute},
		{"with an error, shortly", func(context.Context) error { return wait.After(errors.New("slow down"), sec) }, 20 * sec},
		{"with an answer", func(ctx context.Context) error {
			return bide.Observe(ctx, bide.Observation{Hint: wait.Hint{After: time.Minute}})
		}, time.Minute},
		{"its poll interval", func(ctx context.Context) error {
			return bide.Observe(ctx, bide.Observation{Hint: wait.Hint{Interval: 30 * sec}})
		}, 30 * sec},
		{"observed, then failed", func(ctx context.Context) error {
			return errors.Join(bide.Observe(ctx, bide.Observation{Hint: wait.Hint{After: time.Minute, Hard: true}}), errors.New("429"))
		}, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(e *env) {
				clock := newClock()
				e.work(bide.Loop("it", c.fn, bide.Every(10*sec), bide.Exact{}))
				time.Sleep(11 * sec)
				if got := e.loopState("it").NextAt.Sub(clock.began) - 10*sec; got != c.next {
					t.Errorf("the next comes after %v, want %v", got, c.next)
				}
			})
		})
	}
}

// What an iteration has observed is there for the next one, whichever process that
// is in; neither a failure nor an answer "as before" takes it away.
func TestLoopETagIsKept(t *testing.T) {
	inBubble(t, func(e *env) {
		var mu sync.Mutex
		var seen []string
		loop := func() *bide.LoopDefinition {
			return bide.Loop("it", func(ctx context.Context) error {
				last := bide.LastObservation(ctx)
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, last.ETag+last.LastModified)
				switch len(seen) {
				case 1:
					return bide.Observe(ctx, bide.Observation{ETag: `W/"1"`, LastModified: "today"})
				case 2:
					return errors.New("down")
				case 3: // a 304 that does not say it again
					return bide.Observe(ctx, bide.Observation{Unchanged: true})
				case 4:
					return bide.Observe(ctx, bide.Observation{ETag: `"2"`})
				}
				return nil
			}, bide.Every(10*sec), bide.Exact{})
		}
		e.work(loop())
		for range 5 {
			e.restart(loop())
			time.Sleep(20*sec + sec)
		}
		mu.Lock()
		defer mu.Unlock()
		want := []string{"", `W/"1"today`, `W/"1"today`, `W/"1"today`, `"2"`, ""}
		if len(seen) < len(want) || strings.Join(seen[:len(want)], "|") != strings.Join(want, "|") {
			t.Errorf("the iterations saw %q, want %q", seen, want)
		}
	})
}
