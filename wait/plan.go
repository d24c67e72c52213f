package wait

import "time"

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
	At    time.Time
	Base  time.Duration // by strategy or error back-off, before jitter
	Floor time.Duration // what the server asked for, 0 if nothing
	// Final: it is the check at the deadline.
	Final bool
	// TooLate: a server's hard floor lies beyond the deadline: at At there is no
	// check, the wait is over.
	TooLate bool
}

// Check returns a [*FieldError] for a plan that makes no sense.
func (p *Plan) Check() error {
	if p.Min != 0 {
		if err := atLeastFloor("minimum interval", p.Min); err != nil {
			return err
		}
	}
	return p.strategy().Check()
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
	low := max(p.Min, Floor)
	pause := p.strategy().Pause(s, now)
	if now.Before(s.HurryTo) {
		pause = Pause{Base: hurryInterval, Limit: hurryInterval, Jitter: pause.Jitter}
	}
	if p.Jitter != nil && !pause.Held {
		pause.Jitter = *p.Jitter
	}
	base, limit := pause.Base, pause.Limit
	if e := s.Errors + s.Throttled; e > 0 {
		if b := Backoff(max(p.first(), firstError), max(limit, longestError), 2, e); b > base || pause.Held {
			base, limit, pause.Held = b, max(limit, longestError), false
		}
	}
	if pause.Held {
		low = 0
	}
	n := Next{Base: base}
	delay := max(pause.Jitter.Apply(base, limit, rnd), low)
	soft := s.Sticky
	if !h.Hard {
		soft = max(soft, h.After)
	}
	n.Floor = min(soft, maxServerDelay)
	if h.Hard {
		n.Floor = max(n.Floor, h.After)
	}
	if n.Floor > 0 { // only ever exceeded, unless all is to be exact
		spread := 0.1 * rnd()
		if p.Jitter != nil && *p.Jitter == NoJitter {
			spread = 0
		}
		delay = max(delay, plus(n.Floor, times(n.Floor, spread)))
	}
	n.At = add(now, delay)
	if deadline.IsZero() || deadline.Sub(n.At) >= max(low, Floor) {
		return n
	}
	n.TooLate = h.Hard && add(now, h.After).After(deadline)
	n.At, n.Final = deadline, !n.TooLate
	return n
}

// first is the strategy's pause after the first check: where the back-off after
// errors begins.
func (p *Plan) first() time.Duration {
	switch s := p.strategy().(type) {
	case Fixed:
		return time.Duration(s)
	case Exponential:
		return s.filled().Interval
	case Elapsed:
		return s.filled().Min
	case ETA:
		return s.filled().Min
	}
	return firstError
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
