package bide

import (
	"errors"
	"fmt"
	"time"

	"github.com/bide-dev/bide/wait"
)

const (
	pollAttemptTimeout = 30 * time.Second
	finalCheck         = 10 * time.Second // the most that the check at the deadline may take
	longPollGrace      = 10 * time.Second // how much longer than its hold a long poll may take
)

type pollConfig struct {
	plan           wait.Plan
	learned        *time.Duration // interval to be as good as; nil: not learned
	hold           *time.Duration // of a long poll
	initialDelay   *time.Duration
	started        *started // of a job; nil otherwise
	maxAttempts    int
	maxErrors      int
	timeout        *time.Duration
	attemptTimeout time.Duration
	stallTimeout   *time.Duration
	unbounded      bool
	fatal          []string
	onCheck        func(Check)
	hook           *wakeOn
	noRelax        bool
	share          *string
	breaker        *Breaker
}

func (d Every) poll(c *pollConfig)                { c.plan.Strategy = wait.Fixed(d) }
func (e Exponential) poll(c *pollConfig)          { c.plan.Strategy = wait.Exponential(e) }
func (e Elapsed) poll(c *pollConfig)              { c.plan.Strategy = wait.Elapsed(e) }
func (e ETA) poll(c *pollConfig)                  { c.plan.Strategy = wait.ETA(e) }
func (d InitialDelay) poll(c *pollConfig)         { c.initialDelay = (*time.Duration)(&d) }
func (d MinInterval) poll(c *pollConfig)          { c.plan.Min = time.Duration(d) }
func (n MaxAttempts) poll(c *pollConfig)          { c.maxAttempts = int(n); c.unbounded = c.unbounded || n > 0 }
func (n MaxConsecutiveErrors) poll(c *pollConfig) { c.maxErrors = int(n) }
func (d Timeout) poll(c *pollConfig)              { c.timeout = (*time.Duration)(&d) }
func (d AttemptTimeout) poll(c *pollConfig)       { c.attemptTimeout = time.Duration(d) }
func (d LongPoll) poll(c *pollConfig)             { c.hold = (*time.Duration)(&d) }
func (d StallTimeout) poll(c *pollConfig)         { c.stallTimeout = (*time.Duration)(&d) }
func (NoTimeout) poll(c *pollConfig)              { c.unbounded = true }
func (f OnCheck) poll(c *pollConfig)              { c.onCheck = f }

func (Exact) poll(c *pollConfig) { c.plan.Jitter = new(wait.NoJitter) }

func (n NonRetryableErrorTypes) poll(c *pollConfig) { c.fatal = n }

// PollOption is an option of [Poll].
type PollOption interface{ poll(*pollConfig) }

// Every is a fixed interval, from the end of a check to the next.
type Every time.Duration

// Exponential is a growing interval of a poll: Interval·Coefficient^(n-1) after
// the n-th check, at most Max, with equal jitter.
type Exponential struct {
	Interval    time.Duration // default 1 s
	Coefficient float64       // default 1.5
	Max         time.Duration // default 30 s
}

// Elapsed is an interval that is a share of the time waited so far: whatever the
// wait takes, it is found out late by at most that share of it, until Max binds.
type Elapsed struct {
	Share    float64       // default 0.1
	Min, Max time.Duration // default 1 s and 60 s
}

// ETA is an interval by what is left: by the time that the check names (a value
// with a method ETA() time.Time, or [Observe]), else by the rate of its progress;
// while there is neither, by [Elapsed].
type ETA struct {
	Min, Max time.Duration // default 1 s and 60 s
}

// LongPoll says that the check asks a server that holds its answer back for up to
// so long (1 s to 60 s) until there is news. It is asked again at once; should it
// turn out not to hold, by the strategy that is given besides.
type LongPoll time.Duration

// InitialDelay is how long a poll waits before its first check (default: not at
// all; a [Job]: one interval), or a loop before its first iteration.
type InitialDelay time.Duration

// MinInterval is the least time between two checks whatever the strategy says;
// the default is 10 ms. Give it 1 s and more for what belongs to others.
type MinInterval time.Duration

// MaxAttempts is the most checks a poll makes.
type MaxAttempts int

// MaxConsecutiveErrors is the most errors in a row that a poll bears; 0, the
// default, is any number. Refusals for asking too often do not count.
type MaxConsecutiveErrors int

// StallTimeout ends a poll whose progress has not risen for so long.
type StallTimeout time.Duration

// NonRetryableErrorTypes are exact type names ("*url.Error") that, anywhere in the
// chain of a check's error, make it permanent.
type NonRetryableErrorTypes []string

// Exact is an option of [Poll]: its intervals get no jitter.
type Exact struct{}

// OnCheck is called after each check that was made in this turn, by the workflow's
// own goroutine.
type OnCheck func(Check)

func newPollConfig(opts []PollOption) (pollConfig, error) {
	c := pollConfig{attemptTimeout: pollAttemptTimeout}
	for _, o := range opts {
		o.poll(&c)
	}
	if c.hold != nil {
		if *c.hold == 0 { // to package wait that is the default
			return c, &InvalidError{Field: "LongPoll.Hold", Reason: "is 0; it must be from 1 s to 1 m"}
		}
		c.plan.Strategy = wait.LongPoll{Hold: *c.hold, Otherwise: c.plan.Strategy}
	}
	if err := c.plan.Check(); err != nil {
		return c, invalidField(err)
	}
	if c.breaker != nil {
		if err := c.breaker.rules().Check(); err != nil {
			return c, invalidField(err)
		}
	}
	positive := func(d *time.Duration) bool { return d == nil || *d > 0 }
	switch {
	case c.initialDelay != nil && *c.initialDelay < 0:
		return c, &InvalidError{Field: "InitialDelay", Reason: "is negative"}
	case c.maxAttempts < 0:
		return c, &InvalidError{Field: "MaxAttempts", Reason: "is negative"}
	case c.maxErrors < 0:
		return c, &InvalidError{Field: "MaxConsecutiveErrors", Reason: "is negative; leave it out for no bound"}
	case c.attemptTimeout <= 0:
		return c, &InvalidError{Field: "AttemptTimeout", Reason: "must be above 0"}
	case !positive(c.timeout):
		return c, &InvalidError{Field: "Timeout", Reason: "must be above 0"}
	case !positive(c.stallTimeout):
		return c, &InvalidError{Field: "StallTimeout", Reason: "must be above 0; leave it out for none"}
	case c.hook != nil && c.hook.complete && c.hook.h.verify == "":
		return c, &InvalidError{Field: "CompleteOn", Reason: "the webhook is not signed: give it VerifiedBy, or use WakeOn"}
	case c.learned != nil && *c.learned < wait.Floor:
		return c, &InvalidError{Field: "Learned", Reason: fmt.Sprintf("is %v; it must be at least %v", *c.learned, wait.Floor)}
	case c.share != nil && *c.share == "":
		return c, &InvalidError{Field: "Share", Reason: "is empty; give the key of what all ask for, or leave it out"}
	case c.breaker != nil && c.breaker.Name == "":
		return c, &InvalidError{Field: "Breaker.Name", Reason: "is empty: polls share a breaker by its name"}
	case c.timeout == nil && !c.unbounded:
		return c, &InvalidError{Field: "Timeout", Reason: "a poll needs an end: give Timeout, MaxAttempts, or NoTimeout{} to say that it has none"}
	}
	if hold := c.plan.Hold(); hold > 0 {
		c.attemptTimeout = max(c.attemptTimeout, hold+longPollGrace)
	}
	return c, nil
}

// invalidField is a complaint of package wait in this package's words.
func invalidField(err error) error {
	if f, ok := errors.AsType[*wait.FieldError](err); ok {
		return &InvalidError{Field: f.Field, Reason: f.Reason}
	}
	return err
}
