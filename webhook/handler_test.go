package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/sqlite"
	"github.com/bide-dev/bide/webhook"
)

// What is refused is a problem document, whichever part of the handler refuses it.
func TestProblems(t *testing.T) {
	store, err := sqlite.Open(":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	verify, err := webhook.GitHub("a secret")
	if err != nil {
		t.Fatal(err)
	}
	noKey := func([]byte) (string, error) { return "", errors.New("it names no job") }
	quiet := slog.New(slog.DiscardHandler)
	cfg := webhook.Config{Logger: quiet, Endpoints: map[string]webhook.Endpoint{
		"open": {Key: noKey}, "signed": {Key: noKey, Verify: verify},
	}}
	open := webhook.NewHandler(store, cfg)
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		code                     string
	}{
		{"a look at a link", "GET", "/v1/hooks/abc", "", 405, "method-not-allowed"},
		{"a look at an endpoint", "GET", "/v1/endpoints/x", "", 405, "method-not-allowed"},
		{"a look by a program", "HEAD", "/v1/hooks/abc", "", 405, ""},
		{"no token", "POST", "/v1/hooks/", "{}", 404, "not-found"},
		{"no path", "POST", "/v1/hooks/a/b", "{}", 404, "not-found"},
		{"a path that is not clean", "POST", "/v1//hooks/a", "{}", 404, "not-found"},
		{"an unknown token", "POST", "/v1/hooks/abc", "{}", 404, "not-found"},
		{"an unknown source", "POST", "/v1/endpoints/other", "{}", 404, "not-found"},
		{"no signature", "POST", "/v1/endpoints/signed", "{}", 401, "bad-signature"},
		{"no key", "POST", "/v1/endpoints/open", "{}", 422, "invalid-input"},
		{"too large", "POST", "/v1/endpoints/open", strings.Repeat("x", webhook.MaxBody+1), 413, "payload-too-large"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := deliver(open, c.method, c.path, c.body)
			if w.Code != c.status || w.Header().Get("Content-Type") != "application/problem+json" || w.Header().Get("Retry-After") != "" {
				t.Fatalf("%d %v %s", w.Code, w.Header(), w.Body)
			}
			if allow := w.Header().Get("Allow"); (allow == "POST") != (c.status == 405) {
				t.Errorf("Allow: %q", allow)
			}
			if c.code == "" { // HEAD
				return
			}
			p := read(t, w)
			if p["code"] != c.code || p["status"] != float64(c.status) || p["instance"] != c.path || p["retryable"] != false || p["retry_after_ms"] != nil ||
				p["type"] != "about:blank" || p["title"] != http.StatusText(c.status) || p["detail"] == "" {
				t.Errorf("%v", p)
			}
		})
	}

	// What the sender is to try again says so, in the header and in the document.
	w := deliver(webhook.NewHandler(closedStore{store}, webhook.Config{Logger: quiet}), "POST", "/v1/hooks/abc", "{}")
	p := read(t, w)
	if w.Code != 503 || w.Header().Get("Retry-After") != "30" || p["code"] != "overloaded" || p["retryable"] != true || p["retry_after_ms"] != 30_000. {
		t.Errorf("%d %v %v", w.Code, w.Header(), p)
	}
}

func deliver(h http.Handler, method, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w
}

func read(t *testing.T, w *httptest.ResponseRecorder) (p map[string]any) {
	t.Helper()
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return p
}

// closedStore cannot be read.
type closedStore struct{ bide.Store }

func (closedStore) Facts(context.Context, string, ...string) ([]bide.Fact, error) {
	return nil, bide.ErrClosed
}
