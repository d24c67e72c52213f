// Package server serves a store over HTTP: to people and programs (package api),
// to workers on other machines (package remote), to services that deliver webhooks
// (package webhook) and to Prometheus, from one [http.Handler]. For most uses you
// need [New] and [Server.Run]:
//
//	srv, err := server.New(store, server.Config{})
//	err = srv.Run(ctx) // http://127.0.0.1:7433
//
// # Who may do what
//
// A store without API keys is served to its own machine only: such a server
// listens on a loopback address, or refuses to start. [CreateKey] makes the first
// key (`bide token create --scope admin`), and from then on every request needs
// one, but for /healthz and /readyz, and for what proves itself otherwise: the
// tokens in the URLs of webhooks and approvals, and what an endpoint verifies.
//
// # What each request passes
//
// In this order, each for what the ones before it cannot see:
//
//  1. The Host: a name that the server was not given is answered 421. A page whose
//     name was made to point here is same-origin to the browser, so nothing below
//     would stop it, not even for a POST.
//  2. Limits of headers and body, and of the time that they may take: before
//     anything of them is used.
//  3. Cross-origin requests that change something are answered 403
//     ([http.CrossOriginProtection]): a browser sends them without asking, and to a
//     server that is open to its own machine no key would be missing.
//  4. CORS: answers may be read by pages of the named origins. It comes before keys,
//     since a browser asks without one.
//  5. The API key: 401, and 429 for an address that gives wrong ones again and again.
//  6. Its scope: 403.
//  7. Reading only: 403, to those only who could write otherwise.
//  8. The audit: one log line for each request that may have changed something,
//     with who and what, never with what was sent.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/api"
	"github.com/bide-dev/bide/dashboard"
	"github.com/bide-dev/bide/remote"
	"github.com/bide-dev/bide/webhook"
)

// Config says how a server serves. The zero value is one for this machine alone.
type Config struct {
	// Addr is where Run listens; default 127.0.0.1:7433. Any but a loopback address
	// needs an API key in the store.
	Addr string
	// TLSCert and TLSKey are files in PEM; both or neither.
	TLSCert, TLSKey string
	// Hosts are names, without ports, under which the server may be called besides
	// Addr's own and PublicURL's: those that a proxy passes on.
	Hosts []string
	// Origins ("https://app.example.com") are sites whose pages may use the server.
	Origins []string
	// ReadOnly refuses all that changes anything.
	ReadOnly bool
	// PublicURL is where the world reaches the server ("https://bide.example.com").
	PublicURL string
	// Prefix is the path that the server is mounted under ("/bide"); default none.
	Prefix string
	// AllowPrivate lets webhooks and probe loops reach private addresses too.
	AllowPrivate bool
	// Webhooks are the verifiers and endpoints of deliveries that come in.
	Webhooks webhook.Config
	Logger   *slog.Logger // default slog.Default()
}

// DefaultAddr is where a server listens that is not told otherwise.
const DefaultAddr = "127.0.0.1:7433"

const (
	createCommand = "bide token create --scope admin"

	retryBusy     = 2 * time.Second
	retryDelivery = time.Minute
)

// Server is the handler, mountable in a program of yours, and a process around it.
type Server struct {
	cfg     Config
	store   bide.Store
	log     *slog.Logger
	keys    *keyring
	failed  failures
	hosts   *hosts
	origins *origins
	meter   *meter
	api     *api.Handler
	loops   *loops
	outward http.RoundTripper // of webhooks and probe loops
	mux     *http.ServeMux

	open  context.Context // ends with Close
	close context.CancelFunc
	url   atomic.Pointer[string]

	detached sync.RWMutex // read-locked by each answer that is, see [response.Detach]
}

// New returns a server of the store. It returns an [bide.InvalidError] that names
// the field of Config that cannot be meant.
func New(store bide.Store, cfg Config) (*Server, error) {
	if cfg.Addr == "" {
		cfg.Addr = DefaultAddr
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Webhooks.Logger == nil {
		cfg.Webhooks.Logger = cfg.Logger
	}
	if (cfg.TLSCert == "") != (cfg.TLSKey == "") {
		return nil, &bide.InvalidError{Field: "TLSCert", Reason: "and TLSKey belong together: give both files, or neither"}
	}
	if cfg.Prefix != "" && (cfg.Prefix != path.Clean(cfg.Prefix) || !strings.HasPrefix(cfg.Prefix, "/") || cfg.Prefix == "/") {
		return nil, &bide.InvalidError{Field: "Prefix", Reason: "must be a path without a slash at its end, as in /bide"}
	}
	named := cfg.Hosts
	if cfg.PublicURL != "" {
		u, err := url.Parse(cfg.PublicURL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return nil, &bide.InvalidError{Field: "PublicURL", Reason: "must be where the world reaches the server, as in https://bide.example.com"}
		}
		named = append(slices.Clip(named), u.Hostname())
	}
	s := &Server{cfg: cfg, log: cfg.Logger, mux: http.NewServeMux(), outward: outward(cfg.AllowPrivate),
		keys: &keyring{store: store, readOnly: cfg.ReadOnly, log: cfg.Logger}}
	var err error
	if s.hosts, err = newHosts(cfg.Addr, named); err != nil {
		return nil, err
	}
	if s.origins, err = newOrigins(cfg.Origins); err != nil {
		return nil, err
	}
	s.meter = newMeter(store, s.keys.forget)
	waker, _ := store.(bide.Waker)
	admin, _ := store.(bide.Admin)
	s.store = withOptions(s.meter, waker, admin)
	s.mount()
	return s, nil
}

// mount puts the parts together.
func (s *Server) mount() {
	s.open, s.close = context.WithCancel(context.Background())
	s.page("GET /healthz", publicly, http.HandlerFunc(healthy))
	s.page("GET /readyz", publicly, http.HandlerFunc(s.ready))
	s.page("GET /metrics", people, s.meter.handler())

	hooks := s.guard(deliveries, webhook.NewHandler(s.store, s.cfg.Webhooks))
	s.below("/v1/hooks/", hooks, hooks)
	s.below("/v1/endpoints/", hooks, hooks)

	s.loops = &loops{s, make(chan struct{}, 1)}
	s.api = api.NewHandler(s.store, api.Config{Prefix: s.cfg.Prefix, AllowPrivate: s.cfg.AllowPrivate, Loops: s.loops, Logger: s.log})
	rest := s.guard(people, s.api)
	path, workers := remote.NewHandler(s.remotely())
	s.below(path, s.guard(elsewhere, s.whileOpen(workers)), rest)
	pages := dashboard.Handler(dashboard.Config{ReadOnly: s.cfg.ReadOnly})
	for _, pattern := range dashboard.Patterns {
		s.page(pattern, publicly, pages)
	}
	approvals := s.guard(publicly, s.api)
	s.below("/v1/approvals/", approvals, approvals)
	s.mux.Handle("/", rest)
}

// page mounts what is only looked at: "GET /path".
func (s *Server) page(pattern string, a access, h http.Handler) {
	s.mux.Handle(pattern, s.guard(a, h))
	s.mux.Handle(strings.TrimPrefix(pattern, "GET "), s.guard(a, http.HandlerFunc(onlyGet)))
}

func onlyGet(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Allow", "GET, HEAD")
	problem(w, http.StatusMethodNotAllowed, "method-not-allowed", r.Method+" is not allowed here; GET and HEAD are", 0)
}

// below mounts what is under a path that ends in a slash. The path without it has its
// own handler: the mux would redirect it, past the prefix.
func (s *Server) below(path string, h, bare http.Handler) {
	s.mux.Handle(path, h)
	s.mux.Handle(strings.TrimSuffix(path, "/"), bare)
}

// Close ends what would hold up the shutdown of the program around it: streams of
// events say that they close, long polls are answered, workers elsewhere ask again.
// Other requests are served as before. [Server.Run] does so itself; elsewhere give
// it to [http.Server.RegisterOnShutdown]. It returns when they have been told, after
// five seconds at the latest.
func (s *Server) Close() {
	s.close()
	s.api.Close()
	s.drain()
}

// whileOpen ends what waits for long once the server is to close: clients ask again.
func (s *Server) whileOpen(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !waits(r) {
			h.ServeHTTP(w, r)
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(s.open, cancel)()
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Store returns the store for workers in the same program: what they do is counted
// in the metrics then.
func (s *Server) Store() bide.Store { return s.store }

// URL returns where the server listens, with its prefix; before that "".
func (s *Server) URL() string {
	if u := s.url.Load(); u != nil {
		return *u
	}
	return ""
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w := s.newResponse(rw, r)
	defer s.answered(w)
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin") // no-referrer would make a form's Origin null
	if !s.hosts.allow(r) {
		problem(w, http.StatusMisdirectedRequest, "misdirected", "the server does not go by this host name; name it in Config.Hosts (--host) if it should", 0)
		return
	}
	if err := s.origins.protect.Check(r); err != nil {
		problem(w, http.StatusForbidden, "cross-origin", "a page of another site asked for this; name its origin in Config.Origins (--origin) if it may", 0)
		return
	}
	if s.origins.answer(w, r) {
		return
	}
	if p := s.cfg.Prefix; p != "" && r.URL.Path == p && !byMethod(r) {
		http.Redirect(w, r, p+"/", http.StatusPermanentRedirect) // as its URL is printed
		return
	}
	r, ok := s.strip(r)
	if !ok {
		notFound(w, r)
		return
	}
	w.inner = r
	s.mux.ServeHTTP(w, r)
}

// answered ends a request.
func (s *Server) answered(w *response) {
	if w.gone {
		return
	}
	fault := recover()
	if err, _ := fault.(error); fault != nil && !errors.Is(err, http.ErrAbortHandler) {
		s.log.Error("a handler panicked", "route", route(w.inner), "panic", fmt.Sprint(fault), "stack", string(debug.Stack()))
		if w.status == 0 {
			problem(w, http.StatusInternalServerError, "internal", "something is wrong here; the server's log says what", 0)
			fault = nil
		}
	}
	w.bound() // for what is still to be flushed
	s.meter.request(w, time.Since(w.began))
	s.access(w)
	if fault != nil { // the answer is cut off: let the client see that it is
		panic(http.ErrAbortHandler)
	}
}

// strip takes the prefix off the path, and reports whether the path may lead somewhere.
func (s *Server) strip(r *http.Request) (*http.Request, bool) {
	rest, in := strings.CutPrefix(r.URL.Path, s.cfg.Prefix)
	raw, inRaw := strings.CutPrefix(r.URL.EscapedPath(), s.cfg.Prefix)
	if !in || !inRaw || !plain(raw) || r.Method == http.MethodConnect {
		return r, false
	}
	if s.cfg.Prefix == "" {
		return r, true
	}
	stripped := *r
	u := *r.URL
	u.Path, u.RawPath = rest, raw
	stripped.URL = &u
	return &stripped, true
}

// plain reports whether an escaped path is in its one form: what is public is told by
// the path, so there must be one way only to write it. Names in it may be escaped, a
// slash in them must be, but for "." and "..": others may take them for ways.
func plain(escaped string) bool {
	clean := path.Clean(escaped)
	if strings.HasSuffix(escaped, "/") && clean != "/" {
		clean += "/"
	}
	if escaped != clean || !strings.HasPrefix(clean, "/") {
		return false
	}
	for i, segment := range strings.Split(clean[1:], "/") {
		name, err := url.PathUnescape(segment)
		if err != nil || name == "." || name == ".." {
			return false
		}
		if fixed := i == 0 || i == 1 && strings.HasPrefix(clean, "/v1/"); fixed && name != segment {
			return false
		}
	}
	return true
}

func notFound(w http.ResponseWriter, _ *http.Request) {
	problem(w, http.StatusNotFound, "not-found", "there is nothing here", 0)
}
