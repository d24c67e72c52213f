package bide

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/bide-dev/bide/wait"
)

// LoopState is where a loop stands.
type LoopState struct {
	Name      string        `json:"name,omitempty"`
	Interval  time.Duration `json:"interval_ns,omitempty"` // as defined; 0: by a schedule
	Effective time.Duration `json:"effective_ns,omitempty"`
	wait.PaceState
	Iterations    int           `json:"iterations,omitempty"`
	NextAt        time.Time     `json:"next_at,omitzero"`
	LastAt        time.Time     `json:"last_at,omitzero"` // when the last iteration ended
	LastSuccessAt time.Time     `json:"last_success_at,omitzero"`
	LastError     *Failure      `json:"last_error,omitempty"`
	LastErrorAt   time.Time     `json:"last_error_at,omitzero"`
	InFlight      time.Time     `json:"in_flight_since,omitzero"` // shown of an iteration longer than 50 ms
	Paused        bool          `json:"paused,omitempty"`
	Stopped       bool          `json:"stopped,omitempty"` // then all else is forgotten
	Breaker       *wait.Circuit `json:"breaker,omitempty"`
	// Skipped says why the last time was passed over: "condition", "breaker",
	// "busy" (the last iteration did not heed its context and still runs), or
	// "function", which returned [LoopSkip].
	Skipped string `json:"skipped,omitempty"`
	// Outcomes are the last 100, a letter each, the newest last: s succeeded, c
	// changed, u unchanged, f failed, i interrupted, - skipped.
	Outcomes string      `json:"outcomes,omitempty"`
	Seen     Observation `json:"seen,omitzero"`
	Hash     string      `json:"hash,omitempty"` // of what was published

	queue string // as the store has it
}

const keptOutcomes = 100

func (s *LoopState) outcome(letter byte) {
	s.Outcomes += string(letter)
	if n := len(s.Outcomes); n > keptOutcomes {
		s.Outcomes = s.Outcomes[n-keptOutcomes:]
	}
}

const keptError = 200 // bytes

// brief is an error as a loop keeps it: what would be too long to be written after
// each iteration is cut, and a panic's stack is left to the log.
func brief(err error) *Failure {
	if p, ok := errors.AsType[*PanicError](err); ok {
		err = &PanicError{Value: shorten(p.Value, keptError)}
	}
	f := NewFailure(err)
	f.Message = shorten(f.Message, keptError)
	if data, _ := json.Marshal(f.Causes); len(data)+len(f.Data) > keptError {
		f.Causes, f.Data = nil, nil
	}
	return f
}

// Loops reads all loops of the store, by name.
func (c *Client) Loops(ctx context.Context) ([]LoopState, error) {
	var list []LoopState
	q := Query{IDPrefix: loopPrefix, Limit: 1000}
	for {
		runs, err := c.store.Runs(ctx, q)
		if err != nil {
			return nil, err
		}
		for i := range runs {
			list = append(list, loopState(&runs[i]))
		}
		if len(runs) < q.Limit {
			slices.SortFunc(list, func(a, b LoopState) int { return strings.Compare(a.Name, b.Name) })
			return list, nil
		}
		q.Before = runs[len(runs)-1].ID
	}
}

// loopState is a loop's state as its run says it.
func loopState(r *Run) LoopState {
	var s LoopState
	for _, w := range r.Waiting {
		if w.Kind == KindLoop && w.Loop != nil {
			s = *w.Loop
			s.Iterations, s.NextAt, s.LastError, s.LastErrorAt = w.Attempt, w.NextAt, w.LastError, w.LastErrAt
		}
	}
	s.Name, s.queue = strings.TrimPrefix(r.ID, loopPrefix), r.Queue
	s.Paused, s.Stopped = r.State == Paused, r.State.Ended()
	if s.Paused {
		s.NextAt = time.Time{}
	}
	return s
}

// LoopHandle directs one loop.
type LoopHandle struct {
	c  *Client
	id string
}

// Loop returns the handle of the loop of the name. It does not ask whether there
// is one: its methods return [ErrNotFound] until a worker has it registered.
func (c *Client) Loop(name string) *LoopHandle { return &LoopHandle{c, loopPrefix + name} }

// State reads where the loop stands.
func (h *LoopHandle) State(ctx context.Context) (LoopState, error) {
	r, err := h.c.store.Run(ctx, h.id)
	if err != nil {
		return LoopState{}, err
	}
	return loopState(&r), nil
}

// Value reads into v what the loop has published under the key, see [Publish].
func (h *LoopHandle) Value(ctx context.Context, key string, v any) (found bool, err error) {
	return h.c.Value(ctx, h.id, key, v)
}

// Triggered tells what came of a [LoopHandle.Trigger].
type Triggered struct {
	// Iteration is the one that will have been begun after the trigger.
	Iteration int
	// Coalesced: one was in flight, for more than 50 ms. It is followed by one more,
	// whoever else asks meanwhile.
	Coalesced bool
}

// Force lets [LoopHandle.Trigger] run one iteration of a paused loop.
type Force bool

// Trigger runs the loop now and begins its interval anew. While an iteration is in
// flight exactly one more is put after it, so that what was asked for is seen.
// Under an open breaker it is the probe; the loop's [Condition] is obeyed: if it is
// false, LoopState.Skipped says so and the iteration does not come. A paused loop
// gives an [InvalidError] unless forced; then it runs once and is paused again.
func (h *LoopHandle) Trigger(ctx context.Context, force Force) (Triggered, error) {
	s, err := h.State(ctx)
	if err != nil {
		return Triggered{}, err
	}
	t := Triggered{Iteration: s.Iterations + 1, Coalesced: !s.InFlight.IsZero()}
	if t.Coalesced {
		t.Iteration++
	}
	cmd := Command{Op: OpCheckWait, Wait: s.Name}
	if !s.Paused {
		return t, h.c.store.Control(ctx, h.id, cmd)
	}
	if !force {
		return Triggered{}, &InvalidError{Field: "loop", Reason: "is paused; resume it, or force one iteration"}
	}
	cmd.Data = json.RawMessage(forcedTrigger)
	if err := h.c.store.Control(ctx, h.id, cmd); err != nil { // before the resume, so that nothing else comes first
		return Triggered{}, err
	}
	return t, h.Resume(ctx)
}

// forcedTrigger is the data of a trigger after which the loop is to be paused again.
const forcedTrigger = `"pause"`

// Abort lets [LoopHandle.Pause] cancel the iteration in flight, which then counts
// as neither success nor failure.
type Abort bool

// Pause holds the loop back. An iteration in flight finishes and is counted, unless
// aborted, but nothing follows.
func (h *LoopHandle) Pause(ctx context.Context, abort Abort) error {
	if err := h.c.store.Control(ctx, h.id, Command{Op: OpPause}); err != nil || !bool(abort) {
		return err
	}
	_, err := h.c.store.Signal(ctx, h.id, Message{Op: OpSignal, Name: loopAbort})
	return err
}

// Resume lets a paused loop go on. One whose time has passed runs soon, spread out
// with the others; any other keeps the rest of its interval.
func (h *LoopHandle) Resume(ctx context.Context) error {
	return h.c.store.Control(ctx, h.id, Command{Op: OpResume})
}

// Stop ends the loop for good and cancels the iteration in flight. [Client.Retry],
// with the id "loop:" and the name, lets it begin again as if it were new.
func (h *LoopHandle) Stop(ctx context.Context) error { return h.c.Cancel(ctx, h.id, "stopped") }

// ResetBackoff forgets the failures: the next iteration comes one plain interval
// after the last, or now if that has passed. An open breaker is closed.
func (h *LoopHandle) ResetBackoff(ctx context.Context) error {
	_, err := h.c.store.Signal(ctx, h.id, Message{Op: OpSignal, Name: loopReset})
	return err
}

// The signals by which a loop is directed.
const (
	loopReset  = "bide:reset"
	loopReload = "bide:reload"
	loopAbort  = "bide:abort"
)
