package wait

import (
	"fmt"
	"time"
)

// Breaker stops calls to what keeps failing: after a cool-down a few probes are
// let through, and close it again or not. Zero fields mean the defaults.
//
// It is what never changes; what does is a [Circuit], which may be kept anywhere
// and shared by processes: each method is one pure step of it, for the keeper to
// put between a read and a compare-and-set.
type Breaker struct {
	Failures int           // so many in a row open it; default 5
	Rate     float64       // so does this share of failures, default 0.5,
	Calls    int           // of at least so many calls, default 20,
	Window   time.Duration // in so long; default 60 s
	Cooldown time.Duration // how long it stays open, doubled each time that a probe fails; default 30 s
	// MaxCooldown is the longest, before jitter of up to a fifth more and unless
	// the server asks for longer; default 10 min, or Cooldown if that is longer.
	MaxCooldown time.Duration
	Probes      int // at a time while half-open; default 1
	Successes   int // of probes that close it; default 1
}

func (b Breaker) filled() Breaker {
	for _, f := range []struct {
		field   *int
		filling int
	}{{&b.Failures, 5}, {&b.Calls, 20}, {&b.Probes, 1}, {&b.Successes, 1}} {
		if *f.field == 0 {
			*f.field = f.filling
		}
	}
	if b.Rate == 0 {
		b.Rate = 0.5
	}
	if b.Window == 0 {
		b.Window = time.Minute
	}
	if b.Cooldown == 0 {
		b.Cooldown = 30 * time.Second
	}
	if b.MaxCooldown == 0 {
		b.MaxCooldown = max(10*time.Minute, b.Cooldown)
	}
	return b
}

// Check returns a [*FieldError] for parameters that make no sense.
func (b Breaker) Check() error {
	b = b.filled()
	for _, f := range []struct {
		name  string
		value int
	}{{"Failures", b.Failures}, {"Calls", b.Calls}, {"Probes", b.Probes}, {"Successes", b.Successes}} {
		if f.value < 0 {
			return &FieldError{"Breaker." + f.name, fmt.Sprintf("is %d; it must be at least 1, or 0 for the default", f.value)}
		}
	}
	switch {
	case !(b.Rate > 0 && b.Rate <= 1):
		return &FieldError{"Breaker.Rate", fmt.Sprintf("is %v; it must be above 0 and at most 1", b.Rate)}
	case b.MaxCooldown < b.Cooldown:
		return &FieldError{"Breaker.MaxCooldown", fmt.Sprintf("is %v, below Cooldown %v", b.MaxCooldown, b.Cooldown)}
	}
	if err := atLeastFloor("Breaker.Window", b.Window); err != nil {
		return err
	}
	return atLeastFloor("Breaker.Cooldown", b.Cooldown)
}

// Permit is the answer to a call that asks to go ahead. It goes back to
// [Breaker.Report] or [Breaker.Ignore].
type Permit struct {
	OK         bool  `json:"ok"`
	Probe      bool  `json:"probe,omitempty"` // on its outcome hangs whether the breaker closes
	Generation int64 `json:"generation,omitempty"`
	// RetryAt is when to ask again, if not OK.
	RetryAt time.Time `json:"retry_at,omitzero"`
}

// Allow says whether a call may go ahead now. A probe that never reports, since
// its process died, holds its slot for lease and no longer; 0 or less means the
// cool-down.
func (b Breaker) Allow(c *Circuit, now time.Time, lease time.Duration) Permit {
	b = b.filled()
	switch c.State(now) {
	case Closed:
		return Permit{OK: true, Generation: c.Generation}
	case Open:
		return Permit{RetryAt: c.RetryAt}
	}
	held := c.Probes[:0:0]
	again := add(now, b.Cooldown) // a slot may come free long before its lease ends
	for _, slot := range c.Probes {
		if now.Before(slot.Until) {
			held = append(held, slot)
			again = earlier(again, slot.Until)
		}
	}
	c.Probes = held
	if len(held) >= b.Probes {
		return Permit{RetryAt: again}
	}
	if lease <= 0 {
		lease = b.Cooldown
	}
	c.Generation++
	c.Probes = append(c.Probes, ProbeSlot{Generation: c.Generation, Until: add(now, lease)})
	return Permit{OK: true, Probe: true, Generation: c.Generation}
}

// Report tells how a permitted call went, and how long the server then asked to
// be left alone, 0 if it did not. What was permitted before the circuit last
// changed its state is ignored, and so is a probe whose slot went to another.
//
// An answer that blames the request alone (a 4xx but for 408 and 429) is a
// success: whoever gives it is alive.
func (b Breaker) Report(c *Circuit, p Permit, success bool, retryAfter time.Duration, now time.Time, rnd func() float64) {
	if b = b.filled(); p.Probe {
		switch {
		case !c.release(p):
		case !success:
			reopens := c.Reopens + 1
			c.Open(now, b.reopening(reopens, retryAfter, now, rnd))
			c.Reopens = reopens
		default:
			if c.Successes++; c.Successes >= b.Successes {
				c.Close()
			}
		}
		return
	}
	if !p.OK || p.Generation != c.Generation || c.State(now) != Closed {
		return
	}
	calls, failures := c.count(b.Window, success, now)
	if c.Failures++; success {
		c.Failures = 0
	}
	if c.Failures >= b.Failures || calls >= b.Calls && float64(failures)/float64(calls) >= b.Rate {
		c.Open(now, b.reopening(0, retryAfter, now, rnd))
	}
}

// reopening is when the first probe may go, the breaker having reopened so often.
func (b Breaker) reopening(reopens int, retryAfter time.Duration, now time.Time, rnd func() float64) time.Time {
	pause := Backoff(b.Cooldown, b.MaxCooldown, 2, reopens+1)
	return add(now, max(plus(pause, times(pause, 0.2*rnd())), retryAfter))
}

// Ignore takes back the permit of a call that tells nothing: it was skipped, or
// cancelled by its own caller. A probe's slot is free again.
func (b Breaker) Ignore(c *Circuit, p Permit) { c.release(p) }
