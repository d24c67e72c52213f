package api

import (
	"errors"
	"net/http"
	"time"

	"github.com/bide-dev/bide"
)

// writeWithin is how long a client may take to read what is written to it.
const writeWithin = 30 * time.Second

// detacher is a [http.ResponseWriter] of which a server can have a held answer made
// elsewhere, at less cost than a request has. serve runs after the return, if that
// is true.
type detacher interface {
	Detach(r *http.Request, serve http.HandlerFunc) bool
}

// hold serves a request that is held, unless there are too many, and frees its
// connection of the server's deadlines, which are meant for short answers.
func (h *Handler) hold(w http.ResponseWriter, r *http.Request, serve func(http.ResponseWriter, *http.Request) error) error {
	if h.held.Add(1) > int64(h.cfg.MaxWaiters) {
		h.held.Add(-1)
		return refusal(overloaded, "too many requests are held already; ask without waiting, or later")
	}
	held := func(w http.ResponseWriter, r *http.Request) {
		defer h.held.Add(-1)
		control := http.NewResponseController(w) // the recorders of tests, and HTTP/2, have their own ways
		_ = control.SetReadDeadline(time.Time{})
		_ = control.SetWriteDeadline(time.Time{})
		defer func() { _ = control.SetWriteDeadline(time.Time{}) }() // the connection's next answer has none of ours
		h.answer(serve).ServeHTTP(w, r)
	}
	if d, ok := w.(detacher); !ok || !d.Detach(r, held) {
		held(w, r)
	}
	return nil
}

// flushed is after an answer to a held request was written: it is out before the
// write's deadline is lifted.
func flushed(w http.ResponseWriter, write func() error) error {
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(writeWithin))
	if err := write(); err != nil {
		return err
	}
	_ = control.Flush()
	return nil
}

// await follows a run until enough says so, the time is over, or the server stops.
// It returns the run as it was last seen.
func (h *Handler) await(r *http.Request, id string, most time.Duration, enough func(*snapshot) bool) (*snapshot, error) {
	feed := h.feeds.join(id, make(chan struct{}, 1))
	defer feed.leave()
	over := time.NewTimer(most)
	defer over.Stop()
	s, err := feed.fresh(r.Context())
	for err == nil && !enough(s) && !s.run.State.Ended() {
		select {
		case <-feed.ch:
			s, err = feed.latest()
			continue
		case <-over.C:
		case <-h.closing:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
		break
	}
	if errors.Is(err, errClosing) { // it is answered at once, as if its time were over
		run, err := h.store.Run(r.Context(), id)
		return h.snapshot(run, time.Now(), -1), err
	}
	return s, err
}

// get answers with a run, at once or when it has changed.
func (h *Handler) get(w http.ResponseWriter, r *http.Request) error {
	p, err := holdFor(r)
	if err != nil {
		return err
	}
	if p.most == 0 {
		run, err := h.store.Run(r.Context(), r.PathValue("id"))
		if err != nil {
			return err
		}
		return h.sendUnlessKnown(w, r, &run, nil)
	}
	return h.hold(w, r, func(w http.ResponseWriter, r *http.Request) error {
		known := r.Header.Get("If-None-Match") != ""
		first := ""
		s, err := h.await(r, r.PathValue("id"), p.most, func(s *snapshot) bool {
			if known {
				return !fits(r, s.tag)
			}
			if first == "" {
				first = s.tag
			}
			return s.tag != first
		})
		if err != nil {
			return err
		}
		p.heeded(w)
		return flushed(w, func() error { return h.sendUnlessKnown(w, r, &s.run, s) })
	})
}

// sendUnlessKnown answers with the run, or that it is as the reader knows it.
func (h *Handler) sendUnlessKnown(w http.ResponseWriter, r *http.Request, run *bide.Run, s *snapshot) error {
	if fits(r, tag(run)) {
		h.heads(w, run, time.Now())
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	if s == nil || time.Since(s.at) > fresh {
		return h.sendRun(w, http.StatusOK, run)
	}
	body, err := s.body()
	if err != nil {
		return err
	}
	h.heads(w, run, s.at)
	send(w, http.StatusOK, "application/json", body)
	return nil
}

// result answers with what the workflow returned.
func (h *Handler) result(w http.ResponseWriter, r *http.Request) error {
	p, err := holdFor(r)
	if err != nil {
		return err
	}
	if p.most == 0 {
		run, err := h.store.Run(r.Context(), r.PathValue("id"))
		if err != nil {
			return err
		}
		return h.sendResult(w, r, &run)
	}
	return h.hold(w, r, func(w http.ResponseWriter, r *http.Request) error {
		s, err := h.await(r, r.PathValue("id"), p.most, func(*snapshot) bool { return false })
		if err != nil {
			return err
		}
		p.heeded(w)
		return flushed(w, func() error { return h.sendResult(w, r, &s.run) })
	})
}

func (h *Handler) sendResult(w http.ResponseWriter, r *http.Request, run *bide.Run) error {
	if !run.State.Ended() {
		return h.sendRun(w, http.StatusAccepted, run)
	}
	if p := failed(run); p != nil {
		return p
	}
	h.heads(w, run, time.Now())
	if fits(r, tag(run)) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	body := run.Result
	if len(body) == 0 {
		body = []byte("null")
	}
	send(w, http.StatusOK, "application/json", body)
	return nil
}

// location says where a new run is.
func (h *Handler) location(w http.ResponseWriter, id string) {
	w.Header().Set("Location", runPath(h.cfg.Prefix, id))
}
