package bide

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	mrand "math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bide-dev/bide/internal/timeline"
)

// WorkerConfig says how a worker works. The zero value of each field means its
// default.
type WorkerConfig struct {
	Queues []string // whose runs to take; default "default"
	// MaxTurns is the most runs in hand at once, warm ones not counted; default 2,000.
	MaxTurns int
	// MaxSteps is the most calls of step functions and checks in flight; default 1,000.
	MaxSteps int
	// MaxWarm is the most runs kept in memory while they wait for less than
	// WarmFor; default 1,000, negative for none. All others park at once. Waits of
	// WarmFor itself have a tenth of the room, shorter ones more. A run with a history
	// of 100 records stays for twice WarmFor, one of 900 for ten times.
	MaxWarm int
	WarmFor time.Duration // default 10 s
	// Lease is how long the worker's leases outlive its last sign of life; it
	// gives one every third of that. Default 30 s.
	Lease time.Duration
	// GracePeriod is how long a stopping worker waits for the steps in flight;
	// default 10 s.
	GracePeriod time.Duration
	// StaggerGap lies between the starts of loops whose time passed while nobody was
	// there; default 150 ms.
	StaggerGap time.Duration
	// PublicURL is where the world reaches the handler of webhooks
	// ("https://bide.example.com"); [NewWebhook] needs it.
	PublicURL string
	Logger    *slog.Logger // default slog.Default()
	// Intercept, if set, is called before each attempt of a step, each check of a poll
	// and each iteration of a loop, never on replay. The function that it wraps is
	// given the context that Intercept returns, and done is called with its error.
	Intercept func(ctx context.Context, c Call) (_ context.Context, done func(error))
	// Seed makes jitter repeatable, for tests; 0 is a random one.
	Seed uint64
}

// Worker claims runs and takes turns of them.
type Worker struct {
	store Store
	cfg   WorkerConfig
	id    string
	log   *slog.Logger
	base  context.Context // of steps: the values of Run's ctx, not its end
	steps chan struct{}
	warm  atomic.Int64
	line  atomic.Pointer[timeline.Line] // of the newest turn

	born  time.Time    // of Run; the epoch of
	until atomic.Int64 // when its leases may lapse, as far as it knows, in nanoseconds
	lapse *time.Timer  // rings then

	mu       sync.Mutex
	defs     map[string]*definition
	turns    map[string]*turn
	asked    int           // Max of the Claim under way
	askAgain func()        // ends that Claim, for one with another Max
	idle     chan struct{} // if set, closed when no turn is left

	cut    bool // all in hand was given up, and the store does not know
	rng    *mrand.Rand
	groups map[string]chan struct{} // of loops

	hookSecret []byte
	circuits   map[string]*circuit
	memory     memory

	stagger stagger
}

// NewWorker returns a worker on the store; [Worker.Run] sets it to work.
func NewWorker(store Store, cfg WorkerConfig) *Worker {
	set := func(p *int, d int) {
		if *p == 0 {
			*p = d
		}
	}
	long := func(p *time.Duration, d time.Duration) {
		if *p == 0 {
			*p = d
		}
	}
	set(&cfg.MaxTurns, 2000)
	set(&cfg.MaxSteps, 1000)
	set(&cfg.MaxWarm, 1000)
	long(&cfg.WarmFor, 10*time.Second)
	long(&cfg.Lease, 30*time.Second)
	long(&cfg.GracePeriod, 10*time.Second)
	long(&cfg.StaggerGap, 150*time.Millisecond)
	if len(cfg.Queues) == 0 {
		cfg.Queues = []string{defaultQueue}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Seed == 0 {
		cfg.Seed = mrand.Uint64()
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	return &Worker{store: store, cfg: cfg, id: "worker_" + hex.EncodeToString(id[:]), log: cfg.Logger,
		steps: make(chan struct{}, cfg.MaxSteps), defs: map[string]*definition{}, turns: map[string]*turn{},
		rng: mrand.New(mrand.NewPCG(cfg.Seed, 0)), stagger: stagger{gap: cfg.StaggerGap}}
}

const defaultQueue = "default"

// Register makes workflows known to the worker, before Run. It panics when two
// different ones share a name.
func (w *Worker) Register(workflows ...Definition) {
	for _, d := range workflows {
		def := d.definition()
		if old := w.defs[def.name]; old != nil && old != def {
			panic(fmt.Sprintf("bide: two workflows are called %q; rename one of them", def.name))
		}
		w.defs[def.name] = def
	}
}

// Run works until ctx ends, then stops with grace: it takes no more runs, lets
// the steps in flight finish for at most GracePeriod, parks what is left, and
// returns nil. A step that did not finish in time runs again in the next turn.
//
// It returns an [InvalidError] when no workflow is registered, or [ErrClosed]
// when the store was closed under it.
func (w *Worker) Run(ctx context.Context) error {
	if len(w.defs) == 0 {
		return &InvalidError{Field: "workflows", Reason: "none is registered; call Worker.Register first"}
	}
	if err := w.beginLoops(ctx); err != nil {
		return err
	}
	w.base = context.WithoutCancel(ctx)
	alive, stop := context.WithCancel(w.base)
	defer stop()
	var beat sync.WaitGroup
	w.born = time.Now()
	w.lapse = time.AfterFunc(w.cfg.Lease, w.lapsed)
	w.heard(w.born)
	beat.Go(func() { w.heartbeat(alive) })
	err := w.claim(ctx)
	w.shutdown()
	w.endMemory()
	stop()
	beat.Wait()
	w.lapse.Stop()
	if lerr := w.store.Commit(w.base, Lease{Worker: w.id}, Batch{Next: Parked{}}); lerr != nil && err == nil && !errors.Is(lerr, ErrLeaseLost) {
		err = lerr
	}
	return err
}

// While works, as [Worker.Run] does, until fn has returned, and returns fn's error.
// The context of fn ends with ctx, or when the worker fails: then its error is
// returned, not fn's.
func (w *Worker) While(ctx context.Context, fn func(context.Context) error) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	stopped := make(chan error, 1)
	go func() {
		defer stop() // should it fail, fn waits for nothing
		stopped <- w.Run(working)
	}()
	err := fn(working)
	stop()
	if failed := <-stopped; failed != nil {
		return failed
	}
	return err
}

// claim takes what the store hands out until ctx ends or the store is closed.
func (w *Worker) claim(ctx context.Context) error {
	c := Claim{Worker: w.id, Queues: w.cfg.Queues, Workflows: slices.Sorted(maps.Keys(w.defs)), TTL: w.cfg.Lease}
	for failures := 0; ; {
		call, cancel := context.WithCancel(ctx)
		w.mu.Lock()
		c.Max = w.cfg.MaxTurns + int(w.warm.Load())
		w.asked, w.askAgain = c.Max, cancel
		w.mu.Unlock()
		var claimed []Claimed
		err := w.giveBack(call)
		if err == nil {
			claimed, err = w.store.Claim(call, c)
		}
		again := call.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && again:
			continue
		case errors.Is(err, ErrClosed):
			return ErrClosed
		case err != nil:
			failures++
			w.log.Error("cannot claim runs; trying again", "error", err)
			if !sleepFor(ctx, backoff(failures)) {
				return nil
			}
			continue
		}
		failures = 0
		for i := range claimed {
			w.take(&claimed[i])
		}
	}
}

// take begins a turn, or hands news to one.
func (w *Worker) take(c *Claimed) {
	if c.Lost && c.Lease.Run == "" {
		w.letGo()
		return
	}
	w.mu.Lock()
	if w.cut { // it will be given back
		w.mu.Unlock()
		return
	}
	t := w.turns[c.Lease.Run]
	if c.News {
		w.mu.Unlock()
		if t != nil && t.lease.Epoch == c.Epoch {
			t.deliver(c)
		}
		return
	}
	t = newTurn(w, w.defs[c.Run.Workflow], c)
	w.turns[c.Lease.Run] = t
	w.mu.Unlock()
	t.begin()
}

// release forgets a turn that has ended.
func (w *Worker) release(t *turn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.turns[t.lease.Run] == t {
		delete(w.turns, t.lease.Run)
	}
	if len(w.turns) == 0 && w.idle != nil {
		close(w.idle)
		w.idle = nil
	}
}

// whenIdle returns a channel that is closed when no turn is left.
func (w *Worker) whenIdle() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	idle := make(chan struct{})
	if len(w.turns) == 0 {
		close(idle)
	} else {
		w.idle = idle
	}
	return idle
}

// shutdown asks every turn to park, and after the grace period makes it.
func (w *Worker) shutdown() {
	idle := w.whenIdle()
	w.mu.Lock()
	turns := slices.Collect(maps.Values(w.turns))
	w.mu.Unlock()
	for _, t := range turns {
		t.mu.Lock()
		t.yieldLocked()
		t.mu.Unlock()
	}
	grace := time.NewTimer(w.cfg.GracePeriod)
	defer grace.Stop()
	select {
	case <-idle:
		return
	case <-grace.C:
	}
	for _, t := range turns {
		t.mu.Lock()
		if t.ending == open { // else a branch that leaves now would look like a fault
			t.parkAt(now())
			t.unwind(parking)
		}
		t.abandonLocked()
		t.mu.Unlock()
	}
	grace.Reset(w.cfg.GracePeriod)
	select {
	case <-idle:
	case <-grace.C:
		w.log.Error("workflow code blocks outside any verb and holds up the stop", "stacks", stacks())
	}
}

// commit writes a batch, and stays with it while the store is in trouble: what
// has been done is not to be done again. It gives up only when the lease or the
// store is gone.
func (w *Worker) commit(t *turn, b Batch) error {
	for failures := 1; ; failures++ {
		err := w.store.Commit(w.base, t.lease, b)
		if err == nil || errors.Is(err, ErrLeaseLost) || errors.Is(err, ErrClosed) {
			return err
		}
		w.log.Error("cannot commit; trying again", "run", t.run.ID, "workflow", t.run.Workflow, "error", err)
		var invalid *InvalidError
		if errors.As(err, &invalid) || !sleepFor(w.base, backoff(failures)) {
			return err
		}
	}
}

// keepTime starts a line at the store's time.
func (w *Worker) keepTime(c *Claimed) *timeline.Line {
	var line *timeline.Line
	switch {
	case c.Now.IsZero(): // a store that does not say
		line = timeline.Start(time.Now(), c.Ahead)
	case c.Steady:
		line = timeline.Steady(c.Now, c.Ahead)
	default:
		line = timeline.Start(c.Now, c.Ahead)
	}
	w.line.Store(line)
	return line
}

// now is the store's time, as it went on from the last claim.
func (w *Worker) now() time.Time {
	if line := w.line.Load(); line != nil {
		return line.Now().Truncate(time.Microsecond)
	}
	return now()
}

// keepWarm reports whether a turn that is idle for so long should stay in memory,
// its history being of the given length. The shorter the wait the more of the room
// it may use, so that long ones do not keep short ones out; a wait of a tenth of
// WarmFor may use all of it. A history that is dear to replay makes a wait count
// for less, down to a tenth.
func (w *Worker) keepWarm(idle time.Duration, length int) bool {
	if idle /= time.Duration(1 + min(length/100, 9)); idle > w.cfg.WarmFor {
		return false
	}
	room := int64(float64(w.cfg.MaxWarm) * min(1, float64(w.cfg.WarmFor)/10/float64(max(idle, 1))))
	if w.warm.Add(1) > room {
		w.warm.Add(-1)
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.turns) >= w.asked { // this one makes room, and the store does not know
		w.askAgain()
	}
	return true
}

// acquireSlot waits until another function may run, or the branch's turn is over.
func (b *branch) acquireSlot() {
	select {
	case b.t.w.steps <- struct{}{}:
		return
	default:
	}
	select {
	case b.t.w.steps <- struct{}{}:
	case <-b.ctx.Done():
		b.t.mu.Lock()
		b.exitLocked()
	}
}

func (w *Worker) releaseSlot() { <-w.steps }

func (w *Worker) random() float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.Float64()
}

// contain calls a callback of the user's: a panic in it must not undo what it is
// told of.
func (w *Worker) contain(what, name string, fn func()) {
	defer func() {
		if r := recover(); r != nil {
			w.log.Error("a callback panicked", "callback", what, "name", name, "panic", fmt.Sprint(r))
		}
	}()
	fn()
}

// stacks returns the stacks of the goroutines that run workflow code.
func stacks() string {
	buf := make([]byte, 1<<20)
	return branchStacks(buf[:runtime.Stack(buf, true)])
}

// backoff is the pause after the n-th failure in a row of the store.
func backoff(n int) time.Duration { return min(10*time.Millisecond<<min(n, 10), time.Second) }

// sleepFor waits and reports whether ctx is still alive.
func sleepFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
