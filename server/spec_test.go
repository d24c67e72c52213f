package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/api"
	"github.com/bide-dev/bide/server"
	"github.com/bide-dev/bide/webhook"
)

// spec is openapi.yaml. Package api judges its own answers by it, these tests what the
// server adds.
type spec struct {
	doc      any
	compiler *jsonschema.Compiler
}

var theSpec = sync.OnceValue(func() *spec {
	var doc any
	err := yaml.Unmarshal(api.Spec, &doc)
	if err != nil {
		panic(err)
	}
	data, err := json.Marshal(doc)
	if err != nil {
		panic(err)
	}
	if doc, err = jsonschema.UnmarshalJSON(bytes.NewReader(data)); err != nil {
		panic(err)
	}
	s := &spec{doc, jsonschema.NewCompiler()}
	s.compiler.AssertFormat()
	if err := s.compiler.AddResource("openapi.json", doc); err != nil {
		panic(err)
	}
	return s
})

// at follows keys, and references; nil if they lead nowhere.
func (s *spec) at(keys ...string) any {
	from := s.doc
	for _, key := range keys {
		m, _ := from.(map[string]any)
		from = m[key]
		if to, _ := from.(map[string]any); to["$ref"] != nil {
			from = s.at(strings.Split(strings.TrimPrefix(fmt.Sprint(to["$ref"]), "#/"), "/")...)
		}
	}
	return from
}

func (s *spec) schema(t *testing.T, keys ...string) *jsonschema.Schema {
	t.Helper()
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	pointer := ""
	for _, key := range keys {
		pointer += "/" + url.PathEscape(escape.Replace(key))
	}
	schema, err := s.compiler.Compile("openapi.json#" + pointer)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// fits judges an answer by a schema.
func (s *spec) fits(t *testing.T, what, body string, keys ...string) {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
	if err == nil {
		err = s.schema(t, keys...).Validate(value)
	}
	if err != nil {
		t.Errorf("%s: %s: %v", what, body, err)
	}
}

// Every refusal is a problem of openapi.yaml, whichever part of the server it comes
// from, and says the path that was asked for.
func TestProblemsInOpenAPI(t *testing.T) {
	store := &troubled{Store: openStore(t)}
	srv, _ := start(t, store, server.Config{Prefix: "/bide", Origins: []string{"https://app.example.com"}})
	keyed := openStore(t)
	reader, _ := makeKey(t, keyed, server.ScopeRead)
	asked, _ := start(t, keyed, server.Config{})
	still, _ := start(t, openStore(t), server.Config{ReadOnly: true})
	root := strings.TrimSuffix(srv.URL(), "/bide")
	met := map[string]bool{}
	refused := func(status int, code, method, target string, headers ...string) head {
		t.Helper()
		h, body := ask(t, method, target, "", headers...)
		what := method + " " + target
		u, err := url.Parse(target)
		if err != nil {
			t.Fatal(err)
		}
		var p struct {
			Type, Code, Instance string
			Status               int
			Retryable            bool
		}
		if h.StatusCode != status || h.Header.Get("Content-Type") != "application/problem+json" || json.Unmarshal([]byte(body), &p) != nil ||
			p.Code != code || p.Status != status || p.Retryable != (h.Header.Get("Retry-After") != "") {
			t.Errorf("%s: %s %v %s, want %d %s", what, h.Status, h.Header, body, status, code)
			return h
		}
		ofHook := strings.HasPrefix(u.Path, "/bide/v1/hooks") || strings.HasPrefix(u.Path, "/bide/v1/endpoints") // package webhook stands alone too
		if !ofHook && p.Type != api.ProblemBase+code || p.Instance != u.EscapedPath() {
			t.Errorf("%s: type %s, instance %s", what, p.Type, p.Instance)
		}
		theSpec().fits(t, what, body, "components", "schemas", "Problem")
		met[code] = true
		return h
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/", "/runs", "/runs/x"} {
		for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS"} {
			if h := refused(405, "method-not-allowed", method, srv.URL()+path); h.Header.Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: Allow %q", method, path, h.Header.Get("Allow"))
			}
		}
	}
	for _, path := range []string{"/v1/hooks", "/v1/hooks/", "/v1/hooks/a/b", "/v1/endpoints", "/v1/endpoints/", "/v1/approvals", "/v1/approvals/", "/bide.v1.Store",
		"/v1", "/nowhere", "/v1/runs/none", "/v1/runs/%2e%2e", "/healthz/", "/%68ealthz", "/v1/%68ooks/x", "/runs/.."} {
		refused(404, "not-found", "POST", srv.URL()+path+map[bool]string{true: "/cancel"}[path == "/v1/runs/none"])
	}
	refused(404, "not-found", "GET", root+"/healthz")
	refused(404, "not-found", "GET", srv.URL()+"/dashboard/none.js") // what handlers of libraries say is made a problem too
	refused(404, "not-found", "POST", srv.URL()+"/bide.v1.Store/None", "Content-Type", "application/proto")
	refused(404, "not-found", "POST", root+"/bide")
	refused(404, "not-found", "POST", srv.URL()+"/v1/hooks/none")
	refused(405, "method-not-allowed", "GET", srv.URL()+"/v1/hooks/none")
	refused(405, "method-not-allowed", "POST", srv.URL()+"/openapi.yaml")
	refused(400, "invalid-input", "GET", srv.URL()+"/v1/runs?stat=failed")
	refused(421, "misdirected", "GET", srv.URL()+"/v1/runs", "Host", "evil.example")
	refused(403, "cross-origin", "POST", srv.URL()+"/v1/runs", "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site")
	refused(401, "unauthorized", "GET", asked.URL()+"/v1/runs")
	refused(403, "forbidden", "POST", asked.URL()+"/v1/runs/x/cancel", "Authorization", "Bearer "+reader)
	for range 100 {
		if h, _ := ask(t, "GET", asked.URL()+"/v1/runs", "", "Authorization", "Bearer x"); h.StatusCode == 429 {
			break
		}
	}
	refused(429, "rate-limited", "GET", asked.URL()+"/v1/runs", "Authorization", "Bearer x")
	refused(403, "read-only", "POST", still.URL()+"/v1/runs/x/cancel")
	refused(503, "read-only", "POST", still.URL()+"/v1/hooks/x")
	store.broken.Store(true)
	refused(503, "overloaded", "GET", srv.URL()+"/readyz")
	refused(503, "overloaded", "POST", srv.URL()+"/v1/hooks/x")
	store.broken.Store(false)
	fault, _ := start(t, &panicky{openStore(t)}, server.Config{})
	refused(500, "internal", "GET", fault.URL()+"/v1/runs")
	r, w := request(local(t), "POST", "/v1/runs")
	r.RemoteAddr, r.ContentLength = "127.0.0.1:1", 8<<20
	if still.ServeHTTP(w, r); w.Code != 413 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	theSpec().fits(t, "too large", w.Body.String(), "components", "schemas", "Problem")
	for _, code := range []string{"misdirected", "cross-origin", "unauthorized", "forbidden", "rate-limited", "read-only", "overloaded", "internal", "method-not-allowed"} {
		if !met[code] {
			t.Errorf("%s was not met", code)
		}
	}
}

// What the server adds to the API answers as openapi.yaml says.
func TestServerInOpenAPI(t *testing.T) {
	srv, _ := start(t, openStore(t), server.Config{Webhooks: webhook.Config{Endpoints: map[string]webhook.Endpoint{
		"payments": {Key: func([]byte) (string, error) { return "k", nil }}}}})
	// A run makes a hook, and its worker tells the token.
	link := make(chan string, 1)
	worker := bide.NewWorker(srv.Store(), bide.WorkerConfig{PublicURL: srv.URL()})
	worker.Register(bide.Define("hooked", func(ctx bide.Context, _ any) (any, error) {
		hook, err := bide.NewWebhook[any](ctx, "done")
		if err != nil {
			return nil, err
		}
		link <- hook.URL()
		return bide.Receive[any](ctx, "never")
	}))
	worked := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { worked <- worker.Run(ctx) }()
	if h, body := ask(t, "POST", srv.URL()+"/v1/runs", `{"workflow":"hooked"}`, "Content-Type", "application/json"); h.StatusCode != 202 {
		t.Fatalf("%s %s", h.Status, body)
	}
	hook := strings.TrimPrefix(<-link, srv.URL())
	met := map[string]bool{}
	for _, c := range []struct {
		operation, path, body string
		status                int
	}{
		{"GET /healthz", "/healthz", "", 200},
		{"GET /readyz", "/readyz", "", 200},
		{"GET /metrics", "/metrics", "", 200},
		{"POST /v1/hooks/{token}", hook, `{"a":1}`, 202},
		{"POST /v1/hooks/{token}", hook, `{"a":1}`, 200},
		{"POST /v1/endpoints/{source}", "/v1/endpoints/payments", `{"a":1}`, 202},
		{"POST /v1/endpoints/{source}", "/v1/endpoints/payments", `{"a":1}`, 200},
	} {
		method, path, _ := strings.Cut(c.operation, " ")
		h, body := ask(t, method, srv.URL()+c.path, c.body)
		if h.StatusCode != c.status {
			t.Errorf("%s: %s %s", c.operation, h.Status, body)
			continue
		}
		met[fmt.Sprint(c.operation, " ", c.status)] = true
		answer := []string{"paths", path, strings.ToLower(method), "responses", fmt.Sprint(c.status)}
		media, _, _ := mime.ParseMediaType(h.Header.Get("Content-Type"))
		content, _ := theSpec().at(append(answer, "content")...).(map[string]any)
		if content[media] == nil {
			t.Errorf("%s %d: openapi.yaml has no %q", c.operation, c.status, media)
		} else if media == "application/json" {
			theSpec().fits(t, c.operation, body, "components", "schemas", "Receipt")
		}
	}
	for path, item := range theSpec().at("paths").(map[string]any) {
		for method, op := range item.(map[string]any) {
			if m, _ := op.(map[string]any); m["x-served-by"] != "server" {
				continue
			}
			responses, _ := theSpec().at("paths", path, method, "responses").(map[string]any)
			for status := range responses {
				if op := strings.ToUpper(method) + " " + path + " " + status; status != "default" && !met[op] {
					t.Errorf("no test has met %s", op)
				}
			}
		}
	}
	cancel()
	if err := <-worked; err != nil {
		t.Error(err)
	}
}

// A run whose id is an address, or looks like a way, is reached at its Location; so
// are its waits, and its page.
func TestIDsOfAllKinds(t *testing.T) {
	for _, prefix := range []string{"", "/bide"} {
		srv, _ := start(t, openStore(t), server.Config{Prefix: prefix})
		root := strings.TrimSuffix(srv.URL(), prefix)
		ids := []string{"https://x.org/job", "a//b", "x/../y", "a/", "/a", "...", "a%2Fb", "../../healthz"}
		polls := bide.Define("polls", func(ctx bide.Context, name string) (string, error) {
			return bide.Poll(ctx, name, func(context.Context) (string, error) { return "", nil }, func(s string) bool { return s != "" },
				bide.Every(time.Hour), bide.Timeout(24*time.Hour))
		})
		worker := bide.NewWorker(srv.Store(), bide.WorkerConfig{})
		worker.Register(polls)
		ctx, cancel := context.WithCancel(t.Context())
		worked := make(chan error, 1)
		go func() { worked <- worker.Run(ctx) }()
		for _, id := range ids {
			h, body := ask(t, "POST", srv.URL()+"/v1/runs", `{"workflow":"polls","id":"`+id+`","input":"check https://x.org/j"}`, "Content-Type", "application/json")
			at := root + h.Header.Get("Location")
			if h.StatusCode != 202 {
				t.Errorf("%s: %s %s", id, h.Status, body)
				continue
			}
			for tag := `"none"`; !strings.Contains(body, `"kind":"poll"`); {
				if h, body = ask(t, "GET", at+"?wait=20", "", "If-None-Match", tag); h.StatusCode != 200 {
					t.Fatalf("%s at %s: %s %s", id, at, h.Status, body)
				}
				tag = h.Header.Get("ETag")
			}
			for path, want := range map[string]int{"": 200, "/history": 200, "/result": 202} {
				if h, body := ask(t, "GET", at+path, ""); h.StatusCode != want {
					t.Errorf("%s%s: %s %s", at, path, h.Status, body)
				}
			}
			wait := at + "/waits/" + url.PathEscape("check https://x.org/j")
			if h, body := ask(t, "POST", wait+"/check", ""); h.StatusCode != 202 {
				t.Errorf("%s: %s %s", wait, h.Status, body)
			}
			if h, body := ask(t, "POST", wait+"/complete", `"done"`, "Content-Type", "application/json"); h.StatusCode != 202 {
				t.Errorf("%s: %s %s", wait, h.Status, body)
			}
			if h, body := ask(t, "GET", at+"/result?wait=20", ""); h.StatusCode != 200 || body != `"done"` {
				t.Errorf("%s: %s %s", at, h.Status, body)
			}
			if h, _ := ask(t, "GET", srv.URL()+"/runs/"+url.PathEscape(id), "", "Accept", "text/html"); h.StatusCode != 200 {
				t.Errorf("the page of %s: %s", id, h.Status)
			}
		}
		for _, id := range []string{".", "..", "/"} {
			if h, body := ask(t, "POST", srv.URL()+"/v1/runs", `{"workflow":"w","id":"`+id+`"}`, "Content-Type", "application/json"); h.StatusCode != 400 || !strings.Contains(body, `"field":"id"`) {
				t.Errorf("%s: %s %s", id, h.Status, body)
			}
		}
		cancel()
		if err := <-worked; err != nil {
			t.Error(err)
		}
	}
}
