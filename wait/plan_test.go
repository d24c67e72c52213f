package wait_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/bide-dev/bide/wait"
)

const second = time.Second

// exact is the plan without jitter.
func exact(s wait.Strategy) wait.Plan { return wait.Plan{Strategy: s, Jitter: new(wait.NoJitter)} }

// delay is the pause of a plan after a check that ended now.
func delay(p wait.Plan, s wait.State, h wait.Hint, r float64) time.Duration {
	return p.Next(&s, h, day, time.Time{}, always(r)).At.Sub(day)
}

func TestStrategies(t *testing.T) {
	ms := time.Millisecond
	for _, c := range []struct {
		name     string
		strategy wait.Strategy
		state    wait.State
		want     time.Duration
	}{
		{"fixed", wait.Fixed(7 * second), wait.State{Pending: 9}, 7 * second},
		{"default", nil, wait.State{Pending: 2}, 1500 * ms},
		{"exponential, 1st", wait.Exponential{}, wait.State{Pending: 1}, second},
		{"exponential, 4th", wait.Exponential{}, wait.State{Pending: 4}, 3375 * ms},
		{"exponential, capped", wait.Exponential{}, wait.State{Pending: 50}, 30 * second},
		{"exponential of a long interval", wait.Exponential{Interval: time.Minute}, wait.State{Pending: 9}, time.Minute},
		{"exponential, classic", wait.Exponential{Coefficient: 2, Max: 5 * second}, wait.State{Pending: 4}, 5 * second},
		{"exponential, overflow", wait.Exponential{}, wait.State{Pending: math.MaxInt}, 30 * second},

		{"elapsed, just begun", wait.Elapsed{}, wait.State{Start: day}, second},
		{"elapsed", wait.Elapsed{}, wait.State{Start: day.Add(-time.Minute)}, 6 * second},
		{"elapsed, capped", wait.Elapsed{}, wait.State{Start: day.Add(-time.Hour)}, time.Minute},
		{"elapsed, own share", wait.Elapsed{Share: 0.5}, wait.State{Start: day.Add(-time.Minute)}, 30 * second},
		{"elapsed, clock set back", wait.Elapsed{}, wait.State{Start: day.Add(time.Hour)}, second},

		{"eta", wait.ETA{}, wait.State{ETA: day.Add(50 * second)}, 40 * second},
		{"eta, capped", wait.ETA{}, wait.State{ETA: day.Add(time.Hour)}, time.Minute},
		{"eta, near", wait.ETA{}, wait.State{ETA: day.Add(1100 * ms)}, second},
		{"eta, within Min", wait.ETA{Min: 2 * second}, wait.State{ETA: day.Add(second)}, 2 * second},
		{"eta, now", wait.ETA{}, wait.State{ETA: day}, second},
		{"eta, overdue", wait.ETA{}, wait.State{ETA: day.Add(-20 * second)}, 5 * second},
		{"eta, overdue by little", wait.ETA{}, wait.State{ETA: day.Add(-second)}, second},
		{"eta, overdue for ever", wait.ETA{}, wait.State{ETA: time.Unix(1, 0).AddDate(-600, 0, 0)}, time.Minute},
		{"eta, none yet", wait.ETA{}, wait.State{Start: day.Add(-time.Minute)}, 6 * second},
		{"eta by progress", wait.ETA{}, wait.State{Percent: 50, PercentAt: day, Rate: 1, Rises: 2}, 40 * second},
		{"eta by progress that is a while old", wait.ETA{}, wait.State{Percent: 50, PercentAt: day.Add(-25 * second), Rate: 1, Rises: 2}, 20 * second},
		{"too little progress", wait.ETA{}, wait.State{Start: day, Percent: 4.9, PercentAt: day, Rate: 1, Rises: 2}, second},
		{"too few rises", wait.ETA{}, wait.State{Start: day, Percent: 50, PercentAt: day, Rate: 1, Rises: 1}, second},

		{"long poll, not held", wait.LongPoll{}, wait.State{Unheld: 2, Pending: 1}, second},
		{"long poll, not held, otherwise", wait.LongPoll{Otherwise: wait.Fixed(5 * second)}, wait.State{Unheld: 7}, 5 * second},
	} {
		if got := delay(exact(c.strategy), c.state, wait.Hint{}, 0.5); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestJitterOfStrategies(t *testing.T) {
	most := math.Nextafter(1, 0)
	for _, c := range []struct {
		name      string
		strategy  wait.Strategy
		low, high time.Duration
	}{
		{"exponential: equal", wait.Exponential{Interval: 20 * second}, 10 * second, 20 * second},
		{"fixed: proportional, not above it", wait.Fixed(20 * second), 18 * second, 20 * second},
		{"elapsed: proportional", wait.Elapsed{Share: 1}, 36 * second, 44 * second},
		{"eta: proportional", wait.ETA{}, 36 * second, 44 * second},
	} {
		p := wait.Plan{Strategy: c.strategy}
		s := wait.State{Start: day.Add(-40 * second), ETA: day.Add(50 * second), Pending: 1}
		if low, high := delay(p, s, wait.Hint{}, 0), delay(p, s, wait.Hint{}, most); low != c.low || (c.high-high).Abs() > 1 {
			t.Errorf("%s: from %v to %v, want %v to %v", c.name, low, high, c.low, c.high)
		}
		p.Min = 35 * second
		if low := delay(p, s, wait.Hint{}, 0); low < p.Min {
			t.Errorf("%s: jitter went below Min: %v", c.name, low)
		}
	}
}

func TestBackoffAfterErrors(t *testing.T) {
	for _, c := range []struct {
		name     string
		strategy wait.Strategy
		state    wait.State
		hint     wait.Hint
		want     time.Duration
	}{
		{"first", wait.Fixed(100 * time.Millisecond), wait.State{Errors: 1}, wait.Hint{}, second},
		{"third", wait.Fixed(100 * time.Millisecond), wait.State{Errors: 3}, wait.Hint{}, 4 * second},
		{"capped at a minute", wait.Fixed(second), wait.State{Errors: 30}, wait.Hint{}, time.Minute},
		{"capped at Max", wait.Exponential{Max: 5 * time.Minute}, wait.State{Errors: 30}, wait.Hint{}, 5 * time.Minute},
		{"begins at the interval", wait.Fixed(10 * second), wait.State{Errors: 2}, wait.Hint{}, 20 * second},
		{"pending does not grow it", wait.Exponential{}, wait.State{Errors: 1, Pending: 1}, wait.Hint{}, second},
		{"the longer of both", wait.Exponential{}, wait.State{Errors: 1, Pending: 4}, wait.Hint{}, 3375 * time.Millisecond},
		{"throttled, no time named", wait.Fixed(second), wait.State{Errors: 1, Throttled: 2}, wait.Hint{Hard: true}, 4 * second},
		{"throttled, time named", wait.Fixed(second), wait.State{Throttled: 9}, wait.Hint{Hard: true, After: 3 * second}, 3 * second},
		{"long poll", wait.LongPoll{}, wait.State{Errors: 3}, wait.Hint{}, 4 * second},
		{"long poll, otherwise slow", wait.LongPoll{Otherwise: wait.Fixed(2 * time.Minute)}, wait.State{Errors: 3}, wait.Hint{}, 2 * time.Minute},
		{"count beyond reason", wait.Fixed(second), wait.State{Errors: math.MaxInt}, wait.Hint{}, time.Minute},
	} {
		if got := delay(exact(c.strategy), c.state, c.hint, 0.5); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	// A long poll is asked again at once, and spread over nearly nothing; its errors
	// are not.
	p := wait.Plan{Strategy: wait.LongPoll{}}
	if got := delay(p, wait.State{Errors: 3}, wait.Hint{}, 0); got != 2*second {
		t.Errorf("back-off of a long poll with the least jitter: %v, want half of 4 s", got)
	}
}

func TestLongPollIsAskedAgainAtOnce(t *testing.T) {
	p := wait.Plan{Strategy: wait.LongPoll{}, Min: time.Minute, Jitter: new(wait.NoJitter)}
	for r, want := range map[float64]time.Duration{0: 0, 0.5: 125 * time.Millisecond} {
		if got := delay(p, wait.State{Unheld: 1}, wait.Hint{}, r); got != want {
			t.Errorf("%v with %v, want %v", got, r, want)
		}
	}
	if got := delay(p, wait.State{}, wait.Hint{After: 5 * second}, 0); got != 5*second {
		t.Errorf("%v, though the server asked for 5 s", got)
	}
	if p.Hold() != 30*second || (&wait.Plan{}).Hold() != 0 {
		t.Errorf("holds %v, and %v without", p.Hold(), (&wait.Plan{}).Hold())
	}
}

func TestServerFloors(t *testing.T) {
	p := wait.Plan{Strategy: wait.Fixed(2 * second)}
	for _, c := range []struct {
		name  string
		state wait.State
		hint  wait.Hint
		r     float64
		want  time.Duration
		floor time.Duration
	}{
		{"below the interval", wait.State{}, wait.Hint{After: second}, 0.5, 2 * second, second},
		{"least jitter", wait.State{}, wait.Hint{After: 10 * second}, 0, 10 * second, 10 * second},
		{"jitter is positive", wait.State{}, wait.Hint{After: 10 * second}, 0.5, 10500 * time.Millisecond, 10 * second},
		{"soft, beyond an hour", wait.State{}, wait.Hint{After: 5 * time.Hour}, 0, time.Hour, time.Hour},
		{"hard, beyond an hour", wait.State{}, wait.Hint{After: 5 * time.Hour, Hard: true}, 0, 5 * time.Hour, 5 * time.Hour},
		{"sticky", wait.State{Sticky: time.Minute}, wait.Hint{}, 0, time.Minute, time.Minute},
		{"sticky, beyond an hour", wait.State{Sticky: 5 * time.Hour}, wait.Hint{After: time.Minute, Hard: true}, 0, time.Hour, time.Hour},
		{"sticky and more", wait.State{Sticky: time.Minute}, wait.Hint{After: 2 * time.Minute}, 0, 2 * time.Minute, 2 * time.Minute},
		{"negative", wait.State{Sticky: -second}, wait.Hint{After: -second, Hard: true}, 0.5, 2 * second, 0},
		{"for ever", wait.State{}, wait.Hint{After: forever, Hard: true}, 0.5, 100 * 365 * 24 * time.Hour, forever},
	} {
		n := p.Next(&c.state, c.hint, day, time.Time{}, always(c.r))
		if got := n.At.Sub(day); got != c.want || n.Floor != c.floor || n.Final || n.TooLate {
			t.Errorf("%s: %v, floor %v; want %v, %v; %+v", c.name, got, n.Floor, c.want, c.floor, n)
		}
	}
	p.Jitter = new(wait.NoJitter)
	if got := delay(p, wait.State{}, wait.Hint{After: 10 * second}, 0.5); got != 10*second {
		t.Errorf("exact, and yet %v", got)
	}
}

func TestHurry(t *testing.T) {
	until := day.Add(time.Nanosecond)
	for _, c := range []struct {
		name  string
		plan  wait.Plan
		state wait.State
		want  time.Duration
	}{
		{"at Min", wait.Plan{Strategy: wait.Fixed(time.Minute), Min: 5 * second}, wait.State{HurryTo: until}, 5 * second},
		{"no Min", wait.Plan{Strategy: wait.Fixed(time.Minute)}, wait.State{HurryTo: until}, second},
		{"never slower", wait.Plan{Strategy: wait.Fixed(100 * time.Millisecond)}, wait.State{HurryTo: until}, 100 * time.Millisecond},
		{"over", wait.Plan{Strategy: wait.Fixed(time.Minute)}, wait.State{HurryTo: day}, time.Minute},
		{"after errors", wait.Plan{Strategy: wait.Fixed(10 * second)}, wait.State{HurryTo: until, Errors: 2}, 20 * second},
	} {
		c.plan.Jitter = new(wait.NoJitter)
		if got := delay(c.plan, c.state, wait.Hint{}, 0.5); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestDeadline(t *testing.T) {
	for _, c := range []struct {
		name     string
		deadline time.Duration
		min      time.Duration
		state    wait.State
		hint     wait.Hint
		at       time.Duration
		final    bool
		tooLate  bool
	}{
		{"far", time.Minute, 0, wait.State{}, wait.Hint{}, 10 * second, false, false},
		{"passed", 9 * second, 0, wait.State{}, wait.Hint{}, 9 * second, true, false},
		{"at it", 10 * second, 0, wait.State{}, wait.Hint{}, 10 * second, true, false},
		{"a sliver before it", 12 * second, 3 * second, wait.State{}, wait.Hint{}, 12 * second, true, false},
		{"room for one more", 13 * second, 3 * second, wait.State{}, wait.Hint{}, 10 * second, false, false},
		{"less than the engine's floor", 10*second + wait.Floor - 1, 0, wait.State{}, wait.Hint{}, 10*second + wait.Floor - 1, true, false},
		{"the engine's floor", 10*second + wait.Floor, 0, wait.State{}, wait.Hint{}, 10 * second, false, false},
		{"over already", -second, 0, wait.State{}, wait.Hint{}, -second, true, false},
		{"soft floor yields", 20 * second, 0, wait.State{}, wait.Hint{After: time.Minute}, 20 * second, true, false},
		{"sticky floor yields", 20 * second, 0, wait.State{Sticky: time.Minute}, wait.Hint{}, 20 * second, true, false},
		{"sticky floor yields, hard one is over by then", 20 * second, 0, wait.State{Sticky: time.Minute}, wait.Hint{After: 20 * second, Hard: true}, 20 * second, true, false},
		{"hard floor does not", 20 * second, 0, wait.State{}, wait.Hint{After: 20*second + 1, Hard: true}, 20 * second, false, true},
		{"hard floor just before it", 20 * second, 0, wait.State{}, wait.Hint{After: 19999 * time.Millisecond, Hard: true}, 20 * second, true, false},
		{"back-off yields", 15 * second, 0, wait.State{Errors: 2}, wait.Hint{}, 15 * second, true, false},
		{"refused, no time named: back-off is hard", 15 * second, 0, wait.State{Throttled: 2}, wait.Hint{Hard: true}, 15 * second, false, true},
		{"hard, but nothing to wait for", -second, 0, wait.State{}, wait.Hint{Hard: true}, -second, true, false},
		{"hard, and negative", -second, 0, wait.State{}, wait.Hint{Hard: true, After: -1}, -second, true, false},
	} {
		p := exact(wait.Fixed(10 * second))
		p.Min = c.min
		n := p.Next(&c.state, c.hint, day, day.Add(c.deadline), always(0.5))
		if n.At.Sub(day) != c.at || n.Final != c.final || n.TooLate != c.tooLate {
			t.Errorf("%s: at %v, final %v, too late %v; want %v, %v, %v", c.name, n.At.Sub(day), n.Final, n.TooLate, c.at, c.final, c.tooLate)
		}
	}
}

func TestPlanCheck(t *testing.T) {
	for _, c := range []struct {
		field string
		plan  wait.Plan
	}{
		{"minimum interval", wait.Plan{Min: time.Millisecond}},
		{"minimum interval", wait.Plan{Min: -1}},
		{"jitter", wait.Plan{Jitter: new(wait.Jitter(99))}},
		{"interval", wait.Plan{Strategy: wait.Fixed(0)}},
		{"Exponential.Interval", wait.Plan{Strategy: wait.Exponential{Interval: -1}}},
		{"Exponential.Coefficient", wait.Plan{Strategy: wait.Exponential{Coefficient: 0.9}}},
		{"Exponential.Coefficient", wait.Plan{Strategy: wait.Exponential{Coefficient: math.NaN()}}},
		{"Exponential.Max", wait.Plan{Strategy: wait.Exponential{Max: time.Millisecond}}},
		{"Elapsed.Share", wait.Plan{Strategy: wait.Elapsed{Share: math.Inf(1)}}},
		{"Elapsed.Share", wait.Plan{Strategy: wait.Elapsed{Share: -1}}},
		{"Elapsed.Min", wait.Plan{Strategy: wait.Elapsed{Min: -1}}},
		{"Elapsed.Max", wait.Plan{Strategy: wait.Elapsed{Max: -1}}},
		{"ETA.Min", wait.Plan{Strategy: wait.ETA{Min: 1}}},
		{"ETA.Max", wait.Plan{Strategy: wait.ETA{Max: 1}}},
		{"LongPoll.Hold", wait.Plan{Strategy: wait.LongPoll{Hold: 61 * second}}},
		{"interval", wait.Plan{Strategy: wait.LongPoll{Otherwise: wait.Fixed(1)}}},
	} {
		wantField(t, c.plan.Check(), c.field)
	}
	for _, p := range []wait.Plan{{}, {Strategy: wait.Elapsed{}}, {Strategy: wait.ETA{Min: time.Hour}}, {Strategy: wait.LongPoll{}}} {
		if err := p.Check(); err != nil {
			t.Error(err)
		}
	}
}

// Whatever a state holds, the next check is not too soon, not after the deadline,
// and says the truth of itself.
func FuzzPlanNext(f *testing.F) {
	f.Add([]byte(`{}`), uint8(0), int64(0), int64(0), int64(time.Minute), int64(0), false, 0.5)
	f.Add([]byte(`{"pending":9223372036854775807,"errors":9223372036854775807,"throttled":-1,"sticky_ns":-9}`), uint8(1), int64(time.Hour), int64(10*second), int64(-1), int64(math.MaxInt64), true, 0.999)
	f.Add([]byte(`{"start":"0001-01-01T00:00:00Z","eta":"9999-12-31T23:59:59Z","percent":-5,"rate":1e-300,"rises":9}`), uint8(3), int64(0), int64(0), int64(1), int64(math.MinInt64), true, 0.0)
	f.Add([]byte(`{"percent":5,"rate":1e-300,"rises":2,"percent_at":"9999-12-31T23:59:59Z","hurry_until":"2027-01-01T00:00:00Z"}`), uint8(35), int64(0), int64(0), int64(math.MaxInt64), int64(0), false, 0.1)
	f.Add([]byte(`{"unheld":1}`), uint8(4), int64(time.Hour), int64(second), int64(5), int64(second), false, 0.9)
	f.Fuzz(func(t *testing.T, state []byte, kind uint8, least, interval, deadline, after int64, hard bool, r float64) {
		d := time.Duration(interval)
		p := wait.Plan{Min: time.Duration(least), Strategy: []wait.Strategy{nil, wait.Fixed(d), wait.Exponential{Interval: d}, wait.Elapsed{Min: d},
			wait.ETA{Min: d}, wait.LongPoll{}, wait.LongPoll{Otherwise: wait.Elapsed{Max: d}}}[kind%7]}
		if kind /= 7; kind%5 > 0 {
			p.Jitter = new([]wait.Jitter{wait.NoJitter, wait.Equal, wait.Full, wait.Proportional}[kind%5-1])
		}
		var s wait.State
		if p.Check() != nil || !(r >= 0 && r < 1) || json.Unmarshal(state, &s) != nil {
			return
		}
		checkNext(t, p, s, wait.Hint{After: time.Duration(after), Hard: hard}, time.Duration(deadline), r)
	})
}

func checkNext(t *testing.T, p wait.Plan, s wait.State, h wait.Hint, left time.Duration, r float64) {
	t.Helper()
	const century = 100 * 365 * 24 * time.Hour
	deadline := day.Add(left)
	var until time.Time
	if left != 0 {
		until = deadline
	}
	before := s
	n := p.Next(&s, h, day, until, always(r))
	if s != before {
		t.Fatalf("Next changed the state: %+v, then %+v", before, s)
	}
	low := max(p.Min, wait.Floor)
	least := low
	if pause := p.Hold(); pause > 0 && s.Unheld < 2 {
		least = 0 // a server that holds is asked again at once
	}
	at := n.At.Sub(day)
	free := !n.Final && !n.TooLate // neither is bound to the deadline
	switch {
	case n.Base < 0 || n.Floor < 0:
		t.Fatalf("negative: %+v", n)
	case n.Final && n.TooLate, !free && (until.IsZero() || !n.At.Equal(until)):
		t.Fatalf("deadline %v: %+v", until, n)
	case n.TooLate && !h.Hard:
		t.Fatalf("too late without a hard floor: %+v", n)
	case free && (at < least || at > century):
		t.Fatalf("after %v, not in [%v, %v]: %+v", at, least, century, n)
	case free && !until.IsZero() && until.Sub(n.At) < low:
		t.Fatalf("%v before the deadline is a useless sliver of %v: %+v", until.Sub(n.At), low, n)
	case free && at < min(n.Floor, century):
		t.Fatalf("after %v, the floor is %v", at, n.Floor)
	case h.Hard && h.After > 0 && n.Final && day.Add(min(h.After, century)).After(until):
		t.Fatalf("a hard floor of %v yielded to the deadline in %v: %+v", h.After, left, n)
	case n.Floor > time.Hour && !h.Hard:
		t.Fatalf("a wish of %v was granted: %+v", n.Floor, n)
	}
}
