package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bide-dev/bide"
)

// Control implements [bide.Store].
func (s *Store) Control(ctx context.Context, run string, c bide.Command) error {
	return s.do(ctx, &op{control: true, run: run, cmd: c})
}

func (w *writer) controlled(o *op) error {
	if err := w.begin(); err != nil {
		return err
	}
	k, err := w.resolve(o.run)
	if err != nil {
		return o.refused(err)
	}
	t, err := w.target(k)
	if err != nil {
		return o.refused(err)
	}
	if t.state.Ended() && o.cmd.Op != bide.OpRetry {
		o.err = bide.ErrRunEnded
		return nil
	}
	return o.refused(w.carryOut(t, &o.cmd))
}

func (w *writer) carryOut(t *target, c *bide.Command) error {
	switch c.Op {
	case bide.OpCancel:
		return w.cancel(t, c.Reason)
	case bide.OpTerminate:
		reason := c.Reason
		if reason == "" {
			reason = "terminated"
		}
		return w.endRun(t, bide.Terminated, nil, &bide.Failure{Message: reason}, 0)
	case bide.OpPause:
		return w.pause(t)
	case bide.OpResume:
		if t.state != bide.Paused {
			return &bide.InvalidError{Field: "run", Reason: "is " + t.state.String() + ", not paused"}
		}
		return w.setState(t, bide.Waiting, w.now)
	case bide.OpRetry:
		return w.retry(t)
	case bide.OpCheckWait, bide.OpExtendWait, bide.OpCompleteWait, bide.OpFailWait:
		return w.act(t, c)
	}
	return &bide.InvalidError{Field: "command", Reason: fmt.Sprintf("%d is not known", c.Op)}
}

// setState changes a run's state from outside, whether it is in hand or not.
func (w *writer) setState(t *target, state bide.State, wake int64) error {
	l := w.leases[t.k]
	if l == nil && t.wake != never && w.cutOff(t.route, place{t.wake, t.k}, t.put) {
		w.lapsed[t.k] = true // its place is about to change; that it was cut off is not
	}
	err := w.set(w.st.setState, t.k, func(s *sqlite.Stmt) {
		s.BindInt64(3, int64(state))
		number(s, 4, wake, never)
		s.BindBool(5, l == nil)
	})
	if err != nil {
		return err
	}
	w.move(t.route, t.state, state)
	t.state, t.wake = state, wake
	if l != nil {
		w.change(l)
		l.state = state
		l.wake = min(wake, w.now)
	} else if wake != never {
		w.due(t.route, place{wake, t.k})
	}
	w.touched = append(w.touched, touch{id: t.id})
	return nil
}

func (w *writer) cancel(t *target, reason string) error {
	if t.state == bide.Canceling {
		return nil
	}
	if err := w.setState(t, bide.Canceling, min(t.wake, w.now)); err != nil {
		return err
	}
	data, _ := json.Marshal(reason)
	return w.postTo(t, &bide.Message{Op: bide.OpCancel, Data: data})
}

func (w *writer) cancelByID(id string) error {
	k, err := w.resolve(id)
	if err == nil {
		err = w.cancelK(k)
	}
	if errors.Is(err, bide.ErrNotFound) {
		return nil
	}
	return err
}

func (w *writer) cancelK(k int64) error {
	t, err := w.target(k)
	if err != nil || t.state.Ended() {
		return err
	}
	return w.cancel(t, "the parent has ended")
}

// cancelKids cancels the children of a run that ends.
func (w *writer) cancelKids(t *target) error {
	if !t.kids {
		return nil
	}
	var kids []int64
	w.st.kids.BindText(1, t.id)
	w.st.kids.BindInt64(2, int64(bide.Succeeded))
	if err := w.rows(w.st.kids, func(s *sqlite.Stmt) { kids = append(kids, s.ColumnInt64(0)) }); err != nil {
		return err
	}
	for _, k := range kids {
		if err := w.cancelK(k); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) pause(t *target) error {
	switch t.state {
	case bide.Paused:
		return nil
	case bide.Canceling:
		return &bide.InvalidError{Field: "run", Reason: "is canceling and cannot be paused"}
	}
	if err := w.setState(t, bide.Paused, never); err != nil {
		return err
	}
	if l := w.leases[t.k]; l != nil {
		m := bide.Message{Op: bide.OpPause, At: clock(w.now)}
		w.out = append(w.out, delivery{w: l.worker, c: &bide.Claimed{Lease: l.public(), News: true, Inbox: []bide.Message{m}}})
	}
	return nil
}

// retry sends an ended run on its way again.
func (w *writer) retry(t *target) error {
	if !t.state.Ended() || t.state == bide.Succeeded {
		return &bide.InvalidError{Field: "run", Reason: "is " + t.state.String() + "; only one that failed, was canceled, was terminated or timed out can be retried"}
	}
	history, err := readHistory(w.st.history, t.k)
	if err != nil {
		return err
	}
	f, err := failureFrom(t.failure)
	if err != nil {
		return err
	}
	r, children := bide.RetryRecord(history, t.state, f)
	r.At = clock(w.now)
	if err := w.addRecord(t.k, &r); err != nil {
		return err
	}
	w.st.dropCancel.BindInt64(1, t.k)
	w.st.dropCancel.BindInt64(2, int64(bide.OpCancel))
	if err := w.exec(w.st.dropCancel); err != nil {
		return err
	}
	deadline := t.deadline
	if deadline <= w.now {
		deadline = 0
	}
	err = w.set(w.st.reopen, t.k, func(s *sqlite.Stmt) {
		s.BindInt64(3, int64(bide.Queued))
		s.BindInt64(4, w.now)
		number(s, 5, deadline, 0)
	})
	if err != nil {
		return err
	}
	w.move(t.route, t.state, bide.Queued)
	w.due(t.route, place{w.now, t.k})
	w.touched = append(w.touched, touch{id: t.id})
	for _, id := range children {
		if err := w.retryChild(t, id); err != nil {
			return err
		}
	}
	return nil
}

// retryChild sees to a child that the parent, retried, waits for again: if it
// failed too, it goes on; if it succeeded meanwhile, the parent is told.
func (w *writer) retryChild(parent *target, id string) error {
	k, err := w.resolve(id)
	if errors.Is(err, bide.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	t, err := w.target(k)
	if err != nil {
		return err
	}
	if t.parent == parent.id && t.state.Ended() && t.state != bide.Succeeded {
		return w.retry(t)
	}
	m, err := w.taken(parent.id, id)
	if m == nil || err != nil {
		return err
	}
	return w.post(parent.k, m)
}

// act passes what a person does to a live wait on to the run.
func (w *writer) act(t *target, c *bide.Command) error {
	waits, err := bide.UnpackWaits(t.waits)
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
	return w.postTo(t, &m)
}
