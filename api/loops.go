package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/bide-dev/bide"
)

// loopView is where a loop stands, as it is told.
type loopView struct {
	Name          string        `json:"name"`
	Interval      *int64        `json:"interval_ms"`
	Effective     *int64        `json:"effective_ms"`
	Iterations    int           `json:"iterations"`
	Failures      int           `json:"failures"`
	Multiplier    int           `json:"multiplier"`
	NextAt        *time.Time    `json:"next_at"`
	LastAt        *time.Time    `json:"last_at"`
	LastSuccessAt *time.Time    `json:"last_success_at"`
	LastError     *bide.Failure `json:"last_error,omitempty"`
	LastErrorAt   time.Time     `json:"last_error_at,omitzero"`
	InFlight      *time.Time    `json:"in_flight_since"`
	Paused        bool          `json:"paused"`
	Stopped       bool          `json:"stopped"`
	Breaker       string        `json:"breaker,omitempty"`
	Skipped       string        `json:"skipped,omitempty"`
	Outcomes      string        `json:"outcomes"`

	Spec json.RawMessage `json:"spec,omitempty"` // of a probe loop, for those who may see it
}

func loopOf(s *bide.LoopState) loopView {
	v := loopView{Name: s.Name, Interval: millis(s.Interval), Effective: millis(s.Effective), Iterations: s.Iterations, Failures: s.Failures,
		Multiplier: max(s.Multiplier, 1), NextAt: moment(s.NextAt), LastAt: moment(s.LastAt), LastSuccessAt: moment(s.LastSuccessAt),
		LastError: s.LastError, LastErrorAt: s.LastErrorAt, InFlight: moment(s.InFlight), Paused: s.Paused, Stopped: s.Stopped,
		Skipped: s.Skipped, Outcomes: s.Outcomes}
	if s.Breaker != nil {
		v.Breaker = s.Breaker.State(time.Now()).String()
	}
	return v
}

func millis(d time.Duration) *int64 {
	if d == 0 {
		return nil
	}
	return new(d.Milliseconds())
}

func (h *Handler) loops(w http.ResponseWriter, r *http.Request) error {
	states, err := h.client.Loops(r.Context())
	if err != nil {
		return err
	}
	views := make([]loopView, len(states))
	for i := range states {
		views[i] = loopOf(&states[i])
	}
	return sendJSON(w, http.StatusOK, struct {
		Loops []loopView `json:"loops"`
	}{views})
}

func (h *Handler) loop(w http.ResponseWriter, r *http.Request) error {
	return h.sendLoop(w, r, http.StatusOK, nil)
}

// sendLoop answers with the loop as it is after what was done to it.
func (h *Handler) sendLoop(w http.ResponseWriter, r *http.Request, status int, err error) error {
	if err == nil {
		var s bide.LoopState
		if s, err = h.handle(r).State(r.Context()); err == nil {
			v := loopOf(&s)
			if err = h.showSpec(w, r, &v); err == nil {
				return sendJSON(w, status, &v)
			}
		}
	}
	return ofLoop(err)
}

func (h *Handler) handle(r *http.Request) *bide.LoopHandle { return h.client.Loop(r.PathValue("name")) }

// ofLoop says an error of a run as that of a loop.
func ofLoop(err error) error {
	var field *bide.InvalidError
	switch {
	case errors.Is(err, bide.ErrNotFound):
		return refusal(notFound, "there is no such loop: no worker has registered it yet")
	case errors.Is(err, bide.ErrRunEnded):
		return refusal(conflict, "the loop is stopped; POST …/runs/loop:NAME/retry begins it anew")
	case errors.As(err, &field) && (field.Field == "run" || field.Field == "wait"):
		return refusal(conflict, "the loop "+field.Reason)
	}
	return err
}

// stopLoop ends a loop for good; a probe loop loses its spec.
func (h *Handler) stopLoop(w http.ResponseWriter, r *http.Request) error {
	if err := h.nothing(w, r); err != nil {
		return err
	}
	ours, err := h.removeLoop(r, r.PathValue("name"))
	switch {
	case err == nil && !ours:
		err = h.handle(r).Stop(r.Context())
	case err == nil && h.cfg.Loops != nil:
		h.cfg.Loops.Changed()
	}
	return h.sendLoop(w, r, http.StatusAccepted, err)
}

func (h *Handler) triggerLoop(w http.ResponseWriter, r *http.Request) error {
	o, err := h.object(w, r)
	if err != nil {
		return err
	}
	var force bool
	o.take("force", &force, "true or false")
	if err := o.done(); err != nil {
		return err
	}
	t, err := h.handle(r).Trigger(r.Context(), bide.Force(force))
	if err != nil {
		return ofLoop(err)
	}
	return sendJSON(w, http.StatusAccepted, struct {
		Iteration int  `json:"iteration"`
		Coalesced bool `json:"coalesced"`
	}{t.Iteration, t.Coalesced})
}

func (h *Handler) pauseLoop(w http.ResponseWriter, r *http.Request) error {
	o, err := h.object(w, r)
	if err != nil {
		return err
	}
	var abort bool
	o.take("abort", &abort, "true or false")
	if err := o.done(); err != nil {
		return err
	}
	return h.sendLoop(w, r, http.StatusAccepted, h.handle(r).Pause(r.Context(), bide.Abort(abort)))
}

func (h *Handler) resumeLoop(w http.ResponseWriter, r *http.Request) error {
	if err := h.nothing(w, r); err != nil {
		return err
	}
	return h.sendLoop(w, r, http.StatusAccepted, h.handle(r).Resume(r.Context()))
}

func (h *Handler) resetLoop(w http.ResponseWriter, r *http.Request) error {
	if err := h.nothing(w, r); err != nil {
		return err
	}
	return h.sendLoop(w, r, http.StatusAccepted, h.handle(r).ResetBackoff(r.Context()))
}

var outcomes = map[byte]string{'s': "succeeded", 'c': "changed", 'u': "unchanged", 'f': "failed", 'i': "interrupted", '-': "skipped"}

// iterations answers with how a loop's last iterations went.
func (h *Handler) iterations(w http.ResponseWriter, r *http.Request) error {
	s, err := h.handle(r).State(r.Context())
	if err != nil {
		return ofLoop(err)
	}
	type iteration struct {
		Iteration *int   `json:"iteration"`
		Outcome   string `json:"outcome"`
	}
	list := make([]iteration, len(s.Outcomes))
	number := s.Iterations
	for i := len(list) - 1; i >= 0; i-- {
		list[i].Outcome = outcomes[s.Outcomes[i]]
		if s.Outcomes[i] != '-' {
			list[i].Iteration = new(number)
			number--
		}
	}
	return sendJSON(w, http.StatusOK, struct {
		Iterations []iteration `json:"iterations"`
	}{list})
}
