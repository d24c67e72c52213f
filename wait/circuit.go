package wait

import (
	"fmt"
	"slices"
	"time"
)

// BreakerState is one of [Closed], [Open] and [HalfOpen].
type BreakerState int8

// The states of a breaker.
const (
	Closed   BreakerState = iota // calls go through
	Open                         // none does
	HalfOpen                     // a few do, as probes
)

var breakerStateNames = [...]string{"closed", "open", "half_open"}

// String returns "closed", "open" or "half_open".
func (s BreakerState) String() string {
	if s < 0 || int(s) >= len(breakerStateNames) {
		return fmt.Sprintf("breaker_state(%d)", int8(s))
	}
	return breakerStateNames[s]
}

// MarshalText implements [encoding.TextMarshaler].
func (s BreakerState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *BreakerState) UnmarshalText(text []byte) error {
	i := slices.Index(breakerStateNames[:], string(text))
	if i < 0 {
		return &FieldError{"breaker state", fmt.Sprintf("is %q, none of %v", text, breakerStateNames)}
	}
	*s = BreakerState(i)
	return nil
}

// Circuit is what a [Breaker] has seen so far. It is small and survives JSON; the
// zero value is closed. Its state is not kept but follows from the time, see
// [Circuit.State]: nobody need be there when a cool-down ends.
type Circuit struct {
	OpenedAt time.Time `json:"opened_at,omitzero"` // zero: closed
	// RetryAt ends the cool-down. Whoever means to probe before that, since a
	// person asked for it, sets it back to now.
	RetryAt time.Time `json:"retry_at,omitzero"`
	// Generation changes whenever the state does and with each probe, so that a
	// late report is known for what it is.
	Generation int64       `json:"generation,omitempty"`
	Reopens    int         `json:"reopens,omitempty"`   // since it last was closed
	Failures   int         `json:"failures,omitempty"`  // in a row, while closed
	Successes  int         `json:"successes,omitempty"` // of probes, since it last was open
	Window     []CallCount `json:"window,omitempty"`    // oldest first, at most ten
	Probes     []ProbeSlot `json:"probes,omitempty"`
}

// CallCount counts the calls of a tenth of a breaker's window.
type CallCount struct {
	From     time.Time `json:"from"`
	Calls    int       `json:"calls"`
	Failures int       `json:"failures,omitempty"`
}

// ProbeSlot is held by a probe under way.
type ProbeSlot struct {
	Generation int64     `json:"generation"` // of its permit
	Until      time.Time `json:"until"`      // after that it may go to another
}

// State returns the state at the time.
func (c *Circuit) State(now time.Time) BreakerState {
	switch {
	case c.OpenedAt.IsZero():
		return Closed
	case now.Before(c.RetryAt):
		return Open
	}
	return HalfOpen
}

// Open opens the circuit until then, whatever its state: by hand it is the way to
// keep calls off a server that is about to go down.
func (c *Circuit) Open(now, until time.Time) {
	*c = Circuit{OpenedAt: now, RetryAt: until, Generation: c.Generation + 1, Reopens: c.Reopens}
}

// Close closes the circuit and forgets all that was counted.
func (c *Circuit) Close() { *c = Circuit{Generation: c.Generation + 1} }

// Reset forgets all that was counted. A circuit that is not closed is half-open
// then: the next call is a probe, and if it fails, the cool-down is the first
// again.
func (c *Circuit) Reset() {
	*c = Circuit{Generation: c.Generation + 1, OpenedAt: c.OpenedAt}
}

// release frees the probe slot of a permit. It reports false if that is no
// longer held.
func (c *Circuit) release(p Permit) bool {
	i := slices.IndexFunc(c.Probes, func(s ProbeSlot) bool { return s.Generation == p.Generation })
	if !p.Probe || i < 0 {
		return false
	}
	c.Probes = slices.Delete(slices.Clone(c.Probes), i, i+1)
	return true
}

// count adds a call to the window and returns the sums over it.
func (c *Circuit) count(window time.Duration, success bool, now time.Time) (calls, failures int) {
	kept := c.Window[:0:0]
	for _, n := range c.Window { // also without those that a clock put into the future
		if age := now.Sub(n.From); age >= 0 && age < window {
			kept = append(kept, n)
		}
	}
	if n := len(kept); n == 0 || now.Sub(kept[n-1].From) >= window/10 {
		kept = append(kept, CallCount{From: now})
	}
	last := &kept[len(kept)-1]
	last.Calls++
	if !success {
		last.Failures++
	}
	c.Window = kept
	for _, n := range kept {
		calls, failures = calls+n.Calls, failures+n.Failures
	}
	return calls, failures
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
