package bide

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Reasons why a poll was given up, besides those of a step.
const (
	ReasonMaxConsecutiveErrors = "max_consecutive_errors"
	// The server's own "not before" lies beyond the poll's deadline.
	ReasonRetryAfter = "retry_after_exceeds_deadline"
)

// PollTimeoutError is a poll that ended without its condition coming true. It
// matches [ErrPollTimeout], its last error, and [context.DeadlineExceeded] when
// the reason is [ReasonTotalTimeout].
type PollTimeoutError struct {
	Name              string          `json:"name"`
	ID                string          `json:"id"` // of the run
	Reason            string          `json:"reason"`
	Attempts          int             `json:"attempts"`
	ConsecutiveErrors int             `json:"consecutive_errors"`
	Elapsed           time.Duration   `json:"elapsed_ns"`
	LastValue         json.RawMessage `json:"last_value,omitempty"`
	LastProgress      *ProgressState  `json:"last_progress,omitempty"`
	LastErr           error           `json:"-"`
	LastErrAt         time.Time       `json:"last_err_at,omitzero"`
}

func (e *PollTimeoutError) Error() string {
	s := fmt.Sprintf("bide: poll %q gave up after %d attempts in %v (%s)", e.Name, e.Attempts, e.Elapsed.Round(time.Millisecond), e.Reason)
	if e.LastValue != nil {
		s += fmt.Sprintf("; last value %.200s", e.LastValue)
	}
	if e.LastErr != nil {
		s += fmt.Sprintf("; last error: %v", e.LastErr)
	}
	return s
}

// Code returns "poll_timeout".
func (e *PollTimeoutError) Code() string { return "poll_timeout" }

// Is matches [ErrPollTimeout], what LastErr matches, and by Reason alone
// [context.DeadlineExceeded]: a check that ran out of its own time is not a poll
// that did.
func (e *PollTimeoutError) Is(target error) bool {
	switch target {
	case ErrPollTimeout:
		return true
	case context.DeadlineExceeded:
		return e.Reason == ReasonTotalTimeout
	}
	return errors.Is(e.LastErr, target)
}

// As finds in LastErr what is asked for.
func (e *PollTimeoutError) As(target any) bool { return errors.As(e.LastErr, target) }

func (e *PollTimeoutError) cause() error { return e.LastErr }

func (e *PollTimeoutError) setCauses(errs []error) { e.LastErr = first(errs) }

// PollFailedError is a poll whose check returned a permanent error.
type PollFailedError struct {
	Name      string          `json:"name"`
	Attempts  int             `json:"attempts"`
	LastValue json.RawMessage `json:"last_value,omitempty"`
	Err       error           `json:"-"`
}

func (e *PollFailedError) Error() string {
	return fmt.Sprintf("bide: poll %q failed at attempt %d: %v", e.Name, e.Attempts, e.Err)
}

// Code returns "poll_failed".
func (e *PollFailedError) Code() string { return "poll_failed" }

// Unwrap returns Err.
func (e *PollFailedError) Unwrap() error { return e.Err }

func (e *PollFailedError) setCauses(errs []error) { e.Err = first(errs) }

// PollStalledError is a poll whose progress did not rise for [StallTimeout].
type PollStalledError struct {
	Name         string          `json:"name"`
	Attempts     int             `json:"attempts"`
	Stalled      time.Duration   `json:"stalled_ns"`
	LastValue    json.RawMessage `json:"last_value,omitempty"`
	LastProgress *ProgressState  `json:"last_progress,omitempty"`
}

func (e *PollStalledError) Error() string {
	s := fmt.Sprintf("bide: poll %q made no progress for %v", e.Name, e.Stalled.Round(time.Millisecond))
	if p := e.LastProgress; p != nil {
		s += fmt.Sprintf("; it stands at %g %%", p.Percent)
	}
	return s
}

// Code returns "poll_stalled".
func (e *PollStalledError) Code() string { return "poll_stalled" }
