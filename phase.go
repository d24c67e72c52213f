package bide

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
	if first := t.kept[v.path+".1"]; len(first) > 0 { // begun in an earlier turn
		began = first[0].At.Add(-first[0].Took)
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
		at := now()
		v.recordLocked(Record{Kind: KindPhase, At: at, Took: at.Sub(began), Error: NewFailure(err)})
	} else {
		v.tick(v.result().At)
	}
	v.endLocked()
	t.mu.Unlock()
	return value, err
}
