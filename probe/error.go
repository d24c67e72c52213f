package probe

import (
	"errors"
	"fmt"

	"github.com/bide-dev/bide"
)

func init() {
	bide.RegisterError(&ConditionError{}, &FailureError{}, &BodyTooLargeError{}, &RedirectError{}, &ResultError{})
}

// ConditionError is a CEL expression that could not be evaluated on an answer, of
// which it expects something that is not there. It is transient: the next answer
// may have it.
type ConditionError struct {
	Field  string `json:"field"` // of the Spec: "until", "accept[0].when"
	Status int    `json:"status"`
	Reason string `json:"reason"` // what CEL says, "no such key: state"
}

func (e *ConditionError) Error() string {
	return fmt.Sprintf("probe: %s cannot be told from the answer (status %d): %s", e.Field, e.Status, e.Reason)
}

// Code returns "condition_error".
func (e *ConditionError) Code() string { return "condition_error" }

// FailureError is an answer that a failure acceptor has recognised: the poll has
// failed.
type FailureError struct {
	Message     string      `json:"message"` // of the acceptor, or its condition
	Observation Observation `json:"observation"`
}

func (e *FailureError) Error() string {
	return fmt.Sprintf("probe: the answer says failure (status %d): %s", e.Observation.Status, e.Message)
}

// Code returns "failure_accepted".
func (e *FailureError) Code() string { return "failure_accepted" }

// Permanent returns true.
func (e *FailureError) Permanent() bool { return true }

// BodyTooLargeError is a 2xx whose body, decompressed, is above [Spec].MaxBody. It
// is permanent: the next one would be as long.
type BodyTooLargeError struct {
	URL   string `json:"url"`
	Limit int64  `json:"limit"` // bytes
}

func (e *BodyTooLargeError) Error() string {
	return fmt.Sprintf("probe: %s: the answer is longer than %d bytes; ask for less", e.URL, e.Limit)
}

// Code returns "body_too_large".
func (e *BodyTooLargeError) Code() string { return "body_too_large" }

// Permanent returns true.
func (e *BodyTooLargeError) Permanent() bool { return true }

// RedirectError is a redirect that was not followed: there were too many, or its
// target is none, or it would have carried the body to another host. It is
// transient.
type RedirectError struct {
	URL    string `json:"url"` // where it began
	Reason string `json:"reason"`
}

func (e *RedirectError) Error() string { return fmt.Sprintf("probe: %s: %s", e.URL, e.Reason) }

// Code returns "redirect".
func (e *RedirectError) Code() string { return "redirect" }

// ResultError is a result that a 303 has pointed to and that could not be
// fetched. It is as permanent as its cause, but for 404, 409 and 425: the status
// may be ahead of the result.
type ResultError struct {
	Transient bool  `json:"transient"`
	Err       error `json:"-"`
}

func (e *ResultError) Error() string { return fmt.Sprintf("probe: the result: %v", e.Err) }

// Unwrap returns Err.
func (e *ResultError) Unwrap() error { return e.Err }

// Permanent reports whether another try is in vain.
func (e *ResultError) Permanent() bool { return !e.Transient }

// scrubbed is an error whose text shows no secrets. It keeps its identity where
// there were none to hide.
func (s *secrets) scrubbed(err error) error {
	if text := s.scrub(err.Error()); text != err.Error() {
		return errors.New(text)
	}
	return err
}
