package bide

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/bide-dev/bide/wait"
)

// Step does a piece of non-deterministic work and keeps its result: a model
// call, a query, a payment. On replay the kept result is returned and fn is not
// called. T must survive encoding/json; what Step returns has always been
// through it.
//
// A failed attempt is repeated as [RetryPolicy] says, by default for ever with
// growing pauses. Errors:
//
//   - the function's own, when it is permanent ([Permanent], RetryIf,
//     NonRetryableErrorTypes) or the only attempt;
//   - [RetryExhaustedError] when attempts or Timeout are used up;
//   - [StepInterruptedError] for an at-most-once step that a crash cut short;
//   - [ErrCanceled] when the run is canceled;
//   - [InvalidError], [CodecError], [PayloadTooLargeError], [MisuseError].
//
// Errors come back by the rules of [RegisterError], also in the first turn, so
// that a workflow sees the same whether it replays or not.
func Step[T any](ctx Context, name string, fn func(context.Context) (T, error), opts ...StepOption) (T, error) {
	data, err := runStep(ctx, name, func(ctx context.Context) (json.RawMessage, error) {
		v, err := fn(ctx)
		if err != nil {
			return nil, err
		}
		data, err := encode("result of step ", name, v)
		return data, Permanent(err)
	}, opts)
	if err != nil {
		var zero T
		return zero, err
	}
	return decode[T]("result of step ", name, data)
}

// Do is [Step] for work that has no result but whether it was done.
func Do(ctx Context, name string, fn func(context.Context) error, opts ...StepOption) error {
	_, err := Step(ctx, name, func(ctx context.Context) (struct{}, error) { return struct{}{}, fn(ctx) }, opts...)
	return err
}

type stepFunc func(context.Context) (json.RawMessage, error)

func runStep(ctx Context, name string, fn stepFunc, opts []StepOption) (json.RawMessage, error) {
	s := &stepRun{fn: fn}
	if err := s.begin(ctx, KindStep, name, true); err != nil {
		return nil, err
	}
	if r := s.result(); r != nil {
		return s.replay(r)
	}
	if err := s.configure(opts); err != nil {
		return s.finish(Record{Error: NewFailure(err)}, nil)
	}
	if s.policy.MaximumAttempts == 1 {
		return s.once()
	}
	return s.retry()
}

// stepRun is one call of Step.
type stepRun struct {
	verb
	stepConfig
	fn    stepFunc
	state *Wait // once an attempt has failed
}

// once calls an at-most-once step, having committed that it will.
func (s *stepRun) once() (json.RawMessage, error) {
	if len(s.kept) > 0 {
		return s.finish(Record{Error: NewFailure(&StepInterruptedError{Step: s.name}), Attempt: 1}, nil)
	}
	t := s.t
	t.mu.Lock()
	s.recordLocked(Record{Kind: KindStepStarted, At: s.began})
	t.mu.Unlock()
	s.flush()
	limit := s.attemptTimeout
	if s.timeout != nil {
		limit = min(limit, *s.timeout)
	}
	data, err := s.attempt(s.fn, 1, limit, s.heartbeat)
	if err != nil && s.sawCancel() {
		return nil, ErrCanceled
	}
	s.onAttempt(1, err, 0)
	return s.finish(Record{Data: data, Error: NewFailure(err), Attempt: 1, At: s.t.now(), Took: time.Since(s.began)}, nil)
}

// retry calls the step until it succeeds or its policy ends it.
func (s *stepRun) retry() (json.RawMessage, error) {
	if done, data, err := s.resume(); done {
		return data, err
	}
	for n := 1; ; n++ {
		if s.state != nil {
			n = s.state.Attempt + 1
			if done, data, err := s.pause(); done {
				return data, err
			}
		}
		if s.state != nil && s.state.LastError != nil { // the time may have run out while nobody was there
			if done, data, err := s.giveUp(s.state.LastError.Err(), 0); done {
				return data, err
			}
		}
		s.flush()
		limit := s.attemptTimeout
		if s.timeout != nil {
			limit = min(limit, s.since().Add(*s.timeout).Sub(s.t.now()))
		}
		began := time.Now()
		data, err := s.attempt(s.fn, n, limit, s.heartbeat)
		took := time.Since(began)
		if err == nil {
			s.onAttempt(n, nil, 0)
			return s.end(Record{Data: data, Attempt: n, At: s.t.now(), Took: took}, nil)
		}
		if s.sawCancel() {
			return nil, ErrCanceled
		}
		outcome := wait.Transient
		if s.isPermanent(err) {
			outcome = wait.Failed
		}
		s.failed(n, err, outcome, took)
		if outcome == wait.Failed {
			s.onAttempt(n, err, 0)
			return s.end(Record{Error: s.state.LastError, Attempt: n, At: s.t.now(), Took: took}, nil)
		}
		delay := s.policy.delay(n, s.t.w.random)
		if d, ok := nextRetryDelay(err); ok {
			delay = max(d, 0)
		}
		if done, data, gerr := s.giveUp(err, delay); done {
			s.onAttempt(n, err, 0)
			return data, gerr
		}
		s.onAttempt(n, err, delay)
		s.state.NextAt = after(s.t.now(), delay)
	}
}

// since is when the step was first tried.
func (s *stepRun) since() time.Time {
	if s.state != nil {
		return s.state.Since
	}
	return s.began
}

func (s *stepRun) failed(n int, err error, outcome wait.Outcome, took time.Duration) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	if s.state == nil {
		s.state = &Wait{Kind: KindRetry, Since: s.began}
	}
	now := s.t.now()
	s.state.Attempt = n
	s.state.LastError, s.state.LastErrAt = NewFailure(err), now
	log := &PollState{State: wait.State{Start: s.state.Since}} // another, since what is kept may be being written
	if s.state.Poll != nil {
		lines := s.state.Poll.Log.Checks
		log.Log.Checks = slices.Clone(lines[max(0, len(lines)+1-logAttempts):])
	}
	log.Log.Checks = append(log.Log.Checks, CheckLine{At: now.Add(-took).Truncate(time.Microsecond), Last: now,
		Outcome: outcome, Error: shorten(s.state.LastError.Message, logErrors)})
	s.state.Poll = log
}

// logAttempts is how many failed attempts of a step are kept.
const logAttempts = 10

// end records how the step ended, with the attempts that failed before.
func (s *stepRun) end(r Record, taken *Message) (json.RawMessage, error) {
	if s.state != nil && s.state.Poll != nil {
		r.Poll = &s.state.Poll.Log
	}
	return s.finish(r, taken)
}

// resume takes up what earlier turns have kept of the step, and counts the
// attempt that one of them may have begun and never told of.
func (s *stepRun) resume() (done bool, data json.RawMessage, err error) {
	t := s.t
	t.mu.Lock()
	attempts, resumed := 0, false
	if state, ok := t.waits[s.path]; ok {
		s.state = new(state)
		attempts, resumed = state.Attempt, true
	}
	interrupted := t.interrupted && s.b.fresh && (!resumed || !s.state.NextAt.After(s.t.now()))
	t.mu.Unlock()
	if !interrupted {
		return false, nil, nil
	}
	s.failed(attempts+1, ErrInterrupted, wait.Interrupted, 0)
	s.state.NextAt = time.Time{}
	t.mu.Lock()
	s.keepWaitLocked(*s.state)
	if !resumed && s.policy.MaximumAttempts <= 0 && s.timeout == nil {
		t.changes-- // nothing hangs on it before the attempt: it rides with what that streams
	}
	t.mu.Unlock()
	return s.giveUp(ErrInterrupted, 0)
}

// giveUp ends the step when another attempt after delay is not allowed.
func (s *stepRun) giveUp(last error, delay time.Duration) (bool, json.RawMessage, error) {
	reason := ""
	switch {
	case s.policy.MaximumAttempts > 0 && s.state.Attempt >= s.policy.MaximumAttempts:
		reason = ReasonMaxAttempts
	case s.timeout != nil && !s.t.now().Add(delay).Before(s.state.Since.Add(*s.timeout)):
		reason = ReasonTotalTimeout
	default:
		return false, nil, nil
	}
	err := &RetryExhaustedError{Step: s.name, Attempts: s.state.Attempt, Reason: reason, LastErr: last}
	data, ferr := s.end(Record{Error: NewFailure(err), Attempt: s.state.Attempt}, nil)
	return true, data, ferr
}

// pause waits for the next attempt; a person may hurry or settle it.
func (s *stepRun) pause() (done bool, data json.RawMessage, err error) {
	state := *s.state
	if state.NextAt.IsZero() {
		return false, nil, nil
	}
	defer func() { s.state.NextAt = state.NextAt }()
	for {
		why, m := s.wait(state, state.NextAt, s.acts)
		switch why {
		case whyCanceled:
			s.cancelNow()
			return true, nil, ErrCanceled
		case whyTimer:
			return false, nil, nil
		}
		switch m.Op {
		case OpCompleteWait, OpFailWait:
			data, err = s.end(settlement(m, state.Attempt), m)
			return true, data, err
		case OpExtendWait:
			state.NextAt = after(state.NextAt, extension(m))
			s.note(Record{Kind: KindExtended}, m, &state)
		default:
			state.NextAt = s.t.now()
			s.note(Record{Kind: KindChecked}, m, &state)
			return false, nil, nil
		}
	}
}

func (s *stepRun) onAttempt(n int, err error, delay time.Duration) {
	if s.policy.OnAttempt != nil {
		s.t.w.contain("OnAttempt", s.name, func() { s.policy.OnAttempt(Attempt{Name: s.name, Number: n, Err: err, Delay: delay}) })
	}
}

func (s *stepRun) isPermanent(err error) bool {
	if outcome, _ := wait.Judge(err); outcome == wait.Failed || s.policy.RetryIf != nil && !s.policy.RetryIf(err) {
		return true
	}
	return len(s.policy.NonRetryableErrorTypes) > 0 && hasType(err, s.policy.NonRetryableErrorTypes)
}

// nextRetryDelay is the delay that the error names, if it does.
func nextRetryDelay(err error) (time.Duration, bool) {
	var given interface {
		NextRetryDelay() (time.Duration, bool)
	}
	if errors.As(err, &given) {
		return given.NextRetryDelay()
	}
	return 0, false
}

func hasType(err error, names []string) bool {
	if slices.Contains(names, reflect.TypeOf(err).String()) {
		return true
	}
	for _, cause := range unwrap(err) {
		if cause != nil && hasType(cause, names) {
			return true
		}
	}
	return false
}

// Heartbeat tells that a step is alive, for [HeartbeatTimeout], and keeps
// details (JSON) for the next attempt should this one fail; see
// [HeartbeatDetails]. What is kept may lag by 50 ms. It returns a [CodecError]
// or [PayloadTooLargeError] for the details, a [MisuseError] outside a step.
func Heartbeat(ctx context.Context, details any) error {
	a := attemptOf(ctx)
	if a == nil {
		return &MisuseError{Verb: "Heartbeat", Reason: "needs the context that a step's function is given"}
	}
	if a.beat != nil {
		a.beat.Reset(a.timeout)
	}
	if details == nil || a.step == nil {
		return nil
	}
	data, err := encode("heartbeat details", "", details)
	if err != nil {
		return err
	}
	t := a.v.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ending != open || a.err != nil {
		return nil
	}
	if a.step.state == nil {
		a.step.state = &Wait{Kind: KindRetry, Since: a.step.began}
	}
	a.step.state.Details = data
	state := *a.step.state
	state.NextAt = time.Time{}
	a.v.keepWaitLocked(state)
	t.flushLate(progressAfter)
	return nil
}

// HeartbeatDetails returns what the last attempt gave to [Heartbeat], if it did.
func HeartbeatDetails[T any](ctx context.Context) (T, bool) {
	var zero T
	a := attemptOf(ctx)
	if a == nil || a.details == nil {
		return zero, false
	}
	v, err := decode[T]("heartbeat details", "", a.details)
	return v, err == nil
}

// IdempotencyKey returns a key that is the same for every attempt of the step
// whose context it is given, and different for every other step and run: hand it
// to services that know such keys, and a repeated call is not billed twice. It
// is a hash of run and step, 32 hex digits; "" outside a step. An iteration of a
// loop has a key of its own, by [ScheduledAt].
func IdempotencyKey(ctx context.Context) string {
	a := attemptOf(ctx)
	if a == nil {
		return ""
	}
	h := sha256.New()
	h.Write(binary.BigEndian.AppendUint64(nil, a.v.t.run.Seed))
	h.Write([]byte(a.v.t.run.ID + "\x00" + a.v.path + "\x00" + a.v.name))
	if !a.due.IsZero() {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(a.due.UnixMicro())))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// AttemptNumber returns which attempt of its step the context belongs to, from
// 1; 0 outside a step.
func AttemptNumber(ctx context.Context) int {
	if a := attemptOf(ctx); a != nil {
		return a.number
	}
	return 0
}
