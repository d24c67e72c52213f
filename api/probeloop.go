package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/bide-dev/bide"
)

// A probe loop is one that was made by PUT. Its spec is a fact of this kind, with the
// loop's name as the key; its run is in this queue, which tells it from the loops of
// programs. The server has a worker for them.
const (
	LoopFact  = "probeloop"
	LoopQueue = "bide.loops"
)

// Loops makes probe loops of specs, see [Config].
type Loops interface {
	// Check returns a spec as it is kept, or a [bide.InvalidError] that names what is
	// wrong with it.
	Check(name string, spec json.RawMessage) (json.RawMessage, error)
	// Shows reports whether who asks may see specs: there may be credentials in them.
	Shows(r *http.Request) bool
	// Changed is called after a spec was kept or removed.
	Changed()
}

// loopRun is the id of a loop's run, and its workflow.
func loopRun(name string) string { return "loop:" + name }

// loopSpec reads the spec of a probe loop; Version 0 says that there is none.
func (h *Handler) loopSpec(ctx context.Context, name string) (bide.Fact, error) {
	facts, err := h.store.Facts(ctx, LoopFact, name)
	if err != nil || len(facts) == 0 {
		return bide.Fact{Kind: LoopFact, Key: name}, err
	}
	return facts[0], nil
}

// specTag is the ETag of a probe loop, "" if there is no spec. It is the spec's: how
// the loop stands changes without it.
func specTag(spec *bide.Fact) string {
	if spec.Version == 0 {
		return ""
	}
	return `"v` + strconv.FormatInt(spec.Version, 10) + `"`
}

// asExpected refuses a request that was made for another spec than there is.
func asExpected(r *http.Request, spec *bide.Fact) error {
	tag := specTag(spec)
	if r.Header.Get("If-None-Match") != "" && tag != "" && fits(r, tag) {
		return refusal(outdated, "there is such a probe loop already; its ETag is "+tag)
	}
	wanted := r.Header.Values("If-Match")
	for _, line := range wanted {
		for t := range strings.SplitSeq(line, ",") {
			if t = strings.TrimSpace(t); tag != "" && (t == tag || t == "*") {
				return nil
			}
		}
	}
	switch {
	case len(wanted) == 0:
		return nil
	case tag == "":
		return refusal(outdated, "there is no such probe loop to be changed")
	}
	return refusal(outdated, "the spec was changed meanwhile; its ETag is "+tag+", read it again")
}

// showSpec adds a probe loop's spec, for those who may see it.
func (h *Handler) showSpec(w http.ResponseWriter, r *http.Request, v *loopView) error {
	if h.cfg.Loops == nil || !h.cfg.Loops.Shows(r) {
		return nil
	}
	spec, err := h.loopSpec(r.Context(), v.Name)
	if err != nil || spec.Version == 0 {
		return err
	}
	w.Header().Set("ETag", specTag(&spec))
	v.Spec = spec.Value
	return nil
}

// putLoop makes a probe loop, or gives it another spec.
func (h *Handler) putLoop(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	given, err := h.value(w, r, "spec")
	if err != nil {
		return err
	}
	spec, err := h.cfg.Loops.Check(name, given)
	if err != nil {
		return err
	}
	isNew, err := h.keepSpec(r, name, spec)
	if err != nil {
		return err
	}
	h.cfg.Loops.Changed()
	status := http.StatusOK
	if isNew {
		status = http.StatusCreated
	}
	return h.sendLoop(w, r, status, nil)
}

// keepSpec keeps the spec, and sees to it that there is a run. The run comes first:
// it is what a name is claimed with, so that the loop of a program keeps its own.
func (h *Handler) keepSpec(r *http.Request, name string, spec json.RawMessage) (isNew bool, err error) {
	ctx, claimed := r.Context(), false
	defer func() {
		if claimed && err != nil {
			_ = h.settle(context.WithoutCancel(ctx), name) // the error that there is says more
		}
	}()
	for {
		run, err := h.store.Run(ctx, loopRun(name))
		absent := errors.Is(err, bide.ErrNotFound)
		switch {
		case err != nil && !absent:
			return false, err
		case !absent && !isProbeLoop(&run):
			return false, refusal(conflict, "the loop is one of a program, and is changed there; use another name")
		}
		fact, err := h.loopSpec(ctx, name)
		if err != nil {
			return false, err
		}
		if err := asExpected(r, &fact); err != nil {
			return false, err
		}
		if absent {
			if claimed, err = h.createLoop(ctx, name); err != nil {
				return false, err
			}
			if !claimed { // by somebody, a moment ago
				continue
			}
		}
		isNew = fact.Version == 0
		if !bytes.Equal(fact.Value, spec) {
			fact.Value = spec
			err = h.store.Commit(ctx, bide.Lease{}, bide.Batch{Facts: []bide.Fact{fact}})
		}
		switch {
		case errors.Is(err, bide.ErrFactChanged):
			continue
		case err != nil:
			return false, err
		}
		return isNew, h.settle(context.WithoutCancel(ctx), name)
	}
}

// isProbeLoop reports whether a run is as createLoop makes it.
func isProbeLoop(r *bide.Run) bool {
	return r.Queue == LoopQueue && r.Workflow == r.ID && string(r.Input) == "null"
}

// createLoop makes the run, as a worker that has the loop registered does.
func (h *Handler) createLoop(ctx context.Context, name string) (isNew bool, err error) {
	id := loopRun(name)
	created, err := h.store.Create(ctx, []bide.NewRun{{ID: id, Workflow: id, Queue: LoopQueue, Input: json.RawMessage(`null`)}})
	if err != nil {
		return false, err
	}
	return created[0].New, created[0].Err
}

// removeLoop removes the spec of a probe loop and stops the loop. ours is false for
// the loop of a program, of which nothing was done.
func (h *Handler) removeLoop(r *http.Request, name string) (ours bool, err error) {
	ctx := r.Context()
	for {
		fact, err := h.loopSpec(ctx, name)
		if err != nil {
			return false, err
		}
		if err := asExpected(r, &fact); err != nil {
			return false, err
		}
		if fact.Version == 0 {
			run, err := h.store.Run(ctx, loopRun(name))
			if err != nil || !isProbeLoop(&run) {
				return false, err
			}
		} else {
			fact.Value = nil
			err = h.store.Commit(ctx, bide.Lease{}, bide.Batch{Facts: []bide.Fact{fact}})
		}
		switch {
		case errors.Is(err, bide.ErrFactChanged):
			continue
		case err != nil:
			return false, err
		}
		return true, h.settle(context.WithoutCancel(ctx), name)
	}
}

// settle has a probe loop live if there is a spec of it, and end if there is none.
// Whoever has done something looks once more: of a PUT and a DELETE at one time the
// one that acts last sees what the other has done.
func (h *Handler) settle(ctx context.Context, name string) error {
	const rounds = 10 // more than ever meet
	for range rounds {
		spec, err := h.loopSpec(ctx, name)
		if err != nil {
			return err
		}
		run, err := h.store.Run(ctx, loopRun(name))
		switch absent := errors.Is(err, bide.ErrNotFound); {
		case err != nil && !absent:
			return err
		case absent && spec.Version != 0:
			_, err = h.createLoop(ctx, name)
		case absent || !isProbeLoop(&run) || run.State.Ended() == (spec.Version == 0):
			return nil
		case spec.Version != 0:
			err = h.store.Control(ctx, run.ID, bide.Command{Op: bide.OpRetry})
		default:
			err = h.store.Control(ctx, run.ID, bide.Command{Op: bide.OpTerminate, Reason: "deleted"})
		}
		var field *bide.InvalidError // a retry of what another has retried already
		if err != nil && !errors.Is(err, bide.ErrRunEnded) && !errors.Is(err, bide.ErrNotFound) && !errors.As(err, &field) {
			return err
		}
	}
	return refusal(conflict, "the loop is put and deleted again and again; ask where it stands")
}
