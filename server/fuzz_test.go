package server_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/bide-dev/bide/server"
)

// Whatever a request looks like, it is answered, and not with a fault of the
// server's; without a key nothing but what is public is done.
func FuzzRequest(f *testing.F) {
	for _, seed := range [][5]string{
		{"GET", "/v1/runs?state=running&page_size=2", "localhost", "Accept: text/html", ""},
		{"POST", "/v1/runs", "localhost", "Content-Type: application/json\nIdempotency-Key: \"a\"", `{"workflow":"w","input":1}`},
		{"POST", "/bide.v1.Store/Run", "[::1]:80", "Content-Type: application/json", `{"id":"x"}`},
		{"POST", "/bide.v1.Store/Write", "localhost", "Content-Type: application/grpc\nTE: trailers", "\x00\x00\x00\x00\x05hello"},
		{"GET", "/bide.v1.Store/Runs?connect=v1&encoding=json&message=%7B%7D", "localhost", "", ""},
		{"POST", "/v1/hooks/..%2f..", "localhost", "webhook-id: a.b", "x"},
		{"DELETE", "/v1/runs/%00?purge=true", "LOCALHOST.:1", "Origin: null", ""},
		{"OPTIONS", "/", "localhost", "Origin: http://localhost\nAccess-Control-Request-Method: PUT", ""},
		{"GET", "/v1/approvals/x", "localhost", "Authorization: Bearer bide_aaaaaaaa_", ""},
		{"PUT", "/v1/loops/%ff", "localhost", "If-Match: \"", "{"},
		{"GET", "//", "user@localhost", "X-Forwarded-For: 1", ""},
		{"CONNECT", "/", "localhost:443", "", ""},
		{"GET", "/v1/runs?wait=60", "localhost", "Prefer: wait=x\nLast-Event-ID: -1", ""},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3], []byte(seed[4]))
	}
	store := openStore(f)
	quiet := slog.New(slog.DiscardHandler)
	open, err := server.New(store, server.Config{Logger: quiet})
	if err != nil {
		f.Fatal(err)
	}
	locked := openStore(f)
	makeKey(f, locked, server.ScopeAdmin)
	closed, err := server.New(locked, server.Config{Prefix: "/p", Origins: []string{"https://app.example.com"}, Logger: quiet})
	if err != nil {
		f.Fatal(err)
	}
	open.Close() // or streams would be held
	f.Fuzz(func(t *testing.T, method, target, host, headers string, body []byte) {
		u, err := url.ParseRequestURI(target)
		if err != nil || method == "" {
			t.Skip()
		}
		for _, srv := range []*server.Server{open, closed} {
			at := *u
			if srv == closed {
				at.Path, at.RawPath = "/p"+u.Path, ""
			}
			r := httptest.NewRequestWithContext(local(t), http.MethodPost, "http://localhost/", bytes.NewReader(body))
			r.Method, r.URL, r.Host, r.RemoteAddr = method, &at, host, "127.0.0.1:1"
			for line := range strings.Lines(headers) {
				if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
					r.Header.Add(name, strings.TrimSpace(value))
				}
			}
			w := httptest.NewRecorder()
			srv.ServeHTTP(w, r)
			// 501 and 503 are answers to what is asked for, 500 is a fault.
			if w.Code == 500 || w.Code < 200 || w.Code > 599 {
				t.Errorf("%s %s, Host %q, %q: %d %s", method, target, host, headers, w.Code, w.Body)
			}
			public := strings.HasPrefix(u.Path, "/v1/hooks/") || strings.HasPrefix(u.Path, "/v1/endpoints/") || strings.HasPrefix(u.Path, "/v1/approvals/") ||
				u.Path == "/healthz" || u.Path == "/readyz"
			if srv == closed && w.Code < 300 && !public && method != http.MethodOptions {
				t.Errorf("%s %s: %d without a key", method, target, w.Code)
			}
		}
	})
}
