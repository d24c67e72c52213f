package bide

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/bide-dev/bide/wait"
)

// Job is a job that something outside does: it is submitted, polled until it is
// done, and its result is fetched. Each part is kept by itself, so that a crash
// goes on with the part that it has cut short: what has been submitted is not
// submitted again, and what was done is fetched, not polled.
//
// Submit and Fetch may run more than once, as any [Step]; Status must be an
// idempotent read, as any check of [Poll]. With a Retry of MaximumAttempts 1 the
// parts run at most once.
type Job[ID, S, R any] struct {
	// Submit starts the job and returns what it is known by. What it gives to
	// [Observe], or its ID says by the methods that [Poll] knows, is about the first
	// check: when it comes at the earliest, or when the job will be done.
	Submit func(ctx context.Context) (ID, error)
	Status func(ctx context.Context, id ID) (S, error)
	Done   func(S) bool
	Fetch  func(ctx context.Context, id ID) (R, error)
	// Cancel, if set, tells the outside that the job is not wanted any more.
	Cancel func(ctx context.Context, id ID) error
	Retry  RetryPolicy // of submit, fetch and cancel
	// FetchGrace is for so long after the job was done a 404, 409 or 425 of Fetch is
	// transient, since a status may be ahead of the result; default 30 s. It is read
	// off a [wait.ResponseError], or off a method HTTPStatus() int or Status() int of
	// the error.
	FetchGrace time.Duration
}

const fetchGrace = 30 * time.Second

// Run submits the job, waits for it and returns its result. The options are those
// of [Poll], and bound the wait only; unless [InitialDelay] says otherwise the
// first check comes after one interval, since nothing is done the instant that it
// is submitted, and never before Submit was told that it may.
//
// The history gets the steps "name submit", "name fetch" and, when the run is
// canceled with the job submitted, "name cancel", which is made in spite of the
// cancel; the record of the submit holds {"id": …}. A job whose branch loses a
// [Race] is left to itself. Errors: those of [Step] and [Poll], [ErrCanceled] with
// the error of Cancel if that failed too.
func (j Job[ID, S, R]) Run(ctx Context, name string, opts ...PollOption) (R, error) {
	var none R
	if err := j.check(name, opts); err != nil {
		return none, err
	}
	s, err := Step(ctx, name+" submit", func(ctx context.Context) (submitted[ID], error) {
		id, err := j.Submit(ctx)
		if err != nil {
			return submitted[ID]{}, err
		}
		return submitted[ID]{id, jobStart(ctx, id)}, nil
	}, j.Retry)
	if err != nil {
		return none, err
	}
	_, err = Poll(ctx, name, func(ctx context.Context) (S, error) { return j.Status(ctx, s.ID) }, j.Done, append(slices.Clip(opts), s.started)...)
	var result R
	if err == nil {
		result, err = j.fetch(ctx, name, s.ID)
	}
	if errors.Is(err, ErrCanceled) && j.Cancel != nil { // itself: by the run's cancel, not by what a check has found
		_, err = Step(WithoutCancel(ctx), name+" cancel", func(ctx context.Context) (struct{}, error) { return struct{}{}, j.Cancel(ctx, s.ID) }, j.Retry)
		if err != nil {
			return none, fmt.Errorf("%w; the job %q was not: %w", ErrCanceled, name, err)
		}
		return none, ErrCanceled
	}
	return result, err
}

// check finds what makes no sense before anything is started.
func (j Job[ID, S, R]) check(name string, opts []PollOption) error {
	for _, f := range []struct {
		field string
		isNil bool
	}{{"Submit", j.Submit == nil}, {"Status", j.Status == nil}, {"Done", j.Done == nil}, {"Fetch", j.Fetch == nil}} {
		if f.isNil {
			return &InvalidError{Field: "Job." + f.field, Reason: "is nil; only Cancel may be left out"}
		}
	}
	switch {
	case name == "":
		return &InvalidError{Field: "job name", Reason: "is empty; the history needs a name to go by"}
	case j.FetchGrace < 0:
		return &InvalidError{Field: "Job.FetchGrace", Reason: "is negative"}
	}
	_, err := newPollConfig(opts)
	return err
}

func (j Job[ID, S, R]) fetch(ctx Context, name string, id ID) (R, error) {
	grace := j.FetchGrace
	if grace == 0 {
		grace = fetchGrace
	}
	until := Now(ctx).Add(grace) // since the poll was over
	policy := j.Retry
	if retryIf := policy.RetryIf; retryIf != nil {
		policy.RetryIf = func(err error) bool {
			_, is := errors.AsType[*early](err)
			return is || retryIf(err)
		}
	}
	return Step(ctx, name+" fetch", func(ctx context.Context) (R, error) {
		r, err := j.Fetch(ctx, id)
		if err != nil && attemptOf(ctx).v.t.now().Before(until) {
			switch httpStatus(err) {
			case http.StatusNotFound, http.StatusConflict, http.StatusTooEarly:
				err = &early{err}
			}
		}
		return r, err
	}, policy)
}

// submitted is what is kept of a submit.
type submitted[ID any] struct {
	ID ID `json:"id"`
	started
}

// started is what the start of a job has said about its first check. It is an
// option of the poll.
type started struct {
	At   time.Time `json:"at,omitzero"`
	Hint wait.Hint `json:"hint,omitzero"`
	ETA  time.Time `json:"eta,omitzero"`
}

func (s started) poll(c *pollConfig) { c.started = &s }

// jobStart takes what a submit has observed.
func jobStart(ctx context.Context, id any) started {
	a := attemptOf(ctx)
	a.observe(id)
	a.v.t.mu.Lock()
	defer a.v.t.mu.Unlock()
	return started{At: a.v.t.now(), Hint: a.seen.Hint, ETA: a.seen.ETA}
}

// early is an error of a fetch that may be none a moment later.
type early struct{ error }

func (e *early) Unwrap() error   { return e.error }
func (e *early) Permanent() bool { return false }

// httpStatus is the status of an error that has one, else 0.
func httpStatus(err error) int {
	var named interface{ HTTPStatus() int }
	var short interface{ Status() int }
	if r, ok := errors.AsType[*wait.ResponseError](err); ok {
		return r.Status
	}
	if errors.As(err, &named) {
		return named.HTTPStatus()
	}
	if errors.As(err, &short) {
		return short.Status()
	}
	return 0
}
