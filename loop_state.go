package bide

import (
	"context"
	"encoding/json"
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
	Breaker       *wait.Circuit `json:"breaker,omitempty"`
	// Skipped says why the last time was passed over: "condition" or "breaker".
	Skipped string `json:"skipped,omitempty"`
	// Outcomes are the last 100, a letter each, the newest last: s succeeded, c
	// changed, u unchanged, f failed, i interrupted, - skipped.
	Outcomes string      `json:"outcomes,omitempty"`
	Seen     Observation `json:"seen,omitzero"`
	Hash     string      `json:"hash,omitempty"` // of what was published
}

const keptOutcomes = 100

func (s *LoopState) outcome(letter byte) {
	s.Outcomes += string(letter)
	if n := len(s.Outcomes); n > keptOutcomes {
		s.Outcomes = s.Outcomes[n-keptOutcomes:]
	}
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
	s := LoopState{Paused: r.State == Paused}
	for _, w := range r.Waiting {
		if w.Kind == KindLoop && w.Loop != nil {
			s = *w.Loop
			s.Paused = r.State == Paused
			s.Iterations, s.NextAt, s.LastError, s.LastErrorAt = w.Attempt, w.NextAt, w.LastError, w.LastErrAt
		}
	}
	if s.Paused || r.State.Ended() {
		s.NextAt = time.Time{}
	}
	s.Name = strings.TrimPrefix(r.ID, loopPrefix)
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
	// Coalesced: one was in flight. It is followed by one more, whoever else asks
	// meanwhile.
	Coalesced bool
}

// Force lets [LoopHandle.Trigger] run one iteration of a paused loop.
type Force bool

// Trigger runs the loop now and begins its interval anew. While an iteration is in
// flight exactly one more is put after it, so that what was asked for is seen.
// Under an open breaker it is the probe; the loop's [Condition] is obeyed. A paused
// loop gives an [InvalidError] unless forced.
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
	if s.Paused {
		if !force {
			return Triggered{}, &InvalidError{Field: "loop", Reason: "is paused; resume it, or force one iteration"}
		}
		if err := h.Resume(ctx); err != nil {
			return Triggered{}, err
		}
		cmd.Data = json.RawMessage(`"pause"`)
	}
	return t, h.c.store.Control(ctx, h.id, cmd)
}

// Abort lets [LoopHandle.Pause] and Stop cancel the iteration in flight, which
// then counts as neither success nor failure.
type Abort bool

// Pause holds the loop back. An iteration in flight finishes and is counted, unless
// aborted, but nothing follows.
func (h *LoopHandle) Pause(ctx context.Context, abort Abort) error {
	if abort {
		if _, err := h.c.store.Signal(ctx, h.id, Message{Op: OpSignal, Name: loopAbort}); err != nil {
			return err
		}
	}
	return h.c.store.Control(ctx, h.id, Command{Op: OpPause})
}

// Resume lets a paused loop go on. One whose time has passed runs soon, spread out
// with the others; any other keeps the rest of its interval.
func (h *LoopHandle) Resume(ctx context.Context) error {
	return h.c.store.Control(ctx, h.id, Command{Op: OpResume})
}

// Stop ends the loop for good; it does not begin again until [Client.Retry].
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
