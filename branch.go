package bide

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// NamedBranch is a function to run side by side with others; see [Branch].
type NamedBranch[T any] struct {
	name string
	fn   func(Context) (T, error)
}

// Branch names a function for [All] and [Race].
func Branch[T any](name string, fn func(Context) (T, error)) NamedBranch[T] {
	return NamedBranch[T]{name, fn}
}

// Future is the outcome, still to come, of a branch that [Go] has started.
type Future[T any] struct {
	b     *branch
	value T
	err   error
}

// Go runs fn as a branch, side by side with its caller: a real goroutine with a
// place of its own in the history, so that it replays exactly. A branch that is
// still running when the workflow returns is unwound.
func Go[T any](ctx Context, name string, fn func(Context) (T, error)) *Future[T] {
	v, err := begin(ctx, KindBranch, name, false)
	if err != nil {
		return &Future[T]{err: err}
	}
	f := &Future[T]{}
	t := v.t
	t.mu.Lock()
	f.b = t.newBranch(v.b.ctx, v.b, v.path+".")
	t.spawn(f.b, func(ctx Context) { f.value, f.err = fn(ctx) })
	v.endLocked()
	t.mu.Unlock()
	return f
}

// Get waits for the branch and returns what it returned; every caller gets the
// same. It leaves a record only of an error.
func (f *Future[T]) Get(ctx Context) (T, error) {
	if f.b == nil { // never started
		return f.value, f.err
	}
	v, err := begin(ctx, KindJoin, "", false)
	if err != nil {
		var zero T
		return zero, err
	}
	v.t.mu.Lock()
	if f.b.ended {
		v.t.mu.Unlock()
	} else {
		v.b.block(waiter{on: f.b})
	}
	v.t.mu.Lock()
	v.tick(f.b.clock)
	if f.err != nil && len(v.kept) == 0 { // a retry needs to know who saw the failure
		data, _ := json.Marshal(strings.TrimSuffix(f.b.prefix, "."))
		v.recordLocked(Record{Kind: KindJoin, Data: data, Error: NewFailure(f.err), At: v.b.clock})
	}
	v.endLocked()
	v.t.mu.Unlock()
	return f.value, f.err
}

// All runs the branches side by side, waits for every one, and returns their
// values in order; the error joins theirs.
func All[T any](ctx Context, branches ...NamedBranch[T]) ([]T, error) {
	futures := make([]*Future[T], len(branches))
	for i, b := range branches {
		futures[i] = Go(ctx, b.name, b.fn)
	}
	values, errs := make([]T, len(branches)), make([]error, len(branches))
	for i, f := range futures {
		values[i], errs[i] = f.Get(ctx)
	}
	return values, errors.Join(errs...)
}

// Race runs the branches side by side and returns the name and the outcome of
// the first to end, whether with a value or with an error. The outcome is
// durable before the others are unwound: their waits vanish, the context of a
// step in flight is canceled and what it returns is dropped, children that they
// started are canceled. Of several that could have ended, the one whose last
// kept time is earliest wins, then the one named first.
//
// An empty Race is an [InvalidError].
func Race[T any](ctx Context, branches ...NamedBranch[T]) (winner string, value T, err error) {
	v, err := begin(ctx, KindRace, "", true)
	if err != nil {
		return "", value, err
	}
	var kept struct {
		Winner string          `json:"winner"`
		Value  json.RawMessage `json:"value,omitempty"`
	}
	var data []byte
	if r := v.result(); r != nil {
		if v.b.racing() {
			v.t.noteChildren(v.path + ".")
		}
		v.t.mu.Lock()
		v.t.forgetWaits(v.path + ".") // a crash may have kept a loser's
		v.t.mu.Unlock()
		data, err = v.replay(r)
		if jerr := json.Unmarshal(data, &kept); jerr != nil {
			return "", value, &CodecError{Field: "race", Message: jerr.Error()}
		}
	} else {
		if len(branches) == 0 {
			_, err := v.finish(Record{Error: NewFailure(&InvalidError{Field: "Race", Reason: "has no branches"}), Data: []byte("{}")}, nil)
			return "", value, err
		}
		results := make([]Future[T], len(branches))
		r := &race{v: v, winner: -1}
		t := v.t
		t.mu.Lock()
		for i := range branches {
			rctx, cancel := context.WithCancel(v.b.ctx)
			b := t.newBranch(rctx, v.b, v.path+"."+strconv.Itoa(i+1)+".")
			b.cancel, b.race = cancel, r
			r.branches = append(r.branches, b)
		}
		t.races = append(t.races, r)
		for i, nb := range branches {
			t.spawn(r.branches[i], func(ctx Context) { results[i].value, results[i].err = nb.fn(ctx) })
		}
		v.b.block(waiter{})
		won := &results[r.winner]
		kept.Winner = branches[r.winner].name
		failure := won.err
		if failure == nil {
			kept.Value, failure = encode("value of branch ", kept.Winner, won.value)
		}
		data, _ = json.Marshal(kept)
		err = r.settle(Record{Data: data, Error: NewFailure(failure), At: r.branches[r.winner].clock})
	}
	if err != nil {
		return kept.Winner, value, err
	}
	value, err = decode[T]("value of branch ", kept.Winner, kept.Value)
	return kept.Winner, value, err
}

// race is an undecided Race.
type race struct {
	v        *verb
	branches []*branch
	ready    []*branch // that have returned
	winner   int
}

// racing reports whether the branch could lose a race.
func (b *branch) racing() bool {
	for ; b != nil; b = b.parent {
		if b.race != nil {
			return true
		}
	}
	return false
}

func (r *race) finished(b *branch) { r.ready = append(r.ready, b) }

// decide picks the winner, once no branch of the turn runs workflow code: then
// all that could have ended by what is kept has ended, and the choice does not
// hang on the scheduler.
func (r *race) decide() {
	if len(r.ready) == 0 {
		return
	}
	for i, b := range r.branches {
		if slices.Contains(r.ready, b) && (r.winner < 0 || b.clock.Before(r.branches[r.winner].clock)) {
			r.winner = i
		}
	}
	t := r.v.t
	t.races = slices.DeleteFunc(t.races, func(x *race) bool { return x == r })
	t.wakeLocked(r.v.b, whyBranch, nil)
}

// settle commits the outcome, then unwinds the losers.
func (r *race) settle(rec Record) error {
	v, t := r.v, r.v.t
	rec.Kind = KindRace
	t.mu.Lock()
	if t.over(v.b) {
		v.b.exitLocked()
	}
	v.recordLocked(rec)
	for i, b := range r.branches {
		if i != r.winner {
			t.stop = append(t.stop, t.childrenWithin(b.prefix)...)
			t.giveBack(b.prefix)
			for path, h := range t.hooks {
				if strings.HasPrefix(path, b.prefix) {
					h.expire(t, true)
				}
			}
		}
	}
	t.flushLocked()
	if t.over(v.b) {
		v.b.exitLocked()
	}
	for _, b := range r.branches {
		b.cancel()
		b.lost = true // the winner too: what it started and did not wait for is not there on replay
		for _, w := range slices.Clone(t.blocked) {
			if w == b || w.isLost() {
				t.wakeLocked(w, whyExit, nil)
			}
		}
		for _, a := range t.attempts {
			if a.v.b.isLost() {
				a.abandonLocked()
			}
		}
		t.forgetWaits(b.prefix)
	}
	t.match()
	v.endLocked()
	t.mu.Unlock()
	return rec.Error.Err()
}
