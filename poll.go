package bide

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/bide-dev/bide/wait"
)

// Poll asks check again and again until done says that its value is the one
// waited for, and returns that value. However many attempts it takes, the
// history gets one record; between attempts the run may be parked and then holds
// nothing.
//
// check must be an idempotent read. An error of it is transient unless marked
// [Permanent]: it is followed by a back-off of its own and does not end the
// poll. The interval is [Every] or [Exponential] (the default). One of [Timeout],
// [MaxAttempts] or [NoTimeout] is required. With a Timeout a last check is made
// at the deadline itself. Errors:
//
//   - [PollTimeoutError] when Timeout or MaxAttempts are used up;
//   - [PollFailedError] when check returned a permanent error;
//   - [ErrCanceled], [InvalidError], [CodecError].
func Poll[T any](ctx Context, name string, check func(context.Context) (T, error), done func(T) bool, opts ...PollOption) (T, error) {
	data, err := runPoll(ctx, name, func(ctx context.Context) (json.RawMessage, error) {
		v, err := check(ctx)
		if err != nil {
			return nil, err
		}
		data, err := encode("value of poll ", name, v)
		if err != nil {
			return nil, Permanent(err)
		}
		if !done(v) {
			return data, errPending
		}
		return data, nil
	}, opts)
	if err != nil {
		var zero T
		return zero, err
	}
	return decode[T]("value of poll ", name, data)
}

var errPending = errors.New("pending")

// PollTimeoutError is a poll that ended without its condition coming true. It
// matches [ErrPollTimeout], and [context.DeadlineExceeded] when the reason is
// [ReasonTotalTimeout].
type PollTimeoutError struct {
	Name              string          `json:"name"`
	ID                string          `json:"id"` // of the run
	Reason            string          `json:"reason"`
	Attempts          int             `json:"attempts"`
	ConsecutiveErrors int             `json:"consecutive_errors"`
	Elapsed           time.Duration   `json:"elapsed_ns"`
	LastValue         json.RawMessage `json:"last_value,omitempty"`
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

// Unwrap returns LastErr.
func (e *PollTimeoutError) Unwrap() error { return e.LastErr }

// Is matches [ErrPollTimeout] and, by Reason, [context.DeadlineExceeded].
func (e *PollTimeoutError) Is(target error) bool {
	return target == ErrPollTimeout || target == context.DeadlineExceeded && e.Reason == ReasonTotalTimeout
}

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

const (
	pollFloor          = 10 * time.Millisecond // no interval is shorter
	pollAttemptTimeout = 30 * time.Second
	finalCheck         = 10 * time.Second // the most that the check at the deadline may take
)

type pollConfig struct {
	interval       Exponential
	jitter         wait.Jitter
	exact          bool
	initialDelay   time.Duration
	maxAttempts    int
	timeout        *time.Duration
	attemptTimeout time.Duration
	unbounded      bool
}

func (d Every) poll(c *pollConfig) {
	c.interval, c.jitter = Exponential{Interval: time.Duration(d), Coefficient: 1, Max: time.Duration(d)}, wait.Proportional
}
func (e Exponential) poll(c *pollConfig)    { c.interval, c.jitter = e, wait.Equal }
func (d InitialDelay) poll(c *pollConfig)   { c.initialDelay = time.Duration(d) }
func (n MaxAttempts) poll(c *pollConfig)    { c.maxAttempts = int(n); c.unbounded = c.unbounded || n > 0 }
func (d Timeout) poll(c *pollConfig)        { c.timeout = (*time.Duration)(&d) }
func (d AttemptTimeout) poll(c *pollConfig) { c.attemptTimeout = time.Duration(d) }
func (NoTimeout) poll(c *pollConfig)        { c.unbounded = true }

// Exact is an option of [Poll]: its intervals get no jitter.
type Exact struct{}

func (Exact) poll(c *pollConfig) { c.exact = true }

func newPollConfig(opts []PollOption) (pollConfig, error) {
	c := pollConfig{jitter: wait.Equal, attemptTimeout: pollAttemptTimeout}
	for _, o := range opts {
		o.poll(&c)
	}
	if c.exact {
		c.jitter = wait.NoJitter
	}
	i := &c.interval
	if *i == (Exponential{}) {
		i.Interval = time.Second
	}
	if i.Interval == 0 && i.Coefficient != 1 {
		i.Interval = time.Second
	}
	if i.Coefficient == 0 {
		i.Coefficient = 1.5
	}
	if i.Max == 0 {
		i.Max = max(30*time.Second, i.Interval)
	}
	invalid := func(field, reason string) (pollConfig, error) {
		return c, &InvalidError{Field: field, Reason: reason}
	}
	switch {
	case i.Interval < pollFloor:
		return invalid("interval", fmt.Sprintf("is %v; it must be at least %v", i.Interval, pollFloor))
	case !(i.Coefficient >= 1):
		return invalid("Exponential.Coefficient", fmt.Sprintf("is %v; it must be at least 1", i.Coefficient))
	case i.Max < i.Interval:
		return invalid("Exponential.Max", fmt.Sprintf("is %v, below the interval %v", i.Max, i.Interval))
	case c.initialDelay < 0:
		return invalid("InitialDelay", "is negative")
	case c.maxAttempts < 0:
		return invalid("MaxAttempts", "is negative")
	case c.attemptTimeout <= 0:
		return invalid("AttemptTimeout", "must be above 0")
	case c.timeout != nil && *c.timeout <= 0:
		return invalid("Timeout", "must be above 0")
	case c.timeout == nil && !c.unbounded:
		return invalid("Timeout", "a poll needs an end: give Timeout, MaxAttempts, or NoTimeout{} to say that it has none")
	}
	return c, nil
}

// delay is the pause after an attempt: the interval's by how often the value was
// pending, the error back-off's by how many errors came in a row; whichever is
// longer.
func (c *pollConfig) delay(pending, errs int, rnd func() float64) time.Duration {
	b := wait.Exponential(c.interval.Interval, c.interval.Max, c.interval.Coefficient, pending)
	limit := c.interval.Max
	if errs > 0 {
		errMax := max(c.interval.Max, time.Minute)
		if e := wait.Exponential(max(c.interval.Interval, time.Second), errMax, 2, errs); e > b {
			b, limit = e, errMax
		}
	}
	return max(c.jitter.Apply(b, limit, rnd), pollFloor)
}

func runPoll(ctx Context, name string, check stepFunc, opts []PollOption) ([]byte, error) {
	v, err := begin(ctx, KindPoll, name, true)
	if err != nil {
		return nil, err
	}
	if r := v.result(); r != nil {
		return v.replay(r)
	}
	c, err := newPollConfig(opts)
	if err != nil {
		return v.finish(Record{Error: NewFailure(err)}, nil)
	}
	p := pollRun{verb: v, pollConfig: c, check: check}
	return p.run()
}

// pollRun is a live poll. Its state is the wait of the run, so that the next
// turn, on whatever machine, goes on with the same counters and next time.
type pollRun struct {
	*verb
	pollConfig
	check stepFunc
	state Wait
	final bool // the next check is the one at the deadline
}

func (p *pollRun) run() ([]byte, error) {
	var resumed bool
	if p.state, resumed = p.keptWait(); !resumed {
		p.state = Wait{Kind: KindPoll, Since: p.began, NextAt: after(p.began, p.initialDelay)}
		if p.timeout != nil {
			p.state.Until = after(p.began, *p.timeout)
		}
	}
	if p.wasInterrupted() {
		// The check may not have begun: the first time, look at once. Only one
		// that kills its process again and again is kept at a distance.
		again := p.state.Streak > 0
		p.failed(ErrInterrupted)
		switch u := p.state.Until; {
		case p.maxAttempts > 0 && p.state.Attempt >= p.maxAttempts:
			return p.giveUp(ReasonMaxAttempts)
		case !u.IsZero() && !p.state.NextAt.Before(u): // it was the last
			return p.giveUp(ReasonTotalTimeout)
		}
		if p.state.NextAt = now(); again {
			p.schedule(nil)
		}
		p.t.mu.Lock()
		p.keepWaitLocked(p.state) // before the check: should it kill this process too
		p.t.mu.Unlock()
	}
	for {
		if done, data, err := p.pause(); done {
			return data, err
		}
		p.flush()
		limit := p.attemptTimeout
		if p.final {
			limit = min(limit, finalCheck)
		}
		a := &attempt{v: p.verb, number: p.state.Attempt + 1, limit: limit}
		data, err := a.run(p.check)
		var perm *permanent
		switch {
		case err == nil:
			return p.finish(Record{Data: data, Attempt: p.state.Attempt + 1, At: now(), Took: now().Sub(p.state.Since)}, nil)
		case p.sawCancel():
			return nil, ErrCanceled
		case err == errPending:
			p.state.Attempt++
			p.state.Pending++
			p.state.Streak = 0
			p.state.LastValue = data
		case errors.As(err, &perm):
			p.failed(err)
			return p.finish(Record{Attempt: p.state.Attempt, Took: now().Sub(p.state.Since),
				Error: NewFailure(&PollFailedError{Name: p.name, Attempts: p.state.Attempt, LastValue: p.state.LastValue, Err: err})}, nil)
		default:
			p.failed(err)
		}
		switch {
		case p.final:
			return p.giveUp(ReasonTotalTimeout)
		case p.maxAttempts > 0 && p.state.Attempt >= p.maxAttempts:
			return p.giveUp(ReasonMaxAttempts)
		}
		p.schedule(err)
	}
}

// wasInterrupted reports whether an earlier turn may have begun a check and
// never told.
func (p *pollRun) wasInterrupted() bool {
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	return p.t.interrupted && p.b.fresh && !p.state.NextAt.After(time.Now())
}

func (p *pollRun) failed(err error) {
	p.state.Attempt++
	p.state.Streak++
	p.state.LastError, p.state.LastErrAt = NewFailure(err), now()
}

// schedule draws the time of the next check, once: it is kept, never drawn
// again. One that would come after the deadline, or leave a useless sliver
// before it, comes at the deadline.
// A delay that the check's error asks for is a floor.
func (p *pollRun) schedule(err error) {
	d := p.delay(p.state.Pending, p.state.Streak, p.t.w.random)
	var given interface{ NextRetryDelay() time.Duration }
	if errors.As(err, &given) {
		d = max(d, given.NextRetryDelay())
	}
	p.state.NextAt = after(now(), d)
}

// pause waits for the next check; a person may hurry, extend or settle it.
func (p *pollRun) pause() (done bool, data []byte, err error) {
	for {
		next := p.state.NextAt
		switch u := p.state.Until; {
		case u.IsZero():
			p.final = false
		case u.Sub(next) < pollFloor:
			next, p.final = u, true
		default: // a check that comes after the deadline, since nobody was there, is the last
			p.final = !u.After(now())
		}
		p.state.NextAt = next
		why, m := p.wait(p.state, next, p.acts)
		switch why {
		case whyCanceled:
			p.cancelNow()
			return true, nil, ErrCanceled
		case whyTimer:
			return false, nil, nil
		}
		switch m.Op {
		case OpCompleteWait, OpFailWait:
			data, err = p.settled(m, p.state.Attempt)
			return true, data, err
		case OpExtendWait:
			if !p.state.Until.IsZero() {
				p.state.Until = after(p.state.Until, extension(m))
			}
			p.note(KindExtended, m, nil)
		default:
			p.note(KindChecked, m, nil)
			p.final = false
			return false, nil, nil
		}
	}
}

func (p *pollRun) giveUp(reason string) ([]byte, error) {
	elapsed := now().Sub(p.state.Since)
	err := &PollTimeoutError{Name: p.name, ID: p.t.run.ID, Reason: reason, Attempts: p.state.Attempt,
		ConsecutiveErrors: p.state.Streak, Elapsed: elapsed, LastValue: p.state.LastValue,
		LastErr: p.state.LastError.Err(), LastErrAt: p.state.LastErrAt}
	return p.finish(Record{Error: NewFailure(err), Attempt: p.state.Attempt, Took: elapsed}, nil)
}
