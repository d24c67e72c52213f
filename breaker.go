package bide

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/bide-dev/bide/wait"
)

// Breaker stops checks, or iterations, of what keeps failing: after a cool-down a
// few probes go through, and close it again or not. A loop has its own; polls with
// a breaker of the same Name share it over the whole store. Zero fields mean the
// defaults.
//
// While it is open a poll makes no attempts and a loop no iterations: the next
// comes when a probe may go, or at the poll's deadline.
type Breaker struct {
	Name        string        // of a poll's; a loop needs none
	Failures    int           // so many in a row open it; default 5
	Rate        float64       // so does this share of failures, default 0.5,
	Calls       int           // of at least so many calls, default 20,
	Window      time.Duration // in so long; default 60 s
	Cooldown    time.Duration // default 30 s; doubled each time that a probe fails
	MaxCooldown time.Duration // default 10 min
	Probes      int           // at a time; default 1
	Successes   int           // of probes that close it; default 1
}

func (b Breaker) rules() wait.Breaker {
	return wait.Breaker{Failures: b.Failures, Rate: b.Rate, Calls: b.Calls, Window: b.Window,
		Cooldown: b.Cooldown, MaxCooldown: b.MaxCooldown, Probes: b.Probes, Successes: b.Successes}
}

func (b Breaker) loop(l *loop)       { l.breaker = new(b.rules()) }
func (b Breaker) poll(c *pollConfig) { c.breaker = &b }

const factBreaker = "breaker"

// circuit is a shared breaker as a worker knows it. What changes its state is
// written at once, and refused if another worker was first; the counts of a closed
// one are each worker's own.
type circuit struct {
	w     *Worker
	name  string
	rules wait.Breaker

	lock   chan struct{} // holds one while in use, the store's calls included
	state  wait.Circuit
	fact   Fact
	loaded time.Time
}

// circuitFresh is how long a worker goes by what it last read of a closed breaker.
const circuitFresh = time.Second

func (w *Worker) circuit(b *Breaker) *circuit {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.circuits == nil {
		w.circuits = map[string]*circuit{}
	}
	c := w.circuits[b.Name]
	if c == nil {
		c = &circuit{w: w, name: b.Name, rules: b.rules(), lock: make(chan struct{}, 1)}
		w.circuits[b.Name] = c
	}
	return c
}

// circuitWithin is how long the store may take to say what it has of a breaker.
const circuitWithin = 3 * time.Second

// allow asks whether a check may be made. Where the store cannot tell, it may.
func (c *circuit) allow(lease time.Duration) (p wait.Permit) {
	c.lock <- struct{}{}
	defer func() { <-c.lock }()
	if c.state.State(c.w.now()) != wait.Closed || c.w.now().Sub(c.loaded) > circuitFresh {
		c.load()
	}
	c.change(func() bool {
		p = c.rules.Allow(&c.state, c.w.now(), lease)
		return p.Probe
	})
	return p
}

// report tells how a check went; nil says that it tells nothing of the service.
func (c *circuit) report(p wait.Permit, worked *bool, retryAfter time.Duration) {
	c.lock <- struct{}{}
	defer func() { <-c.lock }()
	c.change(func() bool {
		before, generation := c.state.State(c.w.now()), c.state.Generation
		if worked == nil {
			c.rules.Ignore(&c.state, p)
		} else {
			c.rules.Report(&c.state, p, *worked, retryAfter, c.w.now(), c.w.random)
		}
		after := c.state.State(c.w.now())
		if after != before {
			c.w.log.Info("a breaker has changed", "breaker", c.name, "state", after.String(), "retry_at", c.state.RetryAt)
		}
		return p.Probe || after != before || c.state.Generation != generation
	})
}

// change applies fn, and again to what another worker has written meanwhile, until
// it is kept or fn says that it need not be.
func (c *circuit) change(fn func() bool) {
	for {
		old := *cloned(&c.state)
		if !fn() {
			return
		}
		c.fact.Value, _ = json.Marshal(&c.state)
		err := c.w.store.Commit(c.w.base, Lease{}, Batch{Facts: []Fact{c.fact}})
		if err == nil {
			c.load() // for its version
			return
		}
		if !errors.Is(err, ErrFactChanged) {
			c.w.log.Error("cannot keep the state of a breaker", "breaker", c.name, "error", err)
			return
		}
		c.state = old
		c.load()
	}
}

// load reads what is kept, unless it is what is known already.
func (c *circuit) load() {
	ctx, cancel := context.WithTimeout(c.w.base, circuitWithin)
	defer cancel()
	fact, state, err := readCircuit(ctx, c.w.store, c.name)
	c.loaded = c.w.now() // if it failed too: others wait
	if err != nil {
		c.w.log.Error("cannot read the state of a breaker", "breaker", c.name, "error", err)
		return
	}
	if fact.Version != c.fact.Version {
		c.state = state
	}
	c.fact = fact
}

func readCircuit(ctx context.Context, s Store, name string) (Fact, wait.Circuit, error) {
	var state wait.Circuit
	facts, err := s.Facts(ctx, factBreaker, name)
	if err != nil || len(facts) == 0 {
		return Fact{Kind: factBreaker, Key: name}, state, err
	}
	if err := json.Unmarshal(facts[0].Value, &state); err != nil {
		return facts[0], state, &CodecError{Field: "breaker " + name, Message: err.Error()}
	}
	return facts[0], state, nil
}

// BreakerHandle directs the breaker that the polls of a name share.
type BreakerHandle struct {
	c    *Client
	name string
}

// Breaker returns the handle of the breaker of the name.
func (c *Client) Breaker(name string) *BreakerHandle { return &BreakerHandle{c, name} }

// State reads the breaker; one that nobody has used is closed.
func (h *BreakerHandle) State(ctx context.Context) (wait.Circuit, error) {
	_, state, err := readCircuit(ctx, h.c.store, h.name)
	return state, err
}

// Open opens the breaker for so long.
func (h *BreakerHandle) Open(ctx context.Context, d time.Duration) error {
	return h.change(ctx, func(s *wait.Circuit) { s.Open(now(), after(now(), d)) })
}

// Close closes the breaker and forgets what it has seen.
func (h *BreakerHandle) Close(ctx context.Context) error {
	return h.change(ctx, func(s *wait.Circuit) { s.Reset() })
}

func (h *BreakerHandle) change(ctx context.Context, fn func(*wait.Circuit)) error {
	for {
		fact, state, err := readCircuit(ctx, h.c.store, h.name)
		if err != nil {
			return err
		}
		fn(&state)
		fact.Value, _ = json.Marshal(&state)
		err = h.c.store.Commit(ctx, Lease{}, Batch{Facts: []Fact{fact}})
		if !errors.Is(err, ErrFactChanged) {
			return err
		}
	}
}
