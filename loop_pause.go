package bide

import (
	"log/slog"
	"slices"
	"time"

	"github.com/bide-dev/bide/wait"
)

// What a loop does between two iterations: it waits, and hears what is asked of it.

// mine matches what directs the loop: triggers, and the signals of its handle.
func (r *loopRun) mine(m *Message) bool {
	return r.acts(m) || m.Op == OpSignal && (m.Name == loopReset || m.Name == loopReload || m.Name == loopAbort)
}

func (r *loopRun) isTrigger(m Message) bool { return m.Op == OpCheckWait && r.acts(&m) }

// staleAfter is how late an iteration may begin and still be no matter of nobody
// having been there.
const staleAfter = time.Second

// pause waits for the next time, or a trigger; false says that the loop is stopped.
func (r *loopRun) pause() bool {
	for until := r.wait.NextAt; ; {
		r.leaveIfAsked()
		why, m := r.verb.wait(r.snapshot(), until, r.mine)
		switch why {
		case whyCanceled:
			r.cancelNow()
			return false
		case whyTimer:
			at := r.t.now()
			late := at.Sub(r.wait.NextAt) > staleAfter && at.Sub(r.ended) > staleAfter
			if late && r.fixed && r.misfire == MisfireSkip && !r.redo {
				r.wait.NextAt = r.tick(at)
				until = r.wait.NextAt
				continue
			}
			if until = r.t.w.stagger.join(r.t.now(), r.loop.name, r.Effective, late); until.IsZero() {
				return true
			}
			continue
		}
		if r.isTrigger(*m) {
			r.asked = append(r.asked, m.Seq)
			r.askedAt, r.thenPause = m.At, thenPauses(m)
			r.takeTriggers()
			return true
		}
		switch {
		case m.Op != OpSignal: // there is nothing to extend, complete or fail
		case m.Name == loopReset:
			r.Failures, r.Multiplier = 0, 1
			if r.Breaker != nil {
				r.Breaker.Close()
			}
			r.plan()
		case m.Name == loopReload:
			r.reload()
		}
		r.consume(m.Seq)
		until = r.wait.NextAt
	}
}

// leaveIfAsked ends the turn here if the loop is paused, or the worker stops: even
// if the next time has come already.
func (r *loopRun) leaveIfAsked() {
	t := r.t
	t.mu.Lock()
	if t.yield && t.ending == open {
		r.keepWaitLocked(r.snapshot())
		t.parkAt(r.t.now())
		t.unwind(parking)
		r.b.exitLocked()
	}
	t.mu.Unlock()
}

func thenPauses(m *Message) bool { return string(m.Data) == forcedTrigger }

// takeTriggers takes the triggers that lie in the inbox: one iteration serves them
// all.
func (r *loopRun) takeTriggers() {
	t := r.t
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inbox = slices.DeleteFunc(t.inbox, func(m Message) bool {
		if !r.isTrigger(m) {
			return false
		}
		r.asked = append(r.asked, m.Seq)
		r.thenPause = r.thenPause || thenPauses(&m)
		return true
	})
}

// settleTriggers is done with the triggers that have been taken, and keeps how the
// iteration ended, even if there were none: the next may be due, and end the process.
// A paused loop of which one iteration was forced is paused again in the same commit.
func (r *loopRun) settleTriggers() {
	r.consume(r.asked...)
	if r.thenPause {
		r.t.mu.Lock()
		r.t.yield, r.t.hold = true, true
		r.t.mu.Unlock()
	}
	r.asked, r.askedAt, r.thenPause = nil, time.Time{}, false
}

// consume notes that messages have been taken up, together with the state that they
// have led to: a commit may come at any time. They leave no record: a loop has no
// history.
func (r *loopRun) consume(seqs ...int64) {
	r.t.mu.Lock()
	r.t.consumed = append(r.t.consumed, seqs...)
	r.keepWaitLocked(r.snapshot())
	r.t.mu.Unlock()
}

// permit asks the loop's breaker.
func (r *loopRun) permit() (p wait.Permit, open bool) {
	if r.breaker == nil {
		return p, false
	}
	if r.Breaker == nil {
		r.Breaker = &wait.Circuit{}
	}
	if !r.askedAt.IsZero() && r.Breaker.State(r.t.now()) == wait.Open { // a person asks: this is the probe
		r.Breaker.RetryAt = r.t.now()
	}
	p = r.breaker.Allow(r.Breaker, r.t.now(), r.timeout)
	return p, !p.OK
}

// report tells the breaker how a permitted iteration went.
func (r *loopRun) report(p wait.Permit, worked bool, retryAfter time.Duration) {
	if r.breaker == nil {
		return
	}
	opened, probe := r.Breaker.OpenedAt, p.Probe
	r.breaker.Report(r.Breaker, p, worked, retryAfter, r.t.now(), r.t.w.random)
	if r.Breaker.OpenedAt != opened || probe {
		r.say("loop's breaker is "+r.Breaker.State(r.t.now()).String(), slog.Time("retry_at", r.Breaker.RetryAt))
	}
}
