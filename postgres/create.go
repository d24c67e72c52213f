package postgres

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bide-dev/bide"
)

// Create implements [bide.Store].
func (s *Store) Create(ctx context.Context, runs []bide.NewRun) ([]bide.Created, error) {
	if len(runs) == 0 {
		return nil, ctx.Err()
	}
	o := &op{create: runs}
	if err := s.do(ctx, o); err != nil {
		return nil, err
	}
	return o.created, nil
}

func (w *writer) create(o *op) error {
	if time.Since(w.start)-w.blockAt > time.Second {
		// Runs are listed by their numbers: those of an old block would seem old.
		if err := w.block(); err != nil {
			return err
		}
	}
	o.created = make([]bide.Created, len(o.create))
	for i := range o.create {
		var err error
		if o.created[i], err = w.createOne(&o.create[i]); err != nil {
			return err
		}
	}
	return nil
}

// createOne inserts a run, or finds the one that has its id. A run that is due
// while a worker of this process has a hand free goes straight to it: its row is
// born claimed.
func (w *writer) createOne(n *bide.NewRun) (bide.Created, error) {
	if n.Workflow == "" {
		return bide.Created{Err: &bide.InvalidError{Field: "workflow", Reason: "is empty"}}, nil
	}
	if n.Queue == "" {
		return bide.Created{Err: &bide.InvalidError{Field: "queue", Reason: "is empty"}}, nil
	}
	if n.Key != "" {
		if c, found, err := w.byStartKey(n); found || err != nil {
			return c, err
		}
	}
	if n.ID != "" {
		r, err := w.whoHas(n.ID)
		if err != nil {
			return bide.Created{}, err
		}
		if r != nil {
			if c, settled, err := w.conflict(n, r); settled || err != nil {
				return c, err
			}
		}
	}
	route, err := w.route(routeName{n.Queue, n.Workflow})
	if err != nil {
		return bide.Created{}, err
	}
	k, err := w.next()
	if err != nil {
		return bide.Created{}, err
	}
	id := n.ID
	if id == "" {
		id = w.s.madeID(k)
	} else {
		w.ids[id] = k
	}
	r := &row{k: k, ver: k, wake: max(micros(n.StartAt), w.now), state: bide.Queued, deadline: micros(n.Deadline),
		route: route, id: id, parent: n.Parent, onEnd: n.OnEnd != nil}
	var born *worker
	if r.wake <= w.now {
		if born = route.pick(); born != nil {
			r.wake, r.holder, r.epoch, r.started = never, born.k, k, w.now
		}
	}
	inbox, err := w.firstMail(k, n.Messages)
	if err != nil {
		return bide.Created{}, err
	}
	if len(inbox) > 0 {
		r.mail = inbox[len(inbox)-1].Seq
		r.ver = r.mail
	}
	w.rows[k] = r
	w.p.addRun(r, n, w.now)
	if w.s.watching.Load() > 0 || w.others {
		w.touched = append(w.touched, touch{id: id})
	}
	if born == nil {
		w.dueAt(route, r.wake)
		return bide.Created{ID: id, New: true}, nil
	}
	run := &bide.Run{ID: id, Workflow: n.Workflow, Queue: n.Queue, State: bide.Running, Version: k, Parent: n.Parent, Labels: n.Labels,
		Input: n.Input, CreatedAt: clock(w.now), StartedAt: clock(w.now), Deadline: n.Deadline, Trace: n.Trace, Seed: w.s.seed(k, 0)}
	l := &lease{row: *r, known: run}
	w.take(l, born)
	w.out = append(w.out, delivery{w: born, lease: l, c: &bide.Claimed{Lease: l.public(), Run: *run, Inbox: inbox}})
	return bide.Created{ID: id, New: true}, nil
}

// byStartKey answers a start whose key a run has.
func (w *writer) byStartKey(n *bide.NewRun) (c bide.Created, found bool, err error) {
	k, fingerprint := w.p.keyOf(n.Key)
	if k == 0 && w.careful {
		if err := w.settle(); err != nil {
			return c, false, err
		}
		err := w.conn.QueryRow(w.ctx, w.s.sql(`SELECT coalesce(max(k), 0), coalesce(max(print), '') FROM bide.run WHERE key = $1`), n.Key).Scan(&k, &fingerprint)
		if err != nil {
			return c, false, err
		}
	}
	if k == 0 {
		return c, false, nil
	}
	r, err := w.rowByK(k)
	if err != nil {
		return c, false, err
	}
	c.ID = r.id
	if fingerprint != n.Print {
		c.Err = &bide.ConflictError{ID: c.ID, Key: n.Key}
	}
	return c, true, nil
}

// whoHas is the run that has the id, nil for none. For an id that no run of this
// batch has, that is not asked before an insert was refused: most are new.
func (w *writer) whoHas(id string) (*row, error) {
	k, made := w.s.parseID(id)
	l := w.held[id]
	if !made && !w.careful && w.ids[id] == 0 && (l == nil || l.freed) {
		return nil, nil
	}
	if k, known := w.ids[id]; known && k == 0 && !made && (l == nil || l.freed) {
		return nil, nil
	}
	var r *row
	var err error
	if made {
		r, err = w.rowByK(k)
	} else {
		r, err = w.rowByID(id)
	}
	if errors.Is(err, bide.ErrNotFound) {
		return nil, nil
	}
	return r, err
}

// conflict decides about an id that is taken. settled: no run is to be made.
func (w *writer) conflict(n *bide.NewRun, r *row) (c bide.Created, settled bool, err error) {
	switch n.Conflict {
	case bide.Existing:
		if r.route.name.workflow != n.Workflow {
			break
		}
		if r.gen > 0 { // it has lost the input it was started with
			return bide.Created{ID: n.ID}, true, nil
		}
		if err := w.settle(); err != nil {
			return c, true, err
		}
		var input []byte
		if err := w.conn.QueryRow(w.ctx, w.s.sql(`SELECT input FROM bide.run WHERE k = $1`), r.k).Scan(&input); err != nil {
			return c, true, err
		}
		if bytes.Equal(input, n.Input) {
			return bide.Created{ID: n.ID}, true, nil
		}
	case bide.Replace:
		if !r.state.Ended() {
			if err := w.endRun(r, bide.Terminated, nil, &bide.Failure{Message: "replaced by a new run of the same id"}); err != nil {
				return c, true, err
			}
		}
		if err := w.change(r); err != nil {
			return c, true, err
		}
		if err := w.settle(); err != nil {
			return c, true, err
		}
		if _, err := w.conn.Exec(w.ctx, w.s.sql(`UPDATE bide.run SET id = NULL WHERE k = $1`), r.k); err != nil {
			return c, true, err
		}
		made := w.s.madeID(r.k)
		if _, err := w.conn.Exec(w.ctx, w.s.sql(`UPDATE bide.run SET parent = $2 WHERE parent = $1`), n.ID, made); err != nil {
			return c, true, err
		}
		for _, x := range w.rows {
			if x.parent == n.ID {
				x.parent = made
			}
		}
		for _, l := range w.leases {
			if l.parent == n.ID {
				w.rowOf(l).parent = made
			}
		}
		r.id, w.ids[n.ID] = made, 0
		return c, false, nil
	}
	return bide.Created{ID: n.ID, Err: &bide.ConflictError{ID: n.ID}}, true, nil
}

// route returns the route of the name, made now if it is new.
func (w *writer) route(name routeName) (*route, error) {
	if r := w.routes[name]; r != nil {
		return r, nil
	}
	if w.careful { // another process may have made it
		if err := w.loadRoutes(w.ctx); err != nil {
			return nil, err
		}
		if r := w.routes[name]; r != nil {
			return r, nil
		}
	}
	k, err := w.next()
	if err != nil {
		return nil, err
	}
	x := &w.p.routes
	x.k, x.queue, x.workflow, w.p.any = append(x.k, k), append(x.queue, name.queue), append(x.workflow, name.workflow), true
	r := &route{k: k, name: name, next: never, index: notLater}
	w.made = append(w.made, r)
	w.addRoute(r)
	return r, nil
}

func (w *writer) addRoute(r *route) {
	w.routes[r.name], w.byKey[r.k] = r, r
	w.assign(r)
}

// loadRoutes reads the routes that this process does not know yet.
func (w *writer) loadRoutes(ctx context.Context) error {
	rows, err := w.conn.Query(ctx, w.s.sql(`SELECT k, queue, workflow FROM bide.route`))
	if err != nil {
		return failure(err)
	}
	for rows.Next() {
		r := &route{index: notLater}
		if err := rows.Scan(&r.k, &r.name.queue, &r.name.workflow); err != nil {
			return failure(err)
		}
		if w.byKey[r.k] == nil {
			w.addRoute(r)
		}
	}
	return failure(rows.Err())
}

// firstMail puts a new run's first messages into its inbox.
func (w *writer) firstMail(k int64, messages []bide.Message) ([]bide.Message, error) {
	var inbox []bide.Message
	for _, m := range messages {
		if m.Key != "" && slices.ContainsFunc(inbox, func(x bide.Message) bool { return x.Key == m.Key }) {
			continue
		}
		n, err := w.next()
		if err != nil {
			return nil, err
		}
		w.addMail(k, n, &m)
		inbox = append(inbox, m)
	}
	return inbox, nil
}

const madePrefix = "run_"

// madeID is the id of a run that was given none: a mark of the store, so that
// the ids of two stores differ, and the run's number.
func (s *Store) madeID(k int64) string {
	return madePrefix + s.tag() + "_" + strconv.FormatInt(k, 32)
}

func (s *Store) tag() string {
	tag := strconv.FormatUint(s.salt>>44|1<<19, 32) // 20 bits: 4 digits
	return tag[len(tag)-4:]
}

// parseID returns the number of an id that this store made.
func (s *Store) parseID(id string) (int64, bool) {
	rest, ok := strings.CutPrefix(id, madePrefix)
	if !ok {
		return 0, false
	}
	tag, digits, ok := strings.Cut(rest, "_")
	if !ok || tag != s.tag() {
		return 0, false
	}
	k, err := strconv.ParseInt(digits, 32, 64)
	return k, err == nil && k > 0 && s.madeID(k) == id
}

// seed is fixed for a run and generation, and different for each: SplitMix64 of
// the store's salt and the run's number.
func (s *Store) seed(k int64, generation int) uint64 {
	z := s.salt + uint64(k)*0x9e3779b97f4a7c15 + uint64(generation)*0xd1b54a32d192ed03
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
