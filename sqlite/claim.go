package sqlite

import (
	"container/heap"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bide-dev/bide"
)

// worker is a worker of this process.
type worker struct {
	id        string
	queues    map[string]bool
	workflows map[string]bool
	max       atomic.Int64
	expires   atomic.Int64 // nanoseconds on the writer's monotonic clock
	ttl       atomic.Int64
	starved   atomic.Bool // runs are due that it has no hand free for
	held      int64       // leases; the writer's
	gone      bool        // the writer has dropped it; under Store.mu
	mail      []delivery  // under Store.mu
	bell      chan struct{}
}

func (x *worker) wants(n routeName) bool {
	return x.queues[n.queue] && x.workflows[n.workflow]
}

// free is how many more runs the worker can hold. If none, the Claim that
// changes this will tell the writer.
func (x *worker) free() int64 {
	was := x.starved.Swap(true) // before the look: a Claim that comes meanwhile says so
	free := x.max.Load() - x.held
	if free > 0 && !was { // else a look before it in this batch found none, and left runs for it
		x.starved.Store(false)
	}
	return max(free, 0)
}

// ring wakes the worker's Claim; Store.mu is held.
func (x *worker) ring() {
	select {
	case x.bell <- struct{}{}:
	default:
	}
}

// Claim implements [bide.Store]. It asks the file nothing: the writer puts what
// is due into the worker's mailbox.
func (s *Store) Claim(ctx context.Context, c bide.Claim) ([]bide.Claimed, error) {
	for {
		x, err := s.hire(ctx, c)
		if err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			x.max.Store(0) // nothing more until the next call
			return nil, ctx.Err()
		case <-s.closed:
			return nil, bide.ErrClosed
		case <-x.bell:
		}
		s.mu.Lock()
		mail := x.mail
		x.mail = nil
		s.mu.Unlock()
		if len(mail) == 0 {
			continue
		}
		claimed, err := s.load(ctx, mail)
		if err != nil {
			s.mu.Lock()
			x.mail = append(mail, x.mail...)
			x.ring()
			s.mu.Unlock()
			return nil, err
		}
		now, ahead := s.line.Read()
		for i := range claimed {
			claimed[i].Now, claimed[i].Ahead = now, ahead
		}
		return claimed, nil
	}
}

// hire finds the worker and renews it, or makes it known to the writer.
func (s *Store) hire(ctx context.Context, c bide.Claim) (*worker, error) {
	if s.readOnly {
		return nil, s.refuse()
	}
	switch {
	case c.Worker == "":
		return nil, &bide.InvalidError{Field: "worker", Reason: "is empty"}
	case c.TTL <= 0:
		return nil, &bide.InvalidError{Field: "TTL", Reason: "must be above 0"}
	}
	s.mu.Lock()
	x := s.workers[c.Worker]
	if x != nil && !x.gone {
		old := x.max.Swap(int64(c.Max))
		x.renew(s.w.start)
		s.mu.Unlock()
		if int64(c.Max) > old && x.starved.Load() {
			_ = s.group.Add(&op{tick: true})
		}
		return x, nil
	}
	before := x
	x = &worker{id: c.Worker, queues: set(c.Queues), workflows: set(c.Workflows), bell: make(chan struct{}, 1)}
	x.max.Store(int64(c.Max))
	x.ttl.Store(int64(c.TTL))
	x.renew(s.w.start)
	if before != nil { // what it lost while it did not ask is news to it
		x.mail = slices.DeleteFunc(before.mail, func(d delivery) bool { return !d.c.Lost })
		if len(x.mail) > 0 {
			x.ring()
		}
	}
	s.workers[c.Worker] = x
	s.mu.Unlock()
	return x, s.do(ctx, &op{join: x})
}

func set(names []string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

func (x *worker) renew(start time.Time) {
	x.expires.Store(int64(time.Since(start)) + x.ttl.Load())
}

// join makes the worker known.
func (w *writer) join(x *worker) {
	if slices.Contains(w.workers, x) {
		return // by a first try of this batch
	}
	w.workers = append(w.workers, x)
	w.regroup()
}

// leave forgets the worker and frees what it holds. lapsed: it has not said so
// itself, its turns may be under way.
func (w *writer) leave(x *worker, lapsed bool) error {
	w.undo = append(w.undo, undo{left: x})
	w.workers = slices.DeleteFunc(w.workers, func(y *worker) bool { return x == y })
	w.regroup()
	w.left = append(w.left, x)
	for _, l := range w.leases {
		if l.worker != x {
			continue
		}
		w.free(l)
		if lapsed {
			w.lapsed[l.k] = true
			w.lose(l)
			w.due(l.route, place{l.wake, l.k})
		} else if err := w.giveBack(l); err != nil {
			return err
		}
	}
	return nil
}

// giveBack makes a run due that was handed out and not begun, put there anew,
// so that after a crash nobody takes it for begun.
func (w *writer) giveBack(l *lease) error {
	if l.state == bide.Paused {
		return nil
	}
	if err := w.begin(); err != nil {
		return err
	}
	err := w.set(w.st.setState, l.k, func(s *sqlite.Stmt) {
		s.BindInt64(3, int64(l.state))
		s.BindInt64(4, w.now)
		s.BindBool(5, true)
	})
	w.due(l.route, place{w.now, l.k})
	return err
}

// lose tells the worker that a lease is gone.
func (w *writer) lose(l *lease) {
	w.lost++
	w.out = append(w.out, delivery{w: l.worker, c: &bide.Claimed{Lease: l.public(), News: true, Lost: true}})
}

// expire drops the workers that have given no sign of life for their TTL.
func (w *writer) expire() error {
	for _, x := range slices.Clone(w.workers) {
		if int64(time.Since(w.start)) < x.expires.Load() {
			continue
		}
		if err := w.leave(x, true); err != nil {
			return err
		}
	}
	return nil
}

func (l *lease) public() bide.Lease {
	return bide.Lease{Run: l.id, Worker: l.worker.id, Epoch: l.epoch, Key: l.k}
}

// take puts a run into a worker's hand. epoch is a number of the store's own row,
// so that it is new even after the file was closed.
func (w *writer) take(l *lease, x *worker, epoch int64) {
	l.epoch, l.worker, l.handed = epoch, x, l.mail
	w.leases[l.k] = l
	x.held++
	w.undo = append(w.undo, undo{l: l, taken: true})
}

// free takes it out again.
func (w *writer) free(l *lease) {
	w.undo = append(w.undo, undo{l: l, old: *l})
	delete(w.leases, l.k)
	l.worker.held--
	w.touched = append(w.touched, touch{id: l.id, freed: l})
}

// due notes that a run will be due: the route looks there in time, going back if
// it has passed the place.
func (w *writer) due(r *route, p place) {
	if p.wake < r.next {
		r.next = p.wake
		if r.crew != nil && r.index != notLater {
			heap.Fix(&r.crew.later, r.index)
		}
	}
	if !r.cursor.before(p) {
		r.cursor = place{p.wake, p.k - 1}
	}
}

// atOnce bounds how many runs of a route are handed out in one transaction.
const atOnce = 256

type dueRun struct {
	at  place
	put int64
	l   *lease
}

// pump hands out what is due to workers with a hand free. The file is asked only
// when something is. Whoever was handed something goes behind the others, among
// the crews, since a worker may be in several, and among a crew's routes.
func (w *writer) pump() error {
	for _, x := range w.workers {
		x.starved.Store(false)
	}
	for i, left := 0, len(w.crews); left > 0; left-- {
		c, before := w.crews[i], len(w.out)
		if err := w.serve(c); err != nil {
			return err
		}
		if len(w.out) == before {
			i++
			continue
		}
		w.crews = append(slices.Delete(w.crews, i, i+1), c)
	}
	return nil
}

// serve hands out what is due of a crew's routes.
func (w *writer) serve(c *crew) error {
	c.comeDue(w.now)
	for left := len(c.ready); left > 0 && c.free() > 0; left-- {
		r := c.ready[0]
		c.ready = c.ready[1:]
		if err := w.handOut(r); err != nil {
			return err
		}
		if r.next <= w.now {
			c.ready = append(c.ready, r)
		} else {
			heap.Push(&c.later, r)
		}
	}
	return nil
}

// handOut hands out what is due of one route, as much as there are hands and as
// is right for one transaction.
func (w *writer) handOut(r *route) error {
	for r.next <= w.now {
		limit := min(r.crew.free(), atOnce)
		if limit == 0 {
			return nil
		}
		found, err := w.dueRuns(r, limit)
		if err != nil {
			return err
		}
		handed, none := 0, false
		for i := range found {
			if w.leases[found[i].at.k] != nil {
				r.cursor = found[i].at
				continue
			}
			x := r.pick()
			if none = x == nil; none {
				break // a Claim has ended meanwhile
			}
			r.cursor = found[i].at
			if err := w.hand(found[i], x); err != nil {
				return err
			}
			handed++
		}
		if handed > 0 {
			if err := w.moveMark(r); err != nil {
				return err
			}
		}
		switch {
		case none:
		case int64(len(found)) < limit:
			return w.findNext(r)
		case handed > 0:
			// More may be due; others' commits go first.
			_ = w.s.group.Add(&op{tick: true})
			return nil
		}
	}
	return nil
}

// dueRuns reads the next due runs of a route beyond its cursor.
func (w *writer) dueRuns(r *route, limit int64) ([]dueRun, error) {
	if err := w.begin(); err != nil {
		return nil, err
	}
	st := w.st.due
	st.BindInt64(1, r.k)
	st.BindInt64(2, w.now)
	st.BindInt64(3, r.cursor.wake)
	st.BindInt64(4, r.cursor.k)
	st.BindInt64(5, limit)
	var found []dueRun
	err := w.rows(st, func(s *sqlite.Stmt) {
		at := place{s.ColumnInt64(1), s.ColumnInt64(0)}
		l := &lease{k: at.k, wake: at.wake, mail: s.ColumnInt64(2), state: bide.State(s.ColumnInt64(3)),
			id: s.ColumnText(4), parent: s.ColumnText(5), kids: s.ColumnBool(6), onEnd: s.ColumnBool(8), route: r, warm: new(atomic.Bool)}
		if l.id == "" {
			l.id = w.s.madeID(l.k)
		}
		found = append(found, dueRun{at, s.ColumnInt64(7), l})
	})
	return found, err
}

// hand gives a due run to a worker of its route.
func (w *writer) hand(d dueRun, x *worker) error {
	r, l := d.l.route, d.l
	epoch, err := w.next()
	if err != nil {
		return err
	}
	w.take(l, x, epoch)
	interrupted := w.lapsed[l.k] || w.cutOff(r, d.at, d.put)
	if w.lapsed[l.k] {
		delete(w.lapsed, l.k)
		w.undo[len(w.undo)-1].lapsed = true
	}
	w.out = append(w.out, delivery{w: x, lease: l, mail: l.mail, c: &bide.Claimed{Lease: l.public(), Interrupted: interrupted}})
	return nil
}

// cutOff reports whether the process before this one had handed out the run that
// was put at the place, and it is still there.
func (w *writer) cutOff(r *route, at place, put int64) bool {
	return at.wake == 0 && at.k <= w.openSeq || !r.openMark.before(at) && put <= r.openPut
}

// moveMark keeps in the file how far runs have been handed out, before any of
// them can act: after a crash it tells who may have been in the middle of a step.
func (w *writer) moveMark(r *route) error {
	if r.mark.before(r.cursor) {
		r.mark = r.cursor
	}
	w.st.mark.BindInt64(4, w.seq)
	w.st.mark.BindInt64(1, r.k)
	w.st.mark.BindInt64(2, r.mark.wake)
	w.st.mark.BindInt64(3, r.mark.k)
	return w.exec(w.st.mark)
}

// findNext reads when the route's next run is due.
func (w *writer) findNext(r *route) error {
	st := w.st.nextDue
	st.BindInt64(1, r.k)
	st.BindInt64(2, r.cursor.wake)
	st.BindInt64(3, r.cursor.k)
	r.next = never
	_, err := w.one(st, func(s *sqlite.Stmt) { r.next = s.ColumnInt64(0) })
	return err
}
