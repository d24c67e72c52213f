// Package group gathers the calls of many goroutines into batches that one
// function executes, so that what is dear about a batch (a transaction, a sync
// of the disk, a round trip) is paid once for all of them.
package group

import (
	"errors"
	"runtime"
	"sync"
	"time"
)

// ErrClosed is returned for calls after Close.
var ErrClosed = errors.New("group: closed")

// gatherFor is how long at most a batch waits for the callers of the last one
// to come back with their next item. A writer that takes what is there at once
// splits batches in half: the callers it has just woken find it gone.
const gatherFor = 100 * time.Microsecond

// enough is how many items are worth a flush in any case. To wait for more would
// leave the writer idle while a thousand callers get ready.
const enough = 64

// Group runs one flush at a time, in a goroutine of its own.
type Group[T any] struct {
	flush func([]T)

	mu      sync.Mutex
	more    sync.Cond // queue not empty, or closed
	queue   []item[T]
	spare   []item[T]
	free    []chan struct{}
	closed  bool
	stopped chan struct{}
}

type item[T any] struct {
	value T
	done  chan struct{} // nil: nobody waits
}

// New returns a running group. flush gets the items of a batch in the order in
// which they came; what it has to say to a caller it writes into the item. It
// must not keep the slice.
func New[T any](flush func([]T)) *Group[T] {
	g := &Group[T]{flush: flush, stopped: make(chan struct{})}
	g.more.L = &g.mu
	go g.run()
	return g
}

// Do puts the item into the next batch and returns when that is flushed.
func (g *Group[T]) Do(v T) error {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return ErrClosed
	}
	var done chan struct{}
	if n := len(g.free); n > 0 {
		done, g.free = g.free[n-1], g.free[:n-1]
	} else {
		done = make(chan struct{}, 1)
	}
	g.push(item[T]{v, done})
	g.mu.Unlock()
	<-done
	g.mu.Lock()
	g.free = append(g.free, done)
	g.mu.Unlock()
	return nil
}

// Add puts the item into the next batch and does not wait.
func (g *Group[T]) Add(v T) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return ErrClosed
	}
	g.push(item[T]{value: v})
	return nil
}

func (g *Group[T]) push(it item[T]) {
	g.queue = append(g.queue, it)
	if len(g.queue) == 1 {
		g.more.Signal()
	}
}

// Close flushes what is queued and ends the group.
func (g *Group[T]) Close() {
	g.mu.Lock()
	if !g.closed {
		g.closed = true
		g.more.Signal()
	}
	g.mu.Unlock()
	<-g.stopped
}

func (g *Group[T]) run() {
	defer close(g.stopped)
	var values []T
	last := 0
	for {
		g.mu.Lock()
		for len(g.queue) == 0 && !g.closed {
			g.more.Wait()
		}
		if len(g.queue) == 0 {
			g.mu.Unlock()
			return
		}
		g.gather(last)
		batch := g.queue
		g.queue = g.spare[:0]
		g.mu.Unlock()

		values = values[:0]
		for i := range batch {
			values = append(values, batch[i].value)
		}
		g.flush(values)
		for i := range batch {
			if batch[i].done != nil {
				batch[i].done <- struct{}{}
			}
		}
		last = len(batch)
		clear(batch)
		clear(values)
		g.spare = batch
	}
}

// gather yields until about as many items are queued as the last batch had, or
// enough, or no more come. It is bounded in rounds as well as in time, since the clock may
// stand still (testing/synctest).
func (g *Group[T]) gather(last int) {
	if last < 2 {
		return
	}
	last = min(last, enough)
	var began time.Time
	for rounds, size := 0, len(g.queue); size < last && rounds < 64; rounds++ {
		g.mu.Unlock()
		runtime.Gosched()
		g.mu.Lock()
		if len(g.queue) == size && rounds > 2 {
			return
		}
		size = len(g.queue)
		if began.IsZero() {
			began = time.Now()
		} else if time.Since(began) > gatherFor {
			return
		}
	}
}
