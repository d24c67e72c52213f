package server

import (
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
)

// audit notes who has changed what. The route's pattern stands for the URL, which
// may hold a webhook's token.
func (s *Server) audit(w *response) {
	r := w.inner
	attrs := []any{"key", w.caller.id, "method", r.Method, "route", route(r), "status", status(w), "remote", w.caller.from}
	if run := runOf(w); run != "" {
		attrs = append(attrs, "run", run)
	}
	s.log.Info("audit", attrs...)
}

// runOf returns the id of the run that the request was about, or has made.
func runOf(w *response) string {
	if id := w.inner.PathValue("id"); id != "" {
		return id
	}
	if name := w.inner.PathValue("name"); name != "" && strings.Contains(w.inner.Pattern, " /v1/loops/{name}") {
		return "loop:" + name
	}
	if location := w.Header().Get("Location"); w.inner.Method == http.MethodPost && location != "" {
		id, _ := url.PathUnescape(path.Base(location)) // api has escaped it
		return id
	}
	return ""
}

// access logs a request that was answered, for those who look for trouble.
func (s *Server) access(w *response) {
	if !s.log.Enabled(w.inner.Context(), slog.LevelDebug) {
		return
	}
	s.log.Debug("request", "method", w.inner.Method, "route", route(w.inner), "status", status(w),
		"duration", time.Since(w.began), "remote", w.inner.RemoteAddr)
}

// route is the pattern that the request has matched, "none" if none has.
func route(r *http.Request) string {
	if r.Pattern == "" {
		return "none"
	}
	return r.Pattern
}

// status is what was answered; a handler that has written nothing answers 200.
func status(w *response) int {
	if w.status == 0 {
		return http.StatusOK
	}
	return w.status
}
