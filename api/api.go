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
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
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
	// Loops, if set, lets loops be made over HTTP (PUT /v1/loops/{name}). It has to run
	// them, too.
	Loops  Loops
	Logger *slog.Logger // default slog.Default()
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
		if route.method == http.MethodPut && cfg.Loops == nil {
			continue
		}
		h.mux.Handle(route.method+" "+route.path, h.answer(route.asked))
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

// route is one operation of openapi.yaml.
type route struct {
	method, path string
	serve        func(http.ResponseWriter, *http.Request) error
	params       []string // of the query; those that are lists end in "..."
	heeds        string   // the header that decides what the answer is, for Vary
}

// asked serves a request that asks for nothing but what there is. A parameter that is
// misspelt would do something else than was meant.
func (x *route) asked(w http.ResponseWriter, r *http.Request) error {
	if x.heeds != "" {
		w.Header().Add("Vary", x.heeds)
	}
	params, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return invalid("query", "is malformed")
	}
	if slices.Contains(x.params, anyParams) {
		return x.serve(w, r)
	}
	for _, name := range slices.Sorted(maps.Keys(params)) {
		switch {
		case slices.Contains(x.params, name+"..."):
		case !slices.Contains(x.params, name):
			known := "there are none"
			if len(x.params) > 0 {
				known = "there are " + strings.ReplaceAll(strings.Join(x.params, ", "), "...", "")
			}
			p := refusal(invalidInput, strconv.Quote(name)+" is no parameter of this path; "+known)
			p.Field = name
			return p
		case len(params[name]) > 1:
			return invalid(name, "is given more than once")
		}
	}
	return x.serve(w, r)
}

// anyParams are those of a page for people: mail programs add their own to a link.
const anyParams = "*"

func (h *Handler) routes() []route {
	var (
		held = []string{"wait"}
		page = []string{"after", "limit"}
		told = []string{"after", "limit", "last_event_id"}
		free = []string{anyParams}
	)
	return []route{
		{"GET", "/v1/runs", h.list, listParameters, ""},
		{"POST", "/v1/runs", h.start, nil, "Prefer"},
		{"GET", "/v1/runs/{id}", h.get, held, "Prefer"},
		{"DELETE", "/v1/runs/{id}", h.remove, []string{"purge"}, ""},
		{"GET", "/v1/runs/{id}/result", h.result, held, "Prefer"},
		{"GET", "/v1/runs/{id}/history", h.history, page, ""},
		{"GET", "/v1/runs/{id}/events", h.events, told, "Accept"},
		{"GET", "/v1/runs/{id}/stream", h.stream, told, "Accept"},
		{"POST", "/v1/runs/{id}/signal/{name}", h.signal, nil, ""},
		{"POST", "/v1/runs/{id}/cancel", h.cancel, nil, ""},
		{"POST", "/v1/runs/{id}/terminate", h.terminate, nil, ""},
		{"POST", "/v1/runs/{id}/pause", h.pause, nil, ""},
		{"POST", "/v1/runs/{id}/resume", h.resume, nil, ""},
		{"POST", "/v1/runs/{id}/retry", h.retry, nil, ""},
		{"POST", "/v1/runs/{id}/waits/{wait}/check", h.checkWait, nil, ""},
		{"POST", "/v1/runs/{id}/waits/{wait}/extend", h.extendWait, nil, ""},
		{"POST", "/v1/runs/{id}/waits/{wait}/complete", h.completeWait, nil, ""},
		{"POST", "/v1/runs/{id}/waits/{wait}/fail", h.failWait, nil, ""},
		{"GET", "/v1/events", h.allEvents, []string{"runs...", "changes", "last_event_id"}, "Accept"},
		{"GET", "/v1/loops", h.loops, nil, ""},
		{"GET", "/v1/loops/{name}", h.loop, nil, ""},
		{"PUT", "/v1/loops/{name}", h.putLoop, nil, ""},
		{"DELETE", "/v1/loops/{name}", h.stopLoop, nil, ""},
		{"POST", "/v1/loops/{name}/trigger", h.triggerLoop, nil, ""},
		{"POST", "/v1/loops/{name}/pause", h.pauseLoop, nil, ""},
		{"POST", "/v1/loops/{name}/resume", h.resumeLoop, nil, ""},
		{"POST", "/v1/loops/{name}/reset-backoff", h.resetLoop, nil, ""},
		{"GET", "/v1/loops/{name}/iterations", h.iterations, nil, ""},
		{"GET", "/v1/queues", h.queues, nil, ""},
		{"GET", "/v1/workers", h.workers, nil, ""},
		{"GET", "/v1/status", h.status, nil, ""},
		{"GET", "/v1/approvals/{token}", h.approvalPage, free, ""},
		{"POST", "/v1/approvals/{token}", h.approve, free, ""},
		{"GET", "/openapi.yaml", h.spec, nil, ""},
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
	for _, method := range []string{"DELETE", "GET", "HEAD", "POST", "PUT"} {
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
