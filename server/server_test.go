package server_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/remote"
	"github.com/bide-dev/bide/server"
	"github.com/bide-dev/bide/sqlite"
)

func openStore(t testing.TB) bide.Store {
	t.Helper()
	store, err := sqlite.Open(filepath.Join(t.TempDir(), "bide.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// start runs a server of the store on a loopback port, and returns what stops it.
func start(t testing.TB, store bide.Store, cfg server.Config) (srv *server.Server, stop func() error) {
	t.Helper()
	cfg.Addr = "127.0.0.1:0"
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	made, err := server.New(store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- made.Run(ctx) }()
	var result error
	var stopped bool
	stop = func() error {
		if !stopped {
			cancel()
			result, stopped = <-ended, true
		}
		return result
	}
	t.Cleanup(func() { _ = stop() })
	for deadline := time.Now().Add(time.Minute); made.URL() == ""; {
		select {
		case result = <-ended:
			stopped = true
			t.Fatalf("the server has not come up: %v", result)
		case <-time.After(time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("the server does not come up")
		}
	}
	return made, stop
}

// ask makes a request and returns the answer and its body. Headers are pairs; Host
// is one of them.
func ask(t testing.TB, method, url, body string, headers ...string) (head, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body == "" {
		req.Body, req.ContentLength = http.NoBody, 0
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
			continue
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	return head{resp.Status, resp.StatusCode, resp.Header}, string(data)
}

// head is what came before an answer's body.
type head struct {
	Status     string
	StatusCode int
	Header     http.Header
}

func TestConfig(t *testing.T) {
	store := openStore(t)
	for field, cfg := range map[string]server.Config{
		"Addr":      {Addr: "localhost"},
		"TLSCert":   {TLSCert: "cert.pem"},
		"Prefix":    {Prefix: "bide/"},
		"PublicURL": {PublicURL: "bide.example.com"},
		"Origins":   {Origins: []string{"*"}},
		"Hosts":     {Hosts: []string{"https://bide.example.com"}},
	} {
		_, err := server.New(store, cfg)
		var invalid *bide.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, hosts := range [][]string{{"a.example:80"}, {"a b"}, {""}, {"user@a.example"}, {"[::1]:80"}} {
		if _, err := server.New(store, server.Config{Hosts: hosts}); err == nil {
			t.Errorf("Hosts %q are taken", hosts)
		}
	}
	for _, origin := range []string{"app.example.com", "https://App.example.com", "https://app.example.com/", "ftp://a", "null", "https://u@a.example"} {
		if _, err := server.New(store, server.Config{Origins: []string{origin}}); err == nil {
			t.Errorf("origin %q is taken", origin)
		}
	}
}

// Whoever can reach a server on another address than loopback must need a key.
func TestRefusesToStandOpen(t *testing.T) {
	store := openStore(t)
	srv, err := server.New(store, server.Config{Addr: "0.0.0.0:0", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	err = srv.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "bide token create --scope admin") || srv.URL() != "" {
		t.Fatalf("a server open to the network: %v, %q", err, srv.URL())
	}
	if _, _, err := server.CreateKey(t.Context(), store, "lapsed", []server.Scope{server.ScopeAdmin}, time.Nanosecond); err != nil {
		t.Fatal(err)
	}
	if err := srv.Run(t.Context()); err == nil {
		t.Fatal("a key that has expired opens the server to the network")
	}
	if _, _, err := server.CreateKey(t.Context(), store, "good", []server.Scope{server.ScopeAdmin}, 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := srv.Run(ctx); err != nil { // stopped before it has begun
		t.Fatal(err)
	}
	if srv, err = server.New(store, server.Config{Addr: "0.0.0.0:0", Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	for srv.URL() == "" {
		select {
		case err := <-ended:
			t.Fatalf("with a key: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	if !strings.HasPrefix(srv.URL(), "http://localhost:") {
		t.Error(srv.URL())
	}
	if resp, _ := ask(t, "GET", srv.URL()+"/v1/runs", ""); resp.StatusCode != 401 {
		t.Errorf("without a key: %s", resp.Status)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestServes(t *testing.T) {
	srv, stop := start(t, openStore(t), server.Config{})
	for _, path := range []string{"/healthz", "/readyz"} {
		if resp, body := ask(t, "GET", srv.URL()+path, ""); resp.StatusCode != 200 || body != "ok\n" || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %s %q %v", path, resp.Status, body, resp.Header)
		}
	}
	if resp, body := ask(t, "GET", srv.URL()+"/nowhere", ""); resp.StatusCode != 404 || resp.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%s %q", resp.Status, body)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestPrefix(t *testing.T) {
	srv, _ := start(t, openStore(t), server.Config{Prefix: "/bide"})
	if !strings.HasSuffix(srv.URL(), "/bide") {
		t.Error(srv.URL())
	}
	root := strings.TrimSuffix(srv.URL(), "/bide")
	// The pages stand at the root, "/bide" leads there.
	for path, want := range map[string]int{"/bide/healthz": 200, "/healthz": 404, "/bidehealthz": 404, "/bide": 308, "/bide/": 200, "/bide/runs/x": 200, "/bide/nowhere": 404, "/bide//healthz": 404, "/bide/v1/runs": 200} {
		if resp, body := ask(t, "GET", root+path, ""); resp.StatusCode != want {
			t.Errorf("%s: %s %s", path, resp.Status, body)
		}
	}
}

// A store that does not answer makes the server unready, not unhealthy.
func TestReadiness(t *testing.T) {
	store := &troubled{Store: openStore(t)}
	srv, _ := start(t, store, server.Config{})
	store.broken.Store(true)
	if resp, _ := ask(t, "GET", srv.URL()+"/readyz", ""); resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
		t.Errorf("ready: %s", resp.Status)
	}
	if resp, _ := ask(t, "GET", srv.URL()+"/healthz", ""); resp.StatusCode != 200 {
		t.Errorf("healthy: %s", resp.Status)
	}
	if resp, _ := ask(t, "GET", srv.URL()+"/v1/runs", "", "Authorization", "Bearer x"); resp.StatusCode != 503 {
		t.Errorf("keys that cannot be read: %s", resp.Status)
	}
	if resp, _ := ask(t, "GET", srv.URL()+"/v1/runs", ""); resp.StatusCode != 503 {
		t.Errorf("no key, and nobody knows whether one is needed: %s", resp.Status)
	}
	store.broken.Store(false)
	if resp, _ := ask(t, "GET", srv.URL()+"/readyz", ""); resp.StatusCode != 200 {
		t.Errorf("ready again: %s", resp.Status)
	}
}

// troubled is a store that cannot be read for a while.
type troubled struct {
	bide.Store
	broken atomic.Bool
}

func (s *troubled) Runs(ctx context.Context, q bide.Query) ([]bide.Run, error) {
	if s.broken.Load() {
		return nil, errors.New("disk on fire")
	}
	return s.Store.Runs(ctx, q)
}

func (s *troubled) Facts(ctx context.Context, kind string, keys ...string) ([]bide.Fact, error) {
	if s.broken.Load() {
		return nil, errors.New("disk on fire")
	}
	return s.Store.Facts(ctx, kind, keys...)
}

// A store that is closed under the server ends it.
func TestStoreClosed(t *testing.T) {
	store := openStore(t)
	_, stop := start(t, store, server.Config{})
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil && !errors.Is(err, bide.ErrClosed) {
		t.Error(err)
	}
}

// A fault in a handler is one request's, and said in the log.
func TestPanic(t *testing.T) {
	var out logs
	srv, _ := start(t, &panicky{openStore(t)}, server.Config{Logger: out.logger()})
	resp, body := ask(t, "GET", srv.URL()+"/v1/runs", "")
	if resp.StatusCode != 500 || !strings.Contains(body, `"internal"`) || strings.Contains(body, "off the rails") {
		t.Errorf("%s %s", resp.Status, body)
	}
	if text := out.String(); !strings.Contains(text, "off the rails") || !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "panicky") {
		t.Errorf("the log: %s", text)
	}
	if resp, _ := ask(t, "GET", srv.URL()+"/healthz", ""); resp.StatusCode != 200 {
		t.Errorf("after that: %s", resp.Status)
	}
}

type panicky struct{ bide.Store }

func (*panicky) Runs(context.Context, bide.Query) ([]bide.Run, error) { panic("off the rails") }

// A program of the user's mounts the handler, and ends with it.
func TestMounted(t *testing.T) {
	srv, err := server.New(openStore(t), server.Config{Prefix: "/bide", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/bide/", srv)
	program := httptest.NewServer(mux)
	defer program.Close()
	resp, body := ask(t, "POST", program.URL+"/bide/v1/runs", `{"workflow":"w","id":"x"}`, "Content-Type", "application/json")
	if resp.StatusCode != 202 || resp.Header.Get("Location") != "/bide/v1/runs/x" {
		t.Errorf("%s %s %s", resp.Status, resp.Header.Get("Location"), body)
	}
	far, err := remote.Dial(program.URL + "/bide")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = far.Close() }()
	if run, err := far.Run(t.Context(), "x"); err != nil || run.Workflow != "w" {
		t.Errorf("%+v %v", run, err)
	}
	srv.Close()
	closed := time.Now()
	if resp, body := ask(t, "GET", program.URL+"/bide/v1/runs/x?wait=60", ""); resp.StatusCode != 200 && resp.StatusCode != 503 || time.Since(closed) > 30*time.Second {
		t.Errorf("a long poll after Close: %s %s", resp.Status, body)
	}
	if resp, _ := ask(t, "GET", program.URL+"/bide/readyz", ""); resp.StatusCode != 503 {
		t.Errorf("ready after Close: %s", resp.Status)
	}
}
