package bide

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"
)

// Client starts, reads and directs runs. It needs no worker and has no state
// but the workflows that were registered with it.
type Client struct {
	store Store
	defs  map[string]*definition
}

// NewClient returns a client on the store. Workflows given here can be started
// by their name with [Client.Start].
func NewClient(store Store, workflows ...Definition) *Client {
	c := &Client{store: store, defs: map[string]*definition{}}
	for _, w := range workflows {
		c.defs[w.definition().name] = w.definition()
	}
	return c
}

// Start begins a run of the workflow of the name with input that is JSON
// already; where the type is known, [Workflow.Start] says it shorter. It returns
// the run's id and whether the run is new. Errors: [UnknownWorkflowError] and
// those of [Workflow.Start].
func (c *Client) Start(ctx context.Context, workflow string, input json.RawMessage, opts ...StartOption) (id string, isNew bool, err error) {
	def := c.defs[workflow]
	if def == nil {
		return "", false, &UnknownWorkflowError{Name: workflow, Known: slices.Sorted(maps.Keys(c.defs))}
	}
	if len(input) > MaxPayload {
		return "", false, &PayloadTooLargeError{Field: "input", Size: len(input), Limit: MaxPayload}
	}
	if !json.Valid(input) {
		return "", false, &CodecError{Field: "input", Message: "is not JSON"}
	}
	run, err := def.newRun(input, opts)
	if err != nil {
		return "", false, err
	}
	created, err := c.create(ctx, run)
	return created.ID, created.New, err
}

func (c *Client) create(ctx context.Context, run NewRun) (Created, error) {
	if run.Queue == "" {
		run.Queue = defaultQueue
	}
	if run.Detached {
		return Created{}, &InvalidError{Field: "Detached", Reason: "is for children; this run has no parent"}
	}
	created, err := c.store.Create(ctx, []NewRun{run})
	if err != nil {
		return Created{}, err
	}
	return created[0], created[0].Err
}

// Get reads a run, or returns [ErrNotFound].
func (c *Client) Get(ctx context.Context, id string) (Run, error) { return c.store.Run(ctx, id) }

// Runs reads a page of runs, newest first, without their inputs, results and
// values. The next page begins Before the last id of this one.
func (c *Client) Runs(ctx context.Context, q Query) ([]Run, error) { return c.store.Runs(ctx, q) }

// History reads what a run has done, after the record with the given Seq (0:
// from the beginning).
func (c *Client) History(ctx context.Context, id string, after int64) ([]Record, error) {
	return c.store.History(ctx, id, after, 0)
}

// Value reads into v what the run has published under the key; found is false
// when there is nothing. Errors: [ErrNotFound], [CodecError].
func (c *Client) Value(ctx context.Context, id, key string, v any) (found bool, err error) {
	run, err := c.store.Run(ctx, id)
	if err != nil || run.Values[key] == nil {
		return false, err
	}
	if err := json.Unmarshal(run.Values[key], v); err != nil {
		return true, &CodecError{Field: "value " + key, Message: err.Error()}
	}
	return true, nil
}

// SignalOption is an option of [Client.Signal].
type SignalOption interface{ signal(*Message) }

// Key makes a signal count once: a second one with the same key to the same run
// is dropped.
type Key string

func (k Key) signal(m *Message) { m.Key = string(k) }

// Signal sends a value to a run, where [Receive] takes it up, now or later. It
// returns [ErrNotFound], [ErrRunEnded], [InvalidError], [CodecError] or
// [PayloadTooLargeError].
func (c *Client) Signal(ctx context.Context, id, name string, value any, opts ...SignalOption) error {
	if name == "" {
		return &InvalidError{Field: "signal name", Reason: "is empty"}
	}
	data, err := encode("signal ", name, value)
	if err != nil {
		return err
	}
	m := Message{Op: OpSignal, Name: name, Data: data}
	for _, o := range opts {
		o.signal(&m)
	}
	_, err = c.store.Signal(ctx, id, m)
	return err
}

// Cancel asks a run to end: its steps' contexts are canceled, its verbs return
// [ErrCanceled], and it may clean up with [WithoutCancel]. Asking twice, or
// asking a run that has ended, is no error.
func (c *Client) Cancel(ctx context.Context, id, reason string) error {
	err := c.store.Control(ctx, id, Command{Op: OpCancel, Reason: reason})
	if errors.Is(err, ErrRunEnded) {
		return nil
	}
	return err
}

// Terminate ends a run at once, without clean-up. [ErrRunEnded] says that it had
// ended before.
func (c *Client) Terminate(ctx context.Context, id, reason string) error {
	return c.store.Control(ctx, id, Command{Op: OpTerminate, Reason: reason})
}

// Pause holds a run back once the steps in flight are done. Deadlines do not move.
func (c *Client) Pause(ctx context.Context, id string) error {
	return c.store.Control(ctx, id, Command{Op: OpPause})
}

// Resume lets a paused run go on.
func (c *Client) Resume(ctx context.Context, id string) error {
	return c.store.Control(ctx, id, Command{Op: OpResume})
}

// Retry sends a run that failed, was canceled, was terminated or timed out on its
// way again from its last failed step: that step, and what came after it because
// of it, are forgotten; all else is kept. Where branches side by side have failed,
// each needs a Retry of its own. A child that failed the run is retried with it.
// The run's deadline, if it has passed, is lifted.
func (c *Client) Retry(ctx context.Context, id string) error {
	return c.store.Control(ctx, id, Command{Op: OpRetry})
}

// Check makes a live wait look now: a poll checks, a step in back-off tries
// again. The wait is named by its name or its path, as Run.Waiting shows it;
// that no such wait is live is not noticed.
func (c *Client) Check(ctx context.Context, id, wait string) error {
	return c.store.Control(ctx, id, Command{Op: OpCheckWait, Wait: wait})
}

// Extend moves the deadline of a live wait; a negative d brings it nearer.
func (c *Client) Extend(ctx context.Context, id, wait string, d time.Duration) error {
	data, _ := json.Marshal(d)
	return c.store.Control(ctx, id, Command{Op: OpExtendWait, Wait: wait, Data: data})
}

// Complete ends a live wait with a value, in the place of the world.
func (c *Client) Complete(ctx context.Context, id, wait string, value any) error {
	data, err := encode("value of wait ", wait, value)
	if err != nil {
		return err
	}
	return c.store.Control(ctx, id, Command{Op: OpCompleteWait, Wait: wait, Data: data})
}

// Fail ends a live wait with an error that says the reason.
func (c *Client) Fail(ctx context.Context, id, wait, reason string) error {
	return c.store.Control(ctx, id, Command{Op: OpFailWait, Wait: wait, Reason: reason})
}

// Watch yields the run as it is, then again after each change, and ends with the
// run's end or with ctx, whose error it yields last. Changes that follow each
// other fast may fold into one.
func (c *Client) Watch(ctx context.Context, id string) iter.Seq2[Run, error] {
	return func(yield func(Run, error) bool) {
		wake, stop := c.wake(id, false)
		defer stop()
		for version := int64(-1); ; {
			run, err := c.store.Run(ctx, id)
			if err != nil {
				yield(Run{}, err)
				return
			}
			if run.Version != version && !yield(run, nil) || run.State.Ended() {
				return
			}
			version = run.Version
			select {
			case <-wake:
			case <-ctx.Done():
				yield(Run{}, ctx.Err())
				return
			}
		}
	}
}

// askAgain is how often a store that wakes nobody is asked.
const askAgain = 500 * time.Millisecond

// Wake subscribes to a run's changes as [Waker.Wake] does. Of a store that is no
// [Waker] it gives a hint at once and then every half second.
func Wake(s Store, id string, ends bool) (<-chan *Run, func()) {
	if w, ok := s.(Waker); ok {
		return w.Wake(id, ends)
	}
	ticks, done := make(chan *Run, 1), make(chan struct{})
	ticks <- nil
	go func() {
		ticker := time.NewTicker(askAgain)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				select {
				case ticks <- nil:
				default:
				}
			}
		}
	}()
	return ticks, func() { close(done) }
}

func (c *Client) wake(id string, ends bool) (<-chan *Run, func()) { return Wake(c.store, id, ends) }

// Handle is a run of a workflow whose result type is known.
type Handle[Out any] struct {
	c       *Client
	id      string
	created bool
}

// ID returns the run's id.
func (h *Handle[Out]) ID() string { return h.id }

// New reports whether this start made the run, or found it there.
func (h *Handle[Out]) New() bool { return h.created }

// Get reads the run.
func (h *Handle[Out]) Get(ctx context.Context) (Run, error) { return h.c.Get(ctx, h.id) }

// ResultOption is an option of [Handle.Result].
type ResultOption interface{ result(*resultConfig) }

type resultConfig struct{ watch []watcher }

// watcher follows a run while it is waited for.
type watcher interface {
	draw(Run)
	close() // nothing more comes
}

// Result waits until the run has ended and returns what the workflow returned.
// A run that did not succeed gives a [RunError]. When ctx ends first its error
// is returned and the run goes on.
func (h *Handle[Out]) Result(ctx context.Context, opts ...ResultOption) (Out, error) {
	var zero Out
	var cfg resultConfig
	for _, o := range opts {
		o.result(&cfg)
	}
	run, err := h.c.await(ctx, h.id, cfg.watch)
	switch {
	case err != nil:
		return zero, err
	case run.State != Succeeded:
		return zero, &RunError{ID: run.ID, State: run.State, Err: run.Error.Err()}
	}
	return decode[Out]("result of run ", run.ID, run.Result)
}

// await returns the run when it has ended.
func (c *Client) await(ctx context.Context, id string, watch []watcher) (Run, error) {
	if len(watch) > 0 {
		for _, w := range watch {
			defer w.close()
		}
		var last Run
		for run, err := range c.Watch(ctx, id) {
			if err != nil {
				return run, err
			}
			last = run
			for _, w := range watch {
				w.draw(run)
			}
		}
		return last, nil
	}
	wake, stop := c.wake(id, true)
	defer stop()
	for {
		select {
		case ended := <-wake:
			if ended != nil {
				return *ended, nil
			}
		case <-ctx.Done():
			return Run{}, ctx.Err()
		}
		run, err := c.store.Run(ctx, id)
		if err != nil || run.State.Ended() {
			return run, err
		}
	}
}
