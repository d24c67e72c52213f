package bide

import (
	"errors"
	"fmt"
	"time"

	"github.com/bide-dev/bide/wait"
)

// Sentinels. Each keeps its identity through replay, SQL and the wire; see [Code].
var (
	ErrNotFound    = newSentinel("not_found", "run not found")
	ErrLeaseLost   = newSentinel("lease_lost", "the lease on the run is lost")
	ErrRunEnded    = newSentinel("run_ended", "the run has ended")
	ErrCanceled    = newSentinel("canceled", "the run is canceled")
	ErrTerminated  = newSentinel("terminated", "the run was terminated")
	ErrTimeout     = newSentinel("timeout", "timed out")
	ErrPollTimeout = newSentinel("poll_timeout", "poll gave up")
	ErrInterrupted = newSentinel("interrupted", "the attempt was interrupted")
	ErrClosed      = newSentinel("closed", "the store is closed")
	ErrGone        = newSentinel("gone", "what it was for is over")
	ErrReadOnly    = newSentinel("read_only", "the store is open for reading only")
	ErrStoreFull   = newSentinel("store_full", "no room left to write")
	ErrFactChanged = newSentinel("fact_changed", "the fact is not at the version that was asked for")
)

type sentinel struct{ code, text string }

func newSentinel(code, text string) error {
	s := &sentinel{code, text}
	registry.values["bide."+code] = s
	return s
}

func (s *sentinel) Error() string { return "bide: " + s.text }
func (s *sentinel) Code() string  { return s.code }

// Code returns the stable code of the first error in the chain that has one
// (a method Code() string), or "".
func Code(err error) string {
	var c interface{ Code() string }
	if errors.As(err, &c) {
		return c.Code()
	}
	return ""
}

// InvalidError is bad input: which field, and what to do about it.
type InvalidError struct {
	Field  string `json:"field"`
	Reason string `json:"reason"`
}

func (e *InvalidError) Error() string { return "bide: " + e.Field + ": " + e.Reason }

// Code returns "invalid".
func (e *InvalidError) Code() string { return "invalid" }

// PayloadTooLargeError is a value whose JSON is above the store's limit.
type PayloadTooLargeError struct {
	Field string `json:"field"` // "input", "result of step \"write\"" ...
	Size  int    `json:"size"`  // bytes
	Limit int    `json:"limit"` // bytes
}

func (e *PayloadTooLargeError) Error() string {
	return fmt.Sprintf("bide: %s is %d bytes of JSON, the limit is %d: keep it elsewhere and pass a reference", e.Field, e.Size, e.Limit)
}

// Code returns "payload_too_large".
func (e *PayloadTooLargeError) Code() string { return "payload_too_large" }

// CodecError is a value that cannot become JSON, or JSON that does not fit the
// Go type that should hold it.
type CodecError struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

func (e *CodecError) Error() string { return "bide: " + e.Field + ": " + e.Message }

// Code returns "codec".
func (e *CodecError) Code() string { return "codec" }

// UnknownWorkflowError is a start by a name that the client was not given.
type UnknownWorkflowError struct {
	Name  string   `json:"name"`
	Known []string `json:"known"`
}

func (e *UnknownWorkflowError) Error() string {
	return fmt.Sprintf("bide: unknown workflow %q; registered with this client: %q", e.Name, e.Known)
}

// Code returns "unknown_workflow".
func (e *UnknownWorkflowError) Code() string { return "unknown_workflow" }

// ConflictError is a start whose id is taken by a run with another workflow or
// input, or by any run under [Fail]; or whose key ([NewRun].Key) is that of a run
// that was asked for otherwise.
type ConflictError struct {
	ID  string `json:"id"` // of the run that is there
	Key string `json:"key,omitempty"`
}

func (e *ConflictError) Error() string {
	if e.Key != "" {
		return fmt.Sprintf("bide: key %q belongs to run %q, which was asked for otherwise; use another key", e.Key, e.ID)
	}
	return fmt.Sprintf("bide: run id %q is taken; use another id, bide.Replace, or the same workflow and input", e.ID)
}

// Code returns "conflict".
func (e *ConflictError) Code() string { return "conflict" }

// MisuseError is a verb called where it cannot work.
type MisuseError struct {
	Verb   string `json:"verb"`
	Reason string `json:"reason"`
}

func (e *MisuseError) Error() string { return "bide: " + e.Verb + ": " + e.Reason }

// Code returns "misuse".
func (e *MisuseError) Code() string { return "misuse" }

// DivergedError says that a workflow took another path than its history: its
// code was changed under a live run, or it is not deterministic. The run is not
// failed; it goes on once mended code is deployed.
type DivergedError struct {
	Path     string `json:"path"`
	Expected string `json:"expected"` // what the history holds
	Found    string `json:"found"`    // what the workflow did
	Line     string `json:"line"`     // file:line of the workflow
}

func (e *DivergedError) Error() string {
	return fmt.Sprintf("bide: the workflow diverged from its history at %s (%s): the history has %s, the code did %s; "+
		"deploy code that takes the old path for this run, or terminate it and start anew", e.Path, e.Line, e.Expected, e.Found)
}

// Code returns "diverged".
func (e *DivergedError) Code() string { return "diverged" }

// PanicError is a panic in workflow or step code.
type PanicError struct {
	Value string `json:"value"`
	Stack string `json:"stack,omitempty"`
}

func (e *PanicError) Error() string { return "panic: " + e.Value }

// Code returns "panic".
func (e *PanicError) Code() string { return "panic" }

// StepError is an error of user code after it was kept, when its type was not
// given to [RegisterError]: the type's name and the message are what is left.
type StepError struct {
	Type    string
	Message string
	causes  []error
}

func (e *StepError) Error() string   { return e.Message }
func (e *StepError) Unwrap() []error { return e.causes }

// Reasons why a step was given up.
const (
	ReasonMaxAttempts  = "max_attempts"
	ReasonTotalTimeout = "total_timeout"
	ReasonPermanent    = "permanent"
)

// RetryExhaustedError is a step given up after it was tried more than once, or
// whose next attempt would come after its Timeout.
type RetryExhaustedError struct {
	Step     string `json:"step"`
	Attempts int    `json:"attempts"`
	Reason   string `json:"reason"` // one of the Reason constants
	LastErr  error  `json:"-"`
}

func (e *RetryExhaustedError) Error() string {
	return fmt.Sprintf("bide: step %q given up after %d attempts (%s): %v", e.Step, e.Attempts, e.Reason, e.LastErr)
}

// Unwrap returns LastErr.
func (e *RetryExhaustedError) Unwrap() error { return e.LastErr }

// Code returns "retry_exhausted".
func (e *RetryExhaustedError) Code() string { return "retry_exhausted" }

func (e *RetryExhaustedError) setCauses(errs []error) { e.LastErr = first(errs) }

// StepInterruptedError is an at-most-once step whose process died, or lost its
// lease, after the step had begun: it may have had its effect, or not.
type StepInterruptedError struct {
	Step string `json:"step"`
}

func (e *StepInterruptedError) Error() string {
	return fmt.Sprintf("bide: at-most-once step %q was interrupted; whether it took effect is unknown", e.Step)
}

// Code returns "step_interrupted".
func (e *StepInterruptedError) Code() string { return "step_interrupted" }

// Is reports true for [ErrInterrupted].
func (e *StepInterruptedError) Is(target error) bool { return target == ErrInterrupted }

// TimeoutError is an attempt, a step, a receive or a run that took too long.
// errors.Is finds [ErrTimeout] in it.
type TimeoutError struct {
	What  string        `json:"what"` // "attempt of step \"write\"", "signal \"approval\"" ...
	After time.Duration `json:"after_ns"`
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("bide: %s: timed out after %v", e.What, e.After)
}

// Code returns "timeout".
func (e *TimeoutError) Code() string { return "timeout" }

// Is reports true for [ErrTimeout].
func (e *TimeoutError) Is(target error) bool { return target == ErrTimeout }

// RunError is what waiting for the result of a run that did not succeed gives.
// It unwraps to the workflow's error; [ErrCanceled], [ErrTerminated] and
// [ErrTimeout] are found in it by the run's state.
type RunError struct {
	ID    string `json:"id"`
	State State  `json:"state"`
	Err   error  `json:"-"`
}

func (e *RunError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("bide: run %s %s", e.ID, e.State)
	}
	return fmt.Sprintf("bide: run %s %s: %v", e.ID, e.State, e.Err)
}

// Unwrap returns Err.
func (e *RunError) Unwrap() error { return e.Err }

// Code returns "run_" and the state.
func (e *RunError) Code() string { return "run_" + e.State.String() }

// Is maps the state to its sentinel.
func (e *RunError) Is(target error) bool {
	switch target {
	case ErrCanceled:
		return e.State == Canceled
	case ErrTerminated:
		return e.State == Terminated
	case ErrTimeout:
		return e.State == TimedOut
	}
	return false
}

func (e *RunError) setCauses(errs []error) { e.Err = first(errs) }

// Permanent marks an error of a step or a poll's check as one that no further
// attempt can mend. An error type of yours does the same by a method Permanent()
// bool. It returns nil for nil.
func Permanent(err error) error { return wait.Permanent(err) }

// RetryAfter marks an error with the delay before the next attempt of a step, in
// the place of the policy's own, or the least delay before the next check of a
// poll. It may exceed MaximumInterval; MaximumAttempts and Timeout still bind. An
// error type of yours does the same by a method NextRetryDelay() (d time.Duration,
// ok bool). It returns nil for nil.
func RetryAfter(err error, delay time.Duration) error { return wait.After(err, delay) }

func first(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return errs[0]
}
