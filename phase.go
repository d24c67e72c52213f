package bide

import (
	"strings"
	"time"
)

// Phase runs a part of a workflow under a name and leaves a record of how long
// it took. A part is itself an ordinary function: it is tested alone, reused, and
// composed by calling. Verbs inside it must use the Context that it is given.
//
// It returns what part returns, [ErrCanceled] before it began, or an
// [InvalidError] for an empty name.
func Phase[T any](ctx Context, name string, part func(Context) (T, error)) (T, error) {
	var zero T
	v, err := begin(ctx, KindPhase, name, true)
	if err != nil {
		return zero, err
	}
	t := v.t
	t.mu.Lock()
	b := t.newBranch(v.b.ctx, v.b, v.path+".")
	began := v.began
	if v.result() == nil { // it may have begun in an earlier turn
		if first := t.firstWithin(v.path + "."); !first.IsZero() {
			began = first
		}
	}
	t.mu.Unlock()

	value, err := part(workflowContext{v.b.ctx, scope{b, v.detached}})

	t.mu.Lock()
	b.ended = true
	v.b.canceled = v.b.canceled || b.canceled
	v.b.fresh = v.b.fresh && b.fresh
	v.tick(b.clock)
	if v.result() == nil {
		if t.over(v.b) {
			v.b.exitLocked()
		}
		at := v.t.now()
		v.recordLocked(Record{Kind: KindPhase, At: at, Took: at.Sub(began), Error: NewFailure(err)})
	} else {
		v.tick(v.result().At)
	}
	v.endLocked()
	t.mu.Unlock()
	return value, err
}

// firstWithin returns the earliest time that is kept of the verbs below a path.
func (t *turn) firstWithin(prefix string) (first time.Time) {
	note := func(path string, at time.Time) {
		if strings.HasPrefix(path, prefix) && !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	for path, kept := range t.kept {
		note(path, kept[0].At.Add(-kept[0].Took))
	}
	for path, w := range t.waits {
		note(path, w.Since)
	}
	return first
}
