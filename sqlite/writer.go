package sqlite

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"zombiezen.com/go/sqlite"

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
	tick bool    // something may be due

	err error
}

// writer is all that the one writing goroutine knows: it needs no lock. What it
// changes here while it applies a batch is put back when the batch fails.
type writer struct {
	s    *Store
	conn *sqlite.Conn
	st   statements
	wal  wal

	seq      int64 // the newest number in use
	kept     int64 // the newest number before this batch
	reserved int64 // numbers up to here may be used without writing so
	leases   map[int64]*lease
	lapsed   map[int64]bool // runs whose lease was lost to time, not yet taken over
	routes   map[routeName]*route
	byKey    map[int64]*route
	workers  []*worker
	crews    []*crew
	openSeq  int64     // the newest number when the file was opened
	asked    int64     // statements run so far
	start    time.Time // epoch of the leases' monotonic clock
	timer    *time.Timer
	timerAt  time.Duration // on the monotonic clock

	// Of the batch that is being applied:
	now     int64
	inTx    bool
	left    []*worker // who have left
	out     []delivery
	touched []touch
	undo    []undo
	tally   map[count]int64 // by how much the numbers of runs change
	commits int64
	lost    int64 // leases
}

// count names a number of runs that is kept.
type count struct {
	route int64
	state bide.State
}

type routeName struct{ queue, workflow string }

// route is a queue and a workflow. Every due run up to the cursor is in hand, or
// was when the cursor passed it: whatever puts a run behind it moves it back.
type route struct {
	k        int64
	name     routeName
	cursor   place
	mark     place // the cursor as the file has it, at its farthest
	openMark place // mark when the file was opened: runs up to it, put there
	openPut  int64 // up to this number, were in hand when the last process ended
	next     int64 // no run beyond the cursor is due before this
	crew     *crew // nil: no worker wants it
	index    int   // in the crew's timetable
}

// place is a run's position in the due index.
type place struct{ wake, k int64 }

func (p place) before(q place) bool { return p.wake < q.wake || p.wake == q.wake && p.k < q.k }

var nowhere = place{wake: -1}

const never = math.MaxInt64

// lease is a run in a worker's hand.
type lease struct {
	k      int64
	id     string
	epoch  int64
	worker *worker
	route  *route
	wake   int64      // of the row
	state  bide.State // of the row
	mail   int64
	handed int64 // the newest message when it was handed out
	parent string
	kids   bool
	onEnd  bool         // a run follows its end
	known  *bide.Run    // as handed out, for those who wait for its end; nil if not at hand
	warm   *atomic.Bool // the turn waits and holds its lease
}

// delivery is something for a worker's mailbox, once it is durable.
type delivery struct {
	w     *worker
	c     *bide.Claimed
	lease *lease // set: a run, not news
	mail  int64  // the newest message when it was handed out
	full  bool   // nothing is left to be read from the file
}

// touch notes a changed run, for those who watch it.
type touch struct {
	id    string
	freed *lease    // set: the lease that is over
	over  bool      // the run has ended
	ended *bide.Run // the ended run, if at hand
}

// undo puts back what a failed batch has done to a lease, or to a worker.
type undo struct {
	l      *lease
	taken  bool // by this batch; else given up by it
	lapsed bool // taken over from a worker that was lost
	old    lease
	left   *worker // set: it left
}

func (w *writer) init(s *Store, conn *sqlite.Conn) {
	*w = writer{s: s, conn: conn, leases: map[int64]*lease{}, lapsed: map[int64]bool{},
		routes: map[routeName]*route{}, byKey: map[int64]*route{}, start: time.Now(), tally: map[count]int64{}}
}

// recover reads what the last process left.
func (w *writer) recover() error {
	if err := w.st.prepare(w.conn); err != nil {
		return err
	}
	err := w.rows(w.st.meta, func(s *sqlite.Stmt) {
		if s.ColumnText(0) == "seq" {
			w.seq = s.ColumnInt64(1)
		}
	})
	if err != nil {
		return err
	}
	w.reserved, w.openSeq = w.seq, w.seq
	return w.rows(w.st.routes, func(s *sqlite.Stmt) {
		mark := place{s.ColumnInt64(3), s.ColumnInt64(4)}
		next := int64(never)
		if !s.ColumnIsNull(6) {
			next = s.ColumnInt64(6)
		}
		w.addRoute(&route{k: s.ColumnInt64(0), name: routeName{s.ColumnText(1), s.ColumnText(2)},
			cursor: nowhere, mark: mark, openMark: mark, openPut: s.ColumnInt64(5), next: next})
	})
}

func (w *writer) addRoute(r *route) {
	w.routes[r.name], w.byKey[r.k] = r, r
	w.assign(r)
}

// stop ends the timer; the group has ended before.
func (w *writer) stop() {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
}

// flush makes one transaction of a batch. If that fails for a reason of one
// op's own, each gets a transaction to itself.
func (w *writer) flush(ops []*op) {
	err := w.try(ops)
	if err == nil {
		return
	}
	if len(ops) == 1 || errors.Is(err, bide.ErrStoreFull) {
		for _, o := range ops {
			o.err = err
		}
		return
	}
	for _, o := range ops {
		if err := w.try([]*op{o}); err != nil {
			o.err = err
		}
	}
}

func (w *writer) try(ops []*op) error {
	if w.s.path == memory { // the connection is shared with the readers
		r := <-w.s.readers
		defer func() { w.s.readers <- r }()
	}
	w.now = w.s.line.Now().UnixMicro()
	w.inTx = false
	before := w.asked
	reserved := w.reserved
	w.kept = w.seq
	err := w.applyAll(ops)
	if err == nil && w.inTx {
		if err = w.writeTally(); err == nil {
			err = w.exec(w.st.commit)
		}
	}
	if err != nil {
		if w.inTx && !w.conn.AutocommitEnabled() {
			_ = w.exec(w.st.rollback)
		}
		w.reserved = reserved
		w.putBack()
		w.tickAt(time.Since(w.start) + lookAgain)
		return err
	}
	w.undo = w.undo[:0]
	w.count()
	w.announce()
	w.schedule()
	if w.inTx && w.s.path != memory {
		w.wal.written(w.conn, int(w.asked-before))
	}
	return nil
}

func (w *writer) applyAll(ops []*op) error {
	if err := w.expire(); err != nil {
		return err
	}
	for _, o := range ops {
		o.err = nil
		if err := w.apply(o); err != nil {
			return err
		}
	}
	return w.pump()
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
		w.join(o.join)
	}
	return nil
}

// putBack undoes, after a rollback, what the batch did to the leases, and lets
// the routes look for due runs from their beginning.
func (w *writer) putBack() {
	w.s.mu.Lock() // readers look at live leases
	for _, u := range slices.Backward(w.undo) {
		switch {
		case u.left != nil:
			u.left.max.Store(0) // nothing new for it; what it holds is free when it lapses
			w.join(u.left)
		case u.taken:
			delete(w.leases, u.l.k)
			u.l.worker.held--
			if u.lapsed {
				w.lapsed[u.l.k] = true
			}
		default:
			*u.l = u.old
			if w.leases[u.l.k] == nil {
				w.leases[u.l.k] = u.l
				u.l.worker.held++
			}
		}
	}
	w.s.mu.Unlock()
	w.undo, w.left, w.out, w.touched = w.undo[:0], w.left[:0], w.out[:0], w.touched[:0]
	clear(w.tally)
	w.commits, w.lost = 0, 0
	for name, r := range w.routes {
		r.cursor, r.next = nowhere, 0
		if r.k > w.kept { // made by this batch: not in the file
			delete(w.routes, name)
			delete(w.byKey, r.k)
		}
	}
	w.regroup()
}

// next returns the next number. The file knows of a block of numbers at a time,
// so that none is given twice after a crash.
func (w *writer) next() (int64, error) {
	if w.seq >= w.reserved { // above it once a batch has failed
		w.reserved = w.seq + 1<<20
		w.st.setMeta.BindText(1, "seq")
		w.st.setMeta.BindInt64(2, w.reserved)
		if err := w.exec(w.st.setMeta); err != nil {
			return 0, err
		}
	}
	w.seq++
	return w.seq, nil
}

// begin opens the batch's transaction before its first write.
func (w *writer) begin() error {
	if w.inTx {
		return nil
	}
	if err := w.exec(w.st.begin); err != nil {
		return err
	}
	w.inTx = true
	return nil
}

// exec runs a statement that returns no rows.
func (w *writer) exec(s *sqlite.Stmt) error {
	w.asked++
	_, err := s.Step()
	if rerr := s.Reset(); err == nil {
		err = rerr
	}
	return failure(err)
}

// one runs a statement and reports whether it has a row; scan is called with it.
func (w *writer) one(s *sqlite.Stmt, scan func(*sqlite.Stmt)) (bool, error) {
	w.asked++
	found, err := s.Step()
	if found && err == nil && scan != nil {
		scan(s)
	}
	if rerr := s.Reset(); err == nil {
		err = rerr
	}
	return found, failure(err)
}

func (w *writer) rows(s *sqlite.Stmt, scan func(*sqlite.Stmt)) error {
	w.asked++
	defer s.Reset()
	for {
		more, err := s.Step()
		if err != nil || !more {
			return failure(err)
		}
		scan(s)
	}
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
	w.left = w.left[:0]
	clear(w.out)
	clear(w.touched)
	w.out, w.touched = w.out[:0], w.touched[:0]
}

// schedule sets the timer to when something will be due without anyone calling:
// a run, or the end of a worker's leases. It is the process's only one.
func (w *writer) schedule() {
	at := time.Duration(never)
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
		const look = int64(30 * time.Second / time.Microsecond)
		left := time.Duration(min(max(due-w.now, 0), look)) * time.Microsecond // a far time overflows
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

func blob(s *sqlite.Stmt, i int, b []byte) {
	if len(b) == 0 {
		s.BindNull(i)
		return
	}
	s.BindBytes(i, b)
}

func text(s *sqlite.Stmt, i int, t string) {
	if t == "" {
		s.BindNull(i)
		return
	}
	s.BindText(i, t)
}

// number binds n, or NULL for none.
func number(s *sqlite.Stmt, i int, n, none int64) {
	if n == none {
		s.BindNull(i)
		return
	}
	s.BindInt64(i, n)
}

// micros is a time as the file has it; 0 for none.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// object is v as JSON; nil for a nil pointer or an empty map.
func object(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil || string(data) == "null" || string(data) == "{}" || string(data) == "[]" {
		return nil
	}
	return data
}
