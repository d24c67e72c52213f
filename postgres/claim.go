package postgres

import (
	"cmp"
	"container/heap"
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bide-dev/bide"
)

// worker is a worker of this process.
type worker struct {
	k         int64 // of its row; the writer's
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
	lapsed    bool        // its leases have, and it is to be told; under Store.mu
	halt      func()      // ends the Claim's reading, for that
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

// Claim implements [bide.Store]. It asks the database for nothing that is due: the
// writer puts that into the worker's mailbox.
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
		if x.lapsed {
			x.lapsed = false
			s.mu.Unlock()
			return x.letGo(), nil
		}
		reading, halt := context.WithCancel(ctx)
		x.halt = halt
		s.mu.Unlock()
		if len(mail) == 0 {
			halt()
			continue
		}
		claimed, err := s.load(reading, mail)
		halted := ctx.Err() == nil && reading.Err() != nil
		halt()
		if err != nil {
			s.mu.Lock()
			x.mail = append(mail, x.mail...)
			x.ring()
			s.mu.Unlock()
			if halted {
				continue
			}
			return nil, err
		}
		now, ahead := s.line.Load().Read()
		for i := range claimed {
			claimed[i].Now, claimed[i].Ahead, claimed[i].Steady = now, ahead, !s.alone
		}
		return claimed, nil
	}
}

// hire finds the worker and renews it, or makes it known to the writer.
func (s *Store) hire(ctx context.Context, c bide.Claim) (*worker, error) {
	switch {
	case c.Worker == "":
		return nil, &bide.InvalidError{Field: "worker", Reason: "is empty"}
	case c.TTL <= 0:
		return nil, &bide.InvalidError{Field: "TTL", Reason: "must be above 0"}
	case s.isClosed():
		return nil, bide.ErrClosed
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
	err := s.do(ctx, &op{join: x})
	if err != nil {
		s.mu.Lock()
		if s.workers[c.Worker] == x {
			delete(s.workers, c.Worker)
		}
		s.mu.Unlock()
	}
	return x, err
}

func set(names []string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

func keys(m map[string]bool) []string {
	return slices.AppendSeq(make([]string, 0, len(m)), maps.Keys(m))
}

func (x *worker) renew(start time.Time) {
	x.expires.Store(int64(time.Since(start)) + x.ttl.Load())
}

// join makes the worker known.
func (w *writer) join(x *worker) error {
	k, err := w.next()
	if err != nil {
		return err
	}
	x.k = k
	w.p.any = true
	w.p.workers.all = append(w.p.workers.all, x)
	w.joined = append(w.joined, x)
	w.workers = append(w.workers, x)
	w.regroup()
	w.beatAt = 0 // look for what is due, and what others have left
	return nil
}

// leave forgets the worker and frees what it holds. lapsed: it has not said so
// itself, its turns may be under way.
func (w *writer) leave(x *worker, lapsed bool) error {
	w.workers = slices.DeleteFunc(w.workers, func(y *worker) bool { return x == y })
	w.regroup()
	w.left = append(w.left, x)
	w.p.any = true
	w.p.gone = append(w.p.gone, x.k)
	for _, l := range w.leases {
		if l.worker != x || l.freed {
			continue
		}
		r := w.rowOf(l)
		if err := w.change(r); err != nil {
			return err
		}
		w.free(l)
		if r.holder, r.warm = 0, false; lapsed {
			r.cut = true
			w.lose(l)
		}
		if r.state != bide.Paused {
			r.wake = w.now
			w.dueAt(r.route, w.now)
		}
	}
	return nil
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

// take puts a run into a worker's hand.
func (w *writer) take(l *lease, x *worker) {
	l.worker, l.handed = x, l.mail
	w.leases[l.k], w.held[l.id] = l, l
	x.held++
	w.taken = append(w.taken, l)
}

// free takes it out again.
func (w *writer) free(l *lease) {
	l.freed = true
	l.worker.held--
	w.freed = append(w.freed, l)
	w.touched = append(w.touched, touch{id: l.id, freed: l})
}

// dueAt notes that a run will be due: the route looks there in time.
func (w *writer) dueAt(r *route, wake int64) {
	if wake < r.next {
		r.next = wake
		if r.crew != nil && r.index != notLater {
			heap.Fix(&r.crew.later, r.index)
		}
	}
	if w.others && (r.crew == nil || r.crew.free() == 0) {
		w.tellDue(r, wake)
	}
}

// atOnce bounds how many runs of a route are handed out in one transaction.
const atOnce = 1000

// ask is a question for runs of a route that are due, for a worker.
type ask struct {
	r     *route
	x     *worker
	limit int64
	base  int64 // epochs are above
	found []*fullRow
	next  int64
}

// claimRuns takes runs that are due, the one due first first.
const claimRuns = `WITH due AS (
		SELECT k, row_number() OVER () AS n FROM (
			SELECT k FROM bide.run WHERE route = $1 AND wake IS NOT NULL AND wake <= $2 ORDER BY wake, k LIMIT $3 FOR UPDATE SKIP LOCKED) AS d)
	UPDATE bide.run AS r SET holder = $4, epoch = $5 + due.n, wake = NULL, warm = false FROM due WHERE r.k = due.k
	RETURNING r.k, coalesce(r.id, ''), r.state, r.ver, r.mail, r.parent, r.gen, r.kids, r.cut, r.created, r.started, r.deadline, r.epoch,
		r.on_end IS NOT NULL, r.waits, r.progress, r.labels::text, r.error, r.trace, r.vals, r.input`

// claimAlone is claimRuns for a process without others: it spares each row a lock.
// Should there be another all the same, a run that it takes meanwhile is due no more.
const claimAlone = `WITH due AS (
		SELECT k, row_number() OVER () AS n FROM (
			SELECT k FROM bide.run WHERE route = $1 AND wake IS NOT NULL AND wake <= $2 ORDER BY wake, k LIMIT $3) AS d)
	UPDATE bide.run AS r SET holder = $4, epoch = $5 + due.n, wake = NULL, warm = false FROM due WHERE r.k = due.k AND r.wake IS NOT NULL
	RETURNING r.k, coalesce(r.id, ''), r.state, r.ver, r.mail, r.parent, r.gen, r.kids, r.cut, r.created, r.started, r.deadline, r.epoch,
		r.on_end IS NOT NULL, r.waits, r.progress, r.labels::text, r.error, r.trace, r.vals, r.input`

const nextDue = `SELECT coalesce((SELECT wake FROM bide.run WHERE route = $1 AND wake IS NOT NULL ORDER BY wake LIMIT 1), 9223372036854775807)`

func (a *ask) queue(w *writer, b *pgx.Batch) {
	text := claimAlone
	if w.others {
		text = claimRuns
	}
	b.Queue(w.s.sql(text), a.r.k, w.now, a.limit, a.x.k, a.base).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			f := &fullRow{}
			f.wake, f.route, f.holder = never, a.r, a.x.k
			if err := rows.Scan(&f.k, &f.id, &f.state, &f.ver, &f.mail, &f.parent, &f.gen, &f.kids, &f.cut, &f.created, &f.started, &f.deadline, &f.epoch,
				&f.onEnd, &f.waits, &f.progress, &f.labels, &f.failure, &f.trace, &f.vals, &f.input); err != nil {
				return err
			}
			if f.id == "" {
				f.id = w.s.madeID(f.k)
			}
			a.found = append(a.found, f)
		}
		slices.SortFunc(a.found, func(a, b *fullRow) int { return cmp.Compare(a.epoch, b.epoch) })
		return rows.Err()
	})
	b.Queue(w.s.sql(nextDue), a.r.k).QueryRow(func(row pgx.Row) error { return row.Scan(&a.next) })
}

// pump asks for what is due for workers with a hand free. Whoever was asked for
// goes behind the others, among the crews, since a worker may be in several, and
// among a crew's routes.
func (w *writer) pump() {
	for _, x := range w.workers {
		x.starved.Store(false)
	}
	planned := map[*worker]int64{}
	for i, left := 0, len(w.crews); left > 0; left-- {
		c, before := w.crews[i], len(w.asks)
		w.serve(c, planned)
		if len(w.asks) == before {
			i++
			continue
		}
		w.crews = append(slices.Delete(w.crews, i, i+1), c)
	}
}

// serve asks for what is due of a crew's routes.
func (w *writer) serve(c *crew, planned map[*worker]int64) {
	c.comeDue(w.now)
	for left := len(c.ready); left > 0; left-- {
		r := c.ready[0]
		if r.next > w.now {
			c.ready = c.ready[1:]
			heap.Push(&c.later, r)
			continue
		}
		asked := false
		for range c.workers {
			x := c.workers[c.turn%len(c.workers)]
			c.turn++
			if n := min(x.free()-planned[x], atOnce); n > 0 && w.seq+n < w.reserved {
				planned[x] += n
				w.asks = append(w.asks, &ask{r: r, x: x, limit: n, base: w.seq})
				w.seq += n
				asked = true
				break
			}
		}
		if !asked {
			if w.others {
				w.tellDue(r, r.next)
			}
			return
		}
		c.ready = append(c.ready[1:], r)
	}
}

// took puts what was claimed into the workers' hands, and reports whether more is
// due that somebody has a hand free for.
func (w *writer) took() (again bool) {
	for _, a := range w.asks {
		for _, f := range a.found {
			l := &lease{row: f.row}
			w.take(l, a.x)
			w.out = append(w.out, delivery{w: a.x, lease: l, full: f, c: &bide.Claimed{Lease: l.public(), Interrupted: f.cut}})
		}
		if a.r.next = a.next; a.next <= w.now && len(a.found) == 0 { // others are at it
			a.r.next = w.now + int64(20*time.Millisecond/time.Microsecond)
		}
		if a.r.next > w.now && a.r.crew != nil && a.r.index == notLater {
			c := a.r.crew
			c.ready = slices.DeleteFunc(c.ready, func(r *route) bool { return r == a.r })
			heap.Push(&c.later, a.r)
		}
	}
	if len(w.asks) == 0 {
		return false
	}
	// Hands that were meant for one route and not needed are free for another.
	return slices.ContainsFunc(w.crews, func(c *crew) bool { return len(c.ready) > 0 && c.free() > 0 })
}
