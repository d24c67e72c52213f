package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bide-dev/bide"
)

// meter is a store that counts what is done through it. It looks at what passes
// and asks the store nothing, so that a commit costs hardly more than without it.
type meter struct {
	bide.Store
	keysChanged func()
	*metrics

	mu      sync.Mutex
	workers map[string]*held
}

// held are the runs that a worker has in hand: a commit does not say of which
// workflow its run is.
type held struct {
	mu   sync.Mutex
	runs map[string]*tally
	seen time.Time
}

// forgetWorker is after how long a worker that has said nothing is forgotten.
const forgetWorker = 10 * time.Minute

func newMeter(store bide.Store, keysChanged func()) *meter {
	return &meter{Store: store, keysChanged: keysChanged, metrics: newMetrics(store), workers: map[string]*held{}}
}

// withOptions returns the store with what it implements besides, nil for what it
// does not.
func withOptions(s bide.Store, waker bide.Waker, admin bide.Admin) bide.Store {
	switch {
	case waker != nil && admin != nil:
		return struct {
			bide.Store
			bide.Waker
			bide.Admin
		}{s, waker, admin}
	case waker != nil:
		return struct {
			bide.Store
			bide.Waker
		}{s, waker}
	case admin != nil:
		return struct {
			bide.Store
			bide.Admin
		}{s, admin}
	}
	return s
}

// Create implements [bide.Store].
func (m *meter) Create(ctx context.Context, runs []bide.NewRun) ([]bide.Created, error) {
	created, err := m.Store.Create(ctx, runs)
	for i := range created {
		if created[i].New && created[i].Err == nil {
			m.of(runs[i].Workflow).started.Inc()
		}
	}
	return created, err
}

// Claim implements [bide.Store].
func (m *meter) Claim(ctx context.Context, c bide.Claim) ([]bide.Claimed, error) {
	claimed, err := m.Store.Claim(ctx, c)
	h := m.worker(c.Worker)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = time.Now()
	for i := range claimed {
		x := &claimed[i]
		switch {
		case x.Lost:
			delete(h.runs, x.Lease.Run)
		case !x.News:
			h.runs[x.Lease.Run] = m.of(x.Run.Workflow)
			if due := dueAt(x); !due.IsZero() {
				m.timerLag.Observe(max(x.Now.Sub(due), 0).Seconds())
			}
		}
	}
	return claimed, err
}

// dueAt returns when a run that its timer has woken was due, else zero.
func dueAt(x *bide.Claimed) time.Time {
	var due time.Time
	if len(x.Inbox) > 0 || x.Interrupted {
		return due
	}
	for i := range x.Run.Waiting {
		w := &x.Run.Waiting[i]
		at := w.NextAt
		if at.IsZero() || !w.Until.IsZero() && w.Until.Before(at) {
			at = w.Until
		}
		if !at.IsZero() && !at.After(x.Now) && (due.IsZero() || at.Before(due)) {
			due = at
		}
	}
	return due
}

// Commit implements [bide.Store].
func (m *meter) Commit(ctx context.Context, l bide.Lease, b bide.Batch) error {
	began := time.Now()
	err := m.Store.Commit(ctx, l, b)
	m.commitTime.Observe(time.Since(began).Seconds())
	for i := range b.Facts {
		if b.Facts[i].Kind == factKey {
			m.keysChanged()
			break
		}
	}
	if err != nil && !errors.Is(err, bide.ErrLeaseLost) {
		return err
	}
	run := m.turn(l, b.Next != nil || err != nil)
	if err != nil {
		return err
	}
	for i := range b.Records {
		m.record(&b.Records[i])
	}
	for i := range b.Start {
		m.of(b.Start[i].Workflow).started.Inc()
	}
	switch next := b.Next.(type) {
	case bide.Done:
		run.ended(bide.Succeeded)
	case bide.Ended:
		run.ended(next.State)
	}
	return nil
}

// turn returns the tally of the run's workflow, and forgets the run when its turn
// is over.
func (m *meter) turn(l bide.Lease, over bool) *tally {
	if l.Worker == "" || l.Run == "" && !over {
		return nil
	}
	if l.Run == "" { // the worker gives all back
		m.mu.Lock()
		delete(m.workers, l.Worker)
		m.mu.Unlock()
		return nil
	}
	if !over {
		return nil
	}
	h := m.worker(l.Worker)
	h.mu.Lock()
	defer h.mu.Unlock()
	run := h.runs[l.Run]
	delete(h.runs, l.Run)
	return run
}

func (m *meter) worker(id string) *held {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.workers[id]
	if h == nil {
		now := time.Now()
		for other, x := range m.workers { // a new one is rare enough to look after the old
			x.mu.Lock()
			gone := now.Sub(x.seen) > forgetWorker
			x.mu.Unlock()
			if gone {
				delete(m.workers, other)
			}
		}
		h = &held{runs: map[string]*tally{}, seen: now}
		m.workers[id] = h
	}
	return h
}

// tally counts the runs of one workflow.
type tally struct {
	started  prometheus.Counter
	finished [bide.TimedOut + 1]prometheus.Counter
}

func (t *tally) ended(state bide.State) {
	if t != nil && state.Ended() && int(state) < len(t.finished) {
		t.finished[state].Inc()
	}
}
