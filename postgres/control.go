package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bide-dev/bide"
)

// Control implements [bide.Store].
func (s *Store) Control(ctx context.Context, run string, c bide.Command) error {
	return s.do(ctx, &op{control: true, run: run, cmd: c})
}

func (w *writer) controlled(o *op) error {
	r, err := w.rowByID(o.run)
	if err != nil {
		return o.refused(err)
	}
	if r.state.Ended() && o.cmd.Op != bide.OpRetry {
		o.err = bide.ErrRunEnded
		return nil
	}
	return o.refused(w.carryOut(r, &o.cmd))
}

func (w *writer) carryOut(r *row, c *bide.Command) error {
	switch c.Op {
	case bide.OpCancel:
		return w.cancel(r, c.Reason)
	case bide.OpTerminate:
		reason := c.Reason
		if reason == "" {
			reason = "terminated"
		}
		return w.endRun(r, bide.Terminated, nil, &bide.Failure{Message: reason})
	case bide.OpPause:
		return w.pauseRun(r)
	case bide.OpResume:
		if r.state != bide.Paused {
			return &bide.InvalidError{Field: "run", Reason: "is " + r.state.String() + ", not paused"}
		}
		return w.setState(r, bide.Waiting, w.now)
	case bide.OpRetry:
		return w.retry(r)
	case bide.OpCheckWait, bide.OpExtendWait, bide.OpCompleteWait, bide.OpFailWait:
		return w.act(r, c)
	}
	return &bide.InvalidError{Field: "command", Reason: fmt.Sprintf("%d is not known", c.Op)}
}

// setState changes a run's state from outside, whether it is in hand or not.
func (w *writer) setState(r *row, state bide.State, wake int64) error {
	if err := w.change(r); err != nil {
		return err
	}
	r.state = state
	if r.holder == 0 {
		r.wake = wake
		if wake != never {
			w.dueAt(r.route, wake)
		}
	}
	w.touched = append(w.touched, touch{id: r.id})
	return nil
}

func (w *writer) cancel(r *row, reason string) error {
	if r.state == bide.Canceling {
		return nil
	}
	if err := w.setState(r, bide.Canceling, min(r.wake, w.now)); err != nil {
		return err
	}
	data, _ := json.Marshal(reason)
	return w.post(r, &bide.Message{Op: bide.OpCancel, Data: data})
}

func (w *writer) cancelByID(id string) error {
	r, err := w.rowByID(id)
	if err == nil && !r.state.Ended() {
		err = w.cancel(r, "the parent has ended")
	}
	if errors.Is(err, bide.ErrNotFound) {
		return nil
	}
	return err
}

// cancelKids cancels the children of a run that ends.
func (w *writer) cancelKids(r *row) error {
	if !r.kids {
		return nil
	}
	if err := w.settle(); err != nil {
		return err
	}
	rows, err := w.conn.Query(w.ctx, w.s.sql(`SELECT k FROM bide.run WHERE parent = $1 AND NOT detached AND state < $2 ORDER BY k`), r.id, int16(bide.Succeeded))
	if err != nil {
		return err
	}
	kids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	var unknown []int64
	for _, k := range kids {
		if w.rows[k] == nil && w.leases[k] == nil {
			unknown = append(unknown, k)
		}
	}
	if len(unknown) > 0 {
		if err := w.lock(unknown, nil); err != nil {
			return err
		}
	}
	for _, k := range kids {
		kid, err := w.rowByK(k)
		if err != nil || kid.state.Ended() {
			continue
		}
		if err := w.cancel(kid, "the parent has ended"); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) pauseRun(r *row) error {
	switch r.state {
	case bide.Paused:
		return nil
	case bide.Canceling:
		return &bide.InvalidError{Field: "run", Reason: "is canceling and cannot be paused"}
	}
	if err := w.setState(r, bide.Paused, never); err != nil {
		return err
	}
	if l := w.leases[r.k]; l != nil && !l.freed {
		w.out = append(w.out, l.news(bide.Message{Op: bide.OpPause, At: clock(w.now)}))
	}
	return nil
}

// retry sends an ended run on its way again.
func (w *writer) retry(r *row) error {
	if !r.state.Ended() || r.state == bide.Succeeded {
		return &bide.InvalidError{Field: "run", Reason: "is " + r.state.String() + "; only one that failed, was canceled, was terminated or timed out can be retried"}
	}
	if err := w.settle(); err != nil {
		return err
	}
	rows, err := w.conn.Query(w.ctx, w.s.sql(historyOf), r.k, int64(0), nil)
	if err != nil {
		return err
	}
	history, err := collectHistory(rows)
	if err != nil {
		return err
	}
	var failed []byte
	if err := w.conn.QueryRow(w.ctx, w.s.sql(`SELECT error FROM bide.run WHERE k = $1`), r.k).Scan(&failed); err != nil {
		return err
	}
	f, err := failureFrom(failed)
	if err != nil {
		return err
	}
	if _, err := w.conn.Exec(w.ctx, w.s.sql(`DELETE FROM bide.inbox WHERE run = $1 AND op = $2`), r.k, int16(bide.OpCancel)); err != nil {
		return err
	}
	rec, children := bide.RetryRecord(history[r.k], r.state, f)
	rec.At = clock(w.now)
	k, err := w.after(r)
	if err != nil {
		return err
	}
	w.p.addRec(r.k, k, &rec)
	if err := w.change(r); err != nil {
		return err
	}
	if r.deadline <= w.now {
		r.deadline = 0
	}
	r.state, r.wake, r.ended, r.cut = bide.Queued, w.now, 0, false
	r.big.set |= setResult | setFailure
	r.big.result, r.big.failure = nil, nil
	w.dueAt(r.route, w.now)
	w.touched = append(w.touched, touch{id: r.id})
	for _, id := range children {
		if err := w.retryChild(r, id); err != nil {
			return err
		}
	}
	return nil
}

// retryChild sees to a child that the parent, retried, waits for again: if it
// failed too, it goes on; if it succeeded meanwhile, the parent is told.
func (w *writer) retryChild(parent *row, id string) error {
	r, err := w.rowByID(id)
	if errors.Is(err, bide.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if r.parent == parent.id && r.state.Ended() && r.state != bide.Succeeded {
		return w.retry(r)
	}
	m, err := w.takenBy(parent.id, id)
	if m == nil || err != nil {
		return err
	}
	return w.post(parent, m)
}

// act passes what a person does to a live wait on to the run.
func (w *writer) act(r *row, c *bide.Command) error {
	if err := w.settle(); err != nil {
		return err
	}
	var packed []byte
	if err := w.conn.QueryRow(w.ctx, w.s.sql(`SELECT waits FROM bide.run WHERE k = $1`), r.k).Scan(&packed); err != nil {
		return err
	}
	waits, err := bide.UnpackWaits(packed)
	if err != nil {
		return err
	}
	live, names := false, []string{}
	for _, x := range waits {
		if x.Kind == bide.KindLoop && c.Op != bide.OpCheckWait {
			return &bide.InvalidError{Field: "wait", Reason: "is a loop's: it can be triggered, paused or stopped"}
		}
		live = live || c.Wait == x.Path || c.Wait == x.Name && x.Name != ""
		names = append(names, fmt.Sprintf("%s %s (path %s)", x.Kind, x.Name, x.Path))
	}
	if !live {
		return &bide.InvalidError{Field: "wait", Reason: fmt.Sprintf("%q is not live; the run waits for %q", c.Wait, names)}
	}
	m := bide.Message{Op: c.Op, Name: c.Wait, Data: c.Data}
	switch c.Op {
	case bide.OpExtendWait:
		var d time.Duration
		if err := json.Unmarshal(c.Data, &d); err != nil || d == 0 {
			return &bide.InvalidError{Field: "duration", Reason: "must be a number of nanoseconds other than 0"}
		}
	case bide.OpFailWait:
		reason := c.Reason
		if reason == "" {
			reason = "failed by hand"
		}
		m.Error = bide.NewFailure(errors.New(reason))
	}
	return w.post(r, &m)
}
