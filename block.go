package bide

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
)

// block puts the calling branch to sleep until something wakes it; the lock is
// held on entry and released on return.
func (b *branch) block(w waiter) (why, *Message) {
	t := b.t
	b.wait = w
	t.blocked = append(t.blocked, b)
	t.active--
	t.code--
	if t.active > 0 { // other branches go on, perhaps for long, in a step
		t.arm()
		if t.waitsDirty {
			t.flushLate(flushAfter)
		}
	}
	t.settle()
	t.mu.Unlock()
	<-b.wake
	t.mu.Lock()
	why, msg := b.wait.why, b.wait.msg
	b.wait = waiter{}
	if why == whyExit {
		b.exitLocked()
	}
	t.mu.Unlock()
	return why, msg
}

// wakeLocked wakes a blocked branch and counts it as active at once.
func (t *turn) wakeLocked(b *branch, why why, m *Message) {
	i := slices.Index(t.blocked, b)
	if i < 0 {
		return
	}
	t.blocked = slices.Delete(t.blocked, i, i+1)
	t.active++
	t.code++
	if t.warm {
		t.warm = false
		t.w.warm.Add(-1)
	}
	b.wait.why, b.wait.msg = why, m
	b.wake <- struct{}{}
}

// settle decides what is to be decided when no branch runs workflow code: races
// that have a finisher, and, when no branch is active, whether to park.
func (t *turn) settle() {
	if t.code > 0 || t.ending != open {
		return
	}
	for _, r := range slices.Clone(t.races) {
		r.decide()
	}
	if t.active > 0 || t.live == 0 {
		return
	}
	next := t.nextDue()
	if !t.yield && !next.IsZero() && t.w.keepWarm(next.Sub(t.now()), t.length) {
		t.warm = true
		t.dropHistory()
		if t.waitsDirty || t.durable < t.changes {
			t.flushLate(flushAfter)
		}
		t.arm()
		return
	}
	for _, m := range t.inbox { // nobody waits for these any more
		if m.Op >= OpCheckWait {
			t.consumed = append(t.consumed, m.Seq)
		}
	}
	if t.yield {
		next = t.now()
	}
	t.parkAt(next)
	t.unwind(parking)
}

// dropHistory lets go of the kept records once no branch has any of them before
// it: a warm turn holds its goroutines and no more.
func (t *turn) dropHistory() {
	for _, b := range t.blocked {
		if b.n < b.last {
			return
		}
	}
	t.kept = nil
}

func (t *turn) parkAt(at time.Time) {
	if d := t.run.Deadline; !d.IsZero() && (at.IsZero() || d.Before(at)) {
		at = d
	}
	t.wakeAt = at
}

// nextDue is when the first of the blocked branches has waited long enough; zero
// for never.
func (t *turn) nextDue() (next time.Time) {
	for _, b := range t.blocked {
		if u := b.wait.until; !u.IsZero() && (next.IsZero() || u.Before(next)) {
			next = u
		}
	}
	return next
}

// arm sets the turn's timer to nextDue.
func (t *turn) arm() {
	next := t.nextDue()
	switch {
	case next.IsZero():
	case t.timer == nil:
		t.timer = time.AfterFunc(t.until(next), t.onTimer)
	default:
		t.timer.Reset(t.until(next))
	}
}

// onTimer wakes the branches of a turn under way that are due.
func (t *turn) onTimer() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ending != open || t.yield {
		return
	}
	at := t.now()
	for _, b := range slices.Clone(t.blocked) {
		if u := b.wait.until; !u.IsZero() && !u.After(at) {
			t.wakeLocked(b, whyTimer, nil)
		}
	}
	t.arm()
}

// deliver hands news to a turn that is under way.
func (t *turn) deliver(c *Claimed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.Lost {
		t.unwind(lost)
		return
	}
	t.receiveLocked(c.Inbox)
}

func (t *turn) receiveLocked(messages []Message) {
	for _, m := range messages {
		if m.Seq != 0 && m.Seq <= t.seen {
			continue // both in the inbox at the claim and in the news
		}
		if t.ending == open { // a turn on its way out leaves it to the next, which is due at once
			t.seen = max(t.seen, m.Seq)
		}
		switch m.Op {
		case OpCancel:
			t.canceled = true
			for _, a := range t.attempts {
				if !a.v.detached {
					a.cancelLocked()
				}
			}
			for _, b := range slices.Clone(t.blocked) {
				if !b.wait.keep && b.wait.kind != 0 {
					t.wakeLocked(b, whyCanceled, nil)
				}
			}
		case OpPause:
			t.yieldLocked()
		default:
			if t.def.loop != nil && m.Op == OpSignal && m.Name == loopAbort {
				for _, a := range t.attempts {
					a.closeLocked(context.Canceled)
					a.resolveLocked(outcome{err: errAborted})
				}
			}
			t.inbox = append(t.inbox, m)
			for _, b := range t.blocked {
				if b.wait.match != nil && b.wait.match(&m) {
					t.inbox = t.inbox[:len(t.inbox)-1]
					t.wakeLocked(b, whyMessage, &m)
					break
				}
			}
		}
	}
}

// giveBack puts the signals that a race's loser took up, and that are not yet
// committed, back into the inbox: they came after the race was over.
func (t *turn) giveBack(prefix string) {
	for _, g := range t.taken {
		if !strings.HasPrefix(g.path, prefix) {
			continue
		}
		t.consumed = slices.DeleteFunc(t.consumed, func(seq int64) bool { return seq == g.m.Seq })
		t.records = slices.DeleteFunc(t.records, func(r Record) bool { return r.Path == g.path && (r.Kind == KindReceive || r.Kind == KindWebhook) })
		t.inbox = append(t.inbox, g.m)
	}
	slices.SortStableFunc(t.inbox, func(a, b Message) int { return cmp.Compare(a.Seq, b.Seq) })
}

// match hands what lies in the inbox to the branches that wait for it.
func (t *turn) match() {
	for i := 0; i < len(t.inbox); i++ {
		m := t.inbox[i]
		for _, b := range t.blocked {
			if b.wait.match != nil && b.wait.match(&m) {
				t.inbox = slices.Delete(t.inbox, i, i+1)
				i--
				t.wakeLocked(b, whyMessage, &m)
				break
			}
		}
	}
}

// yieldLocked asks the turn to park as soon as the steps in flight are done.
func (t *turn) yieldLocked() {
	t.yield = true
	if t.warm {
		t.warm = false
		t.w.warm.Add(-1)
	}
	t.settle()
}

// wait blocks the verb until the time has come, a message matches, or the run
// is canceled. What it waits for is kept as data, so that the next turn and
// everyone who looks can see it.
func (v *verb) wait(data Wait, until time.Time, match func(*Message) bool) (why, *Message) {
	t, b := v.t, v.b
	t.mu.Lock()
	if t.ending != open || b.isLost() {
		b.exitLocked()
	}
	if t.canceled && !v.detached {
		t.mu.Unlock()
		return whyCanceled, nil
	}
	if match != nil {
		for i := range t.inbox {
			m := t.inbox[i]
			if match(&m) && (until.IsZero() || m.Op != OpSignal || !m.At.After(until)) {
				t.inbox = slices.Delete(t.inbox, i, i+1)
				t.mu.Unlock()
				return whyMessage, &m
			}
		}
	}
	if !until.IsZero() && !until.After(t.now()) && !t.yield { // which is for the next turn then
		t.mu.Unlock()
		return whyTimer, nil
	}
	v.keepWaitLocked(data)
	return b.block(waiter{until: until, match: match, kind: v.kind, keep: v.detached})
}

// keepWaitLocked sets the durable state of this verb's wait.
func (v *verb) keepWaitLocked(w Wait) {
	w.Path, w.Name = v.path, v.name
	if v.t.waits == nil {
		v.t.waits = map[string]Wait{}
	}
	v.t.waits[v.path] = w
	v.t.waitsDirty = true
	v.t.changes++
}

// keptWait returns the wait's state from an earlier turn or attempt.
func (v *verb) keptWait() (Wait, bool) {
	v.t.mu.Lock()
	defer v.t.mu.Unlock()
	w, ok := v.t.waits[v.path]
	return w, ok
}

func (t *turn) forgetWait(path string) {
	if _, ok := t.waits[path]; ok {
		delete(t.waits, path)
		t.waitsDirty = true
		t.changes++
	}
}

// forgetWaits drops the waits of a race's loser.
func (t *turn) forgetWaits(prefix string) {
	for p := range t.waits {
		if strings.HasPrefix(p, prefix) {
			t.forgetWait(p)
		}
	}
}
