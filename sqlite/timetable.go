package sqlite

import (
	"container/heap"
	"slices"
)

// A route that has a worker is in one of two places: in writer.later, or, once
// something of it is due, in writer.ready until that is handed out. There may be
// thousands: a transaction looks only at those that it has something for.

// Where a route is: its index in writer.later, or
const (
	unserved = -1 - iota // it has no worker, and nobody looks
	inReady
)

// timetable is a heap of routes; at 0 is the one that is due first.
type timetable []*route

func (t timetable) Len() int           { return len(t) }
func (t timetable) Less(i, j int) bool { return t[i].next < t[j].next }

func (t timetable) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].spot, t[j].spot = i, j
}

// Push implements [heap.Interface].
func (t *timetable) Push(r any) {
	r.(*route).spot = len(*t)
	*t = append(*t, r.(*route))
}

// Pop implements [heap.Interface].
func (t *timetable) Pop() any {
	last := len(*t) - 1
	r := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	r.spot = unserved
	return r
}

// serve gives a route one more worker.
func (w *writer) serve(r *route, x *worker) {
	r.workers = append(r.workers, x)
	if r.spot == unserved {
		heap.Push(&w.later, r)
	}
}

// unserve takes the worker from all its routes.
func (w *writer) unserve(x *worker) {
	for _, r := range w.byKey {
		r.workers = slices.DeleteFunc(r.workers, func(y *worker) bool { return x == y })
		if len(r.workers) == 0 && r.spot >= 0 {
			heap.Remove(&w.later, r.spot)
		}
	}
	w.ready = slices.DeleteFunc(w.ready, func(r *route) bool {
		if len(r.workers) == 0 {
			r.spot = unserved
		}
		return len(r.workers) == 0
	})
}

// startOver makes all routes look for due runs from their beginning.
func (w *writer) startOver() {
	w.ready, w.later = nil, nil
	for _, r := range w.byKey {
		r.cursor, r.next, r.spot = nowhere, 0, unserved
		if len(r.workers) > 0 {
			heap.Push(&w.later, r)
		}
	}
}

// soonest is when a route is due next that is not yet.
func (w *writer) soonest() int64 {
	if len(w.later) == 0 {
		return never
	}
	return w.later[0].next
}

// comeDue moves the routes that are due to where they take turns.
func (w *writer) comeDue() {
	for w.soonest() <= w.now {
		r := heap.Pop(&w.later).(*route)
		r.spot = inReady
		w.ready = append(w.ready, r)
	}
}
