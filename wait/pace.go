package wait

import (
	"fmt"
	"time"
)

// Pace is the interval of a loop that never ends: from the completion of one
// round to the start of the next, longer while rounds fail. It is a delay, not a
// rate, so rounds that were missed are not made up for.
type Pace struct {
	Interval      time.Duration
	Min           time.Duration // no pause is shorter; default and least: [Floor]
	MaxMultiplier int           // the most times Interval that failures make of it; default 8
	Jitter        float64       // the share by which a pause is longer or shorter; default 0.1
	Exact         bool          // no jitter
	Adaptive      *Adaptive     // if set, Interval is only where the search begins
}

// Adaptive fits an interval to how often there is news: half of it after a round
// that found some, half as much again after three in a row that did not.
type Adaptive struct{ Min, Max time.Duration }

// PaceState is what a loop's pace goes by. It survives JSON; the zero value is
// that of a new loop. A round that was skipped does not change it.
type PaceState struct {
	Failures   int           `json:"failures,omitempty"`   // in a row
	Multiplier int           `json:"multiplier,omitempty"` // of the interval; 0 is 1
	Base       time.Duration `json:"base_ns,omitempty"`    // the adaptive interval; 0: not yet adapted
	Unchanged  int           `json:"unchanged,omitempty"`  // rounds in a row without news
}

const unchangedRounds = 3

func (p Pace) filled() Pace {
	p.Min = max(p.Min, Floor)
	if p.MaxMultiplier == 0 {
		p.MaxMultiplier = 8
	}
	if p.Jitter == 0 {
		p.Jitter = 0.1
	}
	if p.Exact {
		p.Jitter = 0
	}
	return p
}

// Check returns a [*FieldError] for parameters that make no sense.
func (p Pace) Check() error {
	switch {
	case p.Min < 0:
		return &FieldError{"Min", fmt.Sprintf("is %v; use 0 for the default", p.Min)}
	case p.MaxMultiplier < 0:
		return &FieldError{"MaxMultiplier", fmt.Sprintf("is %d; it must be at least 1, or 0 for the default", p.MaxMultiplier)}
	case !(p.Jitter >= 0 && p.Jitter < 1):
		return &FieldError{"Jitter", fmt.Sprintf("is %v; it must be at least 0 and below 1", p.Jitter)}
	}
	if err := atLeastFloor("Interval", p.Interval); err != nil {
		return err
	}
	if p.Interval < p.Min {
		return &FieldError{"Interval", fmt.Sprintf("is %v, below Min %v", p.Interval, p.Min)}
	}
	if a := p.Adaptive; a != nil {
		if a.Max < a.Min {
			return &FieldError{"Adaptive.Max", fmt.Sprintf("is %v, below Adaptive.Min %v", a.Max, a.Min)}
		}
		return atLeastFloor("Adaptive.Min", a.Min)
	}
	return nil
}

// Succeeded notes a round that worked: the next comes after the plain interval.
// changed says whether it found news, nil that this is not known.
func (p Pace) Succeeded(s *PaceState, changed *bool) {
	s.Failures, s.Multiplier = 0, 1
	if p.Adaptive == nil || changed == nil {
		return
	}
	base := p.base(*s)
	switch s.Unchanged++; {
	case *changed:
		base, s.Unchanged = base/2, 0
	case s.Unchanged >= unchangedRounds:
		base, s.Unchanged = times(base, 1.5), 0
	}
	s.Base = clamp(base, p.Adaptive.Min, p.Adaptive.Max)
}

// Failed notes a round that did not work.
func (p Pace) Failed(s *PaceState) {
	s.Failures++
	s.Multiplier = 1
	most := p.filled().MaxMultiplier
	for i := 0; i < s.Failures && s.Multiplier < most; i++ {
		if s.Multiplier > most/2 {
			s.Multiplier = most
		} else {
			s.Multiplier *= 2
		}
	}
}

// Effective is the pause before jitter.
func (p Pace) Effective(s PaceState) time.Duration {
	p = p.filled()
	multiplier := max(min(s.Multiplier, p.MaxMultiplier), 1)
	return max(times(p.base(s), float64(multiplier)), p.Min)
}

// Next is when the round after one that completed then begins. rnd returns a
// number in [0, 1). It is drawn once: whoever keeps it must not draw again.
func (p Pace) Next(s PaceState, completed time.Time, rnd func() float64) time.Time {
	p = p.filled()
	pause := p.Effective(s)
	if p.Jitter > 0 {
		pause = times(pause, 1+p.Jitter*(2*rnd()-1))
	}
	return add(completed, max(pause, p.Min))
}

func (p Pace) base(s PaceState) time.Duration {
	a := p.Adaptive
	switch {
	case a == nil:
		return p.Interval
	case s.Base == 0:
		return clamp(p.Interval, a.Min, a.Max)
	}
	return clamp(s.Base, a.Min, a.Max)
}
