package wait_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/bide-dev/bide/wait"
)

var day = time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)

func always(f float64) func() float64 { return func() float64 { return f } }

// circuit drives one circuit through a script.
type circuit struct {
	*testing.T
	wait.Breaker
	wait.Circuit
	now time.Time
}

func newCircuit(t *testing.T, b wait.Breaker) *circuit {
	t.Helper()
	if err := b.Check(); err != nil {
		t.Fatal(err)
	}
	return &circuit{T: t, Breaker: b, now: day}
}

func (c *circuit) allow() wait.Permit { return c.Allow(&c.Circuit, c.now, 5*time.Second) }

// permitted fails the test if no call may go ahead.
func (c *circuit) permitted(probe bool) wait.Permit {
	c.Helper()
	p := c.allow()
	if !p.OK || p.Probe != probe {
		c.Fatalf("at %v: permit %+v, want one with Probe %v", c.now.Sub(day), p, probe)
	}
	return p
}

func (c *circuit) report(p wait.Permit, success bool) {
	c.Report(&c.Circuit, p, success, 0, c.now, always(0))
}

func (c *circuit) calls(outcomes ...bool) {
	c.Helper()
	for _, success := range outcomes {
		c.report(c.permitted(false), success)
	}
}

func (c *circuit) is(want wait.BreakerState) {
	c.Helper()
	if got := c.State(c.now); got != want {
		c.Fatalf("at %v: %v, want %v: %+v", c.now.Sub(day), got, want, c.Circuit)
	}
}

func (c *circuit) opensFor(want time.Duration) {
	c.Helper()
	c.is(wait.Open)
	if got := c.RetryAt.Sub(c.now); got != want {
		c.Fatalf("open for %v, want %v", got, want)
	}
	if p := c.allow(); p.OK || !p.RetryAt.Equal(c.RetryAt) {
		c.Fatalf("open and yet %+v", p)
	}
}

func TestBreakerOpensAfterFailuresInARow(t *testing.T) {
	c := newCircuit(t, wait.Breaker{})
	c.calls(false, false, false, false, true, false, false, false, false)
	c.is(wait.Closed)
	c.calls(false)
	c.opensFor(30 * time.Second)
}

func TestBreakerOpensByRate(t *testing.T) {
	c := newCircuit(t, wait.Breaker{})
	for range 9 {
		c.calls(true, false)
	}
	c.calls(true)
	c.is(wait.Closed) // 9 of 19
	c.calls(false)
	c.opensFor(30 * time.Second)
}

func TestBreakerForgetsOldCalls(t *testing.T) {
	c := newCircuit(t, wait.Breaker{})
	for range 100 { // every second call fails, but only 15 fall into one window
		c.calls(true)
		c.now = c.now.Add(4 * time.Second)
		c.calls(false)
		c.now = c.now.Add(4 * time.Second)
		if n := len(c.Circuit.Window); n > 10 {
			t.Fatalf("%d counts kept", n)
		}
	}
	c.is(wait.Closed)
}

func TestBreakerDoublesTheCooldown(t *testing.T) {
	c := newCircuit(t, wait.Breaker{})
	c.calls(false, false, false, false, false)
	for _, want := range []time.Duration{30, 60, 120, 240, 480, 600, 600} {
		c.opensFor(want * time.Second)
		c.now = c.RetryAt
		c.is(wait.HalfOpen)
		c.report(c.permitted(true), false)
	}
	c.now = c.RetryAt
	c.report(c.permitted(true), true)
	c.is(wait.Closed)
	c.calls(false, false, false, false, false) // all is forgotten
	c.opensFor(30 * time.Second)
}

func TestBreakerJitterAndRetryAfter(t *testing.T) {
	for _, r := range []struct {
		rnd        float64
		retryAfter time.Duration
		want       time.Duration
	}{
		{0, 0, 30 * time.Second},
		{0.5, 0, 33 * time.Second},
		{0.5, 32 * time.Second, 33 * time.Second},
		{0.5, time.Hour, time.Hour}, // beyond MaxCooldown too
		{0, -time.Hour, 30 * time.Second},
	} {
		c := newCircuit(t, wait.Breaker{Failures: 1})
		c.Report(&c.Circuit, c.permitted(false), false, r.retryAfter, c.now, always(r.rnd))
		c.opensFor(r.want)
	}
}

func TestBreakerClosesAfterSuccesses(t *testing.T) {
	c := newCircuit(t, wait.Breaker{Failures: 1, Probes: 2, Successes: 3})
	c.calls(false)
	c.now = c.RetryAt
	a, b := c.permitted(true), c.permitted(true)
	if p := c.allow(); p.OK {
		t.Fatalf("a third probe at a time: %+v", p)
	}
	c.report(a, true)
	c.report(b, true)
	c.is(wait.HalfOpen)
	c.report(c.permitted(true), true)
	c.is(wait.Closed)
}

// One of two probes fails: what the other finds is of an older generation.
func TestBreakerIgnoresOlderGenerations(t *testing.T) {
	c := newCircuit(t, wait.Breaker{Failures: 2, Probes: 2})
	slow := c.permitted(false)
	c.calls(false, false)
	c.is(wait.Open)
	before := c.Circuit
	c.report(slow, true)
	if got, want := encode(t, c.Circuit), encode(t, before); got != want {
		t.Fatalf("a call from before it opened made %s of %s", got, want)
	}
	c.now = c.RetryAt
	c.report(slow, true)
	c.is(wait.HalfOpen)
	a, b := c.permitted(true), c.permitted(true)
	c.report(a, false)
	c.report(b, true)
	c.opensFor(60 * time.Second)
	c.now = c.RetryAt
	c.report(c.permitted(true), true)
	c.report(slow, false)
	c.report(slow, false)
	c.is(wait.Closed)
}

func TestBreakerLeasesAProbeOfACrashedProcessAgain(t *testing.T) {
	c := newCircuit(t, wait.Breaker{Failures: 1})
	c.calls(false)
	c.now = c.RetryAt
	crashed := c.permitted(true)
	c.now = c.now.Add(2 * time.Second)
	if p := c.allow(); p.OK || p.RetryAt.Sub(c.now) != 3*time.Second {
		t.Fatalf("%+v while the slot is leased for 3 s more", p)
	}
	c.now = c.now.Add(3 * time.Second)
	second := c.permitted(true)
	c.report(crashed, true) // it was only slow, and its slot is another's
	c.is(wait.HalfOpen)
	if p := c.allow(); p.OK {
		t.Fatalf("the late probe freed another's slot: %+v", p)
	}
	c.report(second, true)
	c.is(wait.Closed)
}

func TestBreakerAsksAgainSoonForALongLease(t *testing.T) {
	c := newCircuit(t, wait.Breaker{Failures: 1})
	c.calls(false)
	c.now = c.RetryAt
	c.Allow(&c.Circuit, c.now, time.Hour)
	if p := c.allow(); p.OK || p.RetryAt.Sub(c.now) != 30*time.Second {
		t.Fatalf("%+v, want to ask again after a cool-down", p)
	}
}

func TestBreakerIgnore(t *testing.T) {
	c := newCircuit(t, wait.Breaker{Failures: 1})
	c.Ignore(&c.Circuit, c.permitted(false))
	c.is(wait.Closed)
	c.calls(false)
	c.now = c.RetryAt
	p := c.permitted(true)
	c.Ignore(&c.Circuit, p)
	c.is(wait.HalfOpen)
	c.report(p, false) // it gave its slot back
	c.is(wait.HalfOpen)
	c.permitted(true)
}

func TestCircuitByHand(t *testing.T) {
	c := newCircuit(t, wait.Breaker{})
	old := c.permitted(false)
	c.Open(c.now, c.now.Add(time.Hour))
	c.opensFor(time.Hour)
	c.report(old, true)
	c.is(wait.Open)
	c.Close()
	c.is(wait.Closed)
	c.calls(false, false, false, false)
	c.Reset()
	c.is(wait.Closed)
	c.calls(false, false, false, false) // the four before are forgotten
	c.is(wait.Closed)
	c.calls(false)
	c.is(wait.Open)
	c.now = c.RetryAt
	c.report(c.permitted(true), false)
	c.opensFor(time.Minute)
	c.Reset()
	c.is(wait.HalfOpen)
	c.report(c.permitted(true), false)
	c.opensFor(time.Minute)
	c.RetryAt = c.now // a probe that a person asked for
	c.report(c.permitted(true), true)
	c.is(wait.Closed)
}

func TestBreakerCheck(t *testing.T) {
	for field, b := range map[string]wait.Breaker{
		"Breaker.Failures":    {Failures: -1},
		"Breaker.Calls":       {Calls: -1},
		"Breaker.Probes":      {Probes: -1},
		"Breaker.Successes":   {Successes: -1},
		"Breaker.Rate":        {Rate: 1.01},
		"Breaker.Window":      {Window: -1},
		"Breaker.Cooldown":    {Cooldown: -1},
		"Breaker.MaxCooldown": {MaxCooldown: time.Second},
	} {
		wantField(t, b.Check(), field)
	}
	if err := (wait.Breaker{Cooldown: time.Hour}).Check(); err != nil {
		t.Error(err)
	}
}

func TestBreakerStateText(t *testing.T) {
	for s, want := range map[wait.BreakerState]string{wait.Closed: "closed", wait.Open: "open", wait.HalfOpen: "half_open"} {
		text, err := s.MarshalText()
		var again wait.BreakerState
		if err != nil || string(text) != want || again.UnmarshalText(text) != nil || again != s {
			t.Errorf("%d: %q, %v, back %v", s, text, err, again)
		}
	}
	wantField(t, new(wait.BreakerState).UnmarshalText([]byte("ajar")), "breaker state")
	if got := wait.BreakerState(9).String(); got != "breaker_state(9)" {
		t.Error(got)
	}
}

// The rules hold whatever callers do, how long they take, and however often the
// circuit goes through JSON.
func TestBreakerOverRandomCalls(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 13))
		ops := make([]byte, 200)
		for i := range ops {
			ops[i] = byte(rnd.IntN(256))
		}
		playBreaker(t, ops)
	}
}

func FuzzBreaker(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("probes crash, and are leased again"))
	f.Fuzz(playBreaker)
}

// playBreaker lets the bytes call a breaker: two set it up, then each is a step.
func playBreaker(t *testing.T, ops []byte) {
	if len(ops) < 2 || len(ops) > 1000 {
		return
	}
	b := wait.Breaker{Failures: 1 + int(ops[0]%4), Calls: 4, Probes: 1 + int(ops[1]%3), Successes: 1 + int(ops[1]/3%3)}
	const lease = 5 * time.Second
	var c wait.Circuit
	now := day
	var out []wait.Permit           // calls under way
	leased := map[int64]time.Time{} // probes that hold a slot by this test's own account
	for i, op := range ops[2:] {
		before, was := c.Generation, c.State(now)
		pick := func() wait.Permit {
			n := int(op/8) % len(out)
			p := out[n]
			out = slices.Delete(out, n, n+1)
			return p
		}
		switch op % 8 {
		case 0, 1, 2:
			p := b.Allow(&c, now, lease)
			switch {
			case p.OK != (was == wait.Closed || p.Probe), p.Probe && was != wait.HalfOpen:
				t.Fatalf("step %d: %+v while %v", i, p, was)
			case !p.OK && !p.RetryAt.After(now):
				t.Fatalf("step %d: refused, and told to ask again at once: %+v", i, p)
			}
			held := 0
			for _, until := range leased {
				if until.After(now) {
					held++
				}
			}
			if was == wait.HalfOpen && p.OK != (held < b.Probes) {
				t.Fatalf("step %d: %d of %d slots held, and the next got %+v", i, held, b.Probes, p)
			}
			if p.Probe {
				leased[p.Generation] = now.Add(lease)
			}
			if p.OK {
				out = append(out, p)
			}
		case 3, 4:
			if len(out) == 0 {
				break
			}
			p := pick()
			stored := encode(t, c)
			b.Report(&c, p, op%8 == 3, time.Duration(op)*time.Second, now, always(float64(op)/256))
			delete(leased, p.Generation)
			if !p.Probe && p.Generation != before && encode(t, c) != stored {
				t.Fatalf("step %d: a call of generation %d changed generation %d", i, p.Generation, before)
			}
		case 5:
			if len(out) > 0 {
				p := pick()
				b.Ignore(&c, p)
				delete(leased, p.Generation)
			}
		case 6:
			now = now.Add(time.Duration(op) * time.Second / 4)
		case 7:
			switch op / 8 % 8 {
			case 0:
				c.Open(now, now.Add(time.Minute))
			case 1:
				c.Close()
			case 2:
				c.Reset()
			case 3:
				if len(out) > 0 {
					pick() // crashed
				}
			default:
				var again wait.Circuit
				if err := json.Unmarshal([]byte(encode(t, c)), &again); err != nil {
					t.Fatal(err)
				}
				if encode(t, again) != encode(t, c) {
					t.Fatalf("step %d: %s came back as %s", i, encode(t, c), encode(t, again))
				}
				c = again
			}
		}
		if op%8 != 6 && c.State(now) != was {
			clear(leased)
			if c.Generation == before {
				t.Fatalf("step %d: from %v to %v in one generation", i, was, c.State(now))
			}
		}
		if op%8 == 7 && c.Generation != before {
			clear(leased)
		}
		if len(c.Probes) > b.Probes || c.State(now) == wait.Closed && len(c.Probes) > 0 {
			t.Fatalf("step %d: %v with %d probes: %+v", i, c.State(now), len(c.Probes), c)
		}
		if len(c.Window) > 10 {
			t.Fatalf("step %d: %d counts kept", i, len(c.Window))
		}
	}
}

// Whatever is found in a store, a breaker goes on with it: it neither panics nor
// stays shut after both cool-down and leases.
func FuzzCircuitJSON(f *testing.F) {
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"opened_at":"2026-11-21T07:00:00Z","retry_at":"2026-11-21T07:00:30Z","generation":3,"reopens":-9}`))
	f.Add([]byte(`{"opened_at":"2026-11-21T07:00:00Z","reopens":9223372036854775807,"probes":[{"generation":1,"until":"9999-01-01T00:00:00Z"},{}]}`))
	f.Add([]byte(`{"failures":9223372036854775807,"window":[{"from":"9999-01-01T00:00:00Z","calls":-1},{},{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var c wait.Circuit
		if json.Unmarshal(data, &c) != nil {
			return
		}
		var b wait.Breaker
		for _, success := range []bool{false, true} {
			p := b.Allow(&c, day, 0)
			b.Report(&c, p, success, 0, day, always(0.5))
			b.Ignore(&c, p)
		}
		end := c.RetryAt
		for _, slot := range c.Probes {
			if slot.Until.After(end) {
				end = slot.Until
			}
		}
		if p := b.Allow(&c, end.Add(time.Nanosecond), 0); !p.OK {
			t.Fatalf("shut for ever: %+v of %+v", p, c)
		}
		if _, err := json.Marshal(c); err != nil && !errors.As(err, new(*json.MarshalerError)) { // a year above 9999
			t.Fatal(err)
		}
	})
}

func encode(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func wantField(t *testing.T, err error, field string) {
	t.Helper()
	var f *wait.FieldError
	if !errors.As(err, &f) || f.Field != field || f.Reason == "" || f.Error() != "wait: "+field+" "+f.Reason || f.Code() != "invalid" {
		t.Errorf("error %v, want a FieldError of %s", err, field)
	}
}
