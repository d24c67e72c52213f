package postgres

import (
	"container/heap"
	"slices"
)

// crew is some workers and the routes that just these serve. There may be
// thousands of routes: a transaction looks only at those that are due and that
// somebody has a hand free for.
type crew struct {
	workers []*worker
	turn    int       // whose turn it is to get the next run
	later   timetable // routes of which nothing is due yet
	ready   []*route  // the others, in the order in which they take turns
}

// assign finds the route's crew: all who want it.
func (w *writer) assign(r *route) {
	var want []*worker
	for _, x := range w.workers {
		if x.wants(r.name) {
			want = append(want, x)
		}
	}
	if r.crew = nil; want == nil {
		return
	}
	i := slices.IndexFunc(w.crews, func(c *crew) bool { return slices.Equal(c.workers, want) })
	if i < 0 {
		i = len(w.crews)
		w.crews = append(w.crews, &crew{workers: want})
	}
	r.crew = w.crews[i]
	heap.Push(&r.crew.later, r)
}

// regroup makes the crews anew, when a worker has come or gone.
func (w *writer) regroup() {
	w.crews = nil
	for _, r := range w.byKey {
		w.assign(r)
	}
}

// free is how many more runs the crew can hold.
func (c *crew) free() (free int64) {
	for _, x := range c.workers {
		free += x.free()
	}
	return free
}

// pick returns a worker of the route with a hand free, in turns, or nil.
func (r *route) pick() *worker {
	c := r.crew
	if c == nil {
		return nil
	}
	for range c.workers {
		x := c.workers[c.turn%len(c.workers)]
		c.turn++
		if x.held < x.max.Load() {
			return x
		}
	}
	return nil
}

// soonest is when a route of which nothing is due yet will be.
func (c *crew) soonest() int64 {
	if len(c.later) == 0 {
		return never
	}
	return c.later[0].next
}

// comeDue lets the routes that are due take turns.
func (c *crew) comeDue(now int64) {
	for c.soonest() <= now {
		r := heap.Pop(&c.later).(*route)
		c.ready = append(c.ready, r)
	}
}

// timetable is a heap of routes; at 0 is the one that is due first. Each knows
// its index.
type timetable []*route

const notLater = -1 // the index of a route that is in no timetable

func (t timetable) Len() int           { return len(t) }
func (t timetable) Less(i, j int) bool { return t[i].next < t[j].next }

func (t timetable) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].index, t[j].index = i, j
}

// Push implements [heap.Interface].
func (t *timetable) Push(r any) {
	r.(*route).index = len(*t)
	*t = append(*t, r.(*route))
}

// Pop implements [heap.Interface].
func (t *timetable) Pop() any {
	last := len(*t) - 1
	r := (*t)[last]
	(*t)[last], *t = nil, (*t)[:last]
	r.index = notLater
	return r
}
