package server

import (
	"context"
	"net/http"
	"time"

	"github.com/bide-dev/bide"
)

// readyWithin is how soon the store must answer for the server to be ready.
const readyWithin = time.Second

// healthy says that the process is there.
func healthy(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n"))
}

// ready says whether requests should be sent here: the store answers, and the
// server is not about to stop.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	if s.open.Err() != nil {
		problem(w, http.StatusServiceUnavailable, "overloaded", "the server is shutting down", retryBusy)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readyWithin)
	defer cancel()
	if _, err := s.store.Runs(ctx, bide.Query{Limit: 1}); err != nil {
		s.log.Error("not ready: the store cannot be read", "error", err)
		problem(w, http.StatusServiceUnavailable, "overloaded", "the store does not answer", retryBusy)
		return
	}
	healthy(w, r)
}
