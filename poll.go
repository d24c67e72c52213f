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
	errSkipped   = errors.New("skipped")
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
	shareNext  time.Time // when the next shared check is due
	hint       wait.Hint // of the last check
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
		data, err := p.ask()
		if err != nil && p.sawCancel() {
			return nil, ErrCanceled
		}
		if err == errSkipped {
			if c.Trigger == TriggerFinal {
				_, data, err := p.over(Record{Error: NewFailure(p.timedOut(ReasonTotalTimeout)), Attempt: p.state.Attempt, Took: p.t.now().Sub(p.state.Since)})
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
	if p.learned != nil {
		p.plan.Strategy = learnedStrategy{p.t.w, p.name, *p.learned, p.plan.Min}
	}
	if p.started != nil && !resumed {
		p.afterStart(p.started)
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
		p.state.NextAt, p.Uncut = later(after(p.began, *p.initialDelay), after(at, p.Floor)), time.Time{}
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

// ask makes a check, or has it from another poll that shares it. It is errSkipped,
// and no attempt, while a breaker is open or another poll is at it.
func (p *pollRun) ask() (json.RawMessage, error) {
	p.shareNext, p.hint = time.Time{}, wait.Hint{}
	check := p.attempt
	if p.share != nil {
		check = p.shared
	}
	if p.breaker == nil {
		return check()
	}
	circuit := p.t.w.circuit(p.breaker)
	permit := circuit.allow(p.attemptTimeout + finalCheck)
	if !permit.OK {
		p.Log.count(wait.Skipped)
		p.state.NextAt = after(later(permit.RetryAt, p.t.now().Add(wait.Floor)), 0)
		return nil, errSkipped
	}
	data, err := check()
	worked := err == nil || err == errPending || err == errUnchanged
	outcome, hint := wait.Judge(err)
	switch {
	case err == errSkipped:
		circuit.report(permit, nil, 0)
	case outcome == wait.Failed: // whoever refuses for good is alive
		circuit.report(permit, new(true), 0)
	default:
		circuit.report(permit, &worked, hint.After)
	}
	return data, err
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
	if errors.Is(err, errUnchanged) { // which need not repeat them
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
	switch err {
	case nil:
		c.Outcome = wait.Succeeded
	case errPending, errUnchanged:
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
	return p.over(r)
}

// wakes matches what ends the pause: a person's word, or a delivery.
func (p *pollRun) wakes(m *Message) bool {
	return p.acts(m) || p.hook != nil && m.Op == OpSignal && m.Name == p.hook.h.signal()
}

// hurryFor is how long checks come close together after a webhook has said that it
// is time to look and the check did not yet see it.
const hurryFor = 30 * time.Second

// delivered takes up a webhook's delivery: it ends the poll, or lets it check now. It
// is consumed with what came of it, never before: a commit may come at any time.
func (p *pollRun) delivered(m *Message) (done bool, data []byte, err error) {
	if p.hook.complete && p.done(m.Data) {
		p.Log.changed(p.t.now(), m.Data, p.Percent)
		p.remember(p.t.now(), true)
		return p.overBy(Record{Data: m.Data, Attempt: p.state.Attempt, Took: p.t.now().Sub(p.state.Since), By: string(TriggerWebhook)}, m)
	}
	p.trigger, p.HurryTo, p.Uncut = TriggerWebhook, after(p.t.now(), hurryFor), time.Time{}
	p.state.NextAt = later(p.t.now(), p.NotBefore)
	p.t.mu.Lock()
	p.t.consumed = append(p.t.consumed, m.Seq)
	p.keepWaitLocked(p.keep())
	p.t.mu.Unlock()
	return false, nil, nil
}

func (p *pollRun) failed(o wait.Outcome, err error) {
	if o == wait.Throttled {
		p.Throttled++
	} else {
		p.Errors++
	}
	p.state.LastError, p.state.LastErrAt = NewFailure(err), p.t.now()
}

// schedule draws the time of the check after the one that ended at a time, once: it
// is kept, never drawn again.
func (p *pollRun) schedule(h wait.Hint, ended time.Time) {
	plan := p.plan
	if !p.HurryTo.After(p.t.now()) {
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
	p.state.NextAt, p.Uncut = after(n.At, 0), time.Time{}
	if n.Final || n.TooLate {
		p.Uncut = after(n.Uncut, 0)
	}
	if !p.shareNext.IsZero() && !n.TooLate { // as all who share it, and a little spread out
		spread := time.Duration(p.t.w.random() * 0.1 * float64(max(p.shareNext.Sub(p.t.now()), 0)))
		p.state.NextAt, p.Uncut = later(after(p.shareNext, spread), p.t.now()), time.Time{}
	}
	if at, ok := p.stallsAt(); ok && n.Floor == 0 { // whether it has stalled is for a check to say
		if at = later(at, after(ended, max(p.plan.Min, wait.Floor))); at.Before(p.state.NextAt) {
			p.state.NextAt, p.Uncut = at, time.Time{}
		}
	}
}

// pause waits for the next check; a webhook may hurry it, a person hurry, extend
// or settle it.
func (p *pollRun) pause() (done bool, data []byte, err error) {
	for {
		next := later(p.state.NextAt, later(p.Uncut, p.NotBefore)) // the deadline may have been moved since
		p.trigger = TriggerTimer
		tooLate := false
		switch u := p.state.Until; {
		case u.IsZero():
		case p.refusedBeyond(u):
			p.Uncut, next, tooLate = next, u, true
		case u.Sub(next) < max(p.plan.Min, wait.Floor):
			p.Uncut, next, p.trigger = next, u, TriggerFinal
		case !u.After(p.t.now()): // a check that comes after the deadline, since nobody was there, is the last
			p.trigger = TriggerFinal
		}
		p.state.NextAt = next
		why, m := p.wait(p.keep(), next, p.wakes)
		switch why {
		case whyCanceled:
			p.cancelNow()
			return true, nil, ErrCanceled
		case whyTimer:
			if tooLate {
				return p.over(Record{Error: NewFailure(p.timedOut(ReasonRetryAfter)), Attempt: p.state.Attempt, Took: p.t.now().Sub(p.state.Since)})
			}
			p.Uncut = time.Time{}
			return false, nil, nil
		}
		switch m.Op {
		case OpSignal:
			if done, data, err = p.delivered(m); done || !p.NotBefore.After(p.t.now()) {
				return done, data, err
			}
			p.state.NextAt = p.NotBefore // whoever may call the webhook may not make us break a quota
		case OpCompleteWait, OpFailWait:
			r := settlement(m, p.state.Attempt)
			r.Took = p.t.now().Sub(p.state.Since)
			return p.overBy(r, m)
		case OpExtendWait:
			if !p.state.Until.IsZero() {
				p.state.Until = after(p.state.Until, extension(m))
			}
			state := p.keep()
			p.note(Record{Kind: KindExtended}, m, &state)
		default:
			p.trigger, p.Uncut, p.state.NextAt = TriggerManual, time.Time{}, p.t.now()
			state := p.keep()
			p.note(Record{Kind: KindChecked}, m, &state)
			return false, nil, nil
		}
	}
}

// refusedBeyond reports whether the server may not be asked again before the
// deadline is past.
func (p *pollRun) refusedBeyond(deadline time.Time) bool {
	return !deadline.IsZero() && p.NotBefore.After(deadline)
}

// wasInterrupted reports whether an earlier turn may have begun a check and
// never told.
func (p *pollRun) wasInterrupted() bool {
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	return p.t.interrupted && p.b.fresh && !p.state.NextAt.After(p.t.now()) && !p.refusedBeyond(p.state.Until)
}

// interrupted counts the check that an earlier turn may have begun: a check that
// kills its process must not do so for ever. It may not have begun: the first
// time, look at once. Only one that kills its process again and again is kept at
// a distance.
func (p *pollRun) interrupted() (bool, []byte, error) {
	again := p.Errors > 0
	c := Check{Poll: p.name, Trigger: TriggerResume, Outcome: wait.Interrupted, Err: ErrInterrupted, EndedAt: p.t.now()}
	if u := p.state.Until; !u.IsZero() && !p.state.NextAt.Before(u) { // it was the last
		c.Trigger = TriggerFinal
	}
	p.state.Attempt++
	p.failed(c.Outcome, ErrInterrupted)
	p.Log.checked(&c)
	if over, _, err := p.isOver(&c); over {
		return p.over(Record{Error: NewFailure(err), Attempt: p.state.Attempt, Took: p.t.now().Sub(p.state.Since)})
	}
	if p.state.NextAt, p.Uncut = p.t.now(), (time.Time{}); again {
		p.schedule(wait.Hint{}, p.t.now())
	}
	p.keepNow() // before the check: should it kill this process too
	return false, nil, nil
}
