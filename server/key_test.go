package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/server"
	"github.com/bide-dev/bide/sqlite"
)

func request(ctx context.Context, method, target string) (*http.Request, *httptest.ResponseRecorder) {
	r := httptest.NewRequestWithContext(ctx, method, target, nil)
	r.Host = "localhost"
	return r, httptest.NewRecorder()
}

func makeKey(t testing.TB, store bide.Store, scopes ...server.Scope) (secret string, key server.Key) {
	t.Helper()
	secret, key, err := server.CreateKey(t.Context(), store, "test", scopes, 0)
	if err != nil {
		t.Fatal(err)
	}
	return secret, key
}

func TestKeys(t *testing.T) {
	store := openStore(t)
	secret, key := makeKey(t, store, server.ScopeWrite, server.ScopeRead, server.ScopeWrite)
	if len(secret) != len("bide_")+8+1+43 || !strings.HasPrefix(secret, "bide_"+key.ID+"_") || len(key.Scopes) != 2 {
		t.Errorf("%q %+v", secret, key)
	}
	facts, err := store.Facts(t.Context(), "api_key")
	if err != nil || len(facts) != 1 {
		t.Fatal(facts, err)
	}
	if bytes.Contains(facts[0].Value, []byte(secret[15:30])) {
		t.Error("the secret is in the store")
	}
	for field, call := range map[string]func() error{
		"name": func() error {
			_, _, err := server.CreateKey(t.Context(), store, "", []server.Scope{"read"}, 0)
			return err
		},
		"scopes": func() error {
			_, _, err := server.CreateKey(t.Context(), store, "x", []server.Scope{"root"}, 0)
			return err
		},
		"ttl": func() error {
			_, _, err := server.CreateKey(t.Context(), store, "x", []server.Scope{"read"}, -1)
			return err
		},
		"id": func() error { return server.RevokeKey(t.Context(), store, "") },
	} {
		var invalid *bide.InvalidError
		if err := call(); !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, _, err := server.CreateKey(t.Context(), store, "x", nil, 0); err == nil {
		t.Error("a key without scopes")
	}
	if keys, err := server.Keys(t.Context(), store); err != nil || len(keys) != 1 || keys[0].ID != key.ID || keys[0].Name != "test" {
		t.Errorf("%+v %v", keys, err)
	}
	if err := server.RevokeKey(t.Context(), store, key.ID); err != nil {
		t.Fatal(err)
	}
	if err := server.RevokeKey(t.Context(), store, key.ID); !errors.Is(err, bide.ErrNotFound) {
		t.Errorf("revoked twice: %v", err)
	}
	if keys, err := server.Keys(t.Context(), store); err != nil || len(keys) != 0 {
		t.Errorf("%+v %v", keys, err)
	}
}

// Each scope opens its doors and no other; without a key only what is public is open.
func TestScopes(t *testing.T) {
	store := openStore(t)
	keys := map[string]string{"none": ""}
	for _, scope := range []server.Scope{server.ScopeRead, server.ScopeWrite, server.ScopeWorker, server.ScopeAdmin} {
		keys[string(scope)], _ = makeKey(t, store, scope)
	}
	srv, _ := start(t, store, server.Config{})
	for _, c := range []struct {
		method, target string
		open           string // to these scopes
	}{
		{"GET", "/v1/runs", "read write worker admin"},
		{"HEAD", "/v1/runs", "read write worker admin"},
		{"GET", "/metrics", "read write worker admin"},
		{"GET", "/openapi.yaml", "read write worker admin"},
		{"GET", "/v1/events", "read write worker admin"},
		{"POST", "/v1/runs", "write worker admin"},
		{"POST", "/v1/runs/x/cancel", "write worker admin"},
		{"DELETE", "/v1/runs/x", "write worker admin"},
		{"DELETE", "/v1/runs/x?purge=true", "admin"},
		{"DELETE", "/v1/runs/x?purge=1", "admin"},
		{"DELETE", "/v1/runs/x?purge=false", "write worker admin"},
		{"DELETE", "/v1/runs/x?purge", "write worker admin"},
		{"DELETE", "/v1/runs/x?PURGE=true", "write worker admin"}, // is refused, see package api
		{"DELETE", "/v1/runs/x?purge=false&purge=true", "write worker admin"},
		{"PATCH", "/v1/runs/x", "write worker admin"},
		{"POST", "/bide.v1.Store/Run", "read write worker admin"},
		{"POST", "/bide.v1.Store/Write", "read write worker admin"}, // each write for itself, see TestWritesFromElsewhere
		{"POST", "/bide.v1.Store/Claim", "worker admin"},
		{"POST", "/bide.v1.Store/Facts", "worker admin"},
		{"GET", "/healthz", "none read write worker admin"},
		{"GET", "/readyz", "none read write worker admin"},
		{"POST", "/v1/hooks/unknown", "none read write worker admin"},
		{"POST", "/v1/endpoints/unknown", "none read write worker admin"},
		{"GET", "/v1/approvals/unknown", "none read write worker admin"},
	} {
		for scope, secret := range keys {
			headers := []string{"Content-Type", "application/json"}
			if secret != "" {
				headers = append(headers, "Authorization", "bearer "+secret)
			}
			body := ""
			if c.method == "POST" {
				body = "{}"
			}
			resp, text := ask(t, c.method, srv.URL()+c.target, body, headers...)
			code := "api"
			if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/problem+json") {
				var p struct{ Code string }
				_ = json.Unmarshal([]byte(text), &p)
				code = p.Code
			}
			let := resp.StatusCode != 401 && !(resp.StatusCode == 403 && (code == "forbidden" || c.method == "HEAD"))
			if want := strings.Contains(" "+c.open+" ", " "+scope+" "); let != want {
				t.Errorf("%s %s with scope %s: %s %s", c.method, c.target, scope, resp.Status, text)
			}
			if resp.StatusCode == 401 && resp.Header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s %s: 401 without WWW-Authenticate", c.method, c.target)
			}
		}
	}
	good := keys["admin"]
	for _, header := range []string{"Bearer ", "Bearer x", "Basic " + good, "Bearer " + good + "x", "Bearer " + good[:len(good)-1] + "_", good,
		"Bearer " + keys["read"][:14] + good[14:], "Bearer bide_", "Bearer " + strings.ToUpper(good)} {
		if resp, _ := ask(t, "GET", srv.URL()+"/metrics", "", "Authorization", header); resp.StatusCode != 401 {
			t.Errorf("%q: %s", header, resp.Status)
		}
	}
	for _, query := range []string{"?token=" + good, "?access_token=" + good, "?key=" + good} {
		if resp, _ := ask(t, "GET", srv.URL()+"/metrics"+query, ""); resp.StatusCode != 401 {
			t.Errorf("a key in the URL: %s", resp.Status)
		}
	}
}

// local is a context of a request from this machine.
func local(t testing.TB) context.Context {
	return context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}))
}

func TestKeyLife(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		store, err := sqlite.Open(filepath.Join(dir, "bide.db"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = store.Close() }()
		srv, err := server.New(store, server.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		get := func(secret string) int {
			r, w := request(local(t), "GET", "/metrics")
			r.RemoteAddr = "127.0.0.1:1"
			if secret != "" {
				r.Header.Set("Authorization", "Bearer "+secret)
			}
			srv.ServeHTTP(w, r)
			return w.Code
		}
		used := func() time.Time {
			keys, err := server.Keys(t.Context(), store)
			if err != nil || len(keys) != 1 {
				t.Fatal(keys, err)
			}
			return keys[0].LastUsedAt
		}
		if code := get(""); code != 200 {
			t.Fatalf("open to its machine: %d", code)
		}
		// Made through the server's own store, a key is known at once.
		secret, key, err := server.CreateKey(t.Context(), srv.Store(), "x", []server.Scope{server.ScopeRead}, 3*time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if code := get(""); code != 401 {
			t.Errorf("still open: %d", code)
		}
		if code := get(secret); code != 200 {
			t.Errorf("with the key: %d", code)
		}
		first := used()
		if first.IsZero() || time.Since(first) >= time.Hour {
			t.Errorf("used at %v, now %v", first, time.Now())
		}
		time.Sleep(59 * time.Minute)
		get(secret)
		time.Sleep(2 * time.Minute)
		get(secret)
		if second := used(); second.Sub(first) != time.Hour {
			t.Errorf("used at %v and then at %v", first, second)
		}
		time.Sleep(2 * time.Hour)
		if code := get(secret); code != 401 {
			t.Errorf("expired: %d", code)
		}
		if code := get(""); code != 401 {
			t.Errorf("the last key has lapsed, and the server stands open: %d", code)
		}
		// Revoked behind the server's back, it is heeded within seconds.
		if err := server.RevokeKey(t.Context(), store, key.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if code := get(""); code != 200 {
			t.Errorf("no key is left: %d", code)
		}
	})
}

// logs collects what is logged.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logs) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func TestAuditAndSecrets(t *testing.T) {
	store := openStore(t)
	secret, key := makeKey(t, store, server.ScopeWrite)
	var out logs
	srv, stop := start(t, store, server.Config{Logger: out.logger()})
	auth := []string{"Authorization", "Bearer " + secret, "Content-Type", "application/json"}
	ask(t, "POST", srv.URL()+"/v1/runs", `{"workflow":"w","id":"my-run","input":"top-secret-input"}`, auth...)
	ask(t, "POST", srv.URL()+"/v1/runs/my-run/signal/go", `"top-secret-signal"`, auth...)
	ask(t, "POST", srv.URL()+"/v1/runs", `{"workflow":"w","id":"https://x.org/1"}`, auth...)
	ask(t, "POST", srv.URL()+"/v1/loops/my%2Floop/trigger", "", auth...)
	ask(t, "GET", srv.URL()+"/v1/runs/my-run", "", auth...)
	ask(t, "POST", srv.URL()+"/v1/hooks/top-secret-token", `"top-secret-delivery"`)
	ask(t, "GET", srv.URL()+"/v1/approvals/top-secret-token", "")
	ask(t, "POST", srv.URL()+"/v1/runs", `{}`, "Authorization", "Bearer top-secret-guess")
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, kept := range []string{"top-secret", secret, secret[14:]} {
		if strings.Contains(text, kept) {
			t.Errorf("%q is in the log:\n%s", kept, text)
		}
	}
	var audits []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, "msg=audit") {
			audits = append(audits, line)
		}
	}
	if len(audits) != 5 {
		t.Fatalf("audits: %q", audits)
	}
	for i, want := range [][]string{
		{"key=" + key.ID, "method=POST", `route="POST /v1/runs"`, "status=202", "run=my-run", "remote=127.0.0.1:"},
		{"key=" + key.ID, "method=POST", `route="POST /v1/runs/{id}/signal/{name}"`, "run=my-run", "status=202"},
		{"key=" + key.ID, `route="POST /v1/runs"`, "status=202", "run=https://x.org/1\n"},
		{"key=" + key.ID, `route="POST /v1/loops/{name}/trigger"`, "status=404", "run=loop:my/loop\n"},
		{"key=public", "method=POST", `route="POST /v1/hooks/{token}"`, "status=404"},
	} {
		for _, part := range want {
			if !strings.Contains(audits[i], part) {
				t.Errorf("audit %d: %s, want %s", i, audits[i], part)
			}
		}
	}
}

func TestReadOnly(t *testing.T) {
	store := openStore(t)
	secret, _ := makeKey(t, store, server.ScopeAdmin)
	reader, _ := makeKey(t, store, server.ScopeRead)
	srv, _ := start(t, store, server.Config{ReadOnly: true})
	for _, c := range []struct {
		method, target string
		want           int
	}{
		{"GET", "/v1/runs", 200},
		{"GET", "/metrics", 200},
		{"POST", "/v1/runs", 403},
		{"DELETE", "/v1/runs/x", 403},
		{"POST", "/v1/loops/x/trigger", 403},
		{"POST", "/v1/hooks/x", 503}, // the sender tries again
		{"POST", "/v1/approvals/x", 403},
	} {
		resp, body := ask(t, c.method, srv.URL()+c.target, "{}", "Authorization", "Bearer "+secret, "Content-Type", "application/json")
		if resp.StatusCode != c.want || c.want != 200 && !strings.Contains(body, `"read-only"`) {
			t.Errorf("%s %s: %s %s", c.method, c.target, resp.Status, body)
		}
	}
	if _, body := ask(t, "POST", srv.URL()+"/v1/runs", "{}", "Authorization", "Bearer "+reader); !strings.Contains(body, `"forbidden"`) {
		t.Errorf("who may not write anyway is told of reading only: %s", body)
	}
	if keys, err := server.Keys(t.Context(), store); err != nil || !keys[0].LastUsedAt.IsZero() {
		t.Errorf("a server for reading only has written: %+v %v", keys, err)
	}
}

// Who gives wrong keys again and again is told to stop; the right one is taken all
// the while.
func TestWrongKeys(t *testing.T) {
	store := openStore(t)
	secret, _ := makeKey(t, store, server.ScopeRead)
	srv, _ := start(t, store, server.Config{})
	try := func(key string) head {
		resp, _ := ask(t, "GET", srv.URL()+"/v1/runs", "", "Authorization", "Bearer "+key)
		return resp
	}
	for tries := 1; ; tries++ {
		resp := try(secret + "x")
		if resp.StatusCode == 429 {
			if after, err := strconv.Atoi(resp.Header.Get("Retry-After")); err != nil || after < 1 || after > 61 || tries < 5 {
				t.Errorf("after %d tries, again after %q", tries, resp.Header.Get("Retry-After"))
			}
			break
		}
		if resp.StatusCode != 401 || tries > 100 {
			t.Fatalf("try %d: %s", tries, resp.Status)
		}
	}
	if resp := try(secret); resp.StatusCode != 200 {
		t.Errorf("the right key: %s", resp.Status)
	}
	if resp, _ := ask(t, "GET", srv.URL()+"/v1/runs", ""); resp.StatusCode != 401 {
		t.Errorf("no key: %s", resp.Status)
	}
}

// The audit of a delivery says which run it was for: its token is not for a log.
func TestAuditOfDelivery(t *testing.T) {
	store := openStore(t)
	var out logs
	srv, stop := start(t, store, server.Config{Logger: out.logger()})
	urls := make(chan string, 1)
	waits := bide.Define("waits", func(ctx bide.Context, _ string) (string, error) {
		hook, err := bide.NewWebhook[string](ctx, "ready")
		if err != nil {
			return "", err
		}
		if err := bide.Do(ctx, "tell", func(context.Context) error { urls <- hook.URL(); return nil }); err != nil {
			return "", err
		}
		return hook.Receive(ctx)
	})
	worker := bide.NewWorker(srv.Store(), bide.WorkerConfig{PublicURL: srv.URL()})
	worker.Register(waits)
	ctx, cancel := context.WithCancel(t.Context())
	worked := make(chan error, 1)
	go func() { worked <- worker.Run(ctx) }()
	h, err := waits.Start(t.Context(), bide.NewClient(srv.Store()), "", bide.ID("my-run"))
	if err != nil {
		t.Fatal(err)
	}
	if head, body := ask(t, "POST", <-urls, `"now"`); head.StatusCode != 202 {
		t.Errorf("%s: %s", head.Status, body)
	}
	if text, err := h.Result(t.Context()); err != nil || text != "now" {
		t.Errorf("%q, %v", text, err)
	}
	cancel()
	if err := errors.Join(<-worked, stop()); err != nil {
		t.Error(err)
	}
	if !strings.Contains(out.String(), `route="POST /v1/hooks/{token}" status=202 remote=127.0.0.1`) || !strings.Contains(out.String(), "run=my-run") {
		t.Errorf("the audit: %s", out.String())
	}
}
