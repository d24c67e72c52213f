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
// interval has been changed.
func (w *Worker) beginLoops(ctx context.Context) error {
	var runs []NewRun
	defined := map[string]*loop{}
	for _, d := range w.defs {
		if d.loop == nil {
			continue
		}
		queue := d.queue
		if queue == "" {
			queue = defaultQueue
		}
		runs = append(runs, NewRun{ID: d.name, Workflow: d.name, Queue: queue, Input: json.RawMessage(`null`)})
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
		l := defined[loopPrefix+states[i].Name]
		if l == nil || states[i].Iterations == 0 && states[i].NextAt.IsZero() || states[i].Interval == l.pace.Interval {
			continue
		}
		_, err := w.store.Signal(ctx, l.def.name, Message{Op: OpSignal, Name: loopReload})
		if err != nil && !errors.Is(err, ErrRunEnded) {
			return err
		}
	}
	return nil
}

// stagger spreads out the loops whose time passed while nobody was there, so that
// the start of a process, or a resume, does not set all of them off at once.
type stagger struct {
	gap time.Duration

	mu    sync.Mutex
	burst []straggler
	close time.Time // when the burst is spread out; the loops that join until then are of it
	free  time.Time // when the last one that was spread out begins
}

type straggler struct {
	name     string
	interval time.Duration
	at       time.Time
}

// gather is how long stragglers wait for others, so that they can be put in order.
const gather = 20 * time.Millisecond

// join returns when the loop may begin: the end of the gathering, and, asked again
// then, its place in the order of intervals and names. The spreading takes no
// longer than the shortest interval.
func (s *stagger) join(at time.Time, name string, interval time.Duration) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.burst, func(x straggler) bool { return x.name == name }); i >= 0 && !at.Before(s.close) {
		return s.burst[i].at
	}
	if len(s.burst) == 0 || !at.Before(s.close) {
		s.burst, s.close = nil, after(at, gather)
	}
	s.burst = append(s.burst, straggler{name: name, interval: interval})
	slices.SortFunc(s.burst, func(a, b straggler) int {
		return cmp.Or(cmp.Compare(a.interval, b.interval), cmp.Compare(a.name, b.name))
	})
	gap := s.gap
	if shortest := s.burst[0].interval; shortest > 0 {
		gap = min(gap, shortest/time.Duration(len(s.burst)))
	}
	for i := range s.burst {
		s.burst[i].at = after(s.close, time.Duration(i)*gap)
	}
	return s.close
}

// enter waits until the loop's last iteration has really ended in this process,
// and its group has room.
func (r *loopRun) enter(ctx context.Context) (leave func(), err error) {
	held := make([]chan struct{}, 0, 2)
	leave = func() {
		for _, c := range held {
			<-c
		}
	}
	for _, c := range []chan struct{}{r.busy, r.t.w.groupOf(r.group)} {
		if c == nil {
			continue
		}
		select {
		case c <- struct{}{}:
			held = append(held, c)
		case <-ctx.Done():
			leave()
			return nil, ctx.Err()
		}
	}
	return leave, nil
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
