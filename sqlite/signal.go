package sqlite

import (
	"context"
	"errors"

	"zombiezen.com/go/sqlite"

	"github.com/bide-dev/bide"
)

// Signal implements [bide.Store].
func (s *Store) Signal(ctx context.Context, run string, m bide.Message) (isNew bool, err error) {
	m.Op, m.Seq = bide.OpSignal, 0
	o := &op{signal: true, run: run, msg: m}
	err = s.do(ctx, o)
	return err == nil && o.isNew, err
}

func (w *writer) signalled(o *op) error {
	if err := w.begin(); err != nil {
		return err
	}
	k, err := w.resolve(o.run)
	if err == nil {
		m := o.msg
		err = w.post(k, &m)
		o.isNew = m.Seq != 0 // else it was dropped
	}
	return o.refused(err)
}

// refused keeps for the op's caller what is its own fault, and passes on what is
// the batch's.
func (o *op) refused(err error) error {
	var invalid *bide.InvalidError
	var conflict *bide.ConflictError
	if errors.Is(err, bide.ErrNotFound) || errors.Is(err, bide.ErrRunEnded) || errors.As(err, &invalid) || errors.As(err, &conflict) {
		o.err = err
		return nil
	}
	return err
}

// target is a run that something is done to.
type target struct {
	k          int64
	id         string
	route      *route
	state      bide.State
	wake       int64
	put        int64
	mail       int64
	parent     string
	kids       bool
	onEnd      bool
	kept       bool // its own turn does it, under its lease
	deadline   int64
	waits      []byte
	failure    []byte
	result     []byte
	generation int64
	input      []byte
}

func (l *lease) target() *target {
	return &target{k: l.k, id: l.id, route: l.route, state: l.state, parent: l.parent, kids: l.kids, onEnd: l.onEnd, kept: true}
}

// target reads a run, or returns [bide.ErrNotFound].
func (w *writer) target(k int64) (*target, error) {
	t := &target{k: k}
	w.st.target.BindInt64(1, k)
	found, err := w.one(w.st.target, func(s *sqlite.Stmt) {
		t.route = w.byKey[s.ColumnInt64(0)]
		t.state = bide.State(s.ColumnInt64(1))
		t.wake = never
		if !s.ColumnIsNull(2) {
			t.wake = s.ColumnInt64(2)
		}
		t.mail = s.ColumnInt64(3)
		t.id, t.parent, t.kids = s.ColumnText(4), s.ColumnText(5), s.ColumnBool(6)
		t.waits, t.failure, t.deadline = bytesOf(s, 7), bytesOf(s, 8), s.ColumnInt64(9)
		t.result, t.input, t.generation = bytesOf(s, 10), bytesOf(s, 11), s.ColumnInt64(12)
		t.put, t.onEnd = s.ColumnInt64(13), s.ColumnBool(14)
	})
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, bide.ErrNotFound
	}
	if t.id == "" {
		t.id = w.s.madeID(k)
	}
	if t.input == nil {
		w.st.payload.BindInt64(1, k)
		if _, err := w.one(w.st.payload, func(s *sqlite.Stmt) { t.input = bytesOf(s, 0) }); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// post puts a message into a run's inbox. A parked run is due at once; a turn
// under way gets it as news.
func (w *writer) post(k int64, m *bide.Message) error {
	t, err := w.target(k)
	if err != nil {
		return err
	}
	return w.postTo(t, m)
}

func (w *writer) postTo(t *target, m *bide.Message) error {
	if t.state.Ended() {
		return bide.ErrRunEnded
	}
	if m.Key != "" {
		w.st.mailKey.BindInt64(1, t.k)
		w.st.mailKey.BindText(2, m.Key)
		before := ""
		seen, err := w.one(w.st.mailKey, func(s *sqlite.Stmt) { before = s.ColumnText(0) })
		if err == nil && seen && before != m.Print {
			err = &bide.ConflictError{ID: t.id, Key: m.Key}
		}
		if seen || err != nil {
			return err
		}
	}
	if err := w.addMail(t.k, m); err != nil {
		return err
	}
	l := w.leases[t.k]
	sleeps := t.state == bide.Paused || t.state == bide.Queued // which keeps its delay
	if l == nil && !sleeps {
		t.wake = min(t.wake, w.now)
	}
	err := w.set(w.st.post, t.k, func(s *sqlite.Stmt) {
		s.BindInt64(3, m.Seq)
		number(s, 4, t.wake, never)
	})
	if err != nil {
		return err
	}
	if l != nil {
		w.change(l)
		l.mail = m.Seq
		w.out = append(w.out, delivery{w: l.worker, c: &bide.Claimed{Lease: l.public(), News: true, Inbox: []bide.Message{*m}}})
	} else if !sleeps {
		w.due(t.route, place{t.wake, t.k})
	}
	w.touched = append(w.touched, touch{id: t.id})
	return nil
}

// postByID is post to a run that may be gone or over, which is all the same.
func (w *writer) postByID(id string, m *bide.Message) error {
	k, err := w.resolve(id)
	if err == nil {
		err = w.post(k, m)
	}
	if errors.Is(err, bide.ErrNotFound) || errors.Is(err, bide.ErrRunEnded) {
		return nil
	}
	return err
}

func (w *writer) addMail(run int64, m *bide.Message) error {
	k, err := w.next()
	if err != nil {
		return err
	}
	m.Seq, m.At = k, clock(w.now)
	st := w.st.addMail
	st.BindInt64(1, k)
	st.BindInt64(2, run)
	st.BindInt64(3, int64(m.Op))
	text(st, 4, m.Name)
	text(st, 5, m.Key)
	blob(st, 6, m.Data)
	if m.Error == nil {
		st.BindNull(7)
	} else {
		blob(st, 7, object(m.Error))
	}
	st.BindInt64(8, w.now)
	text(st, 9, m.Print)
	return w.exec(st)
}
