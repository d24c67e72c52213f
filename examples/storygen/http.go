package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"net/url"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/api"
)

// newHandler is the service: a page, one route that asks for a story and one that shows
// the model at work, and bide's API beside them, by which the page follows and cancels.
func newHandler(runs *bide.Client, workflow *bide.Workflow[Request, Story], m *model, bideAPI *api.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", page())
	mux.Handle("GET /{file}", page())
	mux.Handle("/v1/", bideAPI)
	mux.HandleFunc("GET /model", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]int64{"busy": m.busy.Load(), "words": m.words.Load()})
	})
	mux.HandleFunc("POST /stories", func(w http.ResponseWriter, r *http.Request) {
		var req Request
		body := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10))
		body.DisallowUnknownFields()
		if err := body.Decode(&req); err != nil {
			problem(w, http.StatusBadRequest, "invalid-input", "body", "is not the JSON of a request: "+err.Error())
			return
		}
		var opts []bide.StartOption
		if key := r.Header.Get("Idempotency-Key"); key != "" {
			opts = append(opts, bide.ID("story-"+key)) // asked for twice, it is one story
		}
		run, err := workflow.Start(r.Context(), runs, req, opts...)
		var invalid *bide.InvalidError
		var taken *bide.ConflictError
		switch {
		case errors.As(err, &taken):
			problem(w, http.StatusConflict, taken.Code(), "Idempotency-Key", "was used for another story")
			return
		case errors.As(err, &invalid):
			problem(w, http.StatusBadRequest, "invalid-input", invalid.Field, invalid.Reason)
			return
		case err != nil:
			problem(w, http.StatusServiceUnavailable, "overloaded", "", err.Error())
			return
		}
		w.Header().Set("Location", "/v1/runs/"+run.ID())
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		_ = json.NewEncoder(w).Encode(map[string]string{"id": run.ID()})
	})
	return guarded(mux)
}

// guarded keeps out the pages of other sites, which a browser on this machine might
// have open: they may send a POST without asking (cross-origin), or have a name of
// their own point here (DNS rebinding), which shows as the Host. An address cannot be
// rebound.
func guarded(h http.Handler) http.Handler {
	protect := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := (&url.URL{Host: r.Host}).Hostname()
		if _, err := netip.ParseAddr(name); err != nil && name != "localhost" {
			problem(w, http.StatusMisdirectedRequest, "misdirected", "Host", "is not a name of this service")
			return
		}
		if err := protect.Check(r); err != nil {
			problem(w, http.StatusForbidden, "cross-origin", "Origin", "is another site")
			return
		}
		h.ServeHTTP(w, r)
	})
}

// problem answers as bide's API does, by RFC 9457.
func problem(w http.ResponseWriter, status int, code, field, reason string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"title": http.StatusText(status), "status": status, "code": code, "field": field, "detail": field + " " + reason})
}
