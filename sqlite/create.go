package sqlite

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bide-dev/bide"
)

// inlineInput is the most bytes of input kept in the run's own row, all of which
// is written again whenever the run parks.
const inlineInput = 1024

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
	if err := w.begin(); err != nil {
		return err
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
		k, err := w.resolve(n.ID)
		if err == nil {
			c, settled, err := w.conflict(n, k)
			if settled || err != nil {
				return c, err
			}
		} else if !errors.Is(err, bide.ErrNotFound) {
			return bide.Created{}, err
		}
	}
	r, err := w.route(routeName{n.Queue, n.Workflow})
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
	}
	wake := max(micros(n.StartAt), w.now)
	var born *worker
	if wake <= w.now {
		if born = r.pick(); born != nil {
			wake = 0
		}
	}
	inbox, err := w.firstMail(k, n.Messages)
	if err != nil {
		return bide.Created{}, err
	}
	mail := int64(0)
	if len(inbox) > 0 {
		mail = inbox[len(inbox)-1].Seq
	}
	labels := object(n.Labels)
	st := w.st.addRun
	st.BindInt64(1, k)
	st.BindInt64(2, r.k)
	st.BindInt64(3, int64(bide.Queued))
	st.BindInt64(4, wake)
	st.BindInt64(5, mail)
	text(st, 6, n.ID)
	text(st, 7, n.Parent)
	st.BindBool(8, n.Detached)
	st.BindInt64(9, w.now)
	st.BindNull(10)
	if born != nil {
		st.BindInt64(10, w.now)
	}
	number(st, 11, micros(n.Deadline), 0)
	text(st, 12, string(labels))
	if len(n.Input) <= inlineInput {
		st.BindBytes(13, n.Input)
	} else {
		st.BindNull(13)
	}
	text(st, 14, n.Key)
	text(st, 15, n.Print)
	if n.OnEnd == nil {
		st.BindNull(16)
	} else {
		blob(st, 16, object(n.OnEnd))
	}
	text(st, 17, n.Trace)
	if err := w.exec(st); err != nil {
		return bide.Created{}, err
	}
	w.tally[count{r.k, bide.Queued}]++
	for name, value := range n.Labels {
		if err := w.label(w.st.addLabel, name, value, k); err != nil {
			return bide.Created{}, err
		}
	}
	if w.s.watching.Load() > 0 {
		w.touched = append(w.touched, touch{id: id})
	}
	if len(n.Input) > inlineInput {
		if err := w.keepPayload(k, n.Input); err != nil {
			return bide.Created{}, err
		}
	}
	if born == nil {
		w.due(r, place{wake, k})
		return bide.Created{ID: id, New: true}, nil
	}
	run := &bide.Run{ID: id, Workflow: n.Workflow, Queue: n.Queue, State: bide.Running, Version: k, Parent: n.Parent,
		Labels: n.Labels, Input: n.Input, CreatedAt: clock(w.now), StartedAt: clock(w.now), Deadline: n.Deadline, Trace: n.Trace, Seed: w.s.seed(k, 0)}
	l := &lease{k: k, id: id, route: r, state: bide.Queued, mail: mail, parent: n.Parent, onEnd: n.OnEnd != nil, known: run, warm: new(atomic.Bool)}
	w.take(l, born, k)
	w.out = append(w.out, delivery{w: born, lease: l, full: true, c: &bide.Claimed{Lease: l.public(), Run: *run, Inbox: inbox}})
	return bide.Created{ID: id, New: true}, nil
}

// label enters a run under one of its labels, or strikes it out.
func (w *writer) label(st *sqlite.Stmt, name, value string, k int64) error {
	st.BindText(1, name)
	st.BindText(2, value)
	st.BindInt64(3, k)
	return w.exec(st)
}

// byStartKey answers a start whose key a run has.
func (w *writer) byStartKey(n *bide.NewRun) (c bide.Created, found bool, err error) {
	kept := ""
	w.st.findKey.BindText(1, n.Key)
	found, err = w.one(w.st.findKey, func(s *sqlite.Stmt) {
		if c.ID, kept = s.ColumnText(1), s.ColumnText(2); c.ID == "" {
			c.ID = w.s.madeID(s.ColumnInt64(0))
		}
	})
	if found && kept != n.Print {
		c.Err = &bide.ConflictError{ID: c.ID, Key: n.Key}
	}
	return c, found, err
}

// conflict decides about an id that is taken. settled: no run is to be made.
func (w *writer) conflict(n *bide.NewRun, k int64) (c bide.Created, settled bool, err error) {
	t, err := w.target(k)
	if err != nil {
		return c, true, err
	}
	switch n.Conflict {
	case bide.Existing:
		// A run that was continued as new has lost the input it was started with.
		if t.route.name.workflow == n.Workflow && (t.generation > 0 || bytes.Equal(t.input, n.Input)) {
			return bide.Created{ID: n.ID}, true, nil
		}
	case bide.Replace:
		if !t.state.Ended() {
			f := &bide.Failure{Message: "replaced by a new run of the same id"}
			if err := w.endRun(t, bide.Terminated, nil, f, 0); err != nil {
				return c, true, err
			}
		}
		ver, err := w.next()
		if err != nil {
			return c, true, err
		}
		w.st.giveID.BindInt64(1, k)
		w.st.giveID.BindInt64(2, ver)
		if err := w.exec(w.st.giveID); err != nil {
			return c, true, err
		}
		w.st.moveKids.BindText(1, n.ID)
		w.st.moveKids.BindText(2, w.s.madeID(k))
		return c, false, w.exec(w.st.moveKids)
	}
	return bide.Created{ID: n.ID, Err: &bide.ConflictError{ID: n.ID}}, true, nil
}

// route returns the route of the name, made now if it is new.
func (w *writer) route(name routeName) (*route, error) {
	if r := w.routes[name]; r != nil {
		return r, nil
	}
	k, err := w.next()
	if err != nil {
		return nil, err
	}
	w.st.addRoute.BindInt64(1, k)
	w.st.addRoute.BindText(2, name.queue)
	w.st.addRoute.BindText(3, name.workflow)
	if err := w.exec(w.st.addRoute); err != nil {
		return nil, err
	}
	r := &route{k: k, name: name, cursor: nowhere, mark: nowhere, openMark: nowhere, next: never}
	w.addRoute(r)
	return r, nil
}

// firstMail puts a new run's first messages into its inbox.
func (w *writer) firstMail(k int64, messages []bide.Message) ([]bide.Message, error) {
	var inbox []bide.Message
	for _, m := range messages {
		if m.Key != "" && slices.ContainsFunc(inbox, func(x bide.Message) bool { return x.Key == m.Key }) {
			continue
		}
		if err := w.addMail(k, &m); err != nil {
			return nil, err
		}
		inbox = append(inbox, m)
	}
	return inbox, nil
}

func (w *writer) keepPayload(k int64, input json.RawMessage) error {
	w.st.addPayload.BindInt64(1, k)
	w.st.addPayload.BindBytes(2, input)
	return w.exec(w.st.addPayload)
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

// resolve finds the number of a run, or returns [bide.ErrNotFound].
func (w *writer) resolve(id string) (int64, error) {
	k, made := w.s.parseID(id)
	if made {
		return k, nil
	}
	w.st.find.BindText(1, id)
	found, err := w.one(w.st.find, func(s *sqlite.Stmt) { k = s.ColumnInt64(0) })
	if err == nil && !found {
		err = bide.ErrNotFound
	}
	return k, err
}

// seed is fixed for a run and generation, and different for each: SplitMix64 of
// the store's salt and the run's number.
func (s *Store) seed(k int64, generation int) uint64 {
	z := s.salt + uint64(k)*0x9e3779b97f4a7c15 + uint64(generation)*0xd1b54a32d192ed03
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func clock(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
