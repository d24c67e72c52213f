package wait

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Why a wait was given up: the reasons of [TimeoutError] and
// [RetryExhaustedError].
const (
	ReasonTotalTimeout         = "total_timeout"
	ReasonMaxAttempts          = "max_attempts"
	ReasonMaxConsecutiveErrors = "max_consecutive_errors"
	ReasonRetryAfter           = "retry_after_exceeds_deadline"
)

// TimeoutError is a [Poll] that ended without its condition coming true. It
// matches what LastErr matches, but [context.DeadlineExceeded] only if the reason
// is [ReasonTotalTimeout]: that a single check took too long is another matter.
type TimeoutError struct {
	Reason            string // one of the Reason constants
	Attempts          int
	ConsecutiveErrors int
	Elapsed           time.Duration
	LastErr           error
	LastErrAt         time.Time
}

func (e *TimeoutError) Error() string {
	return gaveUp("poll", e.Reason, e.Attempts, e.Elapsed, e.LastErr)
}

// Code returns "poll_timeout".
func (e *TimeoutError) Code() string { return "poll_timeout" }

// Is matches by Reason and LastErr.
func (e *TimeoutError) Is(target error) bool { return matches(e.Reason, e.LastErr, target) }

// As finds what is in the chain of LastErr.
func (e *TimeoutError) As(target any) bool { return errors.As(e.LastErr, target) }

// RetryExhaustedError is a [Retry] that was given up. What it matches is as with
// [TimeoutError].
type RetryExhaustedError struct {
	Reason   string // ReasonMaxAttempts or ReasonTotalTimeout
	Attempts int
	Elapsed  time.Duration
	LastErr  error
}

func (e *RetryExhaustedError) Error() string {
	return gaveUp("retry", e.Reason, e.Attempts, e.Elapsed, e.LastErr)
}

// Code returns "retry_exhausted".
func (e *RetryExhaustedError) Code() string { return "retry_exhausted" }

// Is matches by Reason and LastErr.
func (e *RetryExhaustedError) Is(target error) bool { return matches(e.Reason, e.LastErr, target) }

// As finds what is in the chain of LastErr.
func (e *RetryExhaustedError) As(target any) bool { return errors.As(e.LastErr, target) }

func gaveUp(what, reason string, attempts int, elapsed time.Duration, last error) string {
	s := fmt.Sprintf("wait: %s gave up after %d attempts in %v (%s)", what, attempts, elapsed.Round(time.Millisecond), reason)
	if last != nil {
		s += fmt.Sprintf("; last error: %v", last)
	}
	return s
}

func matches(reason string, last, target error) bool {
	if target == context.DeadlineExceeded {
		return reason == ReasonTotalTimeout
	}
	return errors.Is(last, target)
}
