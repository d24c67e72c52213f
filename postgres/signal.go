package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

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
	r, err := w.rowByID(o.run)
	if err == nil {
		m := o.msg
		err = w.post(r, &m)
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

type mailKey struct {
	run int64
	key string
}

// post puts a message into a run's inbox. A parked run is due at once; a turn
// under way gets it as news.
func (w *writer) post(r *row, m *bide.Message) error {
	if r.state.Ended() {
		return bide.ErrRunEnded
	}
	if m.Key != "" {
		before, seen, err := w.seenMail(mailKey{r.k, m.Key}, m.Print)
		if err == nil && seen && before != m.Print {
			err = &bide.ConflictError{ID: r.id, Key: m.Key}
		}
		if seen || err != nil {
			return err
		}
	}
	if err := w.change(r); err != nil {
		return err
	}
	w.addMail(r.k, r.ver, m)
	r.mail = r.ver
	l := w.leases[r.k]
	switch {
	case l != nil && !l.freed:
		w.out = append(w.out, l.news(*m))
	case r.holder == 0 && r.state != bide.Paused && r.state != bide.Queued: // a delay is kept
		r.wake = min(r.wake, w.now)
		w.dueAt(r.route, r.wake)
	}
	w.touched = append(w.touched, touch{id: r.id})
	return nil
}

// seenMail reports whether a message with the key has come before, with which print,
// and notes that one comes now.
func (w *writer) seenMail(k mailKey, now string) (before string, seen bool, err error) {
	if before, seen = w.mails[k]; seen {
		return before, true, nil
	}
	if err := w.settle(); err != nil {
		return "", false, err
	}
	err = w.conn.QueryRow(w.ctx, w.s.sql(`SELECT print FROM bide.inbox WHERE run = $1 AND key = $2`), k.run, k.key).Scan(&before)
	if errors.Is(err, pgx.ErrNoRows) {
		w.mails[k] = now
		return "", false, nil
	}
	if err == nil {
		w.mails[k] = before
	}
	return before, err == nil, err
}

// postByID is post to a run that may be gone or over, which is all the same.
func (w *writer) postByID(id string, m *bide.Message) error {
	r, err := w.rowByID(id)
	if err == nil {
		err = w.post(r, m)
	}
	if errors.Is(err, bide.ErrNotFound) || errors.Is(err, bide.ErrRunEnded) {
		return nil
	}
	return err
}

// addMail writes a message with the number.
func (w *writer) addMail(run, k int64, m *bide.Message) {
	m.Seq, m.At = k, clock(w.now)
	w.p.addMail(run, m)
}

// news is a delivery of messages to the holder.
func (l *lease) news(m ...bide.Message) delivery {
	return delivery{w: l.worker, c: &bide.Claimed{Lease: l.public(), News: true, Inbox: m}}
}

// collectMail reads messages by the run that they are for.
func collectMail(rows pgx.Rows) (map[int64][]bide.Message, error) {
	all := map[int64][]bide.Message{}
	for rows.Next() {
		var run, at int64
		var m bide.Message
		var data, failed []byte
		if err := rows.Scan(&run, &m.Seq, &m.Op, &m.Name, &m.Key, &data, &failed, &at); err != nil {
			return nil, err
		}
		var err error
		if m.Error, err = failureFrom(failed); err != nil {
			return nil, err
		}
		m.Data, m.At = data, clock(at)
		all[run] = append(all[run], m)
	}
	return all, rows.Err()
}
