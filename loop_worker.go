package bide

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"
)

// What a worker does for all of its loops together.

// beginLoops makes the worker's loops known to the store, and tells those whose
// times have been changed. While the store is in trouble it tries again.
func (w *Worker) beginLoops(ctx context.Context) error {
	for failures := 1; ; failures++ {
		err := w.tryBeginLoops(ctx)
		var invalid *InvalidError
		var taken *ConflictError
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrClosed), errors.Is(err, ErrReadOnly), errors.As(err, &invalid), errors.As(err, &taken):
			return err
		}
		w.log.Error("cannot begin the loops; trying again", "error", err)
		if !sleepFor(ctx, backoff(failures)) {
			return nil
		}
	}
}

func (w *Worker) tryBeginLoops(ctx context.Context) error {
	var runs []NewRun
	defined := map[string]*loop{}
	for _, d := range w.defs {
		if d.loop == nil {
			continue
		}
		runs = append(runs, NewRun{ID: d.name, Workflow: d.name, Queue: cmp.Or(d.queue, defaultQueue), Input: json.RawMessage(`null`)})
		defined[d.name] = d.loop
	}
	if len(runs) == 0 {
		return nil
	}
	created, err := w.store.Create(ctx, runs)
	if err != nil {
		return err
	}
	old := 0
	for _, c := range created {
		if c.Err != nil {
			return c.Err
		}
		if !c.New {
			old++
		}
	}
	if old == 0 {
		return nil
	}
	states, err := NewClient(w.store).Loops(ctx)
	if err != nil {
		return err
	}
	for i := range states {
		s := &states[i]
		l := defined[loopPrefix+s.Name]
		if l == nil || s.Stopped {
			continue
		}
		if queue := cmp.Or(l.def.queue, defaultQueue); queue != s.queue {
			w.log.Warn("a loop stays in the queue that it began in", "loop", s.Name, "queue", s.queue, "defined", queue)
		}
		if !l.changedSince(s) {
			continue
		}
		_, err := w.store.Signal(ctx, l.def.name, Message{Op: OpSignal, Name: loopReload})
		if err != nil && !errors.Is(err, ErrRunEnded) {
			return err
		}
	}
	return nil
}

// changedSince reports whether the loop's next time, as it is kept, is none that
// the definition would give.
func (l *loop) changedSince(s *LoopState) bool {
	switch at := now(); {
	case s.Interval != l.pace.Interval:
		return true
	case !l.fixed || l.delay != nil && s.Iterations == 0:
		return false
	case s.Paused: // it will see when it goes on
		return true
	case !s.NextAt.After(at):
		return false
	default:
		next := l.schedule.Next(at)
		return !next.IsZero() && !next.Equal(s.NextAt)
	}
}

// stagger spreads out the loops whose time passed while nobody was there, so that
// the start of a process, or a resume, does not set all of them off at once.
type stagger struct {
	gap time.Duration

	mu        sync.Mutex
	gathering []straggler
	until     time.Time            // the end of the gathering
	places    map[string]time.Time // of those who have been put in order
}

type straggler struct {
	name     string
	interval time.Duration
}

// gather is how long stragglers wait for others, so that they can be put in order.
const gather = 20 * time.Millisecond

// join returns when a loop whose time has come is to ask again: if it is late, the
// end of the gathering, and then its place in the order; the zero time if it may
// begin. It may be another turn that asks again.
func (s *stagger) join(at time.Time, name string, interval time.Duration, late bool) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.gathering) > 0 && !at.Before(s.until) {
		s.spread()
	}
	switch place, ok := s.places[name]; {
	case ok && place.After(at):
		return place
	case ok:
		delete(s.places, name)
		return time.Time{}
	case !late:
		return time.Time{}
	}
	if len(s.gathering) == 0 {
		s.until = after(at, gather)
	}
	if !slices.ContainsFunc(s.gathering, func(x straggler) bool { return x.name == name }) {
		s.gathering = append(s.gathering, straggler{name, interval})
	}
	return s.until
}

// spread puts those who have gathered in the order of intervals and names. It
// takes no longer than the shortest interval.
func (s *stagger) spread() {
	slices.SortFunc(s.gathering, func(a, b straggler) int {
		return cmp.Or(cmp.Compare(a.interval, b.interval), cmp.Compare(a.name, b.name))
	})
	gap := s.gap
	for _, x := range s.gathering {
		if x.interval > 0 { // the shortest; a schedule has none
			gap = min(gap, x.interval/time.Duration(len(s.gathering)))
			break
		}
	}
	if s.places == nil {
		s.places = map[string]time.Time{}
	}
	for i, x := range s.gathering {
		s.places[x.name] = after(s.until, time.Duration(i)*gap)
	}
	s.gathering = nil
}

// enter lets the iteration begin: not while the last one has not really ended in
// this process, since its function did not heed its context, and not before its
// group has room. Its time counts from then on.
func (r *loopRun) enter(ctx context.Context, a *attempt) (leave func(), err error) {
	select {
	case r.busy <- struct{}{}:
	default:
		return nil, skipped("busy")
	}
	w := r.t.w
	group := w.groupOf(r.group)
	if group == nil {
		a.limitTo(r.timeout)
		return func() { <-r.busy }, nil
	}
	w.releaseSlot() // for others, meanwhile
	select {
	case group <- struct{}{}:
		leave = func() { <-group; <-r.busy }
		a.limitTo(r.timeout)
	case <-ctx.Done():
		<-r.busy
		err = ctx.Err()
	}
	w.steps <- struct{}{}
	return leave, err
}

// limitTo lets the attempt, which is under way, end after so long.
func (a *attempt) limitTo(d time.Duration) {
	t, b := a.v.t, a.v.b
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.over {
		return
	}
	a.limit, a.deadline = d, time.Now().Add(d)
	if b.timer == nil {
		b.timer = time.AfterFunc(d, b.timedOut)
	} else {
		b.timer.Reset(d)
	}
}

// groupOf returns what the group's iterations hold a place in, nil for no group.
func (w *Worker) groupOf(g Group) chan struct{} {
	if g.Name == "" {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.groups == nil {
		w.groups = map[string]chan struct{}{}
	}
	if w.groups[g.Name] == nil {
		w.groups[g.Name] = make(chan struct{}, g.Limit)
	}
	return w.groups[g.Name]
}
