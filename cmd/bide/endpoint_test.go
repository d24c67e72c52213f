package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bide-dev/bide/webhook"
)

const renderSecret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="

func environ(name string) (string, bool) {
	value, ok := map[string]string{"HUB": "hunter22", "OLD": "hunter21", "RENDER": renderSecret, "EMPTY": "", "SPACED": " x"}[name]
	return value, ok
}

func senderConfig(t *testing.T, text string) (webhook.Config, error) {
	t.Helper()
	c, err := parseConfig([]byte(text))
	if err != nil {
		return webhook.Config{}, err
	}
	return c.senders.compile(environ)
}

// The endpoints of the config file verify, and tell what an event is about.
func TestEndpoints(t *testing.T) {
	cfg, err := senderConfig(t, `
db: runs.db
endpoints:
  - source: render
    scheme: standard
    secret: ${env:RENDER}
    key: body.job.id
  - {source: hub, scheme: github, secret: ["${env:HUB}", "${env:OLD}"], key: 'body.repo + "#" + string(body.number)'}
  - {source: open.v2, scheme: none, key: body.id}
verifiers:
  - {name: render, scheme: standard, secret: "${env:RENDER}"}
`)
	if err != nil {
		t.Fatal(err)
	}
	body := []byte(`{"job":{"id":"j7"}}`)
	signed, err := webhook.SignStandard(renderSecret, "msg_1", time.Now(), body)
	if err != nil {
		t.Fatal(err)
	}
	render := cfg.Endpoints["render"]
	for name, v := range map[string]webhook.Verifier{"endpoint": render.Verify, "verifier": cfg.Verifiers["render"]} {
		if _, err := v.Verify(signed, body, time.Now()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := v.Verify(http.Header{}, body, time.Now()); err == nil {
			t.Errorf("%s: takes what is not signed", name)
		}
	}
	if cfg.Endpoints["hub"].Verify == nil || cfg.Endpoints["open.v2"].Verify != nil {
		t.Errorf("%+v", cfg.Endpoints)
	}
	for _, c := range []struct{ source, body, want string }{
		{"render", `{"job":{"id":"j7"}}`, "j7"},
		{"render", `{"job":{"id":12345678901}}`, "12345678901"},
		{"render", `{"job":{"id":9007199254740993}}`, "error: its key is neither a text nor a whole number below 2^53"},
		{"render", `{"job":{"id":1.5}}`, "error: its key is neither"},
		{"render", `{"job":{"id":{"a":1}}}`, "error: its key is neither"},
		{"render", `{"job":{}}`, "error: no such key: id"},
		{"render", `[]`, "error: "},
		{"render", `job=7`, "error: it is no JSON"},
		{"hub", `{"repo":"a/b","number":7}`, "a/b#7"},
		{"open.v2", `{"id":""}`, ""},
	} {
		got, err := cfg.Endpoints[c.source].Key([]byte(c.body))
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != c.want && (err == nil || !strings.HasPrefix(got, c.want)) {
			t.Errorf("%s %s: %q, want %q", c.source, c.body, got, c.want)
		}
	}
}

// What is wrong with the lists is said with the line, and without a secret.
func TestEndpointFaults(t *testing.T) {
	endpoint := "endpoints:\n  - {source: a, scheme: github, secret: \"${env:HUB}\", key: body.id, %s}"
	for _, c := range []struct{ text, want string }{
		{"endpoints: x", "line 1: endpoints: must be a list of objects"},
		{"endpoints: [x]", "line 1: endpoints: must be a list of objects"},
		{"db: a\nverifiers: {name: x}", "line 2: verifiers: must be a list of objects"},
		{fmt.Sprintf(endpoint, "secrt: x"), `line 2: endpoints have no key "secrt"; they have source, scheme, secret, key`},
		{fmt.Sprintf(endpoint, "name: x"), `line 2: endpoints have no key "name"`},
		{fmt.Sprintf(endpoint, "source: b"), "already defined"},
		{"endpoints: [{source: [a]}]", "line 1: source: must be a word"},
		{"endpoints: [{scheme: none, key: body}]", `line 1: source: "" must be letters`},
		{"endpoints: [{source: a/b, scheme: none, key: body}]", `line 1: source: "a/b" must be letters`},
		{"endpoints: [{source: .., scheme: none, key: body}]", `line 1: source: ".." must be`},
		{"endpoints: [{source: a, key: body}]", `line 1: scheme: "" must be standard, github, stripe, slack or`},
		{"endpoints: [{source: a, scheme: hub, key: body}]", `line 1: scheme: "hub" must be`},
		{"endpoints: [{source: a, scheme: github, key: body}]", "line 1: secret: is missing; write ${env:NAME}"},
		{"endpoints: [{source: a, scheme: github, secret: hunter22, key: body}]", "line 1: secret: must come from the environment; write ${env:NAME}"},
		{`endpoints: [{source: a, scheme: github, secret: "x${env:HUB}", key: body}]`, "line 1: secret: must come from the environment"},
		{`endpoints: [{source: a, scheme: github, secret: "${env:NONE}", key: body}]`, "line 1: secret: the environment variable NONE is not set"},
		{`endpoints: [{source: a, scheme: github, secret: "${env:EMPTY}", key: body}]`, "line 1: secret: the environment variable EMPTY is not set"},
		{`endpoints: [{source: a, scheme: github, secret: "${env:SPACED}", key: body}]`, "line 1: secret: begins or ends with white space"},
		{`endpoints: [{source: a, scheme: standard, secret: "${env:HUB}", key: body}]`, "line 1: secret: begins with none of whsec_"},
		{`endpoints: [{source: a, scheme: none, secret: "${env:HUB}", key: body}]`, "line 1: secret: is of no use with scheme none"},
		{"endpoints: [{source: a, scheme: none}]", "line 1: key: is missing"},
		{"endpoints: [{source: a, scheme: none, key: body.}]", "line 1: key: is no CEL that compiles"},
		{"endpoints: [{source: a, scheme: none, key: headers.id}]", "line 1: key: is no CEL that compiles"},
		{"endpoints: [{source: a, scheme: none, key: body == 1}]", `line 1: key: "body == 1" yields bool, it must yield string`},
		{"endpoints: [{source: a, scheme: none, key: body}, {source: a, scheme: none, key: body}]", `line 1: source: two endpoints are called "a"`},
		{"verifiers: [{name: a, scheme: none}]", "line 1: scheme: none verifies nothing"},
		{`verifiers: [{scheme: github, secret: "${env:HUB}"}]`, "line 1: name: is missing"},
		{`verifiers: [{name: a, scheme: github, secret: "${env:HUB}", key: body}]`, `line 1: verifiers have no key "key"; they have name, scheme, secret`},
		{`verifiers: [{name: a, scheme: github, secret: "${env:HUB}"}, {name: a, scheme: github, secret: "${env:HUB}"}]`, `line 1: name: two verifiers are called "a"`},
		{"endpoint: []", `line 1: there is no key "endpoint"; there are db, `},
	} {
		_, err := senderConfig(t, c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter") {
			t.Errorf("%s: %v, want %s", c.text, err, c.want)
		}
	}
}

// FuzzConfig: whatever the file holds, it is settings or an error.
func FuzzConfig(f *testing.F) {
	f.Add("db: a\norigin: [b, c]\n")
	f.Add("endpoints:\n  - {source: a, scheme: none, key: body.id}\nverifiers: [{name: a}]")
	f.Add("endpoints: &a [*a]")
	f.Add("verifiers: &a [{name: x}]\nendpoints: *a")
	f.Add("a: &a [b]\nendpoints: [{secret: *a}]\norigin: *a")
	f.Add("endpoints: [null, {null: null}]")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseConfig([]byte(text))
		if err != nil {
			return
		}
		for name, values := range c.values {
			if name == "" || strings.Contains(name, "_") || values == nil && !strings.Contains(text, "[") {
				t.Errorf("%q: %q", name, values)
			}
		}
		cfg, err := c.senders.compile(environ)
		if err != nil {
			return
		}
		for source, e := range cfg.Endpoints {
			if e.Key == nil || !segment.MatchString(source) {
				t.Errorf("%q has no key", source)
			}
			_, _ = e.Key([]byte(`{"id":1}`))
		}
	})
}
