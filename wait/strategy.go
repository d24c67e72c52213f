package wait

import (
	"fmt"
	"math"
	"time"
)

// Floor is the shortest pause that any plan makes.
const Floor = 10 * time.Millisecond

// Pause is what a [Strategy] asks for: Base before jitter, at most Limit after.
type Pause struct {
	Base, Limit time.Duration
	Jitter      Jitter
	// Held: a server that holds its answers back is asked again at once; the
	// plan's Min does not apply.
	Held bool
}

// Strategy says how long to pause after a check that found "not yet". The pause
// after an error is not its business.
type Strategy interface {
	Pause(s *State, now time.Time) Pause
	// Check returns a [*FieldError] for parameters that make no sense.
	Check() error
}

// FieldError is a parameter that makes no sense: which, and what to do about it.
type FieldError struct{ Field, Reason string }

func (e *FieldError) Error() string { return "wait: " + e.Field + " " + e.Reason }

// Code returns "invalid".
func (e *FieldError) Code() string { return "invalid" }

// Fixed is the same pause after each check.
type Fixed time.Duration

// Pause implements [Strategy].
func (f Fixed) Pause(*State, time.Time) Pause {
	return Pause{Base: time.Duration(f), Limit: time.Duration(f), Jitter: Proportional}
}

// Check implements [Strategy].
func (f Fixed) Check() error { return atLeastFloor("interval", time.Duration(f)) }

// Exponential is a growing pause: min(Max, Interval·Coefficient^(n-1)) after the
// n-th "not yet".
type Exponential struct {
	Interval    time.Duration // default 1 s
	Coefficient float64       // default 1.5; at least 1
	Max         time.Duration // default 30 s, or Interval if that is longer
}

func (e Exponential) filled() Exponential {
	if e.Interval == 0 {
		e.Interval = time.Second
	}
	if e.Coefficient == 0 {
		e.Coefficient = 1.5
	}
	if e.Max == 0 {
		e.Max = max(30*time.Second, e.Interval)
	}
	return e
}

// Pause implements [Strategy].
func (e Exponential) Pause(s *State, _ time.Time) Pause {
	e = e.filled()
	return Pause{Base: Backoff(e.Interval, e.Max, e.Coefficient, s.Pending), Limit: e.Max, Jitter: Equal}
}

// Check implements [Strategy].
func (e Exponential) Check() error {
	e = e.filled()
	switch {
	case !(e.Coefficient >= 1):
		return &FieldError{"Exponential.Coefficient", fmt.Sprintf("is %v; it must be at least 1", e.Coefficient)}
	case e.Max < e.Interval:
		return &FieldError{"Exponential.Max", fmt.Sprintf("is %v, below the interval %v", e.Max, e.Interval)}
	}
	return atLeastFloor("Exponential.Interval", e.Interval)
}

// Elapsed pauses for a share of the time waited so far: what has taken long is
// found out late by at most that share of it, until Max binds.
type Elapsed struct {
	Share    float64       // default 0.1
	Min, Max time.Duration // default 1 s and 60 s
}

func (e Elapsed) filled() Elapsed {
	if e.Share == 0 {
		e.Share = 0.1
	}
	if e.Min == 0 {
		e.Min = time.Second
	}
	if e.Max == 0 {
		e.Max = max(time.Minute, e.Min)
	}
	return e
}

// Pause implements [Strategy].
func (e Elapsed) Pause(s *State, now time.Time) Pause {
	e = e.filled()
	return Pause{Base: clamp(times(since(s.Start, now), e.Share), e.Min, e.Max), Limit: e.Max, Jitter: Proportional}
}

// Check implements [Strategy].
func (e Elapsed) Check() error {
	e = e.filled()
	switch {
	case !(e.Share > 0) || math.IsInf(e.Share, 0):
		return &FieldError{"Elapsed.Share", fmt.Sprintf("is %v; it must be above 0", e.Share)}
	case e.Max < e.Min:
		return &FieldError{"Elapsed.Max", fmt.Sprintf("is %v, below Min %v", e.Max, e.Min)}
	}
	return atLeastFloor("Elapsed.Min", e.Min)
}

// ETA goes by when the thing says that it will be done, or by the rate of its
// progress: most of the way is slept through, and near the end, or past it, checks
// come closer. While there is neither it is [Elapsed].
type ETA struct {
	Min, Max time.Duration // default 1 s and 60 s
}

func (e ETA) filled() ETA {
	f := Elapsed{Min: e.Min, Max: e.Max}.filled()
	return ETA{f.Min, f.Max}
}

// Pause implements [Strategy]. The shares of 0.8 before and 0.25 after are what
// simulation found best for estimates that are off by a fifth.
func (e ETA) Pause(s *State, now time.Time) Pause {
	e = e.filled()
	left, ok := s.Remaining(now)
	if !ok {
		return Elapsed{Min: e.Min, Max: e.Max}.Pause(s, now)
	}
	b := e.Min
	switch {
	case left > e.Min:
		b = clamp(times(left, 0.8), e.Min, e.Max)
	case left < 0:
		b = clamp(times(left, -0.25), e.Min, e.Max)
	}
	return Pause{Base: b, Limit: e.Max, Jitter: Proportional}
}

// Check implements [Strategy].
func (e ETA) Check() error {
	e = e.filled()
	if e.Max < e.Min {
		return &FieldError{"ETA.Max", fmt.Sprintf("is %v, below Min %v", e.Max, e.Min)}
	}
	return atLeastFloor("ETA.Min", e.Min)
}

// LongPoll is for a server that holds its answer back for up to Hold until there
// is news: it is asked again at once, unless it turns out not to hold.
type LongPoll struct {
	Hold time.Duration // default 30 s, at most 60 s
	// Otherwise paces the checks of a server that does not hold; default
	// [Exponential].
	Otherwise Strategy
}

const (
	longPollSpread  = 250 * time.Millisecond
	unheldTwice     = 2 // answers in a row that say that a server does not hold
	longestLongPoll = time.Minute
)

func (l LongPoll) filled() LongPoll {
	if l.Hold == 0 {
		l.Hold = 30 * time.Second
	}
	if l.Otherwise == nil {
		l.Otherwise = Exponential{}
	}
	return l
}

// Pause implements [Strategy]. Two answers in a row in less than a fifth of Hold
// say that the server does not hold; one of four fifths says that it does.
func (l LongPoll) Pause(s *State, now time.Time) Pause {
	l = l.filled()
	if s.Unheld >= unheldTwice {
		return l.Otherwise.Pause(s, now)
	}
	return Pause{Base: longPollSpread, Limit: longPollSpread, Jitter: Full, Held: true}
}

// Check implements [Strategy].
func (l LongPoll) Check() error {
	l = l.filled()
	if l.Hold < time.Second || l.Hold > longestLongPoll {
		return &FieldError{"LongPoll.Hold", fmt.Sprintf("is %v; it must be from 1 s to %v", l.Hold, longestLongPoll)}
	}
	return l.Otherwise.Check()
}

func atLeastFloor(field string, d time.Duration) error {
	if d < Floor {
		return &FieldError{field, fmt.Sprintf("is %v; it must be at least %v", d, Floor)}
	}
	return nil
}
