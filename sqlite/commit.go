package sqlite

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bide-dev/bide"
)

// Commit implements [bide.Store].
func (s *Store) Commit(ctx context.Context, l bide.Lease, b bide.Batch) error {
	if len(b.Facts) > 0 {
		if err := bide.CheckFacts(l, b); err != nil {
			return err
		}
	} else if l.Run == "" && b.Next == nil { // a sign of life needs no writer
		return s.renew(l.Worker)
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

func (s *Store) renew(id string) error {
	if s.readOnly {
		return s.refuse()
	}
	if s.isClosed() {
		return bide.ErrClosed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.workers[id]
	if x == nil || x.gone {
		return bide.ErrLeaseLost
	}
	x.renew(s.w.start)
	return nil
}

func (w *writer) commit(o *op) error {
	if o.lease.Run == "" && len(o.batch.Facts) > 0 {
		return w.changeFacts(o)
	}
	if o.lease.Run == "" {
		for _, x := range w.workers {
			if x.id == o.lease.Worker {
				gone, _ := o.batch.Next.(bide.Parked)
				return w.leave(x, gone.Interrupted)
			}
		}
		return nil
	}
	l := w.leases[o.lease.Key]
	if l == nil || l.epoch != o.lease.Epoch || l.worker.id != o.lease.Worker {
		o.err = bide.ErrLeaseLost
		return nil
	}
	w.commits++
	b := &o.batch
	if len(b.Facts) > 0 {
		if err := w.changeFacts(o); err != nil || o.err != nil {
			return err
		}
	}
	if err := w.begin(); err != nil {
		return err
	}
	for i := range b.Records {
		if err := w.addRecord(l.k, &b.Records[i]); err != nil {
			return err
		}
	}
	for i := range b.Chunks {
		if err := w.addChunk(l.k, &b.Chunks[i]); err != nil {
			return err
		}
	}
	for _, k := range b.Consumed {
		if err := w.consume(l.k, k); err != nil {
			return err
		}
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

func (w *writer) addRecord(run int64, r *bide.Record) error {
	k, err := w.next()
	if err != nil {
		return err
	}
	st := w.st.addRec
	st.BindInt64(1, k)
	st.BindInt64(2, run)
	st.BindText(3, r.Path)
	st.BindInt64(4, int64(r.Kind))
	text(st, 5, r.Name)
	blob(st, 6, r.Data)
	if r.Error == nil {
		st.BindNull(7)
	} else {
		blob(st, 7, object(r.Error))
	}
	st.BindInt64(8, int64(r.Attempt))
	st.BindInt64(9, r.At.UnixMicro())
	st.BindInt64(10, r.Took.Microseconds())
	text(st, 11, r.By)
	if r.Poll == nil {
		st.BindNull(12)
	} else {
		blob(st, 12, object(r.Poll))
	}
	return w.exec(st)
}

// consume takes a message out of the inbox. One with a key stays as a proof that
// it came.
func (w *writer) consume(run, k int64) error {
	for _, st := range []*sqlite.Stmt{w.st.takeMail, w.st.dropMail} {
		st.BindInt64(1, k)
		st.BindInt64(2, run)
		if err := w.exec(st); err != nil {
			return err
		}
	}
	return nil
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
			if m, err = w.taken(l.id, n.ID); err != nil {
				return err
			}
		}
		if m != nil {
			if err := w.post(l.k, m); err != nil {
				return err
			}
		}
	}
	if l.kids {
		return nil
	}
	w.change(l)
	l.kids = true
	w.st.setKids.BindInt64(1, l.k)
	return w.exec(w.st.setKids)
}

// taken is what a parent is told of a child whose id exists already: nothing
// while its own child lives, that child's outcome once it has ended, and a
// conflict if the run is somebody else's.
func (w *writer) taken(parent, id string) (*bide.Message, error) {
	k, err := w.resolve(id)
	if err != nil {
		return nil, err
	}
	t, err := w.target(k)
	if err != nil {
		return nil, err
	}
	switch {
	case t.parent != parent:
		return &bide.Message{Op: bide.OpChildEnded, Name: id, Error: bide.NewFailure(&bide.ConflictError{ID: id})}, nil
	case !t.state.Ended():
		return nil, nil
	}
	f, err := failureFrom(t.failure)
	return t.outcome(t.state, t.result, f), err
}

// outcome is what a run's parent is told of its end.
func (t *target) outcome(state bide.State, result json.RawMessage, f *bide.Failure) *bide.Message {
	m := &bide.Message{Op: bide.OpChildEnded, Name: t.id, Data: result}
	if state != bide.Succeeded {
		m.Error = bide.NewFailure(&bide.RunError{ID: t.id, State: state, Err: f.Err()})
	}
	return m
}

// change notes a lease's fields before they change, should the batch fail.
func (w *writer) change(l *lease) { w.undo = append(w.undo, undo{l: l, old: *l}) }

// update writes what the run's own row says, short of how the turn ends.
func (w *writer) update(l *lease, b *bide.Batch) error {
	_, done := b.Next.(bide.Done)
	_, ended := b.Next.(bide.Ended)
	if !b.Started.IsZero() && !done && !ended {
		if err := w.set(w.st.setStarted, l.k, func(s *sqlite.Stmt) { s.BindInt64(3, micros(b.Started)) }); err != nil {
			return err
		}
	}
	if b.Progress != nil || len(b.Values) > 0 {
		l.known = nil // no longer all there is to know
	}
	if b.Progress != nil {
		if err := w.set(w.st.setProgress, l.k, func(s *sqlite.Stmt) { blob(s, 3, object(b.Progress)) }); err != nil {
			return err
		}
	}
	if len(b.Values) > 0 {
		if err := w.mergeValues(l.k, b.Values); err != nil {
			return err
		}
	}
	if b.Waiting != nil && b.Next == nil {
		l.warm.Store(len(*b.Waiting) > 0)
		if err := w.set(w.st.setWaits, l.k, func(s *sqlite.Stmt) { blob(s, 3, bide.PackWaits(*b.Waiting)) }); err != nil {
			return err
		}
	}
	if b.Next == nil && w.s.watching.Load() > 0 {
		w.touched = append(w.touched, touch{id: l.id})
	}
	return nil
}

// set runs one of the statements that update a run's row and its version.
func (w *writer) set(st *sqlite.Stmt, k int64, bind func(*sqlite.Stmt)) error {
	ver, err := w.next()
	if err != nil {
		return err
	}
	st.BindInt64(1, k)
	st.BindInt64(2, ver)
	bind(st)
	return w.exec(st)
}

func (w *writer) mergeValues(k int64, values map[string]json.RawMessage) error {
	merged := map[string]json.RawMessage{}
	w.st.getVals.BindInt64(1, k)
	var jerr error
	if _, err := w.one(w.st.getVals, func(s *sqlite.Stmt) {
		if data := bytesOf(s, 0); data != nil {
			jerr = json.Unmarshal(data, &merged)
		}
	}); err != nil || jerr != nil {
		return err
	}
	maps.Copy(merged, values)
	return w.set(w.st.setVals, k, func(s *sqlite.Stmt) { blob(s, 3, object(merged)) })
}

// turnEnds releases the lease, as Next says.
func (w *writer) turnEnds(l *lease, b *bide.Batch) error {
	switch next := b.Next.(type) {
	case nil:
		return nil
	case bide.Done:
		return w.endRun(l.target(), bide.Succeeded, next.Result, nil, micros(b.Started))
	case bide.Ended:
		return w.endRun(l.target(), next.State, nil, next.Error, micros(b.Started))
	case bide.Parked:
		return w.park(l, b, next)
	case bide.Continued:
		return w.continueAsNew(l, next)
	}
	return &bide.InvalidError{Field: "Next", Reason: "is of no known type"}
}

func (w *writer) park(l *lease, b *bide.Batch, next bide.Parked) error {
	state, wake := bide.Waiting, int64(never)
	if !next.WakeAt.IsZero() {
		wake = max(micros(next.WakeAt.Add(time.Microsecond-1)), w.now) // never early
	}
	if l.mail > max(b.Seen, l.handed) {
		wake = w.now
	}
	switch {
	case l.state == bide.Canceling:
		state = bide.Canceling
	case l.state == bide.Paused || next.Paused:
		state, wake = bide.Paused, never
	}
	st := w.st.park
	if b.Waiting != nil {
		st = w.st.parkWaits
		blob(st, 5, bide.PackWaits(*b.Waiting))
	}
	w.move(l.route, l.state, state)
	err := w.set(st, l.k, func(s *sqlite.Stmt) {
		s.BindInt64(3, int64(state))
		number(s, 4, wake, never)
	})
	if err != nil {
		return err
	}
	w.free(l)
	if wake != never {
		w.due(l.route, place{wake, l.k})
	}
	return nil
}

func (w *writer) continueAsNew(l *lease, next bide.Continued) error {
	if err := w.cancelKids(l.target()); err != nil {
		return err
	}
	w.st.clearRecs.BindInt64(1, l.k)
	if err := w.exec(w.st.clearRecs); err != nil {
		return err
	}
	for _, st := range []*sqlite.Stmt{w.st.clearChunks, w.st.dropPayload} {
		st.BindInt64(1, l.k)
		if err := w.exec(st); err != nil {
			return err
		}
	}
	if len(next.Input) > inlineInput {
		if err := w.keepPayload(l.k, next.Input); err != nil {
			return err
		}
	}
	state, wake := bide.Queued, w.now
	switch l.state {
	case bide.Canceling:
		state = bide.Canceling
	case bide.Paused:
		state, wake = bide.Paused, never
	}
	w.move(l.route, l.state, state)
	err := w.set(w.st.again, l.k, func(s *sqlite.Stmt) {
		s.BindInt64(3, int64(state))
		number(s, 4, wake, never)
		if len(next.Input) > inlineInput {
			s.BindNull(5)
		} else {
			s.BindBytes(5, next.Input)
		}
	})
	if err != nil {
		return err
	}
	if err := w.addRecord(l.k, &bide.Record{Kind: bide.KindContinued, At: clock(w.now)}); err != nil {
		return err
	}
	w.free(l)
	if wake != never {
		w.due(l.route, place{wake, l.k})
	}
	return nil
}

// endRun ends a run: by its turn, or from outside. started is 0 unless known.
func (w *writer) endRun(t *target, state bide.State, result json.RawMessage, f *bide.Failure, started int64) error {
	var failure []byte
	if f != nil {
		failure = object(f)
	}
	err := w.set(w.st.end, t.k, func(s *sqlite.Stmt) {
		s.BindInt64(3, int64(state))
		blob(s, 4, result)
		blob(s, 5, failure)
		s.BindInt64(6, w.now)
		number(s, 7, started, 0)
	})
	if err != nil {
		return err
	}
	w.move(t.route, t.state, state)
	touched := touch{id: t.id, over: true}
	if l := w.leases[t.k]; l != nil {
		if l.known != nil && t.kept {
			run := *l.known
			run.State, run.Result, run.Error, run.EndedAt, run.Version = state, result, f, clock(w.now), w.seq
			touched.ended = &run
		}
		w.free(l)
		if !t.kept {
			w.lose(l)
		}
	}
	w.touched = append(w.touched, touched)
	if err := w.cancelKids(t); err != nil {
		return err
	}
	if t.onEnd {
		if err := w.follow(t); err != nil {
			return err
		}
	}
	if t.parent == "" {
		return nil
	}
	return w.postByID(t.parent, t.outcome(state, result, f))
}

// follow makes the run that follows the end of another.
func (w *writer) follow(t *target) error {
	var n bide.NewRun
	var jerr error
	w.st.onEnd.BindInt64(1, t.k)
	if _, err := w.one(w.st.onEnd, func(s *sqlite.Stmt) { jerr = json.Unmarshal(bytesOf(s, 0), &n) }); err != nil {
		return err
	}
	if jerr != nil {
		return &bide.CodecError{Field: "OnEnd", Message: jerr.Error()}
	}
	n.Parent, n.Detached = t.id, true
	_, err := w.createOne(&n) // a Created.Err, of an id that is taken, is nobody's to hear
	return err
}
