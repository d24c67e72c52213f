package wait

import (
	"errors"
	"fmt"
	"time"
)

// Outcome is how one check went. The set is closed.
type Outcome int8

// The outcomes.
const (
	Pending     Outcome = iota + 1 // not yet
	Succeeded                      // what was waited for is there
	Failed                         // it will never be; the wait is over
	Transient                      // the check did not work; try again
	Throttled                      // asked too often
	Skipped                        // no check was made: a breaker is open, or a condition false
	Interrupted                    // the process died in the middle, or lost its right to tell
)

var outcomeNames = [...]string{"", "pending", "succeeded", "failed", "transient", "throttled", "skipped", "interrupted"}

// String returns the outcome's name.
func (o Outcome) String() string {
	if o < 1 || int(o) >= len(outcomeNames) {
		return fmt.Sprintf("outcome(%d)", int8(o))
	}
	return outcomeNames[o]
}

// MarshalText implements [encoding.TextMarshaler].
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (o *Outcome) UnmarshalText(text []byte) error {
	for i, name := range outcomeNames {
		if i > 0 && name == string(text) {
			*o = Outcome(i)
			return nil
		}
	}
	return &FieldError{"outcome", fmt.Sprintf("is %q, none of %v", text, outcomeNames[1:])}
}

// Judge says what an error of a check or a call means: Transient unless the error
// says otherwise of itself, by one of these methods anywhere in its chain:
//
//   - Permanent() bool: Failed;
//   - WaitHint() Hint: what the server said, with it;
//   - Throttled() bool: Throttled;
//   - NextRetryDelay() (time.Duration, bool): the delay before the next try, and
//     whether it names one.
func Judge(err error) (Outcome, Hint) {
	var hint Hint
	var hinted interface{ WaitHint() Hint }
	var delayed interface {
		NextRetryDelay() (time.Duration, bool)
	}
	if errors.As(err, &hinted) {
		hint = hinted.WaitHint()
	}
	if errors.As(err, &delayed) { // which may be put around what is hinted
		if d, ok := delayed.NextRetryDelay(); ok && d != hint.After {
			hint.After, hint.Source = d, "error"
		}
	}
	var permanent interface{ Permanent() bool }
	if errors.As(err, &permanent) && permanent.Permanent() {
		return Failed, hint
	}
	var throttled interface{ Throttled() bool }
	if errors.As(err, &throttled) && throttled.Throttled() {
		hint.Hard = true
		return Throttled, hint
	}
	return Transient, hint
}

// Permanent marks an error as one that no further try can mend. It returns nil
// for nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanent{err}
}

type permanent struct{ error }

func (e *permanent) Unwrap() error   { return e.error }
func (e *permanent) Permanent() bool { return true }

// After marks an error with the delay before the next try: in the place of the
// back-off for [Retry], at least so long for [Poll]. It returns nil for nil.
func After(err error, delay time.Duration) error {
	if err == nil {
		return nil
	}
	return &delayed{err, delay}
}

type delayed struct {
	error
	delay time.Duration
}

func (e *delayed) Unwrap() error                         { return e.error }
func (e *delayed) NextRetryDelay() (time.Duration, bool) { return e.delay, true }

// Unmark takes the outermost mark of [Permanent] or [After] off; it reports false
// when there is none.
func Unmark(err error) (error, bool) {
	switch e := err.(type) {
	case *permanent:
		return e.error, true
	case *delayed:
		return e.error, true
	}
	return err, false
}
