package bide

import (
	"maps"
	"slices"
	"time"
)

const (
	flushAfter    = time.Millisecond      // how long a record may wait for its branch's next commit
	progressAfter = 50 * time.Millisecond // the same for progress and heartbeats
)

// changed notes that there is something to commit. It rides with the branch's
// next commit, or goes by itself soon.
func (t *turn) changed() {
	t.changes++
	t.flushLate(flushAfter)
}

func (t *turn) flushLate(after time.Duration) {
	at := time.Now().Add(after)
	if !t.lateAt.IsZero() && !t.lateAt.After(at) {
		return
	}
	t.lateAt = at
	if t.late == nil {
		t.late = time.AfterFunc(after, func() {
			t.mu.Lock()
			t.lateAt = time.Time{}
			if t.ending == open || t.ending == parking {
				t.flushLocked()
			}
			t.mu.Unlock()
		})
		return
	}
	t.late.Reset(after)
}

// flush makes all that has been recorded so far durable, or leaves the branch
// when the lease is lost. It comes before every side effect.
func (v *verb) flush() {
	t := v.t
	t.mu.Lock()
	t.flushLocked()
	if t.over(v.b) {
		v.b.exitLocked()
	}
	t.mu.Unlock()
}

// flushLocked commits, one batch at a time: what other branches add meanwhile
// goes into the next.
func (t *turn) flushLocked() {
	for target := t.changes; t.durable < target && t.ending != lost; {
		if t.flushing {
			t.flushed.Wait()
			continue
		}
		t.commitLocked(nil)
	}
}

// putFact adds a fact to what the next commit writes, in the place of an earlier one
// of its key. A turn's facts are its own: nobody else changes them.
func (t *turn) putFact(f Fact) {
	f.Version = AnyVersion
	t.facts = append(slices.DeleteFunc(t.facts, func(old Fact) bool { return old.Kind == f.Kind && old.Key == f.Key }), f)
}

// commitLocked writes everything pending, and with it how the turn ends, if it does.
func (t *turn) commitLocked(next Next) {
	for _, a := range t.attempts {
		a.cutLocked(false)
	}
	b := Batch{Records: t.records, Chunks: t.chunks, Consumed: t.consumed, Start: t.start, Cancel: t.stop,
		Progress: t.progress, Values: t.values, Facts: t.facts, Seen: t.seen, Started: t.started, Next: next}
	if t.waitsDirty {
		list := t.waitList()
		b.Waiting = &list
	}
	upto := t.changes
	t.started = time.Time{}
	t.records, t.spare = t.spare, nil
	t.taken = t.taken[:0]
	t.chunks, t.consumed, t.start, t.stop, t.progress, t.values, t.facts, t.waitsDirty = nil, nil, nil, nil, nil, nil, nil, false
	if !t.lateAt.IsZero() {
		t.late.Stop()
		t.lateAt = time.Time{}
	}
	t.flushing = true
	t.mu.Unlock()
	err := t.w.commit(t, b)
	t.mu.Lock()
	t.flushing = false
	t.durable = upto
	clear(b.Records)
	t.spare = b.Records[:0]
	if err != nil {
		t.unwind(lost)
	}
	t.flushed.Broadcast()
}

func (t *turn) waitList() []Wait {
	list := make([]Wait, 0, len(t.waits))
	if len(t.waits) == 1 { // nearly always, and a million runs go to sleep
		for _, w := range t.waits {
			list = append(list, w)
		}
		return list
	}
	for _, path := range slices.Sorted(maps.Keys(t.waits)) {
		list = append(list, t.waits[path])
	}
	return list
}
