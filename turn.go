package bide

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ending is why a turn's branches are being unwound.
type ending int8

const (
	open      ending = iota
	parking          // every branch waits, or the turn was asked to yield
	finishing        // the workflow has returned
	faulted          // a branch panicked
	expired          // the run's deadline has passed
	lost             // the lease is gone
)

var errUnwound = errors.New("bide: the turn is over")

const (
	flushAfter    = time.Millisecond      // how long a record may wait for its branch's next commit
	progressAfter = 50 * time.Millisecond // the same for progress and heartbeats
)

// turn is one pass through a workflow: it replays what is kept, runs what is
// not, and ends by parking or finishing the run.
//
// A branch is active unless it is blocked in a durable wait; when none is, the
// turn is idle and parks (or stays warm). Whoever wakes a branch counts it as
// active under the lock, so that no other branch can see zero in between.
type turn struct {
	w      *Worker
	def    *definition
	lease  Lease
	run    Run
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	flushed sync.Cond // a commit has ended
	ending  ending
	fault   error
	outcome Next // of the workflow function, once finishing
	root    *branch

	live    int // branches whose goroutine has not ended
	active  int // branches not blocked in a wait
	code    int // branches running workflow code: active and not in a step
	blocked []*branch
	races   []*race // undecided
	verbs   int64   // begun so far; the watchdog compares

	kept        map[string][]Record
	last        map[string]int // highest kept counter by branch prefix
	interrupted bool
	waits       map[string]Wait // durable waits by path
	inbox       []Message
	seen        int64
	canceled    bool
	yield       bool // park at the next verb: paused, or the worker stops
	warm        bool
	wakeAt      time.Time
	attempts    []*attempt        // in flight
	children    map[string]string // ids by path
	timer       *time.Timer

	// What the next commit writes.
	started    time.Time // of the run, if this is its first turn
	records    []Record
	spare      []Record // the last batch's, to be used again
	consumed   []int64
	start      []NewRun
	stop       []string
	progress   *ProgressState
	values     map[string]json.RawMessage
	waitsDirty bool
	changes    int64 // made so far
	durable    int64 // of these, committed
	flushing   bool
	late       *time.Timer
	lateAt     time.Time
	deadline   *time.Timer
}

func newTurn(w *Worker, def *definition, c *Claimed) *turn {
	t := &turn{w: w, def: def, lease: c.Lease, run: c.Run, interrupted: c.Interrupted}
	t.flushed.L = &t.mu
	t.ctx, t.cancel = context.WithCancelCause(w.base)
	if t.run.StartedAt.IsZero() {
		t.run.StartedAt = now()
		t.started = t.run.StartedAt
	}
	t.replayFrom(c.History)
	for _, w := range c.Run.Waiting {
		if w.Path != "" {
			if t.waits == nil {
				t.waits = make(map[string]Wait, len(c.Run.Waiting))
			}
			t.waits[w.Path] = w
		}
	}
	t.root = t.newBranch(nil, "", t.ctx)
	t.root.clock = t.run.StartedAt
	t.receiveLocked(c.Inbox)
	return t
}

// replayFrom indexes the history by path.
func (t *turn) replayFrom(history []Record) {
	if len(history) == 0 {
		return
	}
	t.kept = make(map[string][]Record, len(history))
	t.last = map[string]int{}
	forgotten := forgottenBy(history)
	for i, r := range history {
		if r.Kind == KindRetried || r.Kind == KindContinued || forgotten[r.Seq] {
			continue // of the run, not of a verb
		}
		if old := t.kept[r.Path]; old == nil {
			t.kept[r.Path] = history[i : i+1 : i+1]
		} else {
			t.kept[r.Path] = append(old, r)
		}
		for path := r.Path; ; { // a record inside a branch counts for every branch above it
			dot := strings.LastIndexByte(path, '.')
			n, err := strconv.Atoi(path[dot+1:])
			if prefix := path[:dot+1]; err == nil && n > t.last[prefix] {
				t.last[prefix] = n
			}
			if dot < 0 {
				break
			}
			path = path[:dot]
		}
	}
}

func (t *turn) newBranch(parent *branch, prefix string, ctx context.Context) *branch {
	b := &branch{t: t, parent: parent, prefix: prefix, ctx: ctx, fresh: true, last: t.last[prefix], wake: make(chan struct{}, 1)}
	if parent != nil {
		b.clock, b.canceled, b.fresh = parent.clock, parent.canceled, parent.fresh
	}
	return b
}

// begin starts the workflow function; the turn ends by itself.
func (t *turn) begin() {
	if !t.run.Deadline.IsZero() {
		left := time.Until(t.run.Deadline)
		if left <= 0 {
			t.mu.Lock()
			t.ending = expired
			t.mu.Unlock()
			t.end()
			return
		}
		t.deadline = time.AfterFunc(left, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.unwind(expired)
		})
	}
	t.spawn(t.root, func(ctx Context) {
		t.outcome = t.def.call(ctx, t.run.Input)
	})
}

// spawn runs a branch's function in a goroutine. When the last one ends, it
// ends the turn.
func (t *turn) spawn(b *branch, fn func(Context)) {
	t.live++
	t.active++
	t.code++
	go func() {
		returned := false
		defer func() {
			b.exit(returned, recover())
		}()
		fn(workflowContext{b.ctx, scope{b: b}})
		returned = true
	}()
}

// exit ends a branch, by return, panic or unwinding.
func (b *branch) exit(returned bool, panicked any) {
	t := b.t
	t.mu.Lock()
	b.ended = true
	t.live--
	t.active--
	t.code--
	switch {
	case panicked != nil:
		t.faultLocked(panicked, debug.Stack())
	case !returned && t.ending == open && !b.isLost():
		t.faultLocked("runtime.Goexit called in workflow code", nil)
	case returned && b.n < b.last && !b.canceled && t.ending == open:
		t.faultLocked(&DivergedError{Path: b.prefix + strconv.Itoa(b.n+1), Expected: "further records", Found: "return", Line: "end of " + t.def.name}, nil)
	case returned && b == t.root:
		t.unwind(finishing)
	}
	for _, w := range slices.Clone(t.blocked) {
		if w.wait.on == b {
			t.wakeLocked(w, whyBranch, nil)
		}
	}
	if returned && b.race != nil && t.ending == open {
		b.race.finished(b)
	}
	t.settle()
	if t.live == 0 {
		t.mu.Unlock()
		t.end()
		return
	}
	t.mu.Unlock()
}

func (t *turn) faultLocked(value any, stack []byte) {
	if t.fault == nil {
		if err, ok := value.(*DivergedError); ok {
			t.fault = err
		} else {
			t.fault = &PanicError{Value: fmt.Sprint(value), Stack: string(stack)}
		}
	}
	if t.ending != lost {
		t.ending = open // a panic while parking is a fault like any other
		t.unwind(faulted)
	}
}

// unwind makes every branch leave, each at its next verb or out of its wait.
func (t *turn) unwind(why ending) {
	if t.ending != open && why != lost && why != expired {
		return
	}
	if t.ending == lost {
		return
	}
	t.ending = why
	for _, b := range slices.Clone(t.blocked) {
		t.wakeLocked(b, whyExit, nil)
	}
	if why != parking { // a parking turn lets steps in flight finish
		t.abandonLocked()
	}
}

// abandonLocked gives up the steps in flight.
func (t *turn) abandonLocked() {
	t.cancel(errUnwound)
	for _, a := range t.attempts {
		a.abandonLocked()
	}
}

func (t *turn) unwinding(b *branch) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ending != open || b.isLost()
}

// block puts the calling branch to sleep until something wakes it; the lock is
// held on entry and released on return.
func (b *branch) block(w waiter) (why, *Message) {
	t := b.t
	b.wait = w
	t.blocked = append(t.blocked, b)
	t.active--
	t.code--
	t.settle()
	t.mu.Unlock()
	<-b.wake
	t.mu.Lock()
	why, msg := b.wait.why, b.wait.msg
	b.wait = waiter{}
	if why == whyExit {
		b.exitLocked()
	}
	t.mu.Unlock()
	return why, msg
}

// wakeLocked wakes a blocked branch and counts it as active at once.
func (t *turn) wakeLocked(b *branch, why why, m *Message) {
	i := slices.Index(t.blocked, b)
	if i < 0 {
		return
	}
	t.blocked = slices.Delete(t.blocked, i, i+1)
	t.active++
	t.code++
	if t.warm {
		t.warm = false
		t.w.warm.Add(-1)
	}
	b.wait.why, b.wait.msg = why, m
	b.wake <- struct{}{}
}

// settle decides what is to be decided when no branch runs workflow code: races
// that have a finisher, and, when no branch is active, whether to park.
func (t *turn) settle() {
	if t.code > 0 || t.ending != open {
		return
	}
	for _, r := range slices.Clone(t.races) {
		r.decide()
	}
	if t.active > 0 || t.live == 0 {
		return
	}
	var next time.Time
	for _, b := range t.blocked {
		if u := b.wait.until; !u.IsZero() && (next.IsZero() || u.Before(next)) {
			next = u
		}
	}
	if !t.yield && t.w.keepWarm(next) {
		t.warm = true
		if t.waitsDirty || t.durable < t.changes {
			t.flushLate(flushAfter)
		}
		if t.timer == nil {
			t.timer = time.AfterFunc(time.Until(next), t.onTimer)
		} else {
			t.timer.Reset(time.Until(next))
		}
		return
	}
	for _, m := range t.inbox { // nobody waits for these any more
		if m.Op >= OpCheckWait {
			t.consumed = append(t.consumed, m.Seq)
		}
	}
	if t.yield {
		next = now()
	}
	t.parkAt(next)
	t.unwind(parking)
}

func (t *turn) parkAt(at time.Time) {
	if d := t.run.Deadline; !d.IsZero() && (at.IsZero() || d.Before(at)) {
		at = d
	}
	t.wakeAt = at
}

// onTimer wakes the branches of a warm turn that are due.
func (t *turn) onTimer() {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := time.Now()
	var next time.Time
	for _, b := range slices.Clone(t.blocked) {
		switch u := b.wait.until; {
		case u.IsZero():
		case !u.After(at):
			t.wakeLocked(b, whyTimer, nil)
		case next.IsZero() || u.Before(next):
			next = u
		}
	}
	if t.ending == open && t.active == 0 && !next.IsZero() {
		t.timer.Reset(time.Until(next))
	}
}

// deliver hands news to a turn that is under way.
func (t *turn) deliver(c *Claimed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.Lost {
		t.unwind(lost)
		return
	}
	t.receiveLocked(c.Inbox)
}

func (t *turn) receiveLocked(messages []Message) {
	for _, m := range messages {
		if m.Seq != 0 && m.Seq <= t.seen {
			continue // both in the inbox at the claim and in the news
		}
		t.seen = max(t.seen, m.Seq)
		switch m.Op {
		case OpCancel:
			t.canceled = true
			for _, a := range t.attempts {
				if !a.v.detached {
					a.cancelLocked()
				}
			}
			for _, b := range slices.Clone(t.blocked) {
				if !b.wait.keep && b.wait.kind != 0 {
					t.wakeLocked(b, whyCanceled, nil)
				}
			}
		case OpPause:
			t.yieldLocked()
		default:
			t.inbox = append(t.inbox, m)
			for _, b := range t.blocked {
				if b.wait.match != nil && b.wait.match(&m) {
					t.inbox = t.inbox[:len(t.inbox)-1]
					t.wakeLocked(b, whyMessage, &m)
					break
				}
			}
		}
	}
}

// yieldLocked asks the turn to park as soon as the steps in flight are done.
func (t *turn) yieldLocked() {
	t.yield = true
	if t.warm {
		t.warm = false
		t.w.warm.Add(-1)
	}
	t.settle()
}

// wait blocks the verb until the time has come, a message matches, or the run
// is canceled. What it waits for is kept as data, so that the next turn and
// everyone who looks can see it.
func (v *verb) wait(data Wait, until time.Time, match func(*Message) bool) (why, *Message) {
	t, b := v.t, v.b
	t.mu.Lock()
	if t.ending != open || b.isLost() {
		b.exitLocked()
	}
	if t.canceled && !v.detached {
		t.mu.Unlock()
		return whyCanceled, nil
	}
	if match != nil {
		for i := range t.inbox {
			m := t.inbox[i]
			if match(&m) && (until.IsZero() || m.Op != OpSignal || !m.At.After(until)) {
				t.inbox = slices.Delete(t.inbox, i, i+1)
				t.mu.Unlock()
				return whyMessage, &m
			}
		}
	}
	if !until.IsZero() && !until.After(time.Now()) {
		t.mu.Unlock()
		return whyTimer, nil
	}
	v.keepWaitLocked(data)
	return b.block(waiter{until: until, match: match, kind: v.kind, keep: v.detached})
}

// keepWaitLocked sets the durable state of this verb's wait.
func (v *verb) keepWaitLocked(w Wait) {
	w.Path, w.Name = v.path, v.name
	if v.t.waits == nil {
		v.t.waits = map[string]Wait{}
	}
	v.t.waits[v.path] = w
	v.t.waitsDirty = true
	v.t.changes++
}

// keptWait returns the wait's state from an earlier turn or attempt.
func (v *verb) keptWait() (Wait, bool) {
	v.t.mu.Lock()
	defer v.t.mu.Unlock()
	w, ok := v.t.waits[v.path]
	return w, ok
}

func (t *turn) forgetWait(path string) {
	if _, ok := t.waits[path]; ok {
		delete(t.waits, path)
		t.waitsDirty = true
		t.changes++
	}
}

// forgetWaits drops the waits of a race's loser.
func (t *turn) forgetWaits(prefix string) {
	for p := range t.waits {
		if strings.HasPrefix(p, prefix) {
			t.forgetWait(p)
		}
	}
}

// changed notes that there is something to commit. It rides with the branch's
// next commit, or goes by itself soon.
func (t *turn) changed() {
	t.changes++
	t.flushLate(flushAfter)
}

func (t *turn) flushLate(after time.Duration) {
	at := time.Now().Add(after)
	if !t.lateAt.IsZero() && !t.lateAt.After(at) {
		return
	}
	t.lateAt = at
	if t.late == nil {
		t.late = time.AfterFunc(after, func() {
			t.mu.Lock()
			t.lateAt = time.Time{}
			if t.ending == open || t.ending == parking {
				t.flushLocked()
			}
			t.mu.Unlock()
		})
		return
	}
	t.late.Reset(after)
}

// flush makes all that has been recorded so far durable, or leaves the branch
// when the lease is lost. It comes before every side effect.
func (v *verb) flush() {
	t := v.t
	t.mu.Lock()
	t.flushLocked()
	if t.over(v.b) {
		v.b.exitLocked()
	}
	t.mu.Unlock()
}

// flushLocked commits, one batch at a time: what other branches add meanwhile
// goes into the next.
func (t *turn) flushLocked() {
	for target := t.changes; t.durable < target && t.ending != lost; {
		if t.flushing {
			t.flushed.Wait()
			continue
		}
		t.commitLocked(nil)
	}
}

// commitLocked writes everything pending, and with it how the turn ends, if it does.
func (t *turn) commitLocked(next Next) {
	b := Batch{Records: t.records, Consumed: t.consumed, Start: t.start, Cancel: t.stop,
		Progress: t.progress, Values: t.values, Seen: t.seen, Started: t.started, Next: next}
	if t.waitsDirty {
		list := t.waitList()
		b.Waiting = &list
	}
	upto := t.changes
	t.started = time.Time{}
	t.records, t.spare = t.spare, nil
	t.consumed, t.start, t.stop, t.progress, t.values, t.waitsDirty = nil, nil, nil, nil, nil, false
	if !t.lateAt.IsZero() {
		t.late.Stop()
		t.lateAt = time.Time{}
	}
	t.flushing = true
	t.mu.Unlock()
	err := t.w.commit(t, b)
	t.mu.Lock()
	t.flushing = false
	t.durable = upto
	clear(b.Records)
	t.spare = b.Records[:0]
	if err != nil {
		t.unwind(lost)
	}
	t.flushed.Broadcast()
}

func (t *turn) waitList() []Wait {
	list := make([]Wait, 0, len(t.waits))
	for _, path := range slices.Sorted(maps.Keys(t.waits)) {
		list = append(list, t.waits[path])
	}
	return list
}

// end is called by the last branch to leave: it commits how the turn ended.
func (t *turn) end() {
	t.mu.Lock()
	for t.flushing {
		t.flushed.Wait()
	}
	if t.timer != nil {
		t.timer.Stop()
	}
	if t.late != nil {
		t.late.Stop()
	}
	if t.deadline != nil {
		t.deadline.Stop()
	}
	switch t.ending {
	case lost:
	case finishing:
		if c, ok := t.outcome.(Continued); ok {
			t.waits, t.waitsDirty = nil, true
			t.commitLocked(c)
			break
		}
		t.commitLocked(t.outcome)
	case expired:
		f := NewFailure(&TimeoutError{What: "run " + t.run.ID, After: t.run.Deadline.Sub(t.run.CreatedAt)})
		t.commitLocked(Ended{State: TimedOut, Error: f})
	case faulted:
		t.stuck()
	case parking:
		t.commitLocked(Parked{WakeAt: t.wakeAt})
	}
	if t.warm {
		t.warm = false
		t.w.warm.Add(-1)
	}
	t.mu.Unlock()
	t.cancel(errUnwound)
	t.w.release(t)
}

// stuckAfter is the longest pause before code that panics or diverges is tried
// again.
const stuckAfter = 5 * time.Minute

// stuck parks a run whose workflow code panicked or diverged: not failed, since
// the next deployment may mend it.
func (t *turn) stuck() {
	w := Wait{Kind: KindStuck, Name: t.def.name, Since: now(), Attempt: 1}
	for _, old := range t.run.Waiting {
		if old.Kind == KindStuck && t.durable == 0 && len(t.records) == 0 {
			w.Since, w.Attempt = old.Since, old.Attempt+1
		}
	}
	w.LastError = NewFailure(t.fault)
	w.NextAt = now().Add(min(time.Second<<min(w.Attempt-1, 10), stuckAfter))
	t.w.log.LogAttrs(t.ctx, slog.LevelError, "workflow code is stuck; it is tried again and goes on once mended",
		slog.String("run", t.run.ID), slog.String("workflow", t.def.name), slog.Int("attempt", w.Attempt), slog.Any("error", t.fault))
	list := append([]Wait{w}, t.waitList()...)
	b := Parked{}
	t.parkAt(w.NextAt)
	b.WakeAt = t.wakeAt
	t.waitsDirty = true
	t.waits = map[string]Wait{}
	for _, w := range list {
		t.waits[w.Path] = w
	}
	t.commitLocked(b)
}

// branchStacks picks, of a dump of all goroutines, those that run branches.
func branchStacks(dump []byte) string {
	var out strings.Builder
	for g := range strings.SplitSeq(string(dump), "\n\n") {
		if strings.Contains(g, "bide.(*turn).spawn") {
			out.WriteString(g + "\n\n")
		}
	}
	return out.String()
}
