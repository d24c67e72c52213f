package bide

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
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
	*LoopState           // of wait
	ended      time.Time // when the last iteration of this turn was over
	redo       bool      // the next iteration makes up for one that was interrupted

	// Of the trigger that began the iteration, if one did:
	asked     []int64   // messages; consumed when the iteration is over, so that it outlives a crash
	askedAt   time.Time // zero: none
	thenPause bool      // the loop is paused, and to be so again
}

var errAborted = errors.New("aborted")

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
		r.Interval, r.Multiplier = r.pace.Interval, 1
		r.Effective = r.effective()
		if r.keep(); !r.wait.NextAt.After(r.t.now()) {
			r.flush() // before the first iteration, should it kill this process
		}
		return
	}
	if r.wait.Loop != nil {
		*r.LoopState = *r.wait.Loop
	}
	if r.Breaker = cloned(r.Breaker); r.breaker == nil {
		r.Breaker = nil
	}
	if r.Interval != r.pace.Interval {
		r.reload()
	}
	r.Effective = r.effective()
	if r.wasInterrupted() {
		r.interrupted()
	}
}

// wasInterrupted reports whether an earlier turn may have begun an iteration and
// never told.
func (r *loopRun) wasInterrupted() bool {
	t := r.t
	t.mu.Lock()
	defer t.mu.Unlock()
	return !r.InFlight.IsZero() || t.interrupted && (!r.wait.NextAt.After(r.t.now()) || slices.ContainsFunc(t.inbox, r.isTrigger))
}

// first is when a new loop's first iteration begins.
func (r *loopRun) first() time.Time {
	switch {
	case r.delay != nil:
		return after(r.began, *r.delay)
	case r.fixed:
		return r.tick(r.began)
	}
	return r.draw(r.began)
}

// draw is the end of an interval that begins at t.
func (r *loopRun) draw(t time.Time) time.Time {
	return after(r.pace.Next(r.PaceState, t, r.t.w.random), 0)
}

// tick is the schedule's first time after t; it may have none left.
func (r *loopRun) tick(t time.Time) time.Time {
	ahead := r.t.line.Ahead() // the schedule goes by the wall clock
	next := r.schedule.Next(t.Add(-ahead))
	switch {
	case next.IsZero():
		return t.AddDate(100, 0, 0)
	case !next.After(t.Add(-ahead)): // else the loop would spin
		panic(fmt.Sprintf("the schedule of loop %q says that %v is the next time after %v", r.loop.name, next, t))
	}
	return after(next.UTC().Round(0), ahead)
}

// effective is the interval before jitter; a schedule has none.
func (r *loopRun) effective() time.Duration {
	if r.fixed {
		return 0
	}
	return r.pace.Effective(r.PaceState)
}

// reload fits the state to a definition that has changed.
func (r *loopRun) reload() {
	if r.Interval != r.pace.Interval {
		r.Interval, r.Base = r.pace.Interval, 0
		r.plan()
	} else if r.fixed && r.wait.NextAt.After(r.t.now()) {
		r.plan()
	}
}

// plan sets the next time by when the last iteration ended.
func (r *loopRun) plan() {
	r.Effective = r.effective()
	if r.fixed {
		r.wait.NextAt = r.tick(r.t.now())
		return
	}
	r.wait.NextAt = later(r.draw(later(r.LastAt, r.wait.Since)), r.t.now())
}

// interrupted counts an iteration that the process, or the lease, was lost in. It
// may not have begun: the first time the next begins at once, and for the same
// time. Only one that kills its process again and again is kept at a distance.
func (r *loopRun) interrupted() {
	again := strings.HasSuffix(r.Outcomes, "i")
	r.wait.Attempt++
	r.InFlight = time.Time{}
	r.failed('i', ErrInterrupted, r.t.now())
	r.Effective = r.effective()
	if r.redo = !again; again {
		r.LastAt = r.t.now()
		r.plan()
		r.takeTriggers()
		r.settleTriggers()
	}
	if r.keep(); r.redo {
		r.flush() // before the next iteration, should that kill this process too
	}
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

// iterate makes one iteration, unless the breaker or the condition is against it.
func (r *loopRun) iterate() {
	due := r.wait.NextAt
	if !r.askedAt.IsZero() {
		due = r.askedAt
	}
	before := cloned(r.Breaker)
	if permit, open := r.permit(); open {
		r.skip("breaker")
	} else if out := r.call(due); out.none() {
		r.Breaker = before // as if it had not been asked
		r.passed(out.err)
	} else {
		r.judge(permit, out)
	}
	r.ended, r.redo = r.t.now(), false
	r.settleTriggers()
}

// iterated is how an iteration went.
type iterated struct {
	result Result
	err    error
	seen   Observation
	hash   string
}

// none reports whether it was no iteration: it counts for nothing.
func (i *iterated) none() bool {
	return i.err == errAborted || errors.As(i.err, new(skipped)) //nolint:errorlint // ours, never wrapped
}

// call calls the loop's function.
func (r *loopRun) call(due time.Time) (out iterated) {
	t := r.t
	r.flush() // what the last one came to: else whoever takes the loop over makes it again
	a := &attempt{v: r.verb, number: r.wait.Attempt + 1, limit: forever, last: r.Seen, due: due}
	if r.fixed {
		a.due = due.Add(-t.line.Ahead()) // its times are the wall clock's
	}
	r.InFlight = r.t.now()
	t.mu.Lock()
	t.verbs++ // it is not pinned
	r.keepWaitLocked(r.snapshot())
	t.flushLate(progressAfter)
	t.mu.Unlock()
	var result Result
	_, err := a.run(func(ctx context.Context) (json.RawMessage, error) {
		leave, err := r.enter(ctx, a)
		if err != nil {
			return nil, err
		}
		defer leave()
		if r.condition != nil && !r.condition(ctx) {
			return nil, skipped("condition")
		}
		res, err := r.fn(ctx)
		t.mu.Lock()
		result = res
		t.mu.Unlock()
		return nil, err
	})
	r.InFlight = time.Time{}
	t.mu.Lock() // a function that was abandoned may still tell
	defer t.mu.Unlock()
	out = iterated{result, err, a.seen, a.hash()}
	switch {
	case t.canceled && !r.detached:
		out.err = errAborted
	case err == nil && (result < LoopOK || result > LoopSkip):
		out.err = &InvalidError{Field: "loop result", Reason: fmt.Sprintf("%d is none of the constants", result)}
	case err == nil && result == LoopSkip:
		out.err = skipped("function")
	}
	return out
}

// skipped says why an iteration was none.
type skipped string

func (s skipped) Error() string { return string(s) }

// judge does what the outcome asks for, and sets the next time.
func (r *loopRun) judge(p wait.Permit, out iterated) {
	hint := out.seen.Hint
	if out.err != nil {
		if _, said := wait.Judge(out.err); said != (wait.Hint{}) {
			hint = said
		}
	}
	r.done(out)
	worked := out.err == nil && out.result != LoopFail
	r.report(p, worked, hint.After)
	r.next()
	if floor := max(hint.After, hint.Interval); floor > 0 {
		r.notBefore(after(r.t.now(), floor))
	}
}

// passed is after what was no iteration.
func (r *loopRun) passed(err error) {
	if why, ok := errors.AsType[skipped](err); ok {
		r.skip(string(why))
		return
	}
	r.next()
}

// skip passes the time over: nothing is counted.
func (r *loopRun) skip(why string) {
	r.Skipped = why
	r.outcome('-')
	r.next()
}

// done counts an iteration.
func (r *loopRun) done(out iterated) {
	r.wait.Attempt++
	r.LastAt, r.Skipped = r.t.now(), ""
	if out.err != nil || out.result == LoopFail {
		if out.err == nil {
			out.err = errors.New("it said that it failed")
		}
		r.failed('f', out.err, r.LastAt)
		return
	}
	r.LastSuccessAt = r.LastAt
	if r.Failures > 0 {
		r.say("loop works again", slog.Int("failures", r.Failures))
	}
	var changed *bool
	letter := byte('s')
	switch {
	case out.result == LoopChanged || out.result == LoopUnchanged:
		changed = new(out.result == LoopChanged)
	case out.seen.Unchanged:
		changed = new(false)
	case out.hash != "":
		changed = new(out.hash != r.Hash)
	}
	if out.hash != "" {
		r.Hash = out.hash
	}
	if changed != nil && *changed {
		letter = 'c'
	} else if changed != nil {
		letter = 'u'
	}
	r.pace.Succeeded(&r.PaceState, changed)
	r.outcome(letter)
	if s := out.seen; !s.Unchanged || s.ETag != "" || s.LastModified != "" { // a 304 need not say them again
		r.Seen = Observation{ETag: s.ETag, LastModified: s.LastModified}
	}
}

// failed counts a failure.
func (r *loopRun) failed(letter byte, err error, at time.Time) {
	before := max(r.Multiplier, 1)
	r.pace.Failed(&r.PaceState)
	r.outcome(letter)
	r.wait.LastError, r.wait.LastErrAt = brief(err), at
	if r.Multiplier == before {
		return
	}
	attrs := []slog.Attr{slog.Int("failures", r.Failures), slog.Int("multiplier", r.Multiplier), slog.String("error", r.wait.LastError.Message)}
	if p, ok := errors.AsType[*PanicError](err); ok {
		attrs = append(attrs, slog.String("stack", p.Stack))
	}
	r.say("loop backs off", attrs...)
}

func (r *loopRun) say(what string, attrs ...slog.Attr) {
	r.t.w.log.LogAttrs(r.t.ctx, slog.LevelInfo, "loop", append(attrs, slog.String("name", r.loop.name), slog.String("what", what))...)
}

// next sets the next time after an iteration.
func (r *loopRun) next() {
	r.Effective = r.effective()
	switch {
	case r.fixed && r.misfire == MisfireAll && !r.askedAt.IsZero(): // a trigger is none of its times
	case r.fixed && r.misfire == MisfireAll:
		r.wait.NextAt = r.tick(r.wait.NextAt)
	case r.fixed:
		r.wait.NextAt = r.tick(r.t.now())
	default:
		r.wait.NextAt = r.draw(r.t.now())
	}
	if b := r.Breaker; b != nil && b.State(r.t.now()) == wait.Open {
		r.wait.NextAt = r.t.now() // in the place of the multiplier
		r.notBefore(b.RetryAt)
	}
}

// notBefore puts the next time off; the times of a schedule that are before it are
// passed over.
func (r *loopRun) notBefore(t time.Time) {
	switch {
	case !r.wait.NextAt.Before(t):
	case r.fixed:
		r.wait.NextAt = r.tick(t.Add(-time.Microsecond))
	default:
		r.wait.NextAt = after(t, 0)
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
