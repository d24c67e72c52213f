package postgres

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/bide-dev/bide"
)

// Commit implements [bide.Store].
func (s *Store) Commit(ctx context.Context, l bide.Lease, b bide.Batch) error {
	if len(b.Facts) > 0 {
		if err := bide.CheckFacts(l, b); err != nil {
			return err
		}
	}
	o := commits.Get().(*op)
	o.commit, o.lease, o.batch = true, l, b
	err := s.do(ctx, o)
	*o = op{}
	commits.Put(o)
	return err
}

// commits are ops to be used again: there is one for every step.
var commits = sync.Pool{New: func() any { return new(op) }}

func (w *writer) commit(o *op) error {
	if o.lease.Run == "" && len(o.batch.Facts) > 0 {
		return w.changeFacts(o)
	}
	if o.lease.Run == "" {
		return w.ofWorker(o)
	}
	l := w.leases[o.lease.Key]
	if l == nil || l.freed || l.epoch != o.lease.Epoch || l.worker.id != o.lease.Worker {
		o.err = bide.ErrLeaseLost
		return nil
	}
	b := &o.batch
	if len(b.Facts) > 0 {
		if err := w.changeFacts(o); err != nil || o.err != nil {
			return err
		}
	}
	w.commits++
	for i := range b.Records {
		k, err := w.numberIn(l)
		if err != nil {
			return err
		}
		w.p.addRec(l.k, k, &b.Records[i])
	}
	for i := range b.Chunks {
		k, err := w.numberIn(l)
		if err != nil {
			return err
		}
		w.p.addChunk(l.k, k, &b.Chunks[i])
	}
	for _, k := range b.Consumed {
		w.p.any = true
		w.p.used.run, w.p.used.k = append(w.p.used.run, l.k), append(w.p.used.k, k)
	}
	if len(b.Start) > 0 {
		if err := w.startChildren(l, b.Start); err != nil {
			return err
		}
	}
	for _, id := range b.Cancel {
		if err := w.cancelByID(id); err != nil {
			return err
		}
	}
	if err := w.update(l, b); err != nil {
		return err
	}
	return w.turnEnds(l, b)
}

// signOfLife reports whether the op renews a worker's leases: these are the whole
// process's, as its row says, so that the batch has to reach the database.
func (o *op) signOfLife() bool {
	return o.commit && o.lease.Run == "" && o.batch.Next == nil && len(o.batch.Facts) == 0
}

// moves reports whether the op is anybody's doing.
func (o *op) moves() bool { return !o.tick && o.hint == nil && !o.signOfLife() }

// ofWorker is a commit to all that a worker holds.
func (w *writer) ofWorker(o *op) error {
	i := slices.IndexFunc(w.workers, func(x *worker) bool { return x.id == o.lease.Worker })
	switch {
	case i >= 0 && o.batch.Next != nil:
		gone, _ := o.batch.Next.(bide.Parked)
		return w.leave(w.workers[i], gone.Interrupted)
	case i >= 0:
		w.workers[i].renew(w.start)
	case o.batch.Next == nil:
		o.err = bide.ErrLeaseLost
	}
	return nil
}

// numberIn is the next number for something in the history of a run in hand,
// above all that it has.
func (w *writer) numberIn(l *lease) (int64, error) {
	if r := w.rows[l.k]; r != nil {
		return w.after(r)
	}
	return w.after(&l.row)
}

func (w *writer) startChildren(l *lease, children []bide.NewRun) error {
	for _, n := range children {
		n.Parent = l.id
		c, err := w.createOne(&n)
		if err != nil {
			return err
		}
		if c.New {
			continue
		}
		// There is a run of that id, or none can be: the parent hears of it where
		// it waits for its child.
		m := &bide.Message{Op: bide.OpChildEnded, Name: n.ID, Error: bide.NewFailure(c.Err)}
		if m.Error == nil {
			if m, err = w.takenBy(l.id, n.ID); err != nil {
				return err
			}
		}
		if m != nil {
			if err := w.post(w.rowOf(l), m); err != nil {
				return err
			}
		}
	}
	r := w.rowOf(l)
	if r.kids {
		return nil
	}
	r.kids = true
	return w.change(r)
}

// takenBy is what a parent is told of a child whose id exists already: nothing
// while its own child lives, that child's outcome once it has ended, and a
// conflict if the run is somebody else's.
func (w *writer) takenBy(parent, id string) (*bide.Message, error) {
	r, err := w.rowByID(id)
	if err != nil {
		return nil, err
	}
	switch {
	case r.parent != parent:
		return &bide.Message{Op: bide.OpChildEnded, Name: id, Error: bide.NewFailure(&bide.ConflictError{ID: id})}, nil
	case !r.state.Ended():
		return nil, nil
	}
	if err := w.settle(); err != nil {
		return nil, err
	}
	var result, failed []byte
	if err := w.conn.QueryRow(w.ctx, w.s.sql(`SELECT result, error FROM bide.run WHERE k = $1`), r.k).Scan(&result, &failed); err != nil {
		return nil, err
	}
	f, err := failureFrom(failed)
	return r.outcome(r.state, result, f), err
}

// outcome is what a run's parent is told of its end.
func (r *row) outcome(state bide.State, result json.RawMessage, f *bide.Failure) *bide.Message {
	m := &bide.Message{Op: bide.OpChildEnded, Name: r.id, Data: result}
	if state != bide.Succeeded {
		m.Error = bide.NewFailure(&bide.RunError{ID: r.id, State: state, Err: f.Err()})
	}
	return m
}

// update changes what the run's own row says, short of how the turn ends.
func (w *writer) update(l *lease, b *bide.Batch) error {
	if !b.Started.IsZero() {
		if r := w.rowOf(l); r.started == 0 {
			r.started = micros(b.Started)
			if err := w.change(r); err != nil {
				return err
			}
		}
	}
	if b.Progress != nil || len(b.Values) > 0 {
		l.known = nil // no longer all there is to know
	}
	if b.Progress != nil {
		r := w.rowOf(l)
		r.big.set, r.big.progress = r.big.set|setProgress, object(b.Progress)
		if err := w.change(r); err != nil {
			return err
		}
	}
	if len(b.Values) > 0 {
		if err := w.mergeValues(w.rowOf(l), b.Values); err != nil {
			return err
		}
	}
	if b.Waiting != nil && b.Next == nil {
		r := w.rowOf(l)
		r.warm = len(*b.Waiting) > 0
		r.big.set, r.big.waits = r.big.set|setWaits, bide.PackWaits(*b.Waiting)
		if err := w.change(r); err != nil {
			return err
		}
	}
	if b.Next == nil && (w.s.watching.Load() > 0 || w.others) {
		w.touched = append(w.touched, touch{id: l.id})
	}
	return nil
}

func (w *writer) mergeValues(r *row, values map[string]json.RawMessage) error {
	if err := w.settle(); err != nil {
		return err
	}
	var old []byte
	if err := w.conn.QueryRow(w.ctx, w.s.sql(`SELECT vals FROM bide.run WHERE k = $1`), r.k).Scan(&old); err != nil {
		return err
	}
	merged := map[string]json.RawMessage{}
	if old != nil {
		if err := json.Unmarshal(old, &merged); err != nil {
			return &bide.CodecError{Field: "values", Message: err.Error()}
		}
	}
	maps.Copy(merged, values)
	r.big.set, r.big.vals = r.big.set|setVals, object(merged)
	return w.change(r)
}

// turnEnds releases the lease, as Next says.
func (w *writer) turnEnds(l *lease, b *bide.Batch) error {
	switch next := b.Next.(type) {
	case nil:
		return nil
	case bide.Done:
		return w.endTurn(l, bide.Succeeded, next.Result, nil)
	case bide.Ended:
		return w.endTurn(l, next.State, nil, next.Error)
	case bide.Parked:
		return w.park(l, b, next)
	case bide.Continued:
		return w.continueAsNew(l, next)
	}
	return &bide.InvalidError{Field: "Next", Reason: "is of no known type"}
}

func (w *writer) park(l *lease, b *bide.Batch, next bide.Parked) error {
	r := w.rowOf(l)
	state, wake := bide.Waiting, int64(never)
	if !next.WakeAt.IsZero() {
		wake = max(micros(next.WakeAt.Add(time.Microsecond-1)), w.now) // never early
	}
	if r.mail > max(b.Seen, l.handed) {
		wake = w.now
	}
	switch {
	case r.state == bide.Canceling:
		state = bide.Canceling
	case r.state == bide.Paused || next.Paused:
		state, wake = bide.Paused, never
	}
	if b.Waiting != nil {
		r.big.set, r.big.waits = r.big.set|setWaits, bide.PackWaits(*b.Waiting)
	}
	return w.rest(l, r, state, wake)
}

// rest ends a turn with the run in the state and due at the time.
func (w *writer) rest(l *lease, r *row, state bide.State, wake int64) error {
	r.state, r.wake, r.holder, r.cut, r.warm = state, wake, 0, false, false
	if err := w.change(r); err != nil {
		return err
	}
	w.free(l)
	if wake != never {
		w.dueAt(r.route, wake)
	}
	return nil
}

func (w *writer) continueAsNew(l *lease, next bide.Continued) error {
	r := w.rowOf(l)
	if err := w.cancelKids(r); err != nil {
		return err
	}
	if err := w.settle(); err != nil {
		return err
	}
	if err := w.clearHistory(l.k); err != nil {
		return err
	}
	state, wake := bide.Queued, w.now
	switch r.state {
	case bide.Canceling:
		state = bide.Canceling
	case bide.Paused:
		state, wake = bide.Paused, never
	}
	r.gen++
	r.big.set |= setWaits | setProgress | setInput
	r.big.waits, r.big.progress, r.big.input = nil, nil, some(next.Input)
	if err := w.rest(l, r, state, wake); err != nil {
		return err
	}
	k, err := w.after(r)
	if err != nil {
		return err
	}
	w.p.addRec(l.k, k, &bide.Record{Kind: bide.KindContinued, At: clock(w.now)})
	r.ver = k
	return nil
}

// clearHistory removes what a run has done.
func (w *writer) clearHistory(k int64) error {
	for _, text := range []string{`DELETE FROM bide.rec WHERE run = $1`, `DELETE FROM bide.chunk WHERE run = $1`} {
		if _, err := w.conn.Exec(w.ctx, w.s.sql(text), k); err != nil {
			return err
		}
	}
	return nil
}

// endTurn ends a run by its own turn.
func (w *writer) endTurn(l *lease, state bide.State, result json.RawMessage, f *bide.Failure) error {
	r := w.rowOf(l)
	if err := w.end(r, state, result, f); err != nil {
		return err
	}
	touched := touch{id: r.id, over: true}
	if l.known != nil {
		run := *l.known
		run.State, run.Result, run.Error, run.EndedAt, run.Version = state, result, f, clock(w.now), r.ver
		touched.ended = &run
	}
	w.free(l)
	return w.ended(r, touched, state, result, f)
}

// endRun ends a run from outside; whoever has it in hand loses it.
func (w *writer) endRun(r *row, state bide.State, result json.RawMessage, f *bide.Failure) error {
	if err := w.end(r, state, result, f); err != nil {
		return err
	}
	if l := w.leases[r.k]; l != nil && !l.freed {
		w.free(l)
		w.lose(l)
	}
	return w.ended(r, touch{id: r.id, over: true}, state, result, f)
}

func (w *writer) end(r *row, state bide.State, result json.RawMessage, f *bide.Failure) error {
	if err := w.change(r); err != nil { // before its holder is forgotten
		return err
	}
	r.state, r.wake, r.holder, r.cut, r.warm, r.ended, r.foreign = state, never, 0, false, false, w.now, 0
	r.big.set |= setWaits | setResult | setFailure
	r.big.waits, r.big.result, r.big.failure = nil, some(result), nil
	if f != nil {
		r.big.failure = object(f)
	}
	return nil
}

// ended does what follows a run's end.
func (w *writer) ended(r *row, t touch, state bide.State, result json.RawMessage, f *bide.Failure) error {
	w.touched = append(w.touched, t)
	if err := w.cancelKids(r); err != nil {
		return err
	}
	if r.onEnd {
		if err := w.follow(r); err != nil {
			return err
		}
	}
	if r.parent == "" {
		return nil
	}
	return w.postByID(r.parent, r.outcome(state, result, f))
}

// follow makes the run that follows the end of another.
func (w *writer) follow(r *row) error {
	if err := w.settle(); err != nil {
		return err
	}
	var data []byte
	if err := w.conn.QueryRow(w.ctx, w.s.sql(`SELECT on_end FROM bide.run WHERE k = $1`), r.k).Scan(&data); err != nil {
		return err
	}
	var n bide.NewRun
	if err := json.Unmarshal(data, &n); err != nil {
		return &bide.CodecError{Field: "OnEnd", Message: err.Error()}
	}
	n.Parent, n.Detached = r.id, true
	_, err := w.createOne(&n) // a Created.Err, of an id that is taken, is nobody's to hear
	return err
}

// foresee opens the batch's transaction and locks, in one go, the rows that its
// ops will ask for, in the order of their numbers.
func (w *writer) foresee(ops []*op) error {
	var ks []int64
	var ids []string
	add := func(id string) {
		if id == "" {
			return
		}
		if k, made := w.s.parseID(id); made {
			if w.leases[k] == nil {
				ks = append(ks, k)
			}
		} else if l := w.held[id]; l == nil {
			ids = append(ids, id)
		}
	}
	for _, o := range ops {
		switch {
		case o.signal, o.control, o.purge:
			add(o.run)
		case o.commit:
			for _, id := range o.batch.Cancel {
				add(id)
			}
			l := w.leases[o.lease.Key]
			if l != nil && l.parent != "" && ends(o.batch.Next) {
				add(l.parent)
			}
			if w.careful {
				for _, n := range o.batch.Start {
					add(n.ID)
				}
			}
		case w.careful:
			for _, n := range o.create {
				add(n.ID)
			}
		}
	}
	if len(ks) == 0 && len(ids) == 0 && w.outrun < outrunOften {
		return nil
	}
	// Rows of our own too, else one who holds them, and waits for those, waits for us.
	for _, o := range ops {
		if l := w.leases[o.lease.Key]; o.commit && l != nil && changesRun(&o.batch) {
			ks = append(ks, l.k)
		}
	}
	slices.Sort(ids)
	return w.lock(slices.Compact(slices.Sorted(slices.Values(ks))), slices.Compact(ids))
}

// changesRun reports whether the batch changes the run's own row, besides what lies in
// other tables.
func changesRun(b *bide.Batch) bool {
	return b.Next != nil || b.Waiting != nil || b.Progress != nil || len(b.Values) > 0 || len(b.Start) > 0 || !b.Started.IsZero()
}

func ends(n bide.Next) bool {
	switch n.(type) {
	case bide.Done, bide.Ended:
		return true
	}
	return false
}
