package server_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/api"
	"github.com/bide-dev/bide/probe"
	"github.com/bide-dev/bide/server"
)

// What is wrong with a spec is refused by its name, and nothing is kept of it.
func TestProbeLoopInput(t *testing.T) {
	store := openStore(t)
	srv, _ := start(t, store, server.Config{})
	put := func(body string) (head, string) {
		return ask(t, "PUT", srv.URL()+"/v1/loops/news", body, "Content-Type", "application/json")
	}
	for _, c := range []struct{ spec, field, text string }{
		{``, "body", "JSON object"},
		{`[]`, "body", "JSON object"},
		{`{}`, "every", "is missing"},
		{`{"every":"30s"}`, "url", "is empty"},
		{`{"every":30,"url":"https://example.org"}`, "every", `a duration, such as`},
		{`{"every":"30","url":"https://example.org"}`, "every", "write 500ms"},
		{`{"every":"1ms","url":"https://example.org"}`, "every", "at least 10ms"},
		{`{"every":"30s","URL":"https://example.org"}`, "URL", "is not known"},
		{`{"every":"30s","url":"https://example.org","evry":"1s"}`, "evry", "is not known"},
		{`{"every":"30s","url":"https://example.org","name":"other"}`, "name", "path"},
		{`{"every":"30s","url":"https://example.org","max_multiplier":-1}`, "max_multiplier", "negative"},
		{`{"every":"30s","url":"https://example.org","max_multiplier":1.5}`, "max_multiplier", "whole number"},
		{`{"every":"30s","url":"https://example.org","exact":1}`, "exact", "true or false"},
		{`{"every":"30s","url":"https://example.org","headers":[]}`, "headers", "an object"},
		{`{"every":"30s","url":"https://example.org","accept":{}}`, "accept", "a list"},
		{`{"every":"30s","url":"https://example.org","accept":[{"status":1}]}`, "accept.status", "is not known"},
		{`{"every":"30s","url":"https://example.org","until":"body."}`, "until", "compiles"},
		{`{"every":"30s","url":"https://example.org","fail_when":"status"}`, "fail_when", "yields int"},
		{`{"every":"30s","url":"https://example.org","fail_when":"true","accept":[{"state":"x","when":"true"}]}`, "accept[0].state", "success"},
		{`{"every":"30s","url":"https://example.org","condition":"now"}`, "condition", "bool"},
		{`{"every":"30s","url":"ftp://example.org"}`, "url", "http://"},
		{`{"every":"30s","url":"https://me:pw@example.org"}`, "url", "user"},
		{`{"every":"30s","url":"https://example.org/?${env:HOME}"}`, "url", "environment"},
		{`{"every":"30s","url":"https://example.org","headers":{"X-Key":"${env:HOME}"}}`, "headers.X-Key", "environment"},
		{`{"every":"30s","url":"http://127.0.0.1:1/"}`, "url", "not public"},
		{`{"every":"30s","url":"http://[fd00::1]/"}`, "url", "not public"},
		{`{"every":"30s","url":"http://169.254.169.254/latest"}`, "url", "not public"},
		{`{"every":"30s","url":"http://LocalHost/"}`, "url", "not public"},
	} {
		h, body := put(c.spec)
		var p struct{ Code, Field, Detail string }
		if err := json.Unmarshal([]byte(body), &p); err != nil || h.StatusCode != 400 || p.Code != "invalid-input" || p.Field != c.field || !strings.Contains(p.Detail, c.text) {
			t.Errorf("%s: %d %s, want %s ... %s", c.spec, h.StatusCode, body, c.field, c.text)
		}
	}
	if h, body := ask(t, "PUT", srv.URL()+"/v1/loops/"+strings.Repeat("x", 201), specOf(newsURL), "Content-Type", "application/json"); h.StatusCode != 400 || !strings.Contains(body, `"field":"name"`) {
		t.Errorf("%d %s", h.StatusCode, body)
	}
	if h, body := put(`{"url":"` + strings.Repeat("x", 2<<20) + `"}`); h.StatusCode != 413 {
		t.Errorf("%d %s", h.StatusCode, body)
	}
	facts, err := store.Facts(t.Context(), api.LoopFact)
	runs, _ := store.Runs(t.Context(), bide.Query{})
	if err != nil || len(facts) != 0 || len(runs) != 0 {
		t.Errorf("%v %v %v", facts, runs, err)
	}
}

// What turns out to lead inside is not asked, unless that is allowed.
func TestProbeLoopInside(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		store := openStoreIn(t, dir)
		open := probing(t, store, &watched{}, server.Config{AllowPrivate: true})
		open.call(201, "PUT", "/v1/loops/in", specOf("http://127.0.0.1:1/"))
		if err := open.stop(); err != nil {
			t.Error(err)
		}
		b := probing(t, store, nil, server.Config{})
		defer b.close()
		time.Sleep(31 * time.Second)
		_, body := b.call(200, "GET", "/v1/loops/in", "")
		if !strings.Contains(body, "may not be reached from here") || strings.Contains(body, "loopback") {
			t.Error(body)
		}
	})
	came := make(chan struct{})
	inside := httptest.NewServer(http.HandlerFunc(func() func(http.ResponseWriter, *http.Request) {
		tell := sync.OnceFunc(func() { close(came) })
		return func(http.ResponseWriter, *http.Request) { tell() }
	}()))
	defer inside.Close()
	srv, _ := start(t, openStore(t), server.Config{AllowPrivate: true})
	h, body := ask(t, "PUT", srv.URL()+"/v1/loops/in", specOf(inside.URL, `,"run_immediately":true`), "Content-Type", "application/json")
	if h.StatusCode != 201 {
		t.Fatalf("%s %s", h.Status, body)
	}
	select {
	case <-came:
	case <-time.After(time.Minute):
		t.Error("it is not asked")
	}
}

// Who may only look neither changes a probe loop nor sees its spec; who changes one
// is noted.
func TestProbeLoopScopes(t *testing.T) {
	store := openStore(t)
	var log bytes.Buffer // it is read when the server has stopped
	srv, stop := start(t, store, server.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	keys := map[server.Scope]string{}
	for _, scope := range []server.Scope{server.ScopeRead, server.ScopeWrite} {
		secret, _, err := server.CreateKey(t.Context(), store, string(scope), []server.Scope{scope}, 0)
		if err != nil {
			t.Fatal(err)
		}
		keys[scope] = "Bearer " + secret
	}
	request := func(scope server.Scope, method, body string) (head, string) {
		return ask(t, method, srv.URL()+"/v1/loops/news", body, "Content-Type", "application/json", "Authorization", keys[scope])
	}
	spec := specOf(newsURL, `,"headers":{"Authorization":"hunter22"}`)
	if h, body := request(server.ScopeRead, "PUT", spec); h.StatusCode != 403 {
		t.Errorf("%s %s", h.Status, body)
	}
	if h, body := request(server.ScopeWrite, "PUT", spec); h.StatusCode != 201 || !strings.Contains(body, "hunter22") || h.Header.Get("ETag") == "" {
		t.Errorf("%s %s", h.Status, body)
	}
	if h, body := request(server.ScopeRead, "GET", ""); h.StatusCode != 200 || strings.Contains(body, "hunter22") || h.Header.Get("ETag") != "" {
		t.Errorf("%s %s", h.Status, body)
	}
	if h, body := request(server.ScopeRead, "DELETE", ""); h.StatusCode != 403 {
		t.Errorf("%s %s", h.Status, body)
	}
	if h, body := request(server.ScopeWrite, "DELETE", ""); h.StatusCode != 202 {
		t.Errorf("%s %s", h.Status, body)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	for _, want := range []string{`method=PUT route="PUT /v1/loops/{name}" status=201`, `method=DELETE route="DELETE /v1/loops/{name}" status=202`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%s is not in %s", want, log.String())
		}
	}
	if strings.Contains(log.String(), "hunter22") {
		t.Errorf("a credential is in the log: %s", log.String())
	}
}

// A server for reading changes no probe loop, and runs none.
func TestProbeLoopReadOnly(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		x := &watched{}
		store := openStoreIn(t, dir)
		writes := probing(t, store, x, server.Config{})
		writes.call(201, "PUT", "/v1/loops/news", specOf(newsURL))
		if err := writes.stop(); err != nil {
			t.Error(err)
		}
		b := probing(t, store, x, server.Config{ReadOnly: true})
		defer b.close()
		b.call(403, "PUT", "/v1/loops/news", specOf(mailURL))
		b.call(403, "DELETE", "/v1/loops/news", "")
		if _, body := b.call(200, "GET", "/v1/loops/news", ""); !strings.Contains(body, newsURL) {
			t.Error(body)
		}
		time.Sleep(time.Hour)
		if n := x.times(newsURL); n != 0 {
			t.Errorf("asked %d times", n)
		}
	})
}

// What is kept of a spec, and what is taken, is what openapi.yaml says.
func TestProbeLoopInOpenAPI(t *testing.T) {
	doc := theSpec()
	schema := doc.schema(t, "components", "schemas", "ProbeLoop")
	d := probe.Duration(90 * time.Second)
	full, err := json.Marshal(probe.LoopSpec{Name: "news", Every: d, Condition: "true", Exact: true, MaxMultiplier: 4, RunImmediately: true, FailWhen: "false",
		Spec: probe.Spec{URL: newsURL, Method: "POST", Headers: map[string]string{"X-A": "b"}, Body: "{}", Until: "true",
			Accept: []probe.Acceptor{{State: probe.Retry, When: "false", Message: `"why"`}}, Progress: "1.0", ETA: "now", NotFoundGrace: d, Timeout: d,
			MaxBody: 1000, MaxRedirects: 2}})
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(full))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(value); err != nil {
		t.Errorf("%s: %v", full, err)
	}
	properties := doc.at("components", "schemas", "ProbeLoop", "properties").(map[string]any)
	if fields := value.(map[string]any); len(fields) != len(properties) {
		t.Errorf("a spec has %d fields, openapi.yaml %d", len(fields), len(properties))
	}
	if spec, err := probe.ParseLoop(full); err != nil || spec.Every != d || spec.Timeout != d {
		t.Errorf("%+v %v", spec, err)
	}
}
