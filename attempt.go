package bide

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"slices"
	"time"
)

// attempt is one call of a step's or a poll's function, and the context that the
// function is given. It is a context of its own kind, not one of the standard
// library's, since a step makes one and hardly any step looks at it: the channel
// exists once somebody asks for it.
type attempt struct {
	v        *verb
	step     *stepRun // nil for a poll's check
	number   int
	limit    time.Duration
	deadline time.Time // zero: none
	details  json.RawMessage
	beat     *time.Timer
	timeout  time.Duration // of the heartbeat

	// Under the turn's lock:
	err   error
	done  chan struct{}
	after map[*func()]bool
	over  bool // the verb has its outcome; a later one is dropped
	out   outcome
	seen  Observation // of a check
	upto  *float64    // percent, if the check told it

	published map[string]json.RawMessage // by a loop's iteration
	stream    []byte                     // not cut into chunks yet

	last Observation // of the check before; does not change
	due  time.Time   // of a loop's iteration; does not change
}

type outcome struct {
	data json.RawMessage
	err  error
}

type attemptKey struct{}

// Deadline implements [context.Context].
func (a *attempt) Deadline() (time.Time, bool) { return a.deadline, !a.deadline.IsZero() }

// Done implements [context.Context].
func (a *attempt) Done() <-chan struct{} {
	a.v.t.mu.Lock()
	defer a.v.t.mu.Unlock()
	if a.done == nil {
		a.done = make(chan struct{})
		if a.err != nil {
			close(a.done)
		}
	}
	return a.done
}

// Err implements [context.Context].
func (a *attempt) Err() error {
	a.v.t.mu.Lock()
	defer a.v.t.mu.Unlock()
	return a.err
}

// Value finds the attempt for the functions that take a step's context; all
// else is what the context of Worker.Run held.
func (a *attempt) Value(key any) any {
	if _, ok := key.(attemptKey); ok {
		return a
	}
	return a.v.t.w.base.Value(key)
}

// AfterFunc spares the context package a goroutine for each context that is
// derived from this one.
func (a *attempt) AfterFunc(f func()) (stop func() bool) {
	a.v.t.mu.Lock()
	defer a.v.t.mu.Unlock()
	if a.err != nil {
		go f()
		return func() bool { return false }
	}
	if a.after == nil {
		a.after = map[*func()]bool{}
	}
	key := &f
	a.after[key] = true
	return func() bool {
		a.v.t.mu.Lock()
		defer a.v.t.mu.Unlock()
		was := a.after[key]
		delete(a.after, key)
		return was
	}
}

// attemptOf finds the attempt that a step's context belongs to.
func attemptOf(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}

// closeLocked ends the attempt's context.
func (a *attempt) closeLocked(err error) {
	if a.err != nil {
		return
	}
	a.err = err
	if a.done != nil {
		close(a.done)
	}
	for f := range a.after {
		go (*f)()
	}
	a.after = nil
}

// resolveLocked gives the waiting verb its outcome, once.
func (a *attempt) resolveLocked(out outcome) {
	if !a.over {
		a.over, a.out = true, out
		a.v.b.wake <- struct{}{}
	}
}

// abandonLocked lets the verb go without waiting for the function.
func (a *attempt) abandonLocked() {
	a.closeLocked(context.Canceled)
	a.resolveLocked(outcome{err: errUnwound})
}

// cancelGrace is how long a canceled run waits for a step that is in flight.
const cancelGrace = 10 * time.Second

// cancelLocked tells the function that the run is canceled.
func (a *attempt) cancelLocked() {
	if a.err != nil {
		return
	}
	a.closeLocked(context.Canceled)
	time.AfterFunc(cancelGrace, func() {
		a.v.t.mu.Lock()
		defer a.v.t.mu.Unlock()
		a.resolveLocked(outcome{err: ErrCanceled})
	})
}

// timedOut ends the branch's attempt in flight if its deadline has passed.
func (b *branch) timedOut() {
	b.t.mu.Lock()
	defer b.t.mu.Unlock()
	if a := b.inFlight; a != nil && !a.deadline.IsZero() && !time.Now().Before(a.deadline) {
		a.closeLocked(context.DeadlineExceeded)
		a.resolveLocked(outcome{err: &TimeoutError{What: "attempt of " + a.v.String(), After: a.limit}})
	}
}

// missed ends an attempt whose heartbeat has not come.
func (a *attempt) missed() {
	a.v.t.mu.Lock()
	defer a.v.t.mu.Unlock()
	a.closeLocked(context.DeadlineExceeded)
	a.resolveLocked(outcome{err: &TimeoutError{What: "heartbeat of " + a.v.String(), After: a.timeout}})
}

// attempt calls the step's function.
func (s *stepRun) attempt(fn stepFunc, n int, limit time.Duration, heartbeat *time.Duration) (json.RawMessage, error) {
	a := &attempt{v: &s.verb, step: s, number: n, limit: limit}
	if s.state != nil {
		a.details = s.state.Details
	}
	if heartbeat != nil {
		a.timeout = *heartbeat
	}
	return a.run(fn)
}

// run calls fn in a goroutine of its own, so that a timeout, a lost race or a
// lost lease need not wait for a function that does not heed its context.
func (a *attempt) run(fn stepFunc) (json.RawMessage, error) {
	v, t, b := a.v, a.v.t, a.v.b
	if a.limit <= 0 {
		return nil, &TimeoutError{What: v.String(), After: a.limit}
	}
	b.acquireSlot()
	t.mu.Lock()
	if !t.w.holds() { // the process was stopped for a while, and its timers come too late
		t.unwind(lost)
		go t.w.letGo()
	}
	if t.over(b) {
		t.w.releaseSlot()
		b.exitLocked()
	}
	b.inFlight = a
	t.attempts = append(t.attempts, a)
	if a.limit != forever {
		a.deadline = time.Now().Add(a.limit)
		if b.timer == nil {
			b.timer = time.AfterFunc(a.limit, b.timedOut)
		} else {
			b.timer.Reset(a.limit)
		}
	}
	if a.timeout > 0 {
		a.beat = time.AfterFunc(a.timeout, a.missed)
	}
	if t.canceled && !v.detached {
		a.cancelLocked()
	}
	t.code--
	t.settle()
	t.mu.Unlock()

	go a.call(fn)
	<-b.wake

	t.mu.Lock()
	t.code++
	b.inFlight = nil
	t.attempts = slices.DeleteFunc(t.attempts, func(x *attempt) bool { return x == a })
	if a.limit != forever {
		b.timer.Stop()
	}
	if a.beat != nil {
		a.beat.Stop()
	}
	a.closeLocked(context.Canceled)
	a.cutLocked(true)
	if t.over(b) || a.out.err == errUnwound {
		b.exitLocked()
	}
	t.mu.Unlock()
	return a.out.data, a.out.err
}

// call runs the function; its slot is free again when it really ends.
func (a *attempt) call(fn stepFunc) {
	out := outcome{err: &PanicError{Value: "runtime.Goexit called in step code"}}
	var done func(error)
	defer func() {
		if r := recover(); r != nil {
			out = outcome{err: &PanicError{Value: fmt.Sprint(r), Stack: string(debug.Stack())}}
		}
		if done != nil {
			a.intercepted(done, out.err)
		}
		a.v.t.w.releaseSlot()
		a.v.t.mu.Lock()
		a.resolveLocked(out)
		a.v.t.mu.Unlock()
	}()
	ctx := context.Context(a)
	if f := a.v.t.w.cfg.Intercept; f != nil {
		run := &a.v.t.run
		ctx, done = f(a, Call{Run: run.ID, Workflow: run.Workflow, Trace: run.Trace, Kind: a.v.kind, Name: a.v.name, Attempt: a.number})
	}
	out.data, out.err = fn(ctx)
}

// intercepted is apart from call, where a closure would cost every step an allocation.
func (a *attempt) intercepted(done func(error), err error) {
	if err == errPending || err == errUnchanged { // a check that went well
		err = nil
	}
	a.v.t.w.contain("Intercept", a.v.name, func() { done(err) })
}

// Call is one attempt of a step, one check of a poll or one iteration of a loop,
// as [WorkerConfig].Intercept is told of it.
type Call struct {
	Run, Workflow string
	Trace         string // the W3C traceparent that the run was started with
	Kind          Kind
	Name          string
	Attempt       int // from 1
}

func (v *verb) String() string { return fmt.Sprintf("%s %q", v.kind, v.name) }

// over reports whether a branch has nothing more to do: its turn ends otherwise
// than by parking, or it has lost a race.
func (t *turn) over(b *branch) bool {
	return t.ending != open && t.ending != parking || b.isLost()
}
