package bide

import (
	"fmt"
	"time"

	"github.com/bide-dev/bide/wait"
)

// StepOption is an option of [Step].
type StepOption interface{ step(*stepConfig) }

// ReceiveOption is an option of [Receive].
type ReceiveOption interface{ receive(*receiveConfig) }

// Timeout bounds the whole of what it is given to: all attempts of a step with
// the pauses between them, a poll, a receive, a run. Zero or less is an
// [InvalidError].
type Timeout time.Duration

// AttemptTimeout bounds one attempt of a step or one check of a poll. An attempt
// whose function does not heed its context is abandoned: its result is dropped.
// The default is 10 minutes for a step, 30 seconds for a poll; [NoTimeout] means
// none.
type AttemptTimeout time.Duration

// HeartbeatTimeout ends an attempt of a step that has not called [Heartbeat] for
// so long. The default is none.
type HeartbeatTimeout time.Duration

// NoTimeout lifts a default or required bound: the attempt timeout of a step,
// the total of a poll.
type NoTimeout struct{}

// RetryPolicy says when a failed step is tried again. The zero value of each
// field means its default.
//
// The names and defaults are those of Temporal. The n-th failure is followed by
// a pause of min(MaximumInterval, InitialInterval·BackoffCoefficient^(n-1)), of
// which full jitter takes a random part.
type RetryPolicy struct {
	InitialInterval    time.Duration // default 1 s
	BackoffCoefficient float64       // default 2; at least 1
	MaximumInterval    time.Duration // default 100 × InitialInterval
	// MaximumAttempts is the most attempts; 0 means no bound. 1 means at most
	// once: the start is committed before the call, and a step that a crash
	// interrupts ends with [StepInterruptedError].
	MaximumAttempts int
	// NonRetryableErrorTypes are exact type names ("*url.Error") that, anywhere
	// in the chain, make an error permanent.
	NonRetryableErrorTypes []string
	// RetryIf, if set, makes every error permanent that it is false for.
	RetryIf func(error) bool
	// NoJitter takes the whole pause each time.
	NoJitter bool
	// OnAttempt, if set, is called after each attempt that was made in this turn.
	OnAttempt func(Attempt)
}

// Attempt tells OnAttempt how one attempt went.
type Attempt struct {
	Name   string
	Number int // from 1
	Err    error
	Delay  time.Duration // until the next attempt; 0 when there is none
}

type stepConfig struct {
	policy         RetryPolicy
	attemptTimeout time.Duration
	timeout        *time.Duration
	heartbeat      *time.Duration
}

func (p RetryPolicy) step(c *stepConfig)      { c.policy = p }
func (d AttemptTimeout) step(c *stepConfig)   { c.attemptTimeout = time.Duration(d) }
func (d Timeout) step(c *stepConfig)          { c.timeout = (*time.Duration)(&d) }
func (d HeartbeatTimeout) step(c *stepConfig) { c.heartbeat = (*time.Duration)(&d) }
func (NoTimeout) step(c *stepConfig)          { c.attemptTimeout = forever }

const forever = time.Duration(1<<63 - 1)

const defaultAttemptTimeout = 10 * time.Minute

func (c *stepConfig) configure(opts []StepOption) error {
	c.attemptTimeout = defaultAttemptTimeout
	for _, o := range opts {
		o.step(c)
	}
	p := &c.policy
	switch {
	case p.MaximumAttempts < 0:
		return &InvalidError{Field: "RetryPolicy.MaximumAttempts", Reason: fmt.Sprintf("is %d; use 0 for no bound", p.MaximumAttempts)}
	case p.InitialInterval < 0:
		return &InvalidError{Field: "RetryPolicy.InitialInterval", Reason: "is negative"}
	case p.MaximumInterval < 0:
		return &InvalidError{Field: "RetryPolicy.MaximumInterval", Reason: "is negative"}
	case p.BackoffCoefficient != 0 && !(p.BackoffCoefficient >= 1):
		return &InvalidError{Field: "RetryPolicy.BackoffCoefficient", Reason: fmt.Sprintf("is %v; it must be at least 1", p.BackoffCoefficient)}
	case c.attemptTimeout <= 0:
		return &InvalidError{Field: "AttemptTimeout", Reason: "must be above 0; use NoTimeout{} for none"}
	case c.timeout != nil && *c.timeout <= 0:
		return &InvalidError{Field: "Timeout", Reason: "must be above 0; leave it out for none"}
	case c.heartbeat != nil && *c.heartbeat <= 0:
		return &InvalidError{Field: "HeartbeatTimeout", Reason: "must be above 0; leave it out for none"}
	}
	if p.InitialInterval == 0 {
		p.InitialInterval = time.Second
	}
	if p.BackoffCoefficient == 0 {
		p.BackoffCoefficient = 2
	}
	if p.MaximumInterval == 0 {
		p.MaximumInterval = 100 * p.InitialInterval
		if p.MaximumInterval/100 != p.InitialInterval {
			p.MaximumInterval = forever
		}
	}
	return nil
}

// delay is the pause after the n-th failure.
func (p *RetryPolicy) delay(n int, rnd func() float64) time.Duration {
	b := wait.Backoff(p.InitialInterval, p.MaximumInterval, p.BackoffCoefficient, n)
	if p.NoJitter {
		return b
	}
	return wait.Full.Apply(b, p.MaximumInterval, rnd)
}
