package wait

import (
	"fmt"
	"time"
)

const (
	firstError     = time.Second // the back-off after an error begins here,
	longestError   = time.Minute // and ends here, unless the strategy's are longer
	maxServerDelay = time.Hour   // the most that a wish of the server may put a check off
	hurryInterval  = time.Second
)

// Plan says when checks come.
type Plan struct {
	Strategy Strategy      // default [Exponential]
	Jitter   *Jitter       // in place of the strategy's own
	Min      time.Duration // no pause is shorter; default and least: [Floor]
}

// Next is when the next check comes, and why then.
type Next struct {
	At   time.Time
	Base time.Duration // by strategy or error back-off, before jitter
	// Floor is what the server asked for, 0 if nothing; the back-off, if it has
	// refused without saying for how long.
	Floor time.Duration
	// Uncut is what At would be without a deadline.
	Uncut time.Time
	// NotBefore is the end of a hard floor; zero for none.
	NotBefore time.Time
	// Final: it is the check at the deadline.
	Final bool
	// TooLate: NotBefore lies beyond the deadline: at At there is no check, the wait
	// is over.
	TooLate bool
}

// Check returns a [*FieldError] for a plan that makes no sense.
func (p *Plan) Check() error {
	if p.Min != 0 {
		if err := atLeastFloor("minimum interval", p.Min); err != nil {
			return err
		}
	}
	if j := p.Jitter; j != nil && (*j < NoJitter || *j > Proportional) {
		return &FieldError{"jitter", fmt.Sprintf("is %d; use NoJitter, Equal, Full or Proportional", *j)}
	}
	return p.strategy().Check()
}

// Hold is how long a [LongPoll] asks the server to hold each answer; 0 for other
// strategies.
func (p *Plan) Hold() time.Duration {
	if l, ok := p.Strategy.(LongPoll); ok {
		return l.filled().Hold
	}
	return 0
}

func (p *Plan) strategy() Strategy {
	if p.Strategy == nil {
		return Exponential{}
	}
	return p.Strategy
}

// Next returns when to check after a check that ended now. deadline is zero for
// none; rnd returns a number in [0, 1). It is drawn once: whoever keeps it must
// not draw again.
func (p *Plan) Next(s *State, h Hint, now, deadline time.Time, rnd func() float64) Next {
	pause := p.strategy().Pause(s, now)
	if most := p.hurried(); now.Before(s.HurryTo) && pause.Base > most && !pause.Held {
		pause.Base, pause.Limit = most, most
	}
	failed := p.afterErrors(s, h, now)
	if failed.Base > pause.Base {
		pause = failed
	}
	if h.Hard && h.After <= 0 { // refused, and not told for how long
		h.After = failed.Base
	}
	if p.Jitter != nil && !pause.Held {
		pause.Jitter = *p.Jitter
	}
	low := max(p.Min, Floor)
	n := Next{Base: pause.Base, Floor: serverFloor(s, h)}
	delay := pause.Jitter.Apply(pause.Base, pause.Limit, rnd)
	if !pause.Held {
		delay = max(delay, low)
	}
	if n.Floor > 0 { // only ever exceeded, unless all is to be exact
		spread := 0.1 * rnd()
		if p.Jitter != nil && *p.Jitter == NoJitter {
			spread = 0
		}
		delay = max(delay, plus(n.Floor, times(n.Floor, spread)))
	}
	n.At = add(now, delay)
	n.Uncut = n.At
	if h.Hard && h.After > 0 {
		n.NotBefore = add(now, h.After)
	}
	if deadline.IsZero() || deadline.Sub(n.At) >= low {
		return n
	}
	n.TooLate = n.NotBefore.After(deadline)
	n.At, n.Final = deadline, !n.TooLate
	return n
}

// hurried is the longest pause while checks are to come as close as allowed: Min,
// or a second where none is set, since [Floor] is no way to treat a server.
func (p *Plan) hurried() time.Duration {
	if p.Min > 0 {
		return p.Min
	}
	return hurryInterval
}

// afterErrors is the back-off after errors in a row; its row begins where the
// strategy's does. A refusal that names a time grows it no further: the server
// knows better.
func (p *Plan) afterErrors(s *State, h Hint, now time.Time) Pause {
	e := s.Errors
	if !h.Hard || h.After <= 0 {
		e += s.Throttled
	}
	if e <= 0 {
		return Pause{}
	}
	first := p.strategy().Pause(&State{Start: now, Unheld: unheldTwice}, now)
	limit := max(first.Limit, longestError)
	return Pause{Base: Backoff(max(first.Base, firstError), limit, 2, e), Limit: limit, Jitter: first.Jitter}
}

// serverFloor is what the server asked for: a wish within bounds, a refusal
// without.
func serverFloor(s *State, h Hint) time.Duration {
	if h.Hard {
		return max(min(s.Sticky, maxServerDelay), h.After, 0)
	}
	return max(min(max(s.Sticky, h.After), maxServerDelay), 0)
}

func plus(a, b time.Duration) time.Duration {
	if sum := a + b; sum >= a {
		return sum
	}
	return 1<<63 - 1
}

// add is t + d, where "for ever" does not wrap around into the past.
func add(t time.Time, d time.Duration) time.Time {
	const century = 100 * 365 * 24 * time.Hour
	return t.Add(min(d, century))
}
