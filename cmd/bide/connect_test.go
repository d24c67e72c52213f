package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/bide-dev/bide/server"
	"github.com/bide-dev/bide/sqlite"
)

// What no waiting mends is said at once, with its cause.
func TestKnock(t *testing.T) {
	store, err := sqlite.Open(":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	handler, err := server.New(store, server.Config{})
	if err != nil {
		t.Fatal(err)
	}
	bide := httptest.NewServer(handler)
	defer bide.Close()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }))
	defer page.Close()
	moved := httptest.NewServer(http.RedirectHandler("https://bide.example.com/x?token=hunter22", http.StatusMovedPermanently))
	defer moved.Close()
	secure := httptest.NewTLSServer(handler)
	defer secure.Close()
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }))
	defer busy.Close()

	for _, c := range []struct{ name, url, cause string }{
		{"a server", bide.URL, ""},
		{"a slash at the end", bide.URL + "/", ""},
		{"one that may come back", busy.URL, ""},
		{"nothing", "http://127.0.0.1:1", "connection refused"},
		{"TLS to a plain port", strings.Replace(bide.URL, "http:", "https:", 1), "server gave HTTP response to HTTPS client"},
		{"no TLS to a TLS port", strings.Replace(secure.URL, "https:", "http:", 1), "what answers there is no bide server: 400 Bad Request"},
		{"a certificate that nobody trusts", secure.URL, "certificate"},
		{"another path", bide.URL + "/bide", "what answers there is no bide server: 404 Not Found"},
		{"another service", other.URL, "what answers there is no bide server: 404 Not Found"},
		{"a web site", page.URL, "what answers there is no bide server: 200 OK"},
		{"moved", moved.URL, "what answers there is no bide server: 301 Moved Permanently, to https://bide.example.com/x;"},
	} {
		err := knock(t.Context(), c.url)
		if c.cause == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if err == nil {
			t.Errorf("%s: is let in", c.name)
			continue
		}
		text := inWords(err).Error()
		if !strings.HasPrefix(text, "no server answers at "+c.url+": ") || !strings.Contains(text, c.cause) || !strings.Contains(text, "; bide dev starts one, ") ||
			exitCode(t.Context(), err) != exitUnreachable {
			t.Errorf("%s: %s", c.name, text)
		}
	}
}

// A name that there is not is said at once; one that cannot be looked up just now
// may be there later. Both without asking a resolver.
func TestHopeless(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{&net.DNSError{Err: "no such host", IsNotFound: true}, true},
		{&net.DNSError{Err: "i/o timeout", IsTimeout: true}, false},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, false},
		{context.DeadlineExceeded, false},
	} {
		if got := hopeless(&url.Error{Op: "Get", URL: "http://x", Err: c.err}); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}

// What is copied from a message is one word to a shell, and has no password.
func TestCommand(t *testing.T) {
	for _, c := range []struct {
		target target
		words  []string
		want   string
	}{
		{target{}, []string{"list"}, "bide list"},
		{target{server: defaultServer}, []string{"show", "a-1"}, "bide show a-1"},
		{target{db: "runs.db"}, []string{"check", "po1", "check https://x.org/j"}, "bide check po1 'check https://x.org/j' --db runs.db"},
		{target{db: "it's.db"}, []string{"show", "$(rm x)"}, `bide show '$(rm x)' --db 'it'\''s.db'`},
		{target{db: "~x.db"}, []string{"show", ""}, "bide show '' --db '~x.db'"},
		{target{server: "http://h:1/bide"}, []string{"show", "loop:a"}, "bide show loop:a --server http://h:1/bide"},
		{target{db: "postgres://u@h/d"}, []string{"list"}, "bide list --db postgres://u@h/d"},
		{target{db: "postgres://u:hunter22@h/d"}, []string{"list"}, "bide list --db postgres://..."},
		{target{db: "postgres://h/d?password=hunter22"}, []string{"list"}, "bide list --db postgres://..."},
	} {
		if got := c.target.command(c.words...); got != c.want {
			t.Errorf("%+v %q: %s, want %s", c.target, c.words, got, c.want)
		}
	}
}
