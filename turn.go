package bide

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bide-dev/bide/internal/timeline"
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
	line   *timeline.Line // the store's time, as it went on from the claim

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
	length      int            // of the history
	last        map[string]int // highest kept counter by branch prefix
	begun       map[string]int // the same of waits
	interrupted bool
	waits       map[string]Wait // durable waits by path
	inbox       []Message
	seen        int64
	canceled    bool
	yield       bool // park at the next verb: paused, or the worker stops
	hold        bool // park as paused
	warm        bool
	wakeAt      time.Time
	attempts    []*attempt        // in flight
	children    map[string]string // ids by path
	hooks       map[string]*hook  // by the path of the verb that waits on it
	minted      []*hook
	timer       *time.Timer

	// What the next commit writes.
	started    time.Time // of the run, if this is its first turn
	records    []Record
	chunks     []Chunk
	spare      []Record // the last batch's, to be used again
	consumed   []int64
	taken      []taking // the signals among consumed
	start      []NewRun
	stop       []string
	progress   *ProgressState
	values     map[string]json.RawMessage
	facts      []Fact
	waitsDirty bool
	changes    int64 // made so far
	durable    int64 // of these, committed
	flushing   bool
	late       *time.Timer
	lateAt     time.Time
	deadline   *time.Timer
}

// taking is a signal that a verb has taken up.
type taking struct {
	path string
	m    Message
}

func newTurn(w *Worker, def *definition, c *Claimed) *turn {
	t := &turn{w: w, def: def, lease: c.Lease, run: c.Run, interrupted: c.Interrupted}
	t.flushed.L = &t.mu
	t.line = w.keepTime(c)
	t.ctx, t.cancel = context.WithCancelCause(w.base)
	if t.run.StartedAt.IsZero() {
		t.run.StartedAt = t.now()
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
	for path := range t.waits { // begun, though it has no record yet
		if t.begun == nil {
			t.begun = map[string]int{}
		}
		countPath(t.begun, path)
	}
	t.root = t.newBranch(t.ctx, nil, "")
	t.root.clock = t.run.StartedAt
	if len(c.History) > 0 && c.History[0].Kind == KindContinued { // it began anew then
		t.root.clock = c.History[0].At
	}
	t.receiveLocked(c.Inbox)
	return t
}

// now is the time of the turn, as it is kept: UTC, in microseconds.
func (t *turn) now() time.Time { return t.line.Now().Truncate(time.Microsecond) }

// until is how long a timer should run for a time to come: the clock may jump
// meanwhile, so that it is looked at now and then.
func (t *turn) until(at time.Time) time.Duration { return min(at.Sub(t.now()), lookEvery) }

const lookEvery = 30 * time.Second

// replayFrom indexes the history by path.
func (t *turn) replayFrom(history []Record) {
	if len(history) == 0 {
		return
	}
	t.length = len(history)
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
		countPath(t.last, r.Path)
	}
}

// countPath raises the highest counter of each branch that the path leads
// through: what is inside a branch counts for every branch above it.
func countPath(highest map[string]int, path string) {
	for {
		dot := strings.LastIndexByte(path, '.')
		n, err := strconv.Atoi(path[dot+1:])
		if prefix := path[:dot+1]; err == nil && n > highest[prefix] {
			highest[prefix] = n
		}
		if dot < 0 {
			return
		}
		path = path[:dot]
	}
}

func (t *turn) newBranch(ctx context.Context, parent *branch, prefix string) *branch {
	b := &branch{t: t, parent: parent, prefix: prefix, ctx: ctx, fresh: true, last: t.last[prefix], begun: max(t.last[prefix], t.begun[prefix]), wake: make(chan struct{}, 1)}
	if parent != nil {
		b.clock, b.canceled, b.fresh = parent.clock, parent.canceled, parent.fresh
	}
	return b
}

// begin starts the workflow function; the turn ends by itself.
func (t *turn) begin() {
	t.mu.Lock() // the worker's other goroutines know the turn already
	if !t.run.Deadline.IsZero() {
		left := t.run.Deadline.Sub(t.now())
		if left <= 0 {
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
	t.mu.Unlock()
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
	case returned && b.n < b.last && !b.canceled && (t.ending == open || t.ending == parking):
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
	switch t.ending {
	case open:
	case parking:
		// A turn that was asked to yield may come to its end all the same.
	case lost:
		return
	default:
		if why != lost && why != expired {
			return
		}
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
		c, ok := t.outcome.(Continued)
		for _, h := range t.minted {
			h.expire(t, ok)
		}
		if ok {
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
		t.commitLocked(Parked{WakeAt: t.wakeAt, Paused: t.hold})
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
	w := Wait{Kind: KindStuck, Name: t.def.name, Since: t.now(), Attempt: 1}
	for _, old := range t.run.Waiting {
		if old.Kind == KindStuck && t.durable == 0 && len(t.records) == 0 {
			w.Since, w.Attempt = old.Since, old.Attempt+1
		}
	}
	w.LastError = NewFailure(t.fault)
	w.NextAt = after(t.now(), min(time.Second<<min(w.Attempt-1, 10), stuckAfter))
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
