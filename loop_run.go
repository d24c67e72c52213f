package bide

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/bide-dev/bide/wait"
)

// A loop is a run whose only verb never ends: the same lease, so that no two
// iterations overlap over all processes, the same wake, the same pause. Its state
// is its wait.

// loopRun is a loop in a turn.
type loopRun struct {
	*verb
	*loop
	wait       Wait
	*LoopState      // of wait
	force      bool // a trigger began this iteration
	thenPause  bool // a trigger of a paused loop
	overdue    bool // the time passed while nobody was there
}

var (
	errSkip    = errors.New("skipped")
	errAborted = errors.New("aborted")
)

func (l *loop) run(ctx Context) Next {
	v, err := begin(ctx, KindLoop, l.name, false)
	r := loopRun{verb: v, loop: l}
	if err == nil {
		r.load()
		for r.pause() {
			r.iterate()
		}
		err = ErrCanceled
	}
	return Ended{State: Canceled, Error: NewFailure(err)}
}

// load takes up the state of an earlier turn, or begins.
func (r *loopRun) load() {
	var resumed bool
	r.wait, resumed = r.keptWait()
	r.LoopState = &LoopState{}
	if !resumed {
		r.wait = Wait{Kind: KindLoop, Since: r.began, NextAt: r.first()}
		r.Interval = r.pace.Interval
		r.Effective = r.pace.Effective(r.PaceState)
		return
	}
	if r.wait.Loop != nil {
		*r.LoopState = *r.wait.Loop
	}
	r.Breaker = cloned(r.Breaker)
	if r.Interval != r.pace.Interval {
		r.reload()
	}
	r.Effective = r.pace.Effective(r.PaceState)
	r.t.mu.Lock()
	cut := r.t.interrupted && r.b.fresh && !r.wait.NextAt.After(r.t.now())
	r.t.mu.Unlock()
	if cut || !r.InFlight.IsZero() {
		r.interrupted()
	}
}

// first is when a new loop's first iteration begins.
func (r *loopRun) first() time.Time {
	switch {
	case r.delay != nil:
		return after(r.began, *r.delay)
	case r.schedule != nil:
		return r.tick(r.began)
	}
	return after(r.pace.Next(r.PaceState, r.began, r.t.w.random), 0)
}

// tick is the schedule's first time after t; it may have none left.
func (r *loopRun) tick(t time.Time) time.Time {
	ahead := r.t.line.Ahead() // the schedule goes by the wall clock
	next := r.schedule.Next(t.Add(-ahead))
	if next.IsZero() {
		return t.AddDate(100, 0, 0)
	}
	return after(next.UTC().Round(0), ahead)
}

// reload fits the state to a definition that has changed.
func (r *loopRun) reload() {
	r.Interval, r.Base, r.Effective = r.pace.Interval, 0, r.pace.Effective(r.PaceState)
	r.plan()
}

// plan sets the next time by when the last iteration ended.
func (r *loopRun) plan() {
	from := later(r.LastAt, r.wait.Since)
	r.Effective = r.pace.Effective(r.PaceState)
	if r.schedule != nil {
		r.wait.NextAt = r.tick(r.t.now())
		return
	}
	r.wait.NextAt = later(after(r.pace.Next(r.PaceState, from, r.t.w.random), 0), r.t.now())
}

// interrupted counts an iteration that the process, or the lease, was lost in: an
// iteration that kills its process must not do so for ever. The first time the
// next begins at once.
func (r *loopRun) interrupted() {
	again := r.Failures > 0
	r.wait.Attempt++
	r.InFlight = time.Time{}
	r.pace.Failed(&r.PaceState)
	r.outcome('i')
	r.wait.LastError, r.wait.LastErrAt = NewFailure(ErrInterrupted), r.t.now()
	r.Effective = r.pace.Effective(r.PaceState)
	if again {
		r.LastAt = r.t.now()
		r.plan()
	}
	r.keep()
}

// keep makes the state the one to be committed next.
func (r *loopRun) keep() {
	r.t.mu.Lock()
	r.keepWaitLocked(r.snapshot())
	r.t.mu.Unlock()
}

// snapshot is the state as it is kept: what is written does not change under the pen.
func (r *loopRun) snapshot() Wait {
	w, s := r.wait, *r.LoopState
	s.Breaker = cloned(s.Breaker)
	w.Streak, w.Loop = s.Failures, &s
	return w
}

func cloned(c *wait.Circuit) *wait.Circuit {
	if c == nil {
		return nil
	}
	copied := *c
	copied.Probes = slices.Clone(c.Probes)
	return &copied
}

// mine matches what directs the loop: triggers, and the signals of its handle.
func (r *loopRun) mine(m *Message) bool {
	return r.acts(m) || m.Op == OpSignal && (m.Name == loopReset || m.Name == loopReload || m.Name == loopAbort)
}

// staleAfter is how late an iteration may begin and still be no matter of nobody
// having been there.
const staleAfter = time.Second

// pause waits for the next time, or a trigger; false says that the loop is stopped.
func (r *loopRun) pause() bool {
	r.force, r.overdue = false, false
	staggered := false
	for {
		why, m := r.verb.wait(r.snapshot(), r.wait.NextAt, r.mine)
		switch why {
		case whyCanceled:
			r.cancelNow()
			return false
		case whyTimer:
			if late := r.t.now().Sub(r.wait.NextAt); late > staleAfter && !staggered {
				if r.overdue = true; r.missed() {
					continue
				}
				staggered = true
				r.wait.NextAt = r.t.w.stagger.join(r.t.now(), r.loop.name, r.Effective)
				continue
			}
			return true
		}
		r.took(m)
		switch {
		case m.Op == OpSignal && m.Name == loopReset:
			r.PaceState = wait.PaceState{Base: r.Base}
			if r.Breaker != nil {
				r.Breaker.Reset()
			}
			r.plan()
		case m.Op == OpSignal:
			if r.Interval != r.pace.Interval {
				r.reload()
			}
		default:
			r.force, r.thenPause = true, string(m.Data) == `"pause"`
			r.drain()
			return true
		}
	}
}

// missed says what is to become of a time that passed while nobody was there; true
// is to wait for the next.
func (r *loopRun) missed() bool {
	if r.schedule == nil || r.misfire != MisfireSkip {
		return false
	}
	r.wait.NextAt = r.tick(r.t.now())
	return true
}

// took notes that a message has been taken up. It leaves no record: a loop has no
// history.
func (r *loopRun) took(m *Message) {
	r.t.mu.Lock()
	r.t.consumed = append(r.t.consumed, m.Seq)
	r.t.changes++
	r.t.mu.Unlock()
}

// drain takes the other triggers that wait: one iteration serves them all.
func (r *loopRun) drain() {
	t := r.t
	t.mu.Lock()
	defer t.mu.Unlock()
	rest := t.inbox[:0]
	for i := range t.inbox {
		if m := &t.inbox[i]; m.Op == OpCheckWait && r.acts(m) {
			t.consumed = append(t.consumed, m.Seq)
		} else {
			rest = append(rest, *m)
		}
	}
	t.inbox = rest
}

// iterate makes one iteration, unless the breaker or the condition is against it.
func (r *loopRun) iterate() {
	permit, open := r.permit()
	if open {
		return
	}
	due := r.wait.NextAt
	a := &attempt{v: r.verb, number: r.wait.Attempt + 1, limit: r.timeout, last: r.Seen, due: due.Add(-r.t.line.Ahead())}
	r.InFlight = r.t.now()
	r.t.mu.Lock()
	r.keepWaitLocked(r.snapshot())
	r.t.flushLate(progressAfter)
	r.t.mu.Unlock()
	result := LoopFail
	_, err := a.run(func(ctx context.Context) (json.RawMessage, error) {
		if r.condition != nil && !r.condition(ctx) {
			return nil, errSkip
		}
		leave, err := r.enter(ctx)
		if err != nil {
			return nil, err
		}
		defer leave()
		res, err := r.fn(ctx)
		r.t.mu.Lock()
		result = res
		r.t.mu.Unlock()
		return nil, err
	})
	r.InFlight = time.Time{}
	r.t.mu.Lock()
	seen, hash := a.seen, a.hash()
	if err == nil && (result < LoopOK || result > LoopSkip) {
		err = &InvalidError{Field: "loop result", Reason: "is none of the constants"}
	}
	aborted := r.t.canceled && !r.detached
	r.t.mu.Unlock()
	switch {
	case aborted || err == errAborted:
		r.breakerDone(permit, nil, 0)
		r.next(due)
	case err == errSkip || err == nil && result == LoopSkip:
		r.breakerDone(permit, nil, 0)
		r.Skipped = "condition"
		r.outcome('-')
		r.next(due)
	default:
		r.done(result, err, seen, hash)
		_, hint := wait.Judge(err)
		if err == nil {
			hint = seen.Hint
		}
		worked := err == nil && result != LoopFail
		r.breakerDone(permit, &worked, hint.After)
		r.next(due)
		if floor := after(r.t.now(), hint.After); hint.After > 0 && floor.After(r.wait.NextAt) {
			r.wait.NextAt = floor
		}
	}
	if r.thenPause {
		r.thenPause = false
		r.keep()
		if err := r.t.w.store.Control(r.t.w.base, r.t.run.ID, Command{Op: OpPause}); err != nil {
			r.t.w.log.Error("cannot pause the loop again", "loop", r.loop.name, "error", err)
		}
	}
}

// done counts an iteration.
func (r *loopRun) done(result Result, err error, seen Observation, hash string) {
	r.wait.Attempt++
	r.LastAt, r.Skipped = r.t.now(), ""
	if err != nil || result == LoopFail {
		if err == nil {
			err = errors.New("it said that it failed")
		}
		before := r.Multiplier
		r.pace.Failed(&r.PaceState)
		r.outcome('f')
		r.wait.LastError, r.wait.LastErrAt = NewFailure(err), r.LastAt
		if r.Multiplier != before {
			r.say("loop backs off", slog.Int("failures", r.Failures), slog.Int("multiplier", r.Multiplier), slog.Any("error", err))
		}
		return
	}
	r.LastSuccessAt = r.LastAt
	if r.Failures > 0 {
		r.say("loop works again", slog.Int("failures", r.Failures))
	}
	var changed *bool
	letter := byte('s')
	switch {
	case result == LoopChanged || result == LoopUnchanged:
		changed = new(result == LoopChanged)
	case seen.Unchanged:
		changed = new(false)
	case hash != "":
		changed = new(hash != r.Hash)
		r.Hash = hash
	}
	if changed != nil && *changed {
		letter = 'c'
	} else if changed != nil {
		letter = 'u'
	}
	r.pace.Succeeded(&r.PaceState, changed)
	r.outcome(letter)
	r.Seen = Observation{ETag: seen.ETag, LastModified: seen.LastModified}
}

func (r *loopRun) say(what string, attrs ...slog.Attr) {
	r.t.w.log.LogAttrs(r.t.ctx, slog.LevelInfo, what, append(attrs, slog.String("loop", r.loop.name))...)
}

// next sets the next time after an iteration that was due.
func (r *loopRun) next(due time.Time) {
	r.Effective = r.pace.Effective(r.PaceState)
	switch {
	case r.Breaker != nil && r.Breaker.State(r.t.now()) == wait.Open:
		r.wait.NextAt = after(later(r.Breaker.RetryAt, r.t.now()), 0)
	case r.schedule != nil && r.misfire == MisfireAll && !r.force:
		r.wait.NextAt = r.tick(due)
	case r.schedule != nil:
		r.wait.NextAt = r.tick(r.t.now())
	default:
		r.wait.NextAt = after(r.pace.Next(r.PaceState, r.t.now(), r.t.w.random), 0)
	}
}

// permit asks the loop's breaker.
func (r *loopRun) permit() (p wait.Permit, open bool) {
	if r.breaker == nil {
		return p, false
	}
	if r.Breaker == nil {
		r.Breaker = &wait.Circuit{}
	}
	if r.force && r.Breaker.State(r.t.now()) == wait.Open { // a person asks: this is the probe
		r.Breaker.RetryAt = r.t.now()
	}
	if p = r.breaker.Allow(r.Breaker, r.t.now(), r.timeout); p.OK {
		return p, false
	}
	r.Skipped = "breaker"
	r.wait.NextAt = after(later(p.RetryAt, r.t.now().Add(wait.Floor)), 0)
	return p, true
}

// breakerDone tells the breaker how it went; nil is neither.
func (r *loopRun) breakerDone(p wait.Permit, worked *bool, retryAfter time.Duration) {
	if r.breaker == nil {
		return
	}
	before := r.Breaker.State(r.t.now())
	if worked == nil {
		r.breaker.Ignore(r.Breaker, p)
	} else {
		r.breaker.Report(r.Breaker, p, *worked, retryAfter, r.t.now(), r.t.w.random)
	}
	if state := r.Breaker.State(r.t.now()); state != before {
		r.say("loop's breaker is "+state.String(), slog.Time("retry_at", r.Breaker.RetryAt))
	}
}

// hash is a digest of what the attempt has published, "" for nothing.
func (a *attempt) hash() string {
	if len(a.published) == 0 {
		return ""
	}
	data, _ := json.Marshal(a.published) // the keys in order
	sum := sha256.Sum256(data)
	return base64.RawStdEncoding.EncodeToString(sum[:12])
}
