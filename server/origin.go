package server

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/bide-dev/bide"
)

// origins are the sites whose pages may use the server from a browser (CORS):
// none unless named. Cookies play no part, so credentials are not allowed.
type origins struct {
	named   []string
	protect *http.CrossOriginProtection
}

func newOrigins(named []string) (*origins, error) {
	o := &origins{named: named, protect: http.NewCrossOriginProtection()}
	for _, origin := range named {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || origin != strings.ToLower(u.Scheme+"://"+u.Host) {
			return nil, &bide.InvalidError{Field: "Origins", Reason: "\"" + origin + "\" is no origin; give it as in https://app.example.com, in lower case. There is no *: any page in a browser of yours could use the server"}
		}
		if err := o.protect.AddTrustedOrigin(origin); err != nil {
			return nil, &bide.InvalidError{Field: "Origins", Reason: err.Error()}
		}
	}
	return o, nil
}

// answer adds the headers that let a named origin read the answer, and reports
// whether it was all that the browser had asked for: a preflight.
func (o *origins) answer(w http.ResponseWriter, r *http.Request) (done bool) {
	h := w.Header()
	if len(o.named) > 0 {
		h.Add("Vary", "Origin")
	}
	origin := r.Header.Get("Origin")
	if origin == "" || !slices.Contains(o.named, origin) {
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "ETag, Idempotency-Replayed, Link, Location, Preference-Applied, Retry-After")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST, PUT, DELETE")
	h.Set("Access-Control-Allow-Headers", "Accept, Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, Last-Event-ID, Prefer, Traceparent")
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}
