package server

import (
	"context"
	"errors"
	"maps"
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
	runs map[string]*inHand
	seen time.Time
}

// inHand is a run in a turn.
type inHand struct {
	*tally
	mu    sync.Mutex                // a worker elsewhere might make two commits at once
	polls map[string]map[string]int // its checks that have been counted, by path and outcome
}

// polled notes the polls that wait, as they stand. What is counted of them is what
// has come since.
func (x *inHand) polled(waiting []bide.Wait) {
	for i := range waiting {
		if w := &waiting[i]; w.Poll != nil {
			if x.polls == nil {
				x.polls = map[string]map[string]int{}
			}
			x.polls[w.Path] = maps.Clone(w.Poll.Log.Counts)
		}
	}
}

// checks counts what polls have done since it was counted last. Counts of a poll only
// grow: those of a check that another server's worker has made are there at the claim.
func (m *meter) checks(x *inHand, b *bide.Batch) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range b.Records {
		if r := &b.Records[i]; r.Kind == bide.KindPoll && r.Poll != nil {
			m.grown(x.polls[r.Path], r.Poll.Counts)
			delete(x.polls, r.Path)
		}
	}
	if b.Waiting == nil {
		return
	}
	for i := range *b.Waiting {
		if w := &(*b.Waiting)[i]; w.Poll != nil {
			m.grown(x.polls[w.Path], w.Poll.Log.Counts)
		}
	}
	x.polled(*b.Waiting)
}

func (m *meter) grown(before, now map[string]int) {
	for outcome, n := range now {
		m.attempts.WithLabelValues("poll", outcome).Add(float64(max(n-before[outcome], 0)))
	}
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
			run := &inHand{tally: m.of(x.Run.Workflow)}
			run.polled(x.Run.Waiting)
			h.runs[x.Lease.Run] = run
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
	if run == nil { // another server has handed it out
		return nil
	}
	m.checks(run, &b)
	switch next := b.Next.(type) {
	case bide.Done:
		run.ended(bide.Succeeded)
	case bide.Ended:
		run.ended(next.State)
	}
	return nil
}

// Control implements [bide.Store]. Of its commands only one ends a run by itself.
func (m *meter) Control(ctx context.Context, id string, c bide.Command) error {
	err := m.Store.Control(ctx, id, c)
	if err == nil && c.Op == bide.OpTerminate {
		if run, err := m.Store.Run(context.WithoutCancel(ctx), id); err == nil { // else it was purged, or the store is closed
			m.of(run.Workflow).ended(bide.Terminated)
		}
	}
	return err
}

// turn returns the run, nil if this server has not handed it out, and forgets it when
// its turn is over.
func (m *meter) turn(l bide.Lease, over bool) *inHand {
	if l.Worker == "" || l.Run == "" && !over {
		return nil
	}
	if l.Run == "" { // the worker gives all back
		m.mu.Lock()
		delete(m.workers, l.Worker)
		m.mu.Unlock()
		return nil
	}
	h := m.worker(l.Worker)
	h.mu.Lock()
	defer h.mu.Unlock()
	run := h.runs[l.Run]
	if over {
		delete(h.runs, l.Run)
	}
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
		h = &held{runs: map[string]*inHand{}, seen: now}
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
	if state.Ended() && int(state) < len(t.finished) {
		t.finished[state].Inc()
	}
}
