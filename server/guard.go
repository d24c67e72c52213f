package server

import (
	"context"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/bide-dev/bide"
)

// caller is who makes a request.
type caller struct {
	id   string // of the key; "local" without one, "public" where none is asked for
	from string // the address
	may  func(Scope) bool
}

type callerKey struct{}

// callerOf returns who makes the request with the context, nil outside one.
func callerOf(ctx context.Context) *caller {
	c, _ := ctx.Value(callerKey{}).(*caller)
	return c
}

// access is what a part of the server asks of a request.
type access struct {
	scope    func(*http.Request) Scope // "": anyone
	mutates  func(*http.Request) bool
	audited  func(*http.Request) bool
	maxBody  int64
	delivery bool // the sender tries again if it is told to
	patient  bool // bodies over HTTP/2 may take their time; to limit that costs what a small request does
}

func byMethod(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodOptions
}

// publicly is for what proves itself otherwise, or tells nothing.
var publicly = access{scope: func(*http.Request) Scope { return "" }, mutates: byMethod, audited: byMethod, maxBody: 64 << 10}

// deliveries prove themselves by the token in their URL, or their signature.
var deliveries = access{scope: publicly.scope, mutates: byMethod, audited: byMethod, maxBody: 2 << 20, delivery: true}

// people read and write; what cannot be undone is for administrators.
var people = access{
	scope: func(r *http.Request) Scope {
		switch {
		case !byMethod(r):
			return ScopeRead
		case r.Method == http.MethodDelete && purges(r):
			return ScopeAdmin
		}
		return ScopeWrite
	},
	mutates: byMethod,
	audited: byMethod,
	maxBody: bide.MaxPayload + 1<<20,
}

// purges reports whether package api would remove what the request is about; it takes
// a value that is none for neither yes nor no.
func purges(r *http.Request) bool {
	yes, err := strconv.ParseBool(r.URL.Query().Get("purge"))
	return yes && err == nil
}

// elsewhere is for stores that were dialled: those of workers, and those of clients
// such as bide list. What they may change, and who did, is seen to where it is known
// what it is, see [vault]: one request may hold the writes of many.
var elsewhere = access{
	scope: func(r *http.Request) Scope {
		switch path.Base(r.URL.Path) {
		case "Claim", "StopClaim", "Facts":
			return ScopeWorker
		}
		return ScopeRead
	},
	mutates: func(*http.Request) bool { return false },
	audited: func(*http.Request) bool { return false },
	maxBody: 80 << 20, // package remote bounds it closer
	patient: true,
}

// waits reports whether a request of a worker waits until something happens.
func waits(r *http.Request) bool {
	name := path.Base(r.URL.Path)
	return name == "Claim" || name == "Wake"
}

// guard lets those requests through to a part of the server that may pass, in
// this order: who is it, may they, may anyone now. A request that is not let
// through by the first two learns nothing from the third.
func (s *Server) guard(a access, h http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w, ok := rw.(*response)
		if !ok {
			panic("server: a guard stands outside ServeHTTP")
		}
		if r.ContentLength > a.maxBody {
			w.Header().Set("Connection", "close")
			problem(w, http.StatusRequestEntityTooLarge, "payload-too-large", "the body is too large", 0)
			return
		}
		limitBody(w, r, a)
		c, ok := s.authenticate(w, r, a.scope(r))
		if !ok {
			return
		}
		if s.cfg.ReadOnly && a.mutates(r) {
			s.refuseWrite(w, a)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), callerKey{}, c))
		w.caller, w.inner = c, r
		if a.audited(r) {
			defer s.audit(w)
		}
		h.ServeHTTP(w, r)
	})
}

func (s *Server) refuseWrite(w http.ResponseWriter, a access) {
	const detail = "this server is for reading only"
	if a.delivery {
		problem(w, http.StatusServiceUnavailable, "read-only", detail, retryDelivery)
		return
	}
	problem(w, http.StatusForbidden, "read-only", detail, 0)
}

// authenticate finds out who makes a request that needs the scope, or answers it.
func (s *Server) authenticate(w http.ResponseWriter, r *http.Request, need Scope) (*caller, bool) {
	if need == "" {
		return &caller{id: "public", from: r.RemoteAddr, may: func(Scope) bool { return false }}, true
	}
	secret, given := bearer(r)
	key, exist, err := s.keys.find(r.Context(), secret)
	switch {
	case err != nil:
		s.log.Error("cannot read the API keys", "error", err)
		problem(w, http.StatusServiceUnavailable, "overloaded", "the store cannot be read now", retryBusy)
	case key != nil && !key.may(need):
		problem(w, http.StatusForbidden, "forbidden", "the API key has not the scope "+string(need), 0)
	case key != nil:
		return &caller{id: key.ID, from: r.RemoteAddr, may: key.may}, true
	case !exist && !given && isLocal(r):
		return &caller{id: "local", from: r.RemoteAddr, may: func(Scope) bool { return true }}, true
	default:
		if given {
			if wait := s.failed.add(r.RemoteAddr, time.Now()); wait > 0 {
				problem(w, http.StatusTooManyRequests, "rate-limited", "too many API keys from this address were unknown, revoked or expired; one that is right is taken at once", wait+time.Second)
				return nil, false
			}
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="bide"`)
		detail := "no API key: give one as Authorization: Bearer bide_..."
		switch {
		case given:
			w.Header().Set("WWW-Authenticate", `Bearer realm="bide", error="invalid_token"`)
			detail = "the API key is unknown, was revoked or has expired"
		case !exist:
			detail = "without an API key this server is for its own machine; make one with: " + createCommand
		}
		problem(w, http.StatusUnauthorized, "unauthorized", detail, 0)
	}
	return nil, false
}

// bearer reads the secret of the Authorization header. None is taken from the
// URL: URLs are kept in logs and histories.
func bearer(r *http.Request) (secret string, given bool) {
	header := r.Header.Get("Authorization")
	scheme, secret, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", header != ""
	}
	return strings.TrimSpace(secret), true
}
