package wait_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/bide-dev/bide/wait"
)

func TestPaceBacksOffAndRecovers(t *testing.T) {
	p := wait.Pace{Interval: 30 * time.Second}
	var s wait.PaceState
	if got := p.Effective(s); got != 30*time.Second {
		t.Fatalf("a new loop pauses %v", got)
	}
	for i, want := range []time.Duration{60, 120, 240, 240, 240} {
		p.Failed(&s)
		if got := p.Effective(s); got != want*time.Second || s.Failures != i+1 {
			t.Fatalf("after failure %d: %v, want %v; %+v", i+1, got, want*time.Second, s)
		}
	}
	p.Succeeded(&s, nil)
	if s != (wait.PaceState{Multiplier: 1}) || p.Effective(s) != 30*time.Second {
		t.Fatalf("after a success: %v of %+v", p.Effective(s), s)
	}
}

func TestPaceMultiplierNeedNotBeAPowerOfTwo(t *testing.T) {
	p := wait.Pace{Interval: time.Second, MaxMultiplier: 5}
	var s wait.PaceState
	for _, want := range []int{2, 4, 5, 5} {
		if p.Failed(&s); s.Multiplier != want {
			t.Fatalf("multiplier %d, want %d", s.Multiplier, want)
		}
	}
	if p.MaxMultiplier = 3; p.Effective(s) != 3*time.Second { // a new spec, the old state
		t.Fatalf("pause %v under a lower bound", p.Effective(s))
	}
}

func TestPaceAdapts(t *testing.T) {
	p := wait.Pace{Interval: 40 * time.Second, Adaptive: &wait.Adaptive{Min: 15 * time.Second, Max: 70 * time.Second}}
	var s wait.PaceState
	changed, same := true, false
	for i, step := range []struct {
		changed *bool
		failed  bool
		base    time.Duration
	}{
		{&changed, false, 20 * time.Second},
		{&changed, false, 15 * time.Second}, // not below Min
		{&same, false, 15 * time.Second},
		{&same, false, 15 * time.Second},
		{nil, false, 15 * time.Second}, // not known: changes nothing
		{nil, true, 15 * time.Second},  // nor does a failure
		{&same, false, 22500 * time.Millisecond},
		{&same, false, 22500 * time.Millisecond},
		{&changed, false, 15 * time.Second}, // and not two in a row any more
		{&same, false, 15 * time.Second},
		{&same, false, 15 * time.Second},
		{&same, false, 22500 * time.Millisecond},
	} {
		if step.failed {
			p.Failed(&s)
		} else {
			p.Succeeded(&s, step.changed)
		}
		if s.Base != step.base {
			t.Fatalf("step %d: base %v, want %v", i, s.Base, step.base)
		}
	}
	for range 30 {
		p.Succeeded(&s, &same)
	}
	if p.Effective(s) != 70*time.Second {
		t.Fatalf("grew to %v, beyond Max", p.Effective(s))
	}
	p.Failed(&s)
	if p.Effective(s) != 140*time.Second { // the multiplier is of the base
		t.Fatalf("%v after a failure", p.Effective(s))
	}
}

func TestPaceNext(t *testing.T) {
	for _, c := range []struct {
		name string
		pace wait.Pace
		rnd  float64
		want time.Duration
	}{
		{"least", wait.Pace{Interval: 10 * time.Second}, 0, 9 * time.Second},
		{"middle", wait.Pace{Interval: 10 * time.Second}, 0.5, 10 * time.Second},
		{"three quarters", wait.Pace{Interval: 10 * time.Second}, 0.75, 10500 * time.Millisecond},
		{"exact", wait.Pace{Interval: 10 * time.Second, Exact: true}, 0.9, 10 * time.Second},
		{"wide", wait.Pace{Interval: 10 * time.Second, Jitter: 0.5}, 0, 5 * time.Second},
		{"not below Min", wait.Pace{Interval: 10 * time.Second, Min: 9500 * time.Millisecond}, 0, 9500 * time.Millisecond},
	} {
		if got := c.pace.Next(wait.PaceState{}, day, always(c.rnd)).Sub(day); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestPaceCheck(t *testing.T) {
	for _, c := range []struct {
		field string
		pace  wait.Pace
	}{
		{"Interval", wait.Pace{}},
		{"Interval", wait.Pace{Interval: time.Millisecond}},
		{"Interval", wait.Pace{Interval: time.Second, Min: time.Minute}},
		{"Min", wait.Pace{Interval: time.Second, Min: -1}},
		{"MaxMultiplier", wait.Pace{Interval: time.Second, MaxMultiplier: -1}},
		{"Jitter", wait.Pace{Interval: time.Second, Jitter: 1}},
		{"Jitter", wait.Pace{Interval: time.Second, Jitter: math.NaN()}},
		{"Adaptive.Min", wait.Pace{Interval: time.Second, Adaptive: &wait.Adaptive{}}},
		{"Adaptive.Max", wait.Pace{Interval: time.Second, Adaptive: &wait.Adaptive{Min: time.Second}}},
	} {
		wantField(t, c.pace.Check(), c.field)
	}
	if err := (wait.Pace{Interval: wait.Floor}).Check(); err != nil {
		t.Error(err)
	}
}

func FuzzPace(f *testing.F) {
	f.Add([]byte(`{}`), int64(time.Second), int64(0), 8, 0.1, int64(0), int64(0), 0.5, 3)
	f.Add([]byte(`{"failures":9223372036854775807,"multiplier":9223372036854775807}`), int64(math.MaxInt64), int64(0), math.MaxInt, 0.99, int64(0), int64(0), 0.999, 300)
	f.Add([]byte(`{"multiplier":-5,"base_ns":-5,"unchanged":-5}`), int64(time.Hour), int64(time.Second), 3, 0.0, int64(time.Second), int64(math.MaxInt64), 0.0, 9)
	f.Fuzz(func(t *testing.T, state []byte, interval, least int64, multiplier int, jitter float64, low, high int64, r float64, rounds int) {
		p := wait.Pace{Interval: time.Duration(interval), Min: time.Duration(least), MaxMultiplier: multiplier, Jitter: jitter}
		if low != 0 || high != 0 {
			p.Adaptive = &wait.Adaptive{Min: time.Duration(low), Max: time.Duration(high)}
		}
		var s wait.PaceState
		if p.Check() != nil || !(r >= 0 && r < 1) || json.Unmarshal(state, &s) != nil {
			return
		}
		rnd := rand.New(rand.NewPCG(uint64(rounds), 14))
		for range 1 + max(rounds, 0)%70 {
			changed := rnd.IntN(2) == 0
			switch rnd.IntN(3) {
			case 0:
				p.Failed(&s)
			case 1:
				p.Succeeded(&s, &changed)
			case 2:
				p.Succeeded(&s, nil)
			}
			floor := max(p.Min, wait.Floor)
			pause := p.Effective(s)
			if pause < floor || p.Adaptive == nil && pause < p.Interval {
				t.Fatalf("%+v of %+v: pause %v", p, s, pause)
			}
			at := p.Next(s, day, always(r))
			if at.Before(day.Add(floor)) || !at.Before(day.AddDate(101, 0, 0)) {
				t.Fatalf("%+v of %+v: next at %v", p, s, at)
			}
			if got := at.Sub(day); pause < 100*365*24*time.Hour && float64(got) > float64(pause)*(1+max(p.Jitter, 0.1))+1 {
				t.Fatalf("%+v of %+v: %v after jitter, %v before", p, s, got, pause)
			}
		}
	})
}
