// Package api serves a [bide.Store] over HTTP to people, curl and TypeScript.
// openapi.yaml, which is served too, says what there is; docs/http.md shows it
// with curl.
//
// Waiting is what it is made for. Each run says when to ask again; a long poll and
// a stream of server-sent events are told of a change as it happens, and however
// many wait for one run, the store is read once for each change.
package api

import (
	_ "embed"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/bide-dev/bide"
)

// Spec is the OpenAPI description of what a [Handler] serves, in YAML.
//
//go:embed openapi.yaml
var Spec []byte

// Config is what a [Handler] is given.
type Config struct {
	// Prefix stands before the paths of links, "" or such as "/bide"; a handler
	// that is mounted there strips it.
	Prefix string
	// MaxBody is the largest request that is read, in bytes: the default has room
	// for an input of [bide.MaxPayload].
	MaxBody int64
	// MaxWaiters is how many requests are held at once, long polls and streams
	// together; the default is 10,000. One more is told to come again.
	MaxWaiters int
	// RequireKey refuses to start a run without an Idempotency-Key.
	RequireKey bool
	// AllowPrivate lets a run's webhook lead to a private address.
	AllowPrivate bool
	Logger       *slog.Logger // default slog.Default()
}

// Handler serves the API. It neither authenticates nor authorises: wrap it.
type Handler struct {
	store   bide.Store
	client  *bide.Client
	cfg     Config
	mux     *http.ServeMux
	feeds   hub
	held    atomic.Int64
	closing chan struct{}
	close   func()
}

// NewHandler returns a handler on the store. Give its Close to
// [http.Server.RegisterOnShutdown]: those who wait would hold the server's
// shutdown up.
func NewHandler(store bide.Store, cfg Config) *Handler {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.MaxBody <= 0 {
		cfg.MaxBody = bide.MaxPayload + 64<<10
	}
	if cfg.MaxWaiters <= 0 {
		cfg.MaxWaiters = 10_000
	}
	cfg.Prefix = strings.TrimRight(cfg.Prefix, "/")
	h := &Handler{store: store, client: bide.NewClient(store), cfg: cfg, mux: http.NewServeMux(), closing: make(chan struct{})}
	h.close = sync.OnceFunc(func() { close(h.closing) })
	h.feeds = hub{h: h, feeds: map[string]*feed{}}
	for _, route := range h.routes() {
		h.mux.Handle(route.method+" "+route.path, h.answer(route.serve))
	}
	h.mux.Handle("/", h.answer(h.unknown))
	return h
}

// Close ends what is held: streams say when to come again, long polls are
// answered at once. Other requests are served as before.
func (h *Handler) Close() { h.close() }

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "private, no-cache")
	if !sound(r.URL) {
		h.answer(h.unknown).ServeHTTP(w, r)
		return
	}
	h.mux.ServeHTTP(w, r)
}

// sound reports whether a path may lead somewhere: the mux would redirect one that
// is not clean, past the prefix; and no name has in it what a database may choke on.
func sound(u *url.URL) bool {
	p := u.EscapedPath()
	return p == path.Clean(p) && utf8.ValidString(u.Path) && !strings.Contains(u.Path, "\x00")
}

// route is one line of openapi.yaml.
type route struct {
	method, path string
	serve        func(http.ResponseWriter, *http.Request) error
}

func (h *Handler) routes() []route {
	return []route{
		{"GET", "/v1/runs", h.list},
		{"POST", "/v1/runs", h.start},
		{"GET", "/v1/runs/{id}", h.get},
		{"DELETE", "/v1/runs/{id}", h.remove},
		{"GET", "/v1/runs/{id}/result", h.result},
		{"GET", "/v1/runs/{id}/history", h.history},
		{"GET", "/v1/runs/{id}/events", h.events},
		{"GET", "/v1/runs/{id}/stream", h.stream},
		{"POST", "/v1/runs/{id}/signal/{name}", h.signal},
		{"POST", "/v1/runs/{id}/cancel", h.cancel},
		{"POST", "/v1/runs/{id}/terminate", h.terminate},
		{"POST", "/v1/runs/{id}/pause", h.pause},
		{"POST", "/v1/runs/{id}/resume", h.resume},
		{"POST", "/v1/runs/{id}/retry", h.retry},
		{"POST", "/v1/runs/{id}/waits/{wait}/check", h.checkWait},
		{"POST", "/v1/runs/{id}/waits/{wait}/extend", h.extendWait},
		{"POST", "/v1/runs/{id}/waits/{wait}/complete", h.completeWait},
		{"POST", "/v1/runs/{id}/waits/{wait}/fail", h.failWait},
		{"GET", "/v1/events", h.allEvents},
		{"GET", "/v1/loops", h.loops},
		{"GET", "/v1/loops/{name}", h.loop},
		{"DELETE", "/v1/loops/{name}", h.stopLoop},
		{"POST", "/v1/loops/{name}/trigger", h.triggerLoop},
		{"POST", "/v1/loops/{name}/pause", h.pauseLoop},
		{"POST", "/v1/loops/{name}/resume", h.resumeLoop},
		{"POST", "/v1/loops/{name}/reset-backoff", h.resetLoop},
		{"GET", "/v1/loops/{name}/iterations", h.iterations},
		{"GET", "/v1/queues", h.queues},
		{"GET", "/v1/workers", h.workers},
		{"GET", "/v1/status", h.status},
		{"GET", "/v1/approvals/{token}", h.approvalPage},
		{"POST", "/v1/approvals/{token}", h.approve},
		{"GET", "/openapi.yaml", h.spec},
	}
}

func (h *Handler) spec(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(Spec)
	return nil
}

// answer lets a handler return what is wrong.
func (h *Handler) answer(serve func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := serve(w, r); err != nil {
			h.refuse(w, r, err)
		}
	})
}

// unknown answers what no route is for.
func (h *Handler) unknown(w http.ResponseWriter, r *http.Request) error {
	var allowed []string
	for _, method := range []string{"DELETE", "GET", "HEAD", "POST"} {
		other := *r
		other.Method = method
		if _, pattern := h.mux.Handler(&other); pattern != "/" && sound(r.URL) {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		return refusal(notFound, "there is nothing at this path; see /openapi.yaml")
	}
	w.Header().Set("Allow", strings.Join(slices.Compact(allowed), ", "))
	return refusal(methodNotAllowed, r.Method+" is not allowed here; "+strings.Join(allowed, ", ")+" is")
}
