package bide

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/bide-dev/bide/wait"
)

// Learned is an interval that bide learns, by the poll's name: it remembers how
// long the waits before took, and checks where the end is likely. On average it is
// about as late as a check every Learned would be (up to a tenth later where waits
// are smooth or long-tailed), with fewer checks. While it knows
// little it goes by [Elapsed]. The deadline's check is made as ever.
type Learned time.Duration

func (l Learned) poll(c *pollConfig) { c.learned = (*time.Duration)(&l) }

// NoRelax keeps a poll with a webhook at its own interval. Without it a poll whose
// last five waits were all ended by the webhook checks ever less often, until a
// webhook fails to come.
type NoRelax struct{}

func (NoRelax) poll(c *pollConfig) { c.noRelax = true }

const (
	factPoll     = "poll"
	memoryFresh  = 10 * time.Second // how long a worker goes by what it last read
	memoryAfter  = time.Second      // how long what was learned waits for more
	relaxAfter   = 5                // waits in a row that the webhook has won
	relaxAtFirst = time.Minute
	relaxLater   = 5 * time.Minute
)

// pollMemory is what a store remembers of the waits of a poll's name.
type pollMemory struct {
	Took     wait.Sketch `json:"took"`
	HookWins int         `json:"hook_wins,omitempty"` // in a row
}

// memory is what a worker knows of it.
type memory struct {
	mu      sync.Mutex
	known   map[string]*remembered
	pending map[string][]func(*pollMemory)
	timer   *time.Timer
	writing sync.WaitGroup
}

type remembered struct {
	pollMemory
	version int64
	read    time.Time
}

// recall lets fn look at what is known of the name. The memory's lock is held
// meanwhile: a sketch is nobody's to look at alone.
func (w *Worker) recall(name string, fn func(*pollMemory)) {
	w.memory.mu.Lock()
	r := w.memory.known[name]
	stale := r == nil || w.now().Sub(r.read) > memoryFresh
	w.memory.mu.Unlock()
	if stale {
		fact, m, err := w.readMemory(name)
		if err != nil {
			w.log.Error("cannot read what was learned of a poll", "poll", name, "error", err)
		}
		if r == nil || r.version != fact.Version {
			r = &remembered{pollMemory: m, version: fact.Version}
		}
	}
	w.memory.mu.Lock()
	defer w.memory.mu.Unlock()
	if stale {
		r.read = w.now()
	}
	if w.memory.known == nil {
		w.memory.known = map[string]*remembered{}
	}
	w.memory.known[name] = r
	fn(&r.pollMemory)
}

func (w *Worker) readMemory(name string) (Fact, pollMemory, error) {
	var m pollMemory
	facts, err := w.store.Facts(w.base, factPoll, name)
	if err != nil || len(facts) == 0 {
		return Fact{Kind: factPoll, Key: name}, m, err
	}
	if err := json.Unmarshal(facts[0].Value, &m); err != nil { // begin anew rather than never learn again
		return facts[0], pollMemory{}, err
	}
	return facts[0], m, nil
}

// learn changes what is remembered of the name, soon: many waits that end together
// are one write. A crash loses what was learned in the last second, no more.
func (w *Worker) learn(name string, fn func(*pollMemory)) {
	m := &w.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pending == nil {
		m.pending = map[string][]func(*pollMemory){}
	}
	m.pending[name] = append(m.pending[name], fn)
	if m.timer == nil {
		m.writing.Add(1)
		m.timer = time.AfterFunc(memoryAfter, func() {
			defer m.writing.Done()
			w.writeMemory()
		})
	}
}

// writeMemory writes what was learned.
func (w *Worker) writeMemory() {
	m := &w.memory
	m.mu.Lock()
	pending := m.pending
	m.pending, m.timer = nil, nil
	m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(pending)) {
		for {
			fact, memory, err := w.readMemory(name)
			if err == nil {
				for _, fn := range pending[name] {
					fn(&memory)
				}
				fact.Value, _ = json.Marshal(&memory)
				err = w.store.Commit(w.base, Lease{}, Batch{Facts: []Fact{fact}})
			}
			if errors.Is(err, ErrFactChanged) {
				continue
			}
			if err != nil {
				w.log.Error("cannot keep what was learned of a poll", "poll", name, "error", err)
			}
			break
		}
	}
}

// endMemory writes what is still pending, before the worker stops.
func (w *Worker) endMemory() {
	w.memory.mu.Lock()
	early := w.memory.timer != nil && w.memory.timer.Stop()
	w.memory.mu.Unlock()
	if early {
		w.writeMemory()
		w.memory.writing.Done()
	}
	w.memory.writing.Wait()
}

// learnedStrategy is [Learned] as a strategy.
type learnedStrategy struct {
	w        *Worker
	name     string
	interval time.Duration
	min      time.Duration
}

// Pause implements [wait.Strategy].
func (l learnedStrategy) Pause(s *wait.State, at time.Time) (p wait.Pause) {
	l.w.recall(l.name, func(m *pollMemory) {
		p.Base = m.Took.Pause(max(at.Sub(s.Start), 0), l.interval, max(l.min, wait.Floor))
	})
	p.Limit, p.Jitter = p.Base, wait.Proportional
	return p
}

// Check implements [wait.Strategy].
func (l learnedStrategy) Check() error { return wait.Fixed(l.interval).Check() }

// remember lets the store learn from a poll that has found what it waited for: it
// became so between the last check that did not see it and the one that did.
func (p *pollRun) remember(seen time.Time, byHook bool) {
	if p.learned != nil {
		from, to := max(p.LastPending.Sub(p.state.Since), 0), max(seen.Sub(p.state.Since), 0)
		p.t.w.learn(p.name, func(m *pollMemory) { m.Took.AddBetween(min(from, to), to) })
	}
	if p.hook != nil && !p.noRelax {
		p.t.w.learn(p.name, func(m *pollMemory) {
			if m.HookWins++; !byHook {
				m.HookWins = 0
			}
		})
	}
}

// relaxed is the least pause of a poll whose webhook has proved to come.
func (p *pollRun) relaxed() (least time.Duration) {
	if p.hook == nil || p.noRelax {
		return 0
	}
	p.t.w.recall(p.name, func(m *pollMemory) {
		if m.HookWins < relaxAfter {
			return
		}
		least = relaxLater
		if p.state.Attempt <= 1 {
			least = relaxAtFirst
			if left, ok := p.Remaining(p.t.now()); ok {
				least = max(2*left, relaxAtFirst)
			}
		}
	})
	return least
}
