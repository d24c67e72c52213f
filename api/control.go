package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/bide-dev/bide"
)

// control gives a command to a run and answers with the run as it is then: 202,
// since the run has yet to heed it, or 200 when it was to end and has.
func (h *Handler) control(w http.ResponseWriter, r *http.Request, c bide.Command) error {
	id := r.PathValue("id")
	err := h.store.Control(r.Context(), id, c)
	endsIt := c.Op == bide.OpCancel || c.Op == bide.OpTerminate
	if err != nil && !(endsIt && errors.Is(err, bide.ErrRunEnded)) {
		return ofWait(err)
	}
	run, err := h.store.Run(r.Context(), id)
	if err != nil {
		return err
	}
	if endsIt && run.State.Ended() {
		return h.sendRun(w, http.StatusOK, &run)
	}
	return h.sendRun(w, http.StatusAccepted, &run)
}

// ofWait says of a wait that is not live that the request was well-formed.
func ofWait(err error) error {
	var field *bide.InvalidError
	if errors.As(err, &field) && (field.Field == "wait" || field.Field == "duration") {
		p := refusal(unfitInput, "the "+field.Field+" "+field.Reason)
		p.Field = field.Field
		return p
	}
	return err
}

// reason reads a body that may say why.
func (h *Handler) reason(w http.ResponseWriter, r *http.Request) (string, error) {
	o, err := h.object(w, r)
	if err != nil {
		return "", err
	}
	reason := o.text("reason")
	return reason, o.done()
}

// because gives a command that may have a reason.
func (h *Handler) because(w http.ResponseWriter, r *http.Request, c bide.Command) error {
	var err error
	if c.Reason, err = h.reason(w, r); err != nil {
		return err
	}
	return h.control(w, r, c)
}

func (h *Handler) cancel(w http.ResponseWriter, r *http.Request) error {
	return h.because(w, r, bide.Command{Op: bide.OpCancel})
}

func (h *Handler) terminate(w http.ResponseWriter, r *http.Request) error {
	return h.because(w, r, bide.Command{Op: bide.OpTerminate})
}

// plainly gives a command that has nothing to be said with it.
func (h *Handler) plainly(w http.ResponseWriter, r *http.Request, c bide.Command) error {
	if err := h.nothing(w, r); err != nil {
		return err
	}
	return h.control(w, r, c)
}

func (h *Handler) pause(w http.ResponseWriter, r *http.Request) error {
	return h.plainly(w, r, bide.Command{Op: bide.OpPause})
}

func (h *Handler) resume(w http.ResponseWriter, r *http.Request) error {
	return h.plainly(w, r, bide.Command{Op: bide.OpResume})
}

func (h *Handler) retry(w http.ResponseWriter, r *http.Request) error {
	return h.plainly(w, r, bide.Command{Op: bide.OpRetry})
}

// remove cancels a run, or purges it.
func (h *Handler) remove(w http.ResponseWriter, r *http.Request) error {
	if err := h.nothing(w, r); err != nil {
		return err
	}
	purge := false
	if text := r.URL.Query().Get("purge"); text != "" {
		var err error
		if purge, err = strconv.ParseBool(text); err != nil {
			return invalid("purge", "must be true or false")
		}
	}
	if !purge {
		return h.control(w, r, bide.Command{Op: bide.OpCancel})
	}
	admin, err := h.admin()
	if err != nil {
		return err
	}
	if err := admin.Purge(r.Context(), r.PathValue("id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// signal puts a message into a run's inbox.
func (h *Handler) signal(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	if strings.HasPrefix(name, "bide:") {
		return invalid("name", `must not begin with "bide:", which is bide's own`)
	}
	key, err := idempotencyKey(r)
	if err != nil {
		return err
	}
	value, err := h.value(w, r, "signal")
	if err != nil {
		return err
	}
	m := bide.Message{Op: bide.OpSignal, Name: name, Data: value}
	if key != "" {
		m.Key, m.Print = digest([]byte("POST signal\n"+name+"\n"+key)), digest(canonical(value))
	}
	isNew, err := h.store.Signal(r.Context(), r.PathValue("id"), m)
	if err != nil {
		return err
	}
	return sendJSON(w, http.StatusAccepted, struct {
		Duplicate bool `json:"duplicate"`
	}{!isNew})
}

func (h *Handler) checkWait(w http.ResponseWriter, r *http.Request) error {
	return h.plainly(w, r, bide.Command{Op: bide.OpCheckWait, Wait: r.PathValue("wait")})
}

func (h *Handler) failWait(w http.ResponseWriter, r *http.Request) error {
	return h.because(w, r, bide.Command{Op: bide.OpFailWait, Wait: r.PathValue("wait")})
}

func (h *Handler) completeWait(w http.ResponseWriter, r *http.Request) error {
	value, err := h.value(w, r, "value")
	if err != nil {
		return err
	}
	return h.control(w, r, bide.Command{Op: bide.OpCompleteWait, Wait: r.PathValue("wait"), Data: value})
}

func (h *Handler) extendWait(w http.ResponseWriter, r *http.Request) error {
	o, err := h.object(w, r)
	if err != nil {
		return err
	}
	by, _ := o.duration("by")
	if err := o.done(); err != nil {
		return err
	}
	if by == 0 {
		return invalid("by", `is missing or 0; say by how much, such as "1h"`)
	}
	data, err := json.Marshal(by)
	if err != nil {
		return err
	}
	return h.control(w, r, bide.Command{Op: bide.OpExtendWait, Wait: r.PathValue("wait"), Data: data})
}

// admin is what a store may also do.
func (h *Handler) admin() (bide.Admin, error) {
	if a, ok := h.store.(bide.Admin); ok {
		return a, nil
	}
	return nil, refusal(notSupported, "the store cannot do this")
}
