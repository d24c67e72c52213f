package postgres

import (
	"context"
	"encoding/json"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bide-dev/bide"
)

// op is one write, waiting for its turn in a batch. Exactly one of the groups of
// fields is set.
type op struct {
	create  []bide.NewRun // Store.Create
	created []bide.Created

	commit bool // Store.Commit
	lease  bide.Lease
	batch  bide.Batch

	signal bool // Store.Signal
	run    string
	msg    bide.Message
	isNew  bool

	control bool // Store.Control
	cmd     bide.Command

	purge bool // Store.Purge

	join *worker // Store.Claim, first call
	hint *hint   // what another process has said
	tick bool    // something may be due

	err error
}

// writer is all that the one writing goroutine knows: it needs no lock. What a
// batch changes of it is put back when the batch fails.
type writer struct {
	s    *Store
	conn *pgx.Conn // nil: lost

	me     int64 // this process's row in the table of members; 0: none yet
	news   int64 // what was read there last
	batch  int64 // the number of the last transaction
	kept   int64 // of the last one that was committed
	others bool  // whether other processes have the store open
	beatAt time.Duration

	seq, reserved int64 // numbers up to reserved may be used
	blockAt       time.Duration

	leases  map[int64]*lease
	held    map[string]*lease // the same by the run's id
	members map[int64]int64   // workers' members
	rivals  map[int64]rival
	silent  struct{ k, expires []int64 } // of those, who are dead by this process's clock
	routes  map[routeName]*route
	byKey   map[int64]*route
	workers []*worker
	crews   []*crew
	dead    atomic.Bool // for tests: it ends without a word
	strays  bool        // runs may be in our name of which we do not know
	start   time.Time   // epoch of the leases' monotonic clock
	timer   *time.Timer
	timerAt time.Duration

	// Of the batch that is being applied:
	ctx     context.Context
	now     int64
	tx      bool // it has an explicit transaction
	wrote   bool // something of it was written before its end
	sent    bool // its end may have reached the database
	fresh   bool // its numbers are above all that were given before it
	careful bool // ids of new runs are looked up first: one was taken
	outrun  int  // how often others have changed what it holds meanwhile
	rows    map[int64]*row
	ids     map[string]int64
	foreign map[int64][]int64 // runs changed that others hold, by member
	facts   map[factName]*factRow
	mails   map[mailKey]string
	p       pending
	tally   tally
	asks    []*ask
	due     map[*route]int64 // since when: for others
	left    []*worker
	joined  []*worker
	made    []*route
	out     []delivery
	touched []touch
	taken   []*lease
	freed   []*lease
	commits int64
	lost    int64
}

type routeName struct{ queue, workflow string }

// route is a queue and a workflow.
type route struct {
	k     int64
	name  routeName
	next  int64 // no run of it is due before this
	crew  *crew // nil: no worker wants it
	index int   // in the crew's timetable
}

// lease is a run in a worker's hand.
type lease struct {
	row
	worker *worker
	handed int64     // the newest message when it was handed out
	known  *bide.Run // as handed out, for those who wait for its end; nil if not at hand
	freed  bool      // by the batch that is being applied
}

// delivery is something for a worker's mailbox, once it is durable.
type delivery struct {
	w     *worker
	c     *bide.Claimed
	lease *lease // set: a run, not news
	full  *fullRow
}

// touch notes a changed run, for those who watch it.
type touch struct {
	id    string
	freed *lease    // set: the lease that is over
	over  bool      // the run has ended
	ended *bide.Run // the ended run, if at hand
}

func (w *writer) init(s *Store, conn *pgx.Conn) {
	*w = writer{s: s, conn: conn, leases: map[int64]*lease{}, held: map[string]*lease{}, members: map[int64]int64{},
		routes: map[routeName]*route{}, byKey: map[int64]*route{}, start: time.Now(), ctx: context.Background(),
		rows: map[int64]*row{}, ids: map[string]int64{}, foreign: map[int64][]int64{}, facts: map[factName]*factRow{},
		mails: map[mailKey]string{}, due: map[*route]int64{}, beatAt: never, timerAt: -1}
}

// apply carries out one op. An error is the batch's; what the op's caller should
// hear is in op.err, and then nothing was written for it.
func (w *writer) apply(o *op) error {
	switch {
	case o.create != nil:
		return w.create(o)
	case o.commit:
		return w.commit(o)
	case o.signal:
		return w.signalled(o)
	case o.control:
		return w.controlled(o)
	case o.purge:
		return w.purge(o)
	case o.join != nil:
		return w.join(o.join)
	case o.hint != nil:
		return w.heard(o.hint)
	case o.tick:
		w.timerAt = -1 // it may be the timer, which has rung
		w.lookSooner()
	}
	return nil
}

// finish makes what the batch has done known, here and to those who wait.
func (w *writer) finish() {
	for _, r := range w.rows {
		if l := w.leases[r.k]; l != nil && !l.freed {
			r.dirty, r.big = false, changes{}
			l.row = *r
		}
	}
	for _, l := range w.freed {
		if w.leases[l.k] == l {
			delete(w.leases, l.k)
		}
		if w.held[l.id] == l {
			delete(w.held, l.id)
		}
	}
	again := w.took()
	w.announce()
	w.clear()
	w.schedule()
	if again {
		_ = w.s.group.Add(&op{tick: true})
	}
}

// putBack undoes what a batch that has failed did to what is known here.
func (w *writer) putBack() {
	if w.tx && w.conn != nil && !w.conn.IsClosed() {
		err := w.within(func() error { _, err := w.conn.Exec(w.ctx, "ROLLBACK"); return err })
		if err != nil {
			w.hangUp()
		}
	}
	for _, l := range w.freed {
		l.freed = false
		l.worker.held++
	}
	for _, l := range w.taken {
		delete(w.leases, l.k)
		delete(w.held, l.id)
		l.worker.held--
	}
	for _, x := range w.joined {
		w.workers = slices.DeleteFunc(w.workers, func(y *worker) bool { return x == y })
	}
	for _, x := range w.left {
		x.max.Store(0) // nothing new for it; what it holds is free when it lapses
		w.workers = append(w.workers, x)
	}
	for name, r := range w.routes {
		if r.next = min(r.next, w.now); slices.Contains(w.made, r) {
			delete(w.routes, name)
			delete(w.byKey, r.k)
		}
	}
	w.clear()
	w.regroup()
	w.tickAt(time.Since(w.start) + lookAgain)
}

func (w *writer) clear() {
	clear(w.rows)
	clear(w.ids)
	clear(w.foreign)
	clear(w.facts)
	clear(w.mails)
	clear(w.due)
	clear(w.out)
	clear(w.touched)
	w.p.clear()
	w.asks, w.left, w.joined, w.made = w.asks[:0], w.left[:0], w.joined[:0], w.made[:0]
	w.out, w.touched, w.taken, w.freed = w.out[:0], w.touched[:0], w.taken[:0], w.freed[:0]
	w.commits, w.lost, w.tx = 0, 0, false
}

// announce tells the world, after the commit, what it may now see.
func (w *writer) announce() {
	if len(w.out) == 0 && len(w.touched) == 0 && len(w.left) == 0 {
		return
	}
	w.s.mu.Lock()
	for _, d := range w.out {
		if d.lease != nil {
			w.s.live[d.lease.id] = d.lease
		}
		d.w.mail = append(d.w.mail, d)
		d.w.ring()
	}
	for _, x := range w.left { // after their last news
		x.gone = true
		x.ring() // a Claim that still waits makes itself known again
		if len(x.mail) == 0 && w.s.workers[x.id] == x {
			delete(w.s.workers, x.id)
		}
	}
	for _, t := range w.touched {
		w.s.notify(t)
	}
	w.s.mu.Unlock()
}

// schedule sets the timer to when something will be due without anyone calling:
// a run, a sign of life, or the end of a worker's leases.
func (w *writer) schedule() {
	at := w.beatAt
	for _, x := range w.workers {
		at = min(at, time.Duration(x.expires.Load()))
	}
	due := int64(never)
	for _, c := range w.crews {
		// While no hand is free it does not matter what will be due: whoever frees
		// one comes by here. What is due already waits for one.
		if next := c.soonest(); next < due && c.free() > 0 {
			due = next
		}
	}
	if due != never {
		// The wall clock may jump: never sleep longer than this without looking.
		left := time.Duration(min(max(due-w.now, 0), int64(30*time.Second/time.Microsecond))) * time.Microsecond
		at = min(at, time.Since(w.start)+left)
	}
	if at != never && at != w.timerAt {
		w.tickAt(at)
	}
}

// lookAgain is how long after a failed batch the writer looks by itself for what
// is due: what it would have set the timer to is unknown.
const lookAgain = time.Second

// tickAt sets the timer, on the monotonic clock.
func (w *writer) tickAt(at time.Duration) {
	w.timerAt = at
	left := at - time.Since(w.start)
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if w.timer == nil {
		w.timer = time.AfterFunc(left, func() { _ = w.s.group.Add(&op{tick: true}) })
		return
	}
	w.timer.Reset(left)
}

// micros is a time as the database has it; 0 for none.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func clock(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// object is v as JSON; nil for a nil pointer or an empty map.
func object(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil || string(data) == "null" || string(data) == "{}" || string(data) == "[]" {
		return nil
	}
	return data
}

// bytes is b, or nil for none.
func some(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}
