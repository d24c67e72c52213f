package bide

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"time"
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
	field := "result of step " + name
	data, err := runStep(ctx, name, func(ctx context.Context) (json.RawMessage, error) {
		v, err := fn(ctx)
		if err != nil {
			return nil, err
		}
		data, err := encode(field, v)
		return data, Permanent(err)
	}, opts)
	if err != nil {
		var zero T
		return zero, err
	}
	return decode[T](field, data)
}

type stepFunc func(context.Context) (json.RawMessage, error)

func runStep(ctx Context, name string, fn stepFunc, opts []StepOption) (json.RawMessage, error) {
	v, err := begin(ctx, KindStep, name, true)
	if err != nil {
		return nil, err
	}
	if r := v.result(); r != nil {
		return v.replay(r)
	}
	c, err := newStepConfig(opts)
	if err != nil {
		return v.finish(Record{Error: NewFailure(err)}, nil)
	}
	s := stepRun{verb: v, stepConfig: c, fn: fn}
	if s.policy.MaximumAttempts == 1 {
		return s.once()
	}
	return s.retry()
}

// stepRun is a live step.
type stepRun struct {
	*verb
	stepConfig
	fn stepFunc
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
	data, err := s.attempt(s.fn, 1, limit, s.heartbeat, nil)
	if s.policy.OnAttempt != nil {
		s.policy.OnAttempt(Attempt{Name: s.name, Number: 1, Err: err})
	}
	return s.finish(Record{Data: data, Error: NewFailure(err), Attempt: 1, At: now(), Took: time.Since(s.began)}, nil)
}

// retry calls the step until it succeeds or its policy ends it.
func (s *stepRun) retry() (json.RawMessage, error) {
	state, resumed := s.keptWait()
	if !resumed {
		state = Wait{Kind: KindRetry, Since: s.began}
	}
	bounded := s.policy.MaximumAttempts > 0 || s.timeout != nil
	if s.wasInterrupted(resumed, state) {
		state.Attempt++
		state.LastError, state.LastErrAt = NewFailure(ErrInterrupted), s.began
		state.NextAt = time.Time{}
		if bounded || resumed {
			s.t.mu.Lock()
			s.keepWaitLocked(state)
			s.t.mu.Unlock()
		}
		if done, data, err := s.giveUp(state, ErrInterrupted, 0); done {
			return data, err
		}
	}
	for {
		if !state.NextAt.IsZero() {
			if done, data, err := s.pause(&state); done {
				return data, err
			}
		}
		s.flush()
		limit := s.attemptTimeout
		if s.timeout != nil {
			limit = min(limit, time.Until(state.Since.Add(*s.timeout)))
		}
		began := time.Now()
		data, err := s.attempt(s.fn, state.Attempt+1, limit, s.heartbeat, &state)
		took := time.Since(began)
		if err == nil {
			s.onAttempt(state.Attempt+1, nil, 0)
			return s.finish(Record{Data: data, Attempt: state.Attempt + 1, At: now(), Took: took}, nil)
		}
		if s.sawCancel() {
			return nil, ErrCanceled
		}
		state.Attempt++
		state.LastError, state.LastErrAt = NewFailure(err), now()
		if s.isPermanent(err) {
			s.onAttempt(state.Attempt, err, 0)
			return s.finish(Record{Error: state.LastError, Attempt: state.Attempt, At: now(), Took: took}, nil)
		}
		delay := s.policy.delay(state.Attempt, s.t.w.random)
		var given interface{ NextRetryDelay() time.Duration }
		if errors.As(err, &given) {
			delay = max(given.NextRetryDelay(), 0)
		}
		if done, data, err := s.giveUp(state, err, delay); done {
			s.onAttempt(state.Attempt, err, 0)
			return data, err
		}
		s.onAttempt(state.Attempt, err, delay)
		state.NextAt = now().Add(delay)
	}
}

// wasInterrupted reports whether an earlier turn may have begun an attempt and
// never told: then that attempt counts.
func (s *stepRun) wasInterrupted(resumed bool, state Wait) bool {
	t := s.t
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.interrupted && s.b.fresh && (!resumed || !state.NextAt.After(time.Now()))
}

// giveUp ends the step when another attempt after delay is not allowed.
func (s *stepRun) giveUp(state Wait, last error, delay time.Duration) (bool, json.RawMessage, error) {
	reason := ""
	switch {
	case s.policy.MaximumAttempts > 0 && state.Attempt >= s.policy.MaximumAttempts:
		reason = ReasonMaxAttempts
	case s.timeout != nil && !now().Add(delay).Before(state.Since.Add(*s.timeout)):
		reason = ReasonTotalTimeout
	default:
		return false, nil, nil
	}
	err := &RetryExhaustedError{Step: s.name, Attempts: state.Attempt, Reason: reason, LastErr: last}
	data, ferr := s.finish(Record{Error: NewFailure(err), Attempt: state.Attempt}, nil)
	return true, data, ferr
}

// pause waits for the next attempt; a person may hurry or settle it.
func (s *stepRun) pause(state *Wait) (done bool, data json.RawMessage, err error) {
	for {
		why, m := s.wait(*state, state.NextAt, s.acts)
		switch why {
		case whyCanceled:
			s.cancelNow()
			return true, nil, ErrCanceled
		case whyTimer:
			return false, nil, nil
		}
		switch m.Op {
		case OpCompleteWait, OpFailWait:
			data, err = s.settled(m, state.Attempt)
			return true, data, err
		case OpExtendWait:
			state.NextAt = state.NextAt.Add(extension(m))
			s.note(KindExtended, m, nil)
		default:
			s.note(KindChecked, m, nil)
			return false, nil, nil
		}
	}
}

func (s *stepRun) onAttempt(n int, err error, delay time.Duration) {
	if s.policy.OnAttempt != nil {
		s.policy.OnAttempt(Attempt{Name: s.name, Number: n, Err: err, Delay: delay})
	}
}

func (s *stepRun) isPermanent(err error) bool {
	var p *permanent
	if errors.As(err, &p) || s.policy.RetryIf != nil && !s.policy.RetryIf(err) {
		return true
	}
	return len(s.policy.NonRetryableErrorTypes) > 0 && hasType(err, s.policy.NonRetryableErrorTypes)
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

// attempt is one call of a step's or a poll's function, and the context it gets.
type attempt struct {
	context.Context
	v       *verb
	number  int
	cancel  context.CancelFunc
	beat    *time.Timer
	timeout time.Duration // of the heartbeat
	late    bool          // the heartbeat failed; under t.mu
	state   *Wait         // holds heartbeat details, under t.mu
}

type attemptKey struct{}

// Value finds the attempt for the functions that take a step's context.
func (a *attempt) Value(key any) any {
	if _, ok := key.(attemptKey); ok {
		return a
	}
	return a.Context.Value(key)
}

type outcome struct {
	data json.RawMessage
	err  error
}

// attempt calls fn in a goroutine of its own, so that a timeout, a lost race or
// a lost lease need not wait for a function that does not heed its context.
func (v *verb) attempt(fn stepFunc, n int, limit time.Duration, heartbeat *time.Duration, state *Wait) (json.RawMessage, error) {
	t, b := v.t, v.b
	if limit <= 0 {
		return nil, &TimeoutError{What: v.String(), After: limit}
	}
	select {
	case t.w.steps <- struct{}{}:
	case <-b.ctx.Done():
	}
	a := &attempt{v: v, number: n, state: state}
	if limit == forever {
		a.Context, a.cancel = context.WithCancel(b.ctx)
	} else {
		a.Context, a.cancel = context.WithTimeout(b.ctx, limit)
	}
	if heartbeat != nil {
		a.timeout = *heartbeat
		a.beat = time.AfterFunc(a.timeout, a.missed)
	}
	defer a.stop()
	t.mu.Lock()
	t.attempts = append(t.attempts, a)
	if t.canceled && !v.detached {
		a.cancel()
	}
	t.code--
	t.settle()
	t.mu.Unlock()

	done := make(chan outcome, 1)
	go a.call(fn, done)
	var out outcome
	select {
	case out = <-done:
	case <-a.Done():
		out = a.over(limit, done)
	}
	t.mu.Lock()
	t.code++
	t.attempts = slices.DeleteFunc(t.attempts, func(x *attempt) bool { return x == a })
	if t.ending != open && t.ending != parking || b.isLost() || context.Cause(b.ctx) == errUnwound {
		b.exitLocked()
	}
	t.mu.Unlock()
	return out.data, out.err
}

func (a *attempt) stop() {
	a.cancel()
	if a.beat != nil {
		a.beat.Stop()
	}
}

// call runs the function; its slot is free again when it really ends.
func (a *attempt) call(fn stepFunc, done chan<- outcome) {
	out := outcome{err: &PanicError{Value: "runtime.Goexit called in step code"}}
	defer func() {
		if r := recover(); r != nil {
			out = outcome{err: &PanicError{Value: fmt.Sprint(r), Stack: string(debug.Stack())}}
		}
		<-a.v.t.w.steps
		done <- out
	}()
	data, err := fn(a)
	out = outcome{data, err}
}

// cancelGrace is how long a canceled run waits for a step that is in flight.
const cancelGrace = 10 * time.Second

// over says what an attempt came to whose context is done.
func (a *attempt) over(limit time.Duration, done <-chan outcome) outcome {
	t := a.v.t
	t.mu.Lock()
	unwound := t.ending != open && t.ending != parking || a.v.b.isLost() || context.Cause(a.v.b.ctx) == errUnwound
	canceled, late := t.canceled && !a.v.detached, a.late
	t.mu.Unlock()
	switch {
	case unwound:
		return outcome{err: errUnwound}
	case canceled:
		grace := time.NewTimer(cancelGrace)
		defer grace.Stop()
		select {
		case out := <-done:
			return out
		case <-grace.C:
			return outcome{err: ErrCanceled}
		}
	case late:
		return outcome{err: &TimeoutError{What: "heartbeat of " + a.v.String(), After: a.timeout}}
	}
	return outcome{err: &TimeoutError{What: "attempt of " + a.v.String(), After: limit}}
}

func (v *verb) String() string { return fmt.Sprintf("%s %q", v.kind, v.name) }

// missed ends an attempt whose heartbeat has not come.
func (a *attempt) missed() {
	a.v.t.mu.Lock()
	a.late = true
	a.v.t.mu.Unlock()
	a.cancel()
}

// attemptOf finds the attempt that a step's context belongs to.
func attemptOf(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
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
	if details == nil || a.state == nil {
		return nil
	}
	data, err := encode("heartbeat details", details)
	if err != nil {
		return err
	}
	t := a.v.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ending == open && a.Err() == nil {
		a.state.Details = data
		state := *a.state
		state.NextAt = time.Time{}
		a.v.keepWaitLocked(state)
		t.flushLate(progressAfter)
	}
	return nil
}

// HeartbeatDetails returns what the last attempt gave to [Heartbeat], if it did.
func HeartbeatDetails[T any](ctx context.Context) (T, bool) {
	var zero T
	a := attemptOf(ctx)
	if a == nil || a.state == nil {
		return zero, false
	}
	a.v.t.mu.Lock()
	data := a.state.Details
	a.v.t.mu.Unlock()
	if data == nil {
		return zero, false
	}
	v, err := decode[T]("heartbeat details", data)
	return v, err == nil
}

// IdempotencyKey returns a key that is the same for every attempt of the step
// whose context it is given, and different for every other step and run: hand it
// to services that know such keys, and a repeated call is not billed twice. It
// is a hash of run and step, 32 hex digits; "" outside a step.
func IdempotencyKey(ctx context.Context) string {
	a := attemptOf(ctx)
	if a == nil {
		return ""
	}
	h := sha256.New()
	h.Write(binary.BigEndian.AppendUint64(nil, a.v.t.run.Seed))
	h.Write([]byte(a.v.t.run.ID + "\x00" + a.v.path + "\x00" + a.v.name))
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
