package probe_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/probe"
	"github.com/bide-dev/bide/sqlite"
)

// service is an HTTP server on connections in memory, so that a bubble of virtual
// time holds both ends. Every host name is its own.
type service struct {
	accept chan net.Conn
	closed chan struct{}
	server *http.Server

	mu       sync.Mutex
	requests []*http.Request // as they came, their bodies read
	bodies   []string
}

func serve(t *testing.T, handler http.HandlerFunc) *service {
	t.Helper()
	s := &service{accept: make(chan net.Conn), closed: make(chan struct{})}
	s.server = &http.Server{ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.requests, s.bodies = append(s.requests, r), append(s.bodies, string(body))
		s.mu.Unlock()
		handler(w, r)
	})}
	go func() { _ = s.server.Serve(s) }()
	t.Cleanup(func() { _ = s.server.Close() })
	return s
}

// Accept implements [net.Listener].
func (s *service) Accept() (net.Conn, error) {
	select {
	case c := <-s.accept:
		return c, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (s *service) Close() error { close(s.closed); return nil }

// Addr implements [net.Listener].
func (s *service) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

func (s *service) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case s.accept <- there:
		return here, nil
	case <-s.closed:
		return nil, errors.New("the service is down")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// transport reaches the service; https is spoken without encryption.
func (s *service) transport(t *testing.T) probe.Option {
	tr := &http.Transport{DialContext: s.dial, DialTLSContext: s.dial}
	t.Cleanup(tr.CloseIdleConnections)
	return probe.Transport(tr)
}

func (s *service) last() (*http.Request, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[len(s.requests)-1], s.bodies[len(s.bodies)-1]
}

func (s *service) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

// reply is an answer of a scripted service.
type reply struct {
	status int
	body   string
	header map[string]string
}

func (a reply) write(w http.ResponseWriter) {
	for name, value := range a.header {
		w.Header().Set(name, value)
	}
	if a.header["Content-Type"] == "" && a.body != "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, a.body)
}

// always answers each request alike.
func always(a reply) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { a.write(w) }
}

const serviceURL = "http://service.test/job"

func newProbe(t *testing.T, s *service, spec probe.Spec, opts ...probe.Option) *probe.Probe {
	t.Helper()
	if spec.URL == "" {
		spec.URL = serviceURL
	}
	p, err := probe.New(spec, append([]probe.Option{s.transport(t)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// polled runs a poll of the service in virtual time, as a workflow, until it ends.
func polled(t *testing.T, handler http.HandlerFunc, spec probe.Spec, opts ...bide.PollOption) (o probe.Observation, checks []bide.Check, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newProbe(t, serve(t, handler), spec)
		store, serr := sqlite.Open(":memory:")
		if serr != nil {
			t.Fatal(serr)
		}
		defer store.Close()
		w := bide.Define("polls", func(ctx bide.Context, _ int) (probe.Observation, error) {
			return p.Poll(ctx, "job", append(opts, bide.OnCheck(func(c bide.Check) { checks = append(checks, c) }))...)
		})
		// Parking each time, so that every check goes by what was kept.
		worker := bide.NewWorker(store, bide.WorkerConfig{MaxWarm: -1, Seed: 1, Logger: slog.New(slog.DiscardHandler)})
		worker.Register(w)
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan error)
		go func() { stopped <- worker.Run(ctx) }()
		run, serr := w.Start(ctx, bide.NewClient(store), 0)
		if serr != nil {
			t.Fatal(serr)
		}
		o, err = run.Result(ctx)
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	return o, checks, err
}

func outcomes(checks []bide.Check) string {
	s := ""
	for _, c := range checks {
		s += fmt.Sprintf("%v@%v ", c.Outcome, c.StartedAt.Sub(checks[0].StartedAt).Round(time.Millisecond))
	}
	return s
}
