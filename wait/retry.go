package wait

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// RetryConfig says how [Retry] tries again. The zero value of each field means
// its default; names and defaults are those of Temporal.
//
// The n-th failure is followed by a pause of min(MaximumInterval,
// InitialInterval·BackoffCoefficient^(n-1)), of which full jitter takes a random
// part.
type RetryConfig struct {
	InitialInterval    time.Duration // default 1 s
	BackoffCoefficient float64       // default 2; at least 1
	MaximumInterval    time.Duration // default 100 × InitialInterval
	MaximumAttempts    int           // 0: any number
	// NonRetryableErrorTypes are exact type names ("*url.Error") that, anywhere
	// in the chain, make an error permanent.
	NonRetryableErrorTypes []string
	// RetryIf, if set, makes every error permanent that it is false for.
	RetryIf  func(error) bool
	NoJitter bool // the whole pause each time
	// Timeout bounds all attempts with the pauses between them; 0: nothing does.
	Timeout time.Duration
	// AttemptTimeout bounds one attempt; default 10 min.
	AttemptTimeout time.Duration
	Rand           func() float64 // in [0, 1); default: that of math/rand/v2
	OnAttempt      func(Attempt)  // called after each attempt
}

const attemptTimeout = 10 * time.Minute

func (c RetryConfig) filled() RetryConfig {
	if c.InitialInterval == 0 {
		c.InitialInterval = time.Second
	}
	if c.BackoffCoefficient == 0 {
		c.BackoffCoefficient = 2
	}
	if c.MaximumInterval == 0 {
		c.MaximumInterval = times(c.InitialInterval, 100)
	}
	if c.AttemptTimeout == 0 {
		c.AttemptTimeout = attemptTimeout
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	return c
}

// Check returns a [*FieldError] for values that make no sense.
func (c RetryConfig) Check() error {
	for _, f := range []struct {
		name  string
		value time.Duration
	}{{"InitialInterval", c.InitialInterval}, {"MaximumInterval", c.MaximumInterval},
		{"Timeout", c.Timeout}, {"AttemptTimeout", c.AttemptTimeout}} {
		if f.value < 0 {
			return &FieldError{f.name, fmt.Sprintf("is %v; it must not be negative", f.value)}
		}
	}
	switch {
	case c.MaximumAttempts < 0:
		return &FieldError{"MaximumAttempts", fmt.Sprintf("is %d; use 0 for any number", c.MaximumAttempts)}
	case c.BackoffCoefficient != 0 && !(c.BackoffCoefficient >= 1):
		return &FieldError{"BackoffCoefficient", fmt.Sprintf("is %v; it must be at least 1", c.BackoffCoefficient)}
	}
	return nil
}

// Retry calls fn until it succeeds, and returns its value. It is for Go code that
// need not outlive its process.
//
// fn must heed its context: Retry waits for it. An error that [Judge] finds
// Failed ends it, any other and a panic are tried again; an error that names the
// delay before the next try ([After], [ResponseError]) replaces that one pause.
// Unlike [Poll], Retry makes no last try at the end of its Timeout: a write is not
// a check. Errors:
//
//   - [*RetryExhaustedError] when MaximumAttempts or Timeout are used up;
//   - that of fn, when it is permanent;
//   - ctx.Err() when ctx ends;
//   - [*FieldError].
func Retry[T any](ctx context.Context, config RetryConfig, fn func(context.Context) (T, error)) (T, error) {
	var value, zero T
	if err := config.Check(); err != nil {
		return zero, err
	}
	err := config.filled().run(ctx, func(ctx context.Context) (err error) {
		value, err = fn(ctx)
		return err
	})
	if err != nil {
		return zero, err
	}
	return value, nil
}

func (c RetryConfig) run(ctx context.Context, fn func(context.Context) error) error {
	start := time.Now()
	left := func(now time.Time) time.Duration {
		if c.Timeout == 0 {
			return math.MaxInt64
		}
		return c.Timeout - now.Sub(start)
	}
	next := start
	for n := 1; ; n++ {
		if err := sleepUntil(ctx, next); err != nil {
			return err
		}
		began := time.Now()
		err := call(ctx, min(c.AttemptTimeout, left(began)), fn)
		if err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
		now := time.Now()
		a := Attempt{Number: n, Outcome: c.judge(err), Err: err, Took: now.Sub(began)}
		reason := ""
		if a.Outcome == Transient || a.Outcome == Throttled {
			pause := c.pause(n, err)
			switch {
			case c.MaximumAttempts > 0 && n >= c.MaximumAttempts:
				reason = ReasonMaxAttempts
			case pause >= left(now):
				reason = ReasonTotalTimeout
			default:
				a.Delay, next = pause, add(now, pause)
			}
		}
		if c.OnAttempt != nil {
			c.OnAttempt(a)
		}
		switch {
		case reason != "":
			return &RetryExhaustedError{Reason: reason, Attempts: n, Elapsed: now.Sub(start), LastErr: err}
		case a.Outcome == Succeeded || a.Outcome == Failed:
			return err
		}
	}
}

func (c RetryConfig) judge(err error) Outcome {
	if err == nil {
		return Succeeded
	}
	outcome, _ := Judge(err)
	if c.RetryIf != nil && !c.RetryIf(err) || len(c.NonRetryableErrorTypes) > 0 && hasType(err, c.NonRetryableErrorTypes) {
		return Failed
	}
	return outcome
}

// pause is how long to wait after the n-th failure.
func (c RetryConfig) pause(n int, err error) time.Duration {
	var delayed interface {
		NextRetryDelay() (time.Duration, bool)
	}
	if errors.As(err, &delayed) {
		if d, ok := delayed.NextRetryDelay(); ok {
			return max(d, 0)
		}
	}
	b := Backoff(c.InitialInterval, c.MaximumInterval, c.BackoffCoefficient, n)
	if c.NoJitter {
		return b
	}
	return Full.Apply(b, c.MaximumInterval, c.Rand)
}

// hasType looks for the exact type names in the whole tree of an error.
func hasType(err error, names []string) bool {
	if err == nil {
		return false
	}
	if slices.Contains(names, fmt.Sprintf("%T", err)) {
		return true
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return hasType(e.Unwrap(), names)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), func(err error) bool { return hasType(err, names) })
	}
	return false
}
