package server_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/remote"
	"github.com/bide-dev/bide/server"
)

func dial(t testing.TB, srv *server.Server, opts ...remote.Option) *remote.Store {
	t.Helper()
	store, err := remote.Dial(srv.URL(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

var greet = bide.Define("greet", func(ctx bide.Context, name string) (string, error) {
	return bide.Step(ctx, "write", func(context.Context) (string, error) { return "hello " + name, nil })
})

// A worker elsewhere works with a key of scope worker, over either protocol, and
// with that key can make neither keys nor purges.
func TestWorkerElsewhere(t *testing.T) {
	store := openStore(t)
	workerKey, _ := makeKey(t, store, server.ScopeWorker)
	adminKey, admin := makeKey(t, store, server.ScopeAdmin)
	var out logs
	srv, _ := start(t, store, server.Config{Logger: out.logger()})
	var http2 http.Protocols
	http2.SetUnencryptedHTTP2(true)
	shared := &http.Transport{Protocols: &http2}
	t.Cleanup(shared.CloseIdleConnections)
	for name, opts := range map[string][]remote.Option{
		"HTTP/1": {remote.Token(workerKey)},
		"HTTP/2": {remote.Token(workerKey), remote.HTTPClient(&http.Client{Transport: shared})},
	} {
		far := dial(t, srv, opts...)
		worker := bide.NewWorker(far, bide.WorkerConfig{})
		worker.Register(greet)
		ctx, cancel := context.WithCancel(t.Context())
		worked := make(chan error, 1)
		go func() { worked <- worker.Run(ctx) }()
		h, err := greet.Start(t.Context(), bide.NewClient(far), name)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := h.Result(t.Context()); err != nil || text != "hello "+name {
			t.Errorf("%s: %q %v", name, text, err)
		}
		cancel()
		if err := <-worked; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(out.String(), "method=create run="+h.ID()+" status=done") {
			t.Error("the start is not audited")
		}

		var invalid *bide.InvalidError
		if _, err := far.Facts(t.Context(), "api_key"); !errors.As(err, &invalid) {
			t.Errorf("a worker reads the hashes of keys: %v", err)
		}
		if _, _, err := server.CreateKey(t.Context(), far, "mine", []server.Scope{server.ScopeAdmin}, 0); !errors.As(err, &invalid) {
			t.Errorf("a worker makes itself an administrator: %v", err)
		}
		if err := server.RevokeKey(t.Context(), far, admin.ID); !errors.As(err, &invalid) {
			t.Errorf("a worker revokes a key: %v", err)
		}
		if err := far.Commit(t.Context(), bide.Lease{}, bide.Batch{Facts: []bide.Fact{{Kind: "api_key", Key: admin.ID, Version: bide.AnyVersion}}}); !errors.As(err, &invalid) {
			t.Errorf("a worker removes a key: %v", err)
		}
		if err := far.Purge(t.Context(), h.ID()); !errors.As(err, &invalid) {
			t.Errorf("a worker purges: %v", err)
		}
	}
	far := dial(t, srv, remote.Token(adminKey))
	secret, made, err := server.CreateKey(t.Context(), far, "made from afar", []server.Scope{server.ScopeRead}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if resp, _ := ask(t, "GET", srv.URL()+"/v1/runs", "", "Authorization", "Bearer "+secret); resp.StatusCode != 200 {
		t.Errorf("the new key: %s", resp.Status)
	}
	if err := server.RevokeKey(t.Context(), far, made.ID); err != nil {
		t.Error(err)
	}
	if resp, _ := ask(t, "GET", srv.URL()+"/v1/runs", "", "Authorization", "Bearer "+secret); resp.StatusCode != 401 {
		t.Errorf("the revoked key: %s", resp.Status)
	}
	if keys, err := server.Keys(t.Context(), far); err != nil || len(keys) != 2 {
		t.Errorf("%+v %v", keys, err)
	}
	runs, err := far.Runs(t.Context(), bide.Query{})
	if err != nil || len(runs) != 2 {
		t.Fatal(runs, err)
	}
	if err := far.Purge(t.Context(), runs[0].ID); err != nil {
		t.Errorf("an administrator purges: %v", err)
	}
	if n := strings.Count(out.String(), `method="change of API keys"`); n != 6 {
		t.Errorf("%d changes of keys are audited", n)
	}
}

func TestWorkerWithoutKey(t *testing.T) {
	store := openStore(t)
	reader, _ := makeKey(t, store, server.ScopeRead)
	srv, _ := start(t, store, server.Config{})
	for _, opts := range [][]remote.Option{nil, {remote.Token("bide_nonsense")}} {
		far := dial(t, srv, opts...)
		if _, err := far.Run(t.Context(), "x"); err == nil || errors.Is(err, bide.ErrNotFound) {
			t.Errorf("let in: %v", err)
		}
	}
	_, err := dial(t, srv, remote.Token(reader)).Claim(t.Context(), bide.Claim{Worker: "intruder", Queues: []string{"default"}, Workflows: []string{"greet"},
		Max: 1, TTL: time.Minute})
	if !errors.As(err, new(*bide.InvalidError)) {
		t.Errorf("a key that may read works: %v", err)
	}
	status, err := store.(bide.Admin).Status(t.Context())
	if err != nil || slices.ContainsFunc(status.Workers, func(w bide.WorkerInfo) bool { return w.ID == "intruder" }) {
		t.Errorf("it is a worker: %+v, %v", status.Workers, err)
	}
}

// A worker elsewhere does not hold the server's stop up, and goes on with the next
// server.
func TestWorkerOutlivesServer(t *testing.T) {
	store := openStore(t)
	srv, stop := start(t, store, server.Config{})
	far := dial(t, srv)
	worker := bide.NewWorker(far, bide.WorkerConfig{})
	worker.Register(greet)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	worked := make(chan error, 1)
	go func() { worked <- worker.Run(ctx) }()
	runs := bide.NewClient(store)
	for i := range 3 {
		h, err := greet.Start(t.Context(), runs, fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Result(t.Context()); err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			break
		}
		began := time.Now()
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("stopped after %v: the grace period ran out", took)
		}
		srv, err = server.New(store, server.Config{Addr: strings.TrimPrefix(srv.URL(), "http://"), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		again, end := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- srv.Run(again) }()
		stop = func() error { end(); return <-ended }
	}
	cancel()
	if err := <-worked; err != nil {
		t.Error(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	roots := certificate(t, cert, key)
	srv, _ := start(t, openStore(t), server.Config{TLSCert: cert, TLSKey: key})
	if !strings.HasPrefix(srv.URL(), "https://127.0.0.1:") {
		t.Error(srv.URL())
	}
	transport := &http.Transport{TLSClientConfig: roots, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get(srv.URL() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 200 || resp.ProtoMajor != 2 {
		t.Errorf("%s %s", resp.Status, resp.Proto)
	}
	bad, err := server.New(openStore(t), server.Config{Addr: "127.0.0.1:0", TLSCert: key, TLSKey: cert})
	if err != nil {
		t.Fatal(err)
	}
	var invalid *bide.InvalidError
	if err := bad.Run(t.Context()); !errors.As(err, &invalid) || invalid.Field != "TLSCert" {
		t.Errorf("a key for a certificate: %v", err)
	}
}

// What a store that was dialled may change is seen to write by write.
func TestWritesFromElsewhere(t *testing.T) {
	store := openStore(t)
	keys := map[server.Scope]string{}
	for _, scope := range []server.Scope{server.ScopeRead, server.ScopeWrite, server.ScopeWorker} {
		keys[scope], _ = makeKey(t, store, scope)
	}
	srv, _ := start(t, store, server.Config{})
	for scope, key := range keys {
		far := dial(t, srv, remote.Token(key))
		id := "of-" + string(scope)
		if _, err := store.Create(t.Context(), []bide.NewRun{{ID: id, Workflow: "w", Queue: "q", Input: []byte("1")}}); err != nil {
			t.Fatal(err)
		}
		if run, err := far.Run(t.Context(), id); err != nil || run.ID != id {
			t.Errorf("%s reads %v, %v", scope, run.ID, err)
		}
		_, created := far.Create(t.Context(), []bide.NewRun{{Workflow: "w", Queue: "q", Input: []byte("1")}})
		_, signalled := far.Signal(t.Context(), id, bide.Message{Op: bide.OpSignal, Name: "s"})
		controlled := far.Control(t.Context(), id, bide.Command{Op: bide.OpPause})
		committed := far.Commit(t.Context(), bide.Lease{}, bide.Batch{Facts: []bide.Fact{{Kind: "k", Key: id, Value: []byte("1")}}})
		for what, err := range map[string]error{"create": created, "signal": signalled, "control": controlled} {
			if refused := errors.As(err, new(*bide.InvalidError)); refused != (scope == server.ScopeRead) || !refused && err != nil {
				t.Errorf("%s by a key of scope %s: %v", what, scope, err)
			}
		}
		if refused := errors.As(committed, new(*bide.InvalidError)); refused != (scope != server.ScopeWorker) || !refused && committed != nil {
			t.Errorf("commit by a key of scope %s: %v", scope, committed)
		}
	}
}

// A server for reading only says so to those whose key would do for more; who
// reads, and follows what changes, is served.
func TestReadOnlyFromElsewhere(t *testing.T) {
	store := openStore(t)
	worker, _ := makeKey(t, store, server.ScopeAdmin)
	reader, _ := makeKey(t, store, server.ScopeRead)
	if _, err := store.Create(t.Context(), []bide.NewRun{{ID: "r", Workflow: "w", Queue: "q", Input: []byte("1")}}); err != nil {
		t.Fatal(err)
	}
	srv, _ := start(t, store, server.Config{ReadOnly: true})
	far, stranger := dial(t, srv, remote.Token(worker)), dial(t, srv, remote.Token(reader))
	writes := map[string]func(*remote.Store) error{
		"Create": func(s *remote.Store) error {
			_, err := s.Create(t.Context(), []bide.NewRun{{Workflow: "w", Queue: "q", Input: []byte("1")}})
			return err
		},
		"Claim": func(s *remote.Store) error {
			_, err := s.Claim(t.Context(), bide.Claim{Worker: "x", Queues: []string{"q"}, Workflows: []string{"w"}, Max: 1, TTL: time.Minute})
			return err
		},
		"Commit": func(s *remote.Store) error {
			return s.Commit(t.Context(), bide.Lease{}, bide.Batch{Facts: []bide.Fact{{Kind: "k", Key: "k", Value: []byte("1")}}})
		},
		"Signal": func(s *remote.Store) error {
			_, err := s.Signal(t.Context(), "r", bide.Message{Op: bide.OpSignal, Name: "s"})
			return err
		},
		"Control": func(s *remote.Store) error { return s.Control(t.Context(), "r", bide.Command{Op: bide.OpPause}) },
		"Purge":   func(s *remote.Store) error { return s.Purge(t.Context(), "r") },
	}
	for name, write := range writes {
		if err := write(far); !errors.Is(err, bide.ErrReadOnly) {
			t.Errorf("%s: %v", name, err)
		}
		if err := write(stranger); err == nil || errors.Is(err, bide.ErrReadOnly) {
			t.Errorf("%s by who may not write anyway: %v", name, err)
		}
	}
	changes, stop := far.Wake("r", false)
	defer stop()
	if err := bide.NewClient(store).Terminate(t.Context(), "r", ""); err != nil {
		t.Fatal(err)
	}
	for run := (bide.Run{}); !run.State.Ended(); {
		<-changes
		var err error
		if run, err = far.Run(t.Context(), "r"); err != nil {
			t.Fatal(err)
		}
	}
	if runs, err := store.Runs(t.Context(), bide.Query{}); err != nil || len(runs) != 1 {
		t.Errorf("%v %v", runs, err)
	}
}
