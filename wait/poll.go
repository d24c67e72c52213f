package wait

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// PollConfig says how [Poll] waits. One of Timeout, MaxAttempts and NoTimeout is
// required.
type PollConfig struct {
	Plan
	InitialDelay time.Duration // before the first check; default: none
	// Timeout bounds the whole; the last check is made when it has passed.
	Timeout time.Duration
	// AttemptTimeout bounds one check; default 30 s, and at least 10 s more than a
	// long poll is held. The check at the deadline gets at most 10 s.
	AttemptTimeout       time.Duration
	MaxAttempts          int // checks; 0: any number
	MaxConsecutiveErrors int // 0: any number; refusals for asking too often do not count
	NoTimeout            bool
	Rand                 func() float64 // in [0, 1); default: that of math/rand/v2
	OnAttempt            func(Attempt)  // called after each check
}

// Attempt tells OnAttempt how one check or call went.
type Attempt struct {
	Number  int // from 1
	Outcome Outcome
	Err     error
	Took    time.Duration
	Delay   time.Duration // until the next; 0 when there is none
}

const (
	checkTimeout      = 30 * time.Second
	finalCheckTimeout = 10 * time.Second
	holdMargin        = 10 * time.Second // how much longer than its hold a long poll may take
)

// Check returns a [*FieldError] for values that make no sense.
func (c PollConfig) Check() error {
	for _, f := range []struct {
		name  string
		value time.Duration
	}{{"InitialDelay", c.InitialDelay}, {"Timeout", c.Timeout}, {"AttemptTimeout", c.AttemptTimeout}} {
		if f.value < 0 {
			return &FieldError{f.name, fmt.Sprintf("is %v; it must not be negative", f.value)}
		}
	}
	switch {
	case c.MaxAttempts < 0:
		return &FieldError{"MaxAttempts", fmt.Sprintf("is %d; use 0 for any number", c.MaxAttempts)}
	case c.MaxConsecutiveErrors < 0:
		return &FieldError{"MaxConsecutiveErrors", fmt.Sprintf("is %d; use 0 for any number", c.MaxConsecutiveErrors)}
	case c.NoTimeout && c.Timeout > 0:
		return &FieldError{"NoTimeout", "contradicts Timeout; leave one of them out"}
	case c.Timeout == 0 && c.MaxAttempts == 0 && !c.NoTimeout:
		return &FieldError{"Timeout", "is missing: a poll needs an end; give Timeout, MaxAttempts, or NoTimeout to say that it has none"}
	}
	return c.Plan.Check()
}

// Poll calls check again and again until done says that its value is the one
// waited for, and returns that value. It is for Go code that need not outlive its
// process.
//
// check must be an idempotent read and heed its context: Poll waits for it. What
// an error of it means is for [Judge] to tell; most are no end of the wait, and
// neither is a panic. A value may say more by its methods: WaitHint() [Hint],
// ETA() time.Time, and Progress() (percent float64, message string). Beside an
// error, Poll returns the last value that was seen. Errors:
//
//   - [*TimeoutError] when one of the bounds is reached;
//   - that of check, when it is permanent;
//   - ctx.Err() when ctx ends, which is no failure of a check;
//   - [*FieldError].
func Poll[T any](ctx context.Context, config PollConfig, check func(context.Context) (T, error), done func(T) bool) (T, error) {
	var last T
	if err := config.Check(); err != nil {
		return last, err
	}
	p := newPoll(config)
	err := p.run(ctx, func(ctx context.Context) error {
		v, err := check(ctx)
		if err != nil {
			return err
		}
		last = v
		p.observe(v)
		if !done(v) {
			return errPending
		}
		return nil
	})
	return last, err
}

var errPending = errors.New("pending")

// poll is one call of [Poll].
type poll struct {
	PollConfig
	state     State
	hint      Hint // of the last value
	attempts  int
	lastErr   error
	lastErrAt time.Time
}

func newPoll(c PollConfig) *poll {
	if c.AttemptTimeout == 0 {
		c.AttemptTimeout = checkTimeout
	}
	if hold := c.Hold(); hold > 0 {
		c.AttemptTimeout = max(c.AttemptTimeout, hold+holdMargin)
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	return &poll{PollConfig: c, state: State{Start: time.Now()}}
}

func (p *poll) run(ctx context.Context, check func(context.Context) error) error {
	next := Next{At: add(p.state.Start, p.InitialDelay)}
	var deadline time.Time
	if p.Timeout > 0 {
		deadline = add(p.state.Start, p.Timeout)
		if !next.At.Before(deadline) {
			next = Next{At: deadline, Final: true}
		}
	}
	for {
		if err := sleepUntil(ctx, next.At); err != nil {
			return err
		}
		if next.TooLate {
			return p.gaveUp(ReasonRetryAfter)
		}
		limit := p.AttemptTimeout
		if next.Final {
			limit = min(limit, finalCheckTimeout)
		}
		began := time.Now()
		p.hint = Hint{}
		err := call(ctx, limit, check)
		if err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
		p.attempts++
		a := Attempt{Number: p.attempts, Took: time.Since(began)}
		hint := p.count(&a, err)
		over := a.Outcome == Succeeded || a.Outcome == Failed
		reason := ""
		if !over {
			if reason = p.usedUp(next.Final); reason == "" {
				now := time.Now()
				if next = p.Next(&p.state, hint, now, deadline, p.Rand); !next.TooLate {
					a.Delay = max(next.At.Sub(now), 0)
				}
			}
		}
		if p.OnAttempt != nil {
			p.OnAttempt(a)
		}
		switch {
		case over:
			return a.Err
		case reason != "":
			return p.gaveUp(reason)
		}
	}
}

// observe takes what a value says of itself.
func (p *poll) observe(v any) {
	if h, ok := v.(interface{ WaitHint() Hint }); ok {
		p.hint = h.WaitHint()
	}
	if e, ok := v.(interface{ ETA() time.Time }); ok {
		if eta := e.ETA(); !eta.IsZero() {
			p.state.ETA = eta
		}
	}
	if g, ok := v.(interface{ Progress() (float64, string) }); ok {
		percent, _ := g.Progress()
		p.state.Progress(percent, time.Now())
	}
}

// count takes the outcome of a check into the state, and returns what the server
// said with it.
func (p *poll) count(a *Attempt, err error) Hint {
	hint := p.hint
	switch err {
	case nil:
		a.Outcome = Succeeded
	case errPending:
		a.Outcome = Pending
		p.state.Saw(a.Took, p.Hold())
	default:
		a.Err = err
		p.lastErr, p.lastErrAt = err, time.Now()
		if a.Outcome, hint = Judge(err); a.Outcome == Throttled {
			p.state.Throttled++
		} else {
			p.state.Errors++
		}
	}
	if hint.Interval > 0 {
		p.state.Sticky = hint.Interval
	}
	return hint
}

// usedUp says which of the bounds is reached, if one is.
func (p *poll) usedUp(final bool) string {
	switch {
	case final:
		return ReasonTotalTimeout
	case p.MaxAttempts > 0 && p.attempts >= p.MaxAttempts:
		return ReasonMaxAttempts
	case p.MaxConsecutiveErrors > 0 && p.state.Errors >= p.MaxConsecutiveErrors:
		return ReasonMaxConsecutiveErrors
	}
	return ""
}

func (p *poll) gaveUp(reason string) error {
	return &TimeoutError{Reason: reason, Attempts: p.attempts, ConsecutiveErrors: p.state.Errors,
		Elapsed: time.Since(p.state.Start), LastErr: p.lastErr, LastErrAt: p.lastErrAt}
}
