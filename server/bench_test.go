package server_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/bide-dev/bide/server"
)

// What the guards cost a request that carries a key.
func BenchmarkGuards(b *testing.B) {
	store := openStore(b)
	secret, _ := makeKey(b, store, server.ScopeRead)
	srv, err := server.New(store, server.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	r := httptest.NewRequestWithContext(local(b), http.MethodGet, "/openapi.yaml", nil)
	r.Host = "localhost"
	r.Header.Set("Authorization", "Bearer "+secret)
	for b.Loop() {
		w := &nowhere{header: http.Header{}}
		srv.ServeHTTP(w, r)
		if w.status != 200 {
			b.Fatal(w.status)
		}
	}
}

// nowhere keeps nothing of an answer but its status.
type nowhere struct {
	header http.Header
	status int
}

func (w *nowhere) Header() http.Header         { return w.header }
func (w *nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (w *nowhere) WriteHeader(status int)      { w.status = status }
