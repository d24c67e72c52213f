package bide

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/bide-dev/bide/wait"
)

// Poll asks check again and again until done says that its value is the one
// waited for, and returns that value. However many attempts it takes, the
// history gets one record; between attempts the run may be parked and then holds
// nothing.
//
// check must be an idempotent read. An error of it is transient unless marked
// [Permanent] or of [NonRetryableErrorTypes]: it is followed by a back-off of its
// own and does not end the poll. A panic is an error like any other. What a server
// says about when to ask again is heeded: errors of [wait.CheckResponse] carry it,
// and for values [Observe]. A value that has one of these methods tells by it:
//
//	Progress() (percent float64, message string)   // the run's progress too
//	ETA() time.Time                                // for the strategy ETA
//	WaitHint() wait.Hint
//
// The interval is [Every], [Exponential] (the default), [Elapsed], [ETA],
// [LongPoll] or [Learned]. One of [Timeout], [MaxAttempts] or [NoTimeout] is
// required. With a Timeout a last check is made at the deadline itself, unless the
// server has refused one before then. Errors:
//
//   - [PollTimeoutError] when Timeout, MaxAttempts or [MaxConsecutiveErrors] are
//     used up;
//   - [PollFailedError] when check returned a permanent error;
//   - [PollStalledError] after [StallTimeout] without progress;
//   - [ErrCanceled], [InvalidError], [CodecError].
func Poll[T any](ctx Context, name string, check func(context.Context) (T, error), done func(T) bool, opts ...PollOption) (T, error) {
	data, err := runPoll(ctx, name, func(ctx context.Context) (json.RawMessage, error) {
		v, err := check(ctx)
		if err != nil {
			return nil, err
		}
		if attemptOf(ctx).observe(v) {
			return nil, errUnchanged
		}
		data, err := encode("value of poll ", name, v)
		if err != nil {
			return nil, Permanent(err)
		}
		if !done(v) {
			return data, errPending
		}
		return data, nil
	}, func(data json.RawMessage) bool {
		v, err := decode[T]("value of poll ", name, data)
		return err == nil && done(v)
	}, opts)
	if err != nil {
		var zero T
		return zero, err
	}
	return decode[T]("value of poll ", name, data)
}

var (
	errPending   = errors.New("pending")
	errUnchanged = errors.New("unchanged")
)

func runPoll(ctx Context, name string, check stepFunc, done func(json.RawMessage) bool, opts []PollOption) ([]byte, error) {
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
	p := pollRun{verb: v, pollConfig: c, check: check, done: done}
	return p.run()
}

// pollRun is a live poll. Its state is the wait of the run, so that the next
// turn, on whatever machine, goes on with the same counters and next time.
type pollRun struct {
	*verb
	pollConfig
	check      stepFunc
	done       func(json.RawMessage) bool
	state      Wait
	*PollState           // of state
	trigger    Trigger   // of the next check
	hint       wait.Hint // of the last
	shareNext  time.Time // when the next shared check is due
}

func (p *pollRun) run() ([]byte, error) {
	p.load()
	if p.hook != nil {
		p.waitsOn(p.hook.h)
	}
	if p.wasInterrupted() {
		if done, data, err := p.interrupted(); done {
			return data, err
		}
	}
	for {
		if done, data, err := p.pause(); done {
			return data, err
		}
		p.flush()
		c := Check{Poll: p.name, Attempt: p.state.Attempt + 1, Trigger: p.trigger, DueAt: p.state.NextAt, StartedAt: p.t.now()}
		data, err, skipped := p.ask(&c)
		if err != nil && p.sawCancel() {
			return nil, ErrCanceled
		}
		if skipped {
			if c.Trigger == TriggerFinal {
				_, data, err := p.over(Record{Error: NewFailure(p.timedOut(ReasonTotalTimeout)), Attempt: p.state.Attempt, Took: p.t.now().Sub(p.state.Since)}, nil)
				return data, err
			}
			continue
		}
		if done, data, err := p.judge(&c, data, err); done {
			return data, err
		}
	}
}

// load takes up the state of an earlier turn, or begins.
func (p *pollRun) load() {
	var resumed bool
	if p.state, resumed = p.keptWait(); !resumed {
		p.state = Wait{Kind: KindPoll, Since: p.began, NextAt: p.began}
		if p.initialDelay != nil {
			p.state.NextAt = after(p.began, *p.initialDelay)
		}
		if p.timeout != nil {
			p.state.Until = after(p.began, *p.timeout)
		}
	}
	p.PollState = &PollState{}
	if p.state.Poll != nil { // what is kept may be being written
		*p.PollState = *p.state.Poll
		p.Log = p.Log.clone()
	}
	p.Start, p.Errors = p.state.Since, p.state.Streak
	if p.learned > 0 {
		p.plan.Strategy = learnedStrategy{p.t.w, p.name, p.learned, p.plan.Min}
	}
	if s := p.started; s != nil && !resumed {
		p.afterStart(s)
	}
}

// afterStart plans the first check of a job: after an interval, and not before its
// start said that it may come.
func (p *pollRun) afterStart(s *started) {
	at := s.At
	if at.IsZero() { // a person has said that it was started
		at = p.began
	}
	p.State.ETA, p.Sticky = s.ETA, s.Hint.Interval
	p.schedule(s.Hint, at)
	if p.initialDelay != nil {
		p.state.NextAt = later(after(p.began, *p.initialDelay), after(at, p.Floor))
	}
}

// keep is the state as it is kept: what is written does not change under the pen.
func (p *pollRun) keep() Wait {
	w, s := p.state, *p.PollState
	s.Log = s.Log.clone()
	w.Streak, w.Poll = p.Errors, &s
	return w
}

// keepNow makes the state part of the next commit, though the poll does not wait.
func (p *pollRun) keepNow() {
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	p.keepWaitLocked(p.keep())
}

// ask makes a check, or has it from another poll that shares it. It is skipped,
// and is no attempt, while a breaker is open or another poll is at it.
func (p *pollRun) ask(c *Check) (data json.RawMessage, err error, skipped bool) {
	p.shareNext = time.Time{}
	if p.breaker == nil {
		return p.shareOrAttempt()
	}
	circuit := p.t.w.circuit(p.breaker)
	permit := circuit.allow(p.attemptTimeout + finalCheck)
	if !permit.OK {
		p.Log.count(wait.Skipped)
		p.state.NextAt = after(later(permit.RetryAt, p.t.now().Add(wait.Floor)), 0)
		return nil, nil, true
	}
	data, err, skipped = p.shareOrAttempt()
	worked := err == nil || err == errPending || err == errUnchanged
	outcome, hint := wait.Judge(err)
	switch {
	case skipped:
		circuit.report(permit, nil, 0)
	case outcome == wait.Failed: // whoever refuses for good is alive
		circuit.report(permit, new(true), 0)
	default:
		circuit.report(permit, &worked, hint.After)
	}
	return data, err, skipped
}

func (p *pollRun) shareOrAttempt() (json.RawMessage, error, bool) {
	if p.share == "" {
		data, err := p.attempt()
		return data, err, false
	}
	data, err, again := p.shared()
	if !again.IsZero() {
		p.state.NextAt = after(again, 0)
	}
	return data, err, !again.IsZero()
}

// attempt makes one check.
func (p *pollRun) attempt() (json.RawMessage, error) {
	limit := p.attemptTimeout
	if p.trigger == TriggerFinal {
		limit = min(limit, finalCheck)
	}
	a := &attempt{v: p.verb, number: p.state.Attempt + 1, limit: limit, last: p.Seen}
	data, err := a.run(p.check)
	p.t.mu.Lock() // a check that was abandoned may still tell
	seen, percent := a.seen, a.upto
	p.t.mu.Unlock()
	p.hint = seen.Hint
	if err == errUnchanged { // which need not repeat them
		seen.ETag, seen.LastModified = cmp.Or(seen.ETag, p.Seen.ETag), cmp.Or(seen.LastModified, p.Seen.LastModified)
	}
	if err == nil || err == errPending || err == errUnchanged {
		if seen.ETag != p.Seen.ETag {
			p.Unheld = 0
		}
		p.Seen = Observation{ETag: seen.ETag, LastModified: seen.LastModified}
	}
	if !seen.ETA.IsZero() {
		p.State.ETA = seen.ETA
	}
	if percent != nil {
		p.Progress(*percent, p.t.now())
	}
	return data, err
}

// judge does what the outcome of a check asks for: it ends the poll, or schedules
// the next check.
func (p *pollRun) judge(c *Check, data json.RawMessage, err error) (bool, []byte, error) {
	c.EndedAt = p.t.now()
	p.state.Attempt++
	hint := p.hint
	switch {
	case err == nil:
		c.Outcome = wait.Succeeded
	case err == errPending || err == errUnchanged:
		c.Outcome = wait.Pending
		p.LastPending = c.EndedAt
		p.Saw(c.EndedAt.Sub(c.StartedAt), p.plan.Hold())
	default:
		c.Err = err
		if c.Outcome, hint = wait.Judge(err); hint.After == 0 && hint.Interval == 0 {
			hard := hint.Hard
			hint = p.hint // which the check may have told by itself
			hint.Hard = hint.Hard || hard
		}
		if len(p.fatal) > 0 && hasType(err, p.fatal) {
			c.Outcome = wait.Failed
		}
		p.failed(c.Outcome, err)
	}
	if hint.Interval > 0 {
		p.Sticky = hint.Interval
	}
	if data != nil && !bytes.Equal(data, p.state.LastValue) {
		c.Changed, p.state.LastValue = true, data
		p.Log.changed(c.EndedAt, data, p.Percent)
	}
	p.Log.checked(c)
	over, result, failure := p.isOver(c)
	if !over {
		p.schedule(hint, p.t.now())
		if !p.state.NextAt.After(p.t.now()) { // the next follows at once, and may kill the process
			p.keepNow()
		}
		c.Base, c.Floor, c.FloorFrom = p.Base, p.Floor, p.Source
		if !p.refusedBeyond(p.state.Until) {
			c.NextAt = p.state.NextAt
		}
	}
	if p.onCheck != nil {
		c.Value, c.Percent, c.ETA = p.state.LastValue, p.Percent, p.State.ETA
		p.t.w.contain("OnCheck", p.name, func() { p.onCheck(*c) })
	}
	if !over {
		return false, nil, nil
	}
	r := Record{Data: result, Error: NewFailure(failure), Attempt: p.state.Attempt, Took: c.EndedAt.Sub(p.state.Since), At: c.EndedAt}
	if c.Outcome == wait.Succeeded && c.Trigger == TriggerWebhook {
		r.By = string(TriggerWebhook)
	}
	if c.Outcome == wait.Succeeded {
		p.remember(c.EndedAt, c.Trigger == TriggerWebhook)
	}
	return p.over(r, nil)
}

// over ends the poll, by a person's word if there is one.
func (p *pollRun) over(r Record, m *Message) (bool, []byte, error) {
	p.closeHook()
	log := p.Log.clone()
	r.Poll = &log
	data, err := p.finish(r, m)
	return true, data, err
}

func (p *pollRun) failed(o wait.Outcome, err error) {
	if o == wait.Throttled {
		p.Throttled++
	} else {
		p.Errors++
	}
	p.state.LastError, p.state.LastErrAt = NewFailure(err), p.t.now()
}

// isOver says whether and how the check ends the poll.
func (p *pollRun) isOver(c *Check) (bool, json.RawMessage, error) {
	switch {
	case c.Outcome == wait.Succeeded:
		return true, p.state.LastValue, nil
	case c.Outcome == wait.Failed:
		return true, nil, &PollFailedError{Name: p.name, Attempts: p.state.Attempt, LastValue: p.state.LastValue, Err: c.Err}
	}
	if reason := p.usedUp(c.Trigger); reason != "" {
		return true, nil, p.timedOut(reason)
	}
	if at, ok := p.stallsAt(); ok && !at.After(c.EndedAt) {
		return true, nil, &PollStalledError{Name: p.name, Attempts: p.state.Attempt, Stalled: c.EndedAt.Sub(at.Add(-*p.stallTimeout)),
			LastValue: p.state.LastValue, LastProgress: p.progress()}
	}
	return false, nil, nil
}

// usedUp says which of the poll's bounds is reached, if one is.
func (p *pollRun) usedUp(last Trigger) string {
	switch {
	case last == TriggerFinal:
		return ReasonTotalTimeout
	case p.maxAttempts > 0 && p.state.Attempt >= p.maxAttempts:
		return ReasonMaxAttempts
	case p.maxErrors > 0 && p.Errors >= p.maxErrors:
		return ReasonMaxConsecutiveErrors
	}
	return ""
}

// stallsAt is when the poll has stalled, unless the progress rises before. An
// error says nothing of the progress: then it is for the next answer to tell.
func (p *pollRun) stallsAt() (time.Time, bool) {
	if p.stallTimeout == nil || p.Errors+p.Throttled > 0 {
		return time.Time{}, false
	}
	return after(later(p.PercentAt, p.state.Since), *p.stallTimeout), true
}

func (p *pollRun) progress() *ProgressState {
	if p.PercentAt.IsZero() {
		return nil
	}
	return &ProgressState{Percent: p.Percent, UpdatedAt: p.PercentAt}
}

func (p *pollRun) timedOut(reason string) error {
	return &PollTimeoutError{Name: p.name, ID: p.t.run.ID, Reason: reason, Attempts: p.state.Attempt,
		ConsecutiveErrors: p.Errors, Elapsed: p.t.now().Sub(p.state.Since), LastValue: p.state.LastValue,
		LastProgress: p.progress(), LastErr: p.state.LastError.Err(), LastErrAt: p.state.LastErrAt}
}

// schedule draws the time of the check after the one that ended at a time, once: it
// is kept, never drawn again.
func (p *pollRun) schedule(h wait.Hint, ended time.Time) {
	plan := p.plan
	if !p.HurryTo.After(ended) {
		plan.Min = max(plan.Min, p.relaxed())
	}
	n := plan.Next(&p.State, h, ended, p.state.Until, p.t.w.random)
	p.Base, p.Floor, p.Source, p.NotBefore = n.Base, n.Floor, "", n.NotBefore
	switch {
	case n.Floor == 0:
	case h.After >= n.Floor:
		p.Source = h.Source
	case p.Sticky >= n.Floor:
		p.Source = "X-Poll-Interval"
	}
	p.state.NextAt = after(n.At, 0)
	if !p.shareNext.IsZero() && !n.TooLate { // as all who share it, and a little spread out
		spread := time.Duration(p.t.w.random() * 0.1 * float64(max(p.shareNext.Sub(ended), 0)))
		p.state.NextAt = later(after(p.shareNext, spread), ended)
	}
	if at, ok := p.stallsAt(); ok && n.Floor == 0 { // whether it has stalled is for a check to say
		if at = later(at, after(ended, max(p.plan.Min, wait.Floor))); at.Before(p.state.NextAt) {
			p.state.NextAt = at
		}
	}
}
