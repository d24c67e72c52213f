package bide_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
)

// env is a store with its workers, inside a bubble of virtual time.
type env struct {
	*testing.T
	store  bide.Store
	client *bide.Client
	logs   *logs
	hands  []*hand
}

// inBubble runs fn with an empty store in memory. At the end the workers are
// stopped and the store is closed, so that no goroutine outlives the bubble.
func inBubble(t *testing.T, fn func(*env)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := inMemory().open(t)
		e := &env{T: t, store: store, client: bide.NewClient(store), logs: &logs{}}
		t.Cleanup(func() {
			for _, h := range e.hands {
				h.gate.set(passing)
				h.stop()
			}
			_ = e.store.Close()
		})
		fn(e)
	})
}

const testLease = 3 * time.Second

// config is what the tests' workers have in common.
func (e *env) config() bide.WorkerConfig {
	return bide.WorkerConfig{Lease: testLease, Seed: 1, Logger: slog.New(slog.NewTextHandler(e.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))}
}

// work sets a worker with the tests' configuration to work.
func (e *env) work(workflows ...bide.Definition) *hand {
	e.Helper()
	return e.workAs(e.config(), workflows...)
}

func (e *env) workAs(cfg bide.WorkerConfig, workflows ...bide.Definition) *hand {
	e.Helper()
	g := &gate{Store: e.store}
	g.opened.L = &g.mu
	w := bide.NewWorker(g, cfg)
	w.Register(workflows...)
	ctx, cancel := context.WithCancel(e.Context())
	h := &hand{gate: g, cancel: cancel, done: make(chan struct{})}
	e.hands = append(e.hands, h)
	go func() {
		defer close(h.done)
		h.err = w.Run(ctx)
	}()
	synctest.Wait()
	return h
}

// hand is a worker at work.
type hand struct {
	gate   *gate
	cancel func()
	done   chan struct{}
	err    error
}

// stop asks the worker to stop and waits until it has.
func (h *hand) stop() error {
	h.cancel()
	<-h.done
	return h.err
}

// crash cuts the worker off as a crash would: nothing of it reaches the store any
// more, and the store learns of it when the lease lapses.
func (h *hand) crash() {
	h.gate.set(dead)
	_ = h.stop()
}

// restart stops the workers with grace and sets a new one to work.
func (e *env) restart(workflows ...bide.Definition) *hand {
	e.Helper()
	for _, h := range e.hands {
		if err := h.stop(); err != nil {
			e.Errorf("worker stopped with %v", err)
		}
	}
	return e.work(workflows...)
}

type gateMode int

const (
	passing gateMode = iota
	frozen           // calls wait until the gate is opened or dead
	dead             // calls return bide.ErrClosed
)

// gate stands between a worker and its store.
type gate struct {
	bide.Store
	mu       sync.Mutex
	opened   sync.Cond
	mode     gateMode
	commits  int
	onCommit func(bide.Batch) error // if set, asked before each commit of a turn
}

func (g *gate) set(m gateMode) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mode = m
	g.opened.Broadcast()
}

func (g *gate) pass() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.mode == frozen {
		g.opened.Wait()
	}
	if g.mode == dead {
		return bide.ErrClosed
	}
	return nil
}

func (g *gate) Claim(ctx context.Context, c bide.Claim) ([]bide.Claimed, error) {
	if err := g.pass(); err != nil {
		return nil, err
	}
	claimed, err := g.Store.Claim(ctx, c)
	if perr := g.pass(); perr != nil {
		return nil, perr
	}
	return claimed, err
}

func (g *gate) Commit(ctx context.Context, l bide.Lease, b bide.Batch) error {
	if err := g.pass(); err != nil {
		return err
	}
	if l.Run != "" {
		g.mu.Lock()
		g.commits++
		ask := g.onCommit
		g.mu.Unlock()
		if ask != nil {
			if err := ask(b); err != nil {
				return err
			}
		}
	}
	return g.Store.Commit(ctx, l, b)
}

// logs collects what the workers log.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

var _ io.Writer = (*logs)(nil)

// start begins a run or ends the test.
func start[In, Out any](e *env, w *bide.Workflow[In, Out], in In, opts ...bide.StartOption) *bide.Handle[Out] {
	e.Helper()
	h, err := w.Start(e.Context(), e.client, in, opts...)
	if err != nil {
		e.Fatalf("start %s: %v", w.Name(), err)
	}
	return h
}

// patience is how long a run may take in virtual time before a test calls it hung.
const patience = 90 * 24 * time.Hour

// result waits for a run's end; one that never ends fails the test instead of
// deadlocking the bubble.
func result[Out any](e *env, h *bide.Handle[Out]) (Out, error) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), patience)
	defer cancel()
	out, err := h.Result(ctx)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
		run, _ := h.Get(e.Context())
		e.Fatalf("run %s has not ended after %v; it is %v and waits for %v", h.ID(), patience, run.State, run.Waiting)
	}
	return out, err
}

// run starts a run and waits for its end, with a worker of its own.
func run[In, Out any](e *env, w *bide.Workflow[In, Out], in In, opts ...bide.StartOption) (Out, error) {
	e.Helper()
	e.work(w)
	return result(e, start(e, w, in, opts...))
}

// get reads a run or ends the test.
func (e *env) get(id string) bide.Run {
	e.Helper()
	r, err := e.client.Get(e.Context(), id)
	if err != nil {
		e.Fatalf("get %s: %v", id, err)
	}
	return r
}

func (e *env) history(id string) []bide.Record {
	e.Helper()
	h, err := e.client.History(e.Context(), id, 0)
	if err != nil {
		e.Fatalf("history of %s: %v", id, err)
	}
	return h
}

// script is a history in short, for comparing: "step write" ...
func (e *env) script(id string) []string {
	e.Helper()
	var lines []string
	for _, r := range e.history(id) {
		line := strings.TrimSpace(r.Path + " " + r.Kind.String() + " " + r.Name)
		if r.By != "" {
			line += " by " + r.By
		}
		if r.Error != nil {
			line += " !" + r.Error.Message
		}
		lines = append(lines, line)
	}
	return lines
}

func (e *env) wantScript(id string, want ...string) {
	e.Helper()
	if got := e.script(id); !slices.Equal(got, want) {
		e.Errorf("history of %s:\n\t%s\nwant\n\t%s", id, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// ok ends the test if err is not nil.
func (e *env) ok(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

func (e *env) wantState(id string, want bide.State) {
	e.Helper()
	if got := e.get(id).State; got != want {
		e.Errorf("run %s is %v, want %v", id, got, want)
	}
}

// waitOf returns the one wait of the run of the kind.
func (e *env) waitOf(id string, kind bide.Kind) bide.Wait {
	e.Helper()
	r := e.get(id)
	for _, w := range r.Waiting {
		if w.Kind == kind {
			return w
		}
	}
	e.Fatalf("run %s (%v) waits for %v, want one of kind %v", id, r.State, r.Waiting, kind)
	return bide.Wait{}
}

// clock collects when things happened, since it was made.
type clock struct {
	mu    sync.Mutex
	began time.Time
	at    []time.Duration
}

func newClock() *clock { return &clock{began: time.Now()} }

func (c *clock) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = append(c.at, time.Since(c.began))
}

func (c *clock) ticks() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.at)
}

func (c *clock) want(e *env, what string, want ...time.Duration) {
	e.Helper()
	if got := c.ticks(); !slices.Equal(got, want) {
		e.Errorf("%s at %v, want %v", what, got, want)
	}
}

// wantErr checks that errors.As finds a T in err, and returns it.
func wantErr[T error](e *env, err error) T {
	e.Helper()
	var target T
	if !errors.As(err, &target) {
		e.Fatalf("error is %v (%T), want a %T in its chain", err, err, target)
	}
	return target
}

func jsonOf(t testing.TB, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

type none = struct{}
