package probe_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/probe"
	"github.com/bide-dev/bide/wait"
)

// wantError checks once and returns the error as the type that it must be.
func wantError[E error](t *testing.T, p *probe.Probe, want wait.Outcome) E {
	t.Helper()
	_, err := p.Check(t.Context())
	e, ok := errors.AsType[E](err)
	if got, _ := wait.Judge(err); !ok || got != want {
		t.Fatalf("got %v (%T, %v), want %T, %v", err, err, got, e, want)
	}
	return e
}

// A service that never answers, or never ends its answer, costs one timeout.
func TestSlowService(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"no answer": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"a drop a second": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = w.Write([]byte(" "))
				_ = http.NewResponseController(w).Flush()
				select {
				case <-r.Context().Done():
				case <-time.After(time.Second):
				}
			}
		},
		"a slow refusal": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(500)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProbe(t, serve(t, handler), probe.Spec{Timeout: probe.Duration(5 * time.Second)})
				began := time.Now()
				_, err := p.Check(t.Context())
				if outcome, _ := wait.Judge(err); outcome != wait.Transient || !errors.Is(err, context.DeadlineExceeded) ||
					!strings.Contains(err.Error(), "GET "+serviceURL+": no whole answer within 5s") {
					t.Errorf("%v, %v", outcome, err)
				}
				if took := time.Since(began); took != 5*time.Second {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

// In a poll the timeout of one request is told as such, and the poll goes on.
func TestSlowServiceInPoll(t *testing.T) {
	n := 0
	_, checks, err := polled(t, func(_ http.ResponseWriter, r *http.Request) {
		if n++; n == 1 {
			<-r.Context().Done()
		}
	}, probe.Spec{Timeout: probe.Duration(40 * time.Second)}, bide.Every(time.Second), bide.NoTimeout{}, bide.Exact{})
	if got := outcomes(checks); err != nil || got != "transient@0s succeeded@41s " || !strings.Contains(checks[0].Err.Error(), "no whole answer within 40s") {
		t.Errorf("%s, %v", got, err)
	}
}

func TestNoService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, always(reply{200, "", nil}))
		p := newProbe(t, s, probe.Spec{URL: serviceURL + "?key=hunter22"})
		_ = s.server.Close()
		_, err := p.Check(t.Context())
		if outcome, _ := wait.Judge(err); outcome != wait.Transient || !strings.Contains(err.Error(), "GET "+serviceURL+": the service is down") {
			t.Errorf("%v, %v", outcome, err)
		}
	})
}

// endless writes until nobody reads, and says how much that was.
func endless(w http.ResponseWriter, piece []byte) (written int) {
	for {
		n, err := w.Write(piece)
		if written += n; err != nil || written > 200<<20 {
			return written
		}
	}
}

// What is too long is given up where it is too long, not after it was read.
func TestHugeBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		written := make(chan int, 1)
		p := newProbe(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
			written <- endless(w, bytes.Repeat([]byte("x"), 64<<10))
		}), probe.Spec{MaxBody: 100_000, Accept: []probe.Acceptor{{State: probe.Success, When: `body.done == true`}}})
		if e := wantError[*probe.BodyTooLargeError](t, p, wait.Failed); e.Limit != 100_000 || e.URL != serviceURL {
			t.Errorf("%+v", e)
		}
		if n := <-written; n > 1<<20 {
			t.Errorf("%d bytes were taken", n)
		}
	})
}

func TestBodyOfExactlyTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, always(reply{200, strings.Repeat("7", 1000), nil}))
		if o, err := newProbe(t, s, probe.Spec{MaxBody: 1000}).Check(t.Context()); err != nil || len(o.Content()) != 1000 {
			t.Errorf("%d bytes, %v", len(o.Content()), err)
		}
		wantError[*probe.BodyTooLargeError](t, newProbe(t, s, probe.Spec{MaxBody: 999}), wait.Failed)
	})
}

// Of a refusal the status counts, however long its page is.
func TestHugeRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProbe(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(502)
			endless(w, bytes.Repeat([]byte("x"), 64<<10))
		}), probe.Spec{})
		if e := wantError[*wait.ResponseError](t, p, wait.Transient); e.Status != 502 || len(e.Body) > 512 {
			t.Errorf("%+v", e)
		}
	})
}

// A hundred megabytes that are a hundred kilobytes on the way.
func TestGzipBomb(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	zeros := make([]byte, 1<<20)
	for range 100 {
		_, _ = z.Write(zeros)
	}
	_ = z.Close()
	synctest.Test(t, func(t *testing.T) {
		p := newProbe(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Accept-Encoding") != "gzip" {
				t.Error("the probe does not ask for gzip, and this test is about nothing")
			}
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb.Bytes())
		}), probe.Spec{})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		wantError[*probe.BodyTooLargeError](t, p, wait.Failed)
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 20<<20 {
			t.Errorf("%d bytes were allocated", grown)
		}
	})
}

func TestHugeHeaders(t *testing.T) {
	// net/http bounds what its default transport, cloned here, takes.
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Long", strings.Repeat("x", 1<<20))
	}))
	defer s.Close()
	p, err := probe.New(probe.Spec{URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Check(t.Context()); err == nil {
		t.Error("1 MiB of headers is taken")
	}
}

func TestRedirects(t *testing.T) {
	redirect := func(status int, to string) reply { return reply{status, "", map[string]string{"Location": to}} }
	for _, c := range []struct {
		name    string
		spec    probe.Spec
		answers map[string]reply // by scheme-less URL
		last    string           // "METHOD host/path" of the last request
		carried string           // X-Key and body of the last request
		err     string
	}{
		{"followed", probe.Spec{}, map[string]reply{"service.test/job": redirect(302, "/a"), "service.test/a": redirect(308, "b"), "service.test/b": {200, `1`, nil}}, "GET service.test/b", "k", ""},
		{"for ever", probe.Spec{}, map[string]reply{"service.test/job": redirect(302, "/job")}, "GET service.test/job", "k", "redirects more than 5 times"},
		{"one too many", probe.Spec{MaxRedirects: 1}, map[string]reply{"service.test/job": redirect(301, "/a"), "service.test/a": redirect(301, "/b")}, "GET service.test/a", "k", "redirects more than 1 times"},
		{"to another host", probe.Spec{}, map[string]reply{"service.test/job": redirect(302, "http://other.test/a"), "other.test/a": {200, `1`, nil}}, "GET other.test/a", "", ""},
		{"there and back", probe.Spec{}, map[string]reply{"service.test/job": redirect(302, "http://other.test/a"), "other.test/a": redirect(302, "http://service.test/b"), "service.test/b": {200, ``, nil}}, "GET service.test/b", "", ""},
		{"another port", probe.Spec{}, map[string]reply{"service.test/job": redirect(302, "http://service.test:81/a"), "service.test:81/a": {200, ``, nil}}, "GET service.test:81/a", "", ""},
		{"a POST that becomes a GET", probe.Spec{Method: "POST", Body: "b"}, map[string]reply{"service.test/job": redirect(302, "/a"), "service.test/a": {200, ``, nil}}, "GET service.test/a", "k", ""},
		{"a POST that stays one", probe.Spec{Method: "POST", Body: "b"}, map[string]reply{"service.test/job": redirect(307, "/a"), "service.test/a": {200, ``, nil}}, "POST service.test/a", "kb", ""},
		{"a POST to another host", probe.Spec{Method: "POST", Body: "b"}, map[string]reply{"service.test/job": redirect(307, "http://other.test/a")}, "POST service.test/job", "kb", "redirects a body to another host"},
		{"to a file", probe.Spec{}, map[string]reply{"service.test/job": redirect(302, "file:///etc/passwd")}, "GET service.test/job", "k", "no URL of http or https"},
		{"to nonsense", probe.Spec{}, map[string]reply{"service.test/job": redirect(302, "http://%zz")}, "GET service.test/job", "k", "no URL of http or https"},
		{"a result at another host", probe.Spec{}, map[string]reply{"service.test/job": redirect(303, "http://other.test/a"), "other.test/a": {200, `1`, nil}}, "GET other.test/a", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serve(t, func(w http.ResponseWriter, r *http.Request) {
					answer, ok := c.answers[r.Host+r.URL.Path]
					if !ok {
						t.Errorf("asked for %s%s", r.Host, r.URL.Path)
					}
					answer.write(w)
				})
				c.spec.Headers = map[string]string{"X-Key": "k"}
				_, err := newProbe(t, s, c.spec).Check(t.Context())
				if c.err == "" && err != nil {
					t.Fatal(err)
				}
				if c.err != "" {
					e, ok := errors.AsType[*probe.RedirectError](err)
					if outcome, _ := wait.Judge(err); !ok || !strings.Contains(e.Reason, c.err) || outcome != wait.Transient {
						t.Errorf("%v, want a RedirectError with %q", err, c.err)
					}
				}
				r, body := s.last()
				if got := r.Method + " " + r.Host + r.URL.Path; got != c.last || r.Header.Get("X-Key")+body != c.carried {
					t.Errorf("the last request is %s with %q, want %s with %q", got, r.Header.Get("X-Key")+body, c.last, c.carried)
				}
				if r.Header.Get("Referer") != "" {
					t.Error("the redirect tells where it comes from")
				}
			})
		})
	}
}

// What others give does not reach into the network, by redirects neither, and
// its sender does not learn what is there.
func TestGuard(t *testing.T) {
	var log bytes.Buffer
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the service was reached") }))
	defer s.Close()
	p, err := probe.New(probe.Spec{URL: s.URL}, probe.Guard())
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Check(t.Context())
	if outcome, _ := wait.Judge(err); outcome != wait.Failed || !strings.HasSuffix(err.Error(), "may not be reached from here") || strings.Contains(err.Error(), "loopback") {
		t.Errorf("%v, %v", outcome, err)
	}
	if !strings.Contains(log.String(), "loopback") {
		t.Errorf("the log does not say why: %s", log.String())
	}

	inner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", s.URL)
		w.WriteHeader(303)
	}))
	defer inner.Close()
	here := netip.MustParsePrefix("127.0.0.1/32")
	if p, err = probe.New(probe.Spec{URL: inner.URL}, probe.Guard(here)); err != nil {
		t.Fatal(err)
	}
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "http://user@10.0.0.1/")
		w.WriteHeader(302)
	})
	if _, err = p.Check(t.Context()); err == nil || !strings.HasSuffix(err.Error(), "may not be reached from here") {
		t.Errorf("behind a redirect: %v", err)
	}

	_, err = probe.New(probe.Spec{URL: "http://user:pw@example.org/"}, probe.Guard())
	wantInvalid(t, err, "url")

	t.Setenv("PROBE_TEST_SECRET", "hunter22")
	referring := probe.Spec{URL: inner.URL, Headers: map[string]string{"X-Key": "${env:PROBE_TEST_SECRET}"}}
	_, err = probe.New(referring, probe.Guard(here))
	wantInvalid(t, err, "headers.X-Key")
	if _, err = probe.New(referring, probe.Guard(here), probe.Environ(func(string) (string, bool) { return "shown", true })); err != nil {
		t.Error(err)
	}
}

func wantInvalid(t *testing.T, err error, field string) {
	t.Helper()
	if e, ok := errors.AsType[*bide.InvalidError](err); !ok || e.Field != field {
		t.Errorf("%v, want an InvalidError of %s", err, fmt.Sprintf("%q", field))
	}
}
