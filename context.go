package bide

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Context is what a workflow is given, and what every verb asks for. It is a
// [context.Context] whose Done channel closes when the turn, or the branch, is
// over; a step's function gets a plain context.Context of its own, so a verb
// called on that does not compile.
//
// A Context belongs to one branch of one turn: [Go], [All] and [Race] give each
// of their functions its own.
type Context interface {
	context.Context
	scope() scope
}

// scope is where a verb is called: on a branch, and whether it still works
// after the run was canceled.
type scope struct {
	b        *branch
	detached bool
}

type workflowContext struct {
	context.Context
	s scope
}

func (c workflowContext) scope() scope { return c.s }

// WithoutCancel returns a Context whose verbs go on working after the run was
// canceled: for clean-up.
func WithoutCancel(ctx Context) Context {
	s := ctx.scope()
	s.detached = true
	return workflowContext{context.WithoutCancel(ctx), s}
}

// Parking reports whether the turn is being unwound because the run parks (or
// its lease is lost): a deferred function that should act only at the real end
// returns when it is true.
func Parking(ctx Context) bool {
	b := ctx.scope().b
	b.t.mu.Lock()
	defer b.t.mu.Unlock()
	return b.t.ending != open && b.t.ending != finishing || b.isLost()
}

// branch is one line of execution of a workflow: the root, or what Go, All and
// Race start. It runs in a goroutine of its own.
type branch struct {
	t      *turn
	parent *branch
	prefix string // of its verbs' paths: "" or "3.1."
	ctx    context.Context
	cancel context.CancelFunc // of a race's branch, else nil
	wake   chan struct{}      // capacity 1; receives when a wait is over

	busy atomic.Bool // a verb is running: no other may begin

	// Under t.mu:
	n        int       // verbs begun
	last     int       // the highest n that the history has a record for
	begun    int       // the highest n that the history has a record or a wait for
	fresh    bool      // no verb has been live yet: unfinished ones may have begun in an earlier turn
	canceled bool      // a verb of this branch has seen the run's cancel
	lost     bool      // of a race that another branch has won
	ended    bool      // its function has returned or unwound
	clock    time.Time // when the last of its verbs was over, see Now
	wait     waiter    // while blocked
	inFlight *attempt
	race     *race // that it takes part in

	timer *time.Timer // of the attempt in flight
	rng   rngState    // used by the branch's own goroutine only
}

// waiter is what wakes a blocked branch.
type waiter struct {
	until time.Time           // zero: no timer
	match func(*Message) bool // nil: no message
	on    *branch             // ends when this branch does
	kind  Kind                // 0: not a durable wait of its own (a join)
	keep  bool                // detached: a cancel does not wake it

	why why
	msg *Message
}

type why int8

const (
	whyTimer why = iota + 1
	whyMessage
	whyCanceled
	whyBranch
	whyExit // unwind: Goexit
)

func (b *branch) isLost() bool {
	for ; b != nil; b = b.parent {
		if b.lost {
			return true
		}
	}
	return false
}

// verb is one call of a verb by a branch.
type verb struct {
	b        *branch
	t        *turn
	detached bool
	path     string
	kind     Kind
	name     string
	kept     []Record // what the history has at this path
	began    time.Time
}

func begin(ctx Context, kind Kind, name string, records bool) (*verb, error) {
	v := &verb{}
	if err := v.begin(ctx, kind, name, records); err != nil {
		return nil, err
	}
	return v, nil
}

// begin starts a verb: it finds its place in the workflow and what is kept
// there. A verb with records true leaves a record each time it ends. When the
// turn is being unwound it does not return.
func (v *verb) begin(ctx Context, kind Kind, name string, records bool) error {
	s := ctx.scope()
	b, t := s.b, s.b.t
	if !b.busy.CompareAndSwap(false, true) {
		if t.unwinding(b) {
			runtime.Goexit()
		}
		return &MisuseError{Verb: kind.String() + " " + strconv.Quote(name), Reason: "called while another verb of the same branch runs: " +
			"from inside a step's function, or from a goroutine of your own; start branches with bide.Go"}
	}
	t.mu.Lock()
	if b.ended {
		t.mu.Unlock()
		b.busy.Store(false)
		return &MisuseError{Verb: kind.String() + " " + strconv.Quote(name), Reason: "called after its workflow or branch had ended"}
	}
	if t.ending != open || b.isLost() {
		b.exitLocked()
	}
	if name == "" && (kind == KindStep || kind == KindReceive || kind == KindPoll || kind == KindPhase || kind == KindWebhook) {
		t.mu.Unlock()
		b.busy.Store(false)
		return &InvalidError{Field: kind.String() + " name", Reason: "is empty; the history needs a name to go by"}
	}
	t.verbs++
	b.n++
	*v = verb{b: b, t: t, detached: s.detached, kind: kind, name: name, path: b.prefix + strconv.Itoa(b.n), began: t.now()}
	v.kept = t.kept[v.path]
	switch {
	case len(v.kept) > 0:
		last := v.kept[len(v.kept)-1]
		if last.Kind == KindCanceled && last.Name == name {
			b.canceled = true
			v.endLocked()
			t.mu.Unlock()
			return ErrCanceled
		}
		if k := v.kept[0]; !sameVerb(k.Kind, kind) || k.Name != name {
			v.diverge(fmt.Sprintf("%s %q", k.Kind, k.Name))
		}
		t.mu.Unlock()
		return nil
	case records && b.n < b.last && !b.canceled:
		v.diverge("nothing here, but records further on")
	}
	if b.n >= b.last && t.yield { // live, and somebody wants the turn to end here
		t.parkAt(t.now())
		t.unwind(parking)
		b.exitLocked()
	}
	if kind != KindJoin && !kind.holdsOthers() && !s.detached && (b.canceled || t.canceled && b.n >= b.last) {
		v.canceledLocked()
		t.mu.Unlock()
		return ErrCanceled
	}
	t.mu.Unlock()
	return nil
}

// holdsOthers reports whether the verb runs verbs of its own. A cancel is for those
// to see: they may have begun in an earlier turn, and the code around them cleans up.
func (k Kind) holdsOthers() bool { return k == KindPhase || k == KindRace || k == KindBranch }

func sameVerb(kept, called Kind) bool {
	return kept == called || kept == KindStepStarted && called == KindStep || kept == KindExtended || kept == KindChecked
}

// canceledLocked lets the verb see the run's cancel. The first to do so in its
// branch leaves a record, so that a replay sees it at the same place.
func (v *verb) canceledLocked() {
	if !v.b.canceled {
		v.b.canceled = true
		v.recordLocked(Record{Kind: KindCanceled, At: v.t.now()})
	}
	v.endLocked()
}

// endLocked lets the next verb begin.
func (v *verb) endLocked() { v.b.busy.Store(false) }

func (v *verb) end() { v.b.busy.Store(false) }

// diverge ends the turn: the code took another path than the history.
func (v *verb) diverge(expected string) {
	v.t.mu.Unlock()
	v.end()
	panic(&DivergedError{Path: v.path, Expected: expected, Found: fmt.Sprintf("%s %q", v.kind, v.name), Line: userLine()})
}

// userLine is the first caller outside this package.
func userLine() string {
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		f, more := frames.Next()
		if !strings.HasPrefix(f.Function, "github.com/bide-dev/bide.") {
			return f.File + ":" + strconv.Itoa(f.Line)
		}
		if !more {
			return "unknown line"
		}
	}
}

// exitLocked leaves the branch's goroutine, with the turn's lock held.
func (b *branch) exitLocked() {
	b.t.mu.Unlock()
	b.busy.Store(false)
	runtime.Goexit()
}

// result returns the record that ended this verb in an earlier turn, if any.
func (v *verb) result() *Record {
	for i := len(v.kept) - 1; i >= 0; i-- {
		if r := &v.kept[i]; r.Kind == v.kind && (r.Kind != KindSleep || r.By != "") {
			return r
		}
	}
	return nil
}

// replay returns what a kept record says and ends the verb.
func (v *verb) replay(r *Record) (data []byte, err error) {
	v.t.mu.Lock()
	v.tick(r.At)
	v.t.mu.Unlock()
	v.end()
	return r.Data, r.Error.Err()
}

// clock is when the last verb of the branch was over. What was there for the
// taking by then was not taken later, however late the machine got to it.
func (v *verb) clock() time.Time {
	v.t.mu.Lock()
	defer v.t.mu.Unlock()
	return v.b.clock
}

// tick moves the branch's clock; it never goes back.
func (v *verb) tick(at time.Time) {
	if at.After(v.b.clock) {
		v.b.clock = at
	}
}

// recordLocked adds a record of this verb to what the next commit writes.
func (v *verb) recordLocked(r Record) {
	r.Path, r.Name = v.path, v.name
	v.b.fresh = false
	v.tick(r.At)
	t := v.t
	t.records = append(t.records, r)
	t.length++
	t.changed()
}

// finish records how the verb ended and what message (if any) that took up,
// forgets its wait, and lets the branch go on. What it returns is what a replay
// would return.
func (v *verb) finish(r Record, taken *Message) (data []byte, err error) {
	v.t.mu.Lock()
	data, err = v.finishLocked(r, taken)
	v.t.mu.Unlock()
	return data, err
}

// finishLocked is finish with t.mu held, for what has to be in the same commit.
func (v *verb) finishLocked(r Record, taken *Message) (data []byte, err error) {
	r.Kind = v.kind
	if r.At.IsZero() {
		r.At = v.t.now()
	}
	t := v.t
	if t.over(v.b) {
		v.b.exitLocked() // too late: the run ends without this
	}
	v.recordLocked(r)
	if taken != nil {
		t.consumed = append(t.consumed, taken.Seq)
		if taken.Op == OpSignal {
			t.taken = append(t.taken, taking{v.path, *taken})
		}
	}
	t.forgetWait(v.path)
	v.endLocked()
	return r.Data, r.Error.Err()
}

// now is the time as it is kept: UTC, in microseconds.
func now() time.Time { return time.Now().UTC().Round(0).Truncate(time.Microsecond) }

// after is t + d as it is kept: a time between two microseconds would come
// before itself once it has been through the store.
func after(t time.Time, d time.Duration) time.Time {
	d = min(d, forever-time.Microsecond) // "for ever" must not wrap around into the past
	return t.Add(d + time.Microsecond - 1).Truncate(time.Microsecond)
}
