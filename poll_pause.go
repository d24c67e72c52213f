package bide

import (
	"time"

	"github.com/bide-dev/bide/wait"
)

// wakes matches what ends the pause: a person's word, or a delivery.
func (p *pollRun) wakes(m *Message) bool {
	return p.acts(m) || p.hook != nil && m.Op == OpSignal && m.Name == p.hook.h.signal()
}

// hurryFor is how long checks come close together after a webhook has said that it
// is time to look and the check did not yet see it.
const hurryFor = 30 * time.Second

// delivered takes up a webhook's delivery: it ends the poll, or lets it check now.
func (p *pollRun) delivered(m *Message) (done bool, data []byte, err error) {
	p.t.mu.Lock()
	p.t.consumed = append(p.t.consumed, m.Seq)
	p.t.changes++
	p.t.mu.Unlock()
	if p.hook.complete && p.done(m.Data) {
		p.Log.changed(p.t.now(), m.Data, p.Percent)
		p.remember(p.t.now(), true)
		return p.over(Record{Data: m.Data, Attempt: p.state.Attempt, Took: p.t.now().Sub(p.state.Since), By: string(TriggerWebhook)}, nil)
	}
	p.trigger, p.HurryTo = TriggerWebhook, after(p.t.now(), hurryFor)
	return false, nil, nil
}

// closeHook lets later deliveries be told that they are late.
func (p *pollRun) closeHook() {
	if p.hook == nil {
		return
	}
	p.t.mu.Lock()
	p.hook.h.expire(p.t, true)
	p.t.mu.Unlock()
}

// pause waits for the next check; a webhook may hurry it, a person hurry, extend
// or settle it.
func (p *pollRun) pause() (done bool, data []byte, err error) {
	for {
		next := later(p.state.NextAt, p.NotBefore) // NextAt may have been cut to a deadline since moved
		p.trigger = TriggerTimer
		tooLate := false
		switch u := p.state.Until; {
		case u.IsZero():
		case p.refusedBeyond(u):
			next, tooLate = u, true
		case u.Sub(next) < wait.Floor:
			next, p.trigger = u, TriggerFinal
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
				return p.over(Record{Error: NewFailure(p.timedOut(ReasonRetryAfter)), Attempt: p.state.Attempt, Took: p.t.now().Sub(p.state.Since)}, nil)
			}
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
			return p.over(r, m)
		case OpExtendWait:
			if !p.state.Until.IsZero() {
				p.state.Until = after(p.state.Until, extension(m))
			}
			p.note(KindExtended, m, nil)
		default:
			p.note(KindChecked, m, nil)
			p.keepNow()
			p.trigger = TriggerManual
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
		return p.over(Record{Error: NewFailure(err), Attempt: p.state.Attempt, Took: p.t.now().Sub(p.state.Since)}, nil)
	}
	if p.state.NextAt = p.t.now(); again {
		p.schedule(wait.Hint{}, p.t.now())
	}
	p.keepNow() // before the check: should it kill this process too
	return false, nil, nil
}
