package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/sqlite"
)

// site is a server in a bubble of virtual time, with a client of its own.
type site struct {
	*testing.T
	store  bide.Store
	h      *Handler
	server *http.Server
	http   *http.Client
}

// pipes is a listener whose connections are in memory: a socket would let real
// time into the bubble.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }
func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func inBubble(t *testing.T, fn func(*site)) { inBubbleWith(t, Config{}, fn) }

func inBubbleWith(t *testing.T, cfg Config, fn func(*site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store, err := sqlite.Open(":memory:")
		if err != nil {
			t.Fatal(err)
		}
		s := serve(t, store, cfg)
		t.Cleanup(func() { store.Close() })
		fn(s)
	})
}

// serve serves a store; limit, if given, is the server's for reading and writing.
func serve(t *testing.T, store bide.Store, cfg Config, limit ...time.Duration) *site {
	cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	h := NewHandler(store, cfg)
	listener := &pipes{make(chan net.Conn), make(chan struct{})}
	s := &site{T: t, store: store, h: h, server: &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelError)}}
	if len(limit) > 0 {
		s.server.ReadTimeout, s.server.WriteTimeout = limit[0], limit[0]
	}
	transport := &http.Transport{DialContext: listener.dial, DisableCompression: true}
	s.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	served := make(chan error, 1)
	go func() { served <- s.server.Serve(listener) }()
	t.Cleanup(func() {
		_ = s.server.Close()
		transport.CloseIdleConnections()
		time.Sleep(time.Second) // a connection that was refused its body lingers
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return s
}

// work sets a worker to work until the test ends or it is stopped.
func (s *site) work(defs ...bide.Definition) (stop func()) {
	w := bide.NewWorker(s.store, bide.WorkerConfig{Logger: slog.New(slog.DiscardHandler), PublicURL: "https://bide.test"})
	w.Register(defs...)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			s.Error(err)
		}
	}
	s.Cleanup(stop)
	return stop
}

// after does something while the test waits; the test ends after it.
func (s *site) after(d time.Duration, fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		time.Sleep(d)
		fn()
	}()
	s.Cleanup(func() { <-done })
}

// answer is what came back.
type answer struct {
	*site
	status int
	header http.Header
	body   []byte
}

// call makes a request and has it judged by openapi.yaml. Headers are "Name: value".
func (s *site) call(method, path, body string, headers ...string) *answer {
	s.Helper()
	req := s.request(method, path, body, headers...)
	resp, err := s.http.Do(req)
	if err != nil {
		s.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatalf("%s %s: %v", method, path, err)
	}
	s.judge(req, body, resp, got)
	return &answer{s, resp.StatusCode, resp.Header, got}
}

func (s *site) judge(req *http.Request, sent string, resp *http.Response, got []byte) {
	s.Helper()
	_, pattern := s.h.mux.Handler(req)
	if req.Method == http.MethodHead {
		pattern = strings.Replace(pattern, "HEAD", "GET", 1)
	}
	if err := theSpec().judge(pattern, req, []byte(sent), resp, got); err != nil {
		s.Error(err)
	}
}

func (s *site) request(method, path, body string, headers ...string) *http.Request {
	s.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, "http://bide.test"+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		if req.Header.Get(name) != "" && name != "Content-Type" {
			req.Header.Add(name, value)
		} else {
			req.Header.Set(name, value)
		}
	}
	return req
}

// want checks the status, and that the body has each of the texts in it.
func (a *answer) want(status int, texts ...string) *answer {
	a.Helper()
	if a.status != status {
		a.Errorf("got %d, want %d: %s", a.status, status, a.body)
	}
	for _, text := range texts {
		if !bytes.Contains(a.body, []byte(text)) {
			a.Errorf("%q is not in: %s", text, a.body)
		}
	}
	return a
}

// refused checks a problem.
func (a *answer) refused(status int, code string, texts ...string) *answer {
	a.Helper()
	a.want(status, append(texts, `"code":"`+code+`"`)...)
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		a.Errorf("Content-Type %q", got)
	}
	return a
}

// told is a run as an answer tells it.
type toldRun struct {
	ID       string           `json:"id"`
	State    string           `json:"state"`
	Version  int64            `json:"version"`
	NextPoll *int64           `json:"next_poll_ms"`
	ETA      *time.Time       `json:"eta"`
	Attempt  int              `json:"attempt"`
	Result   json.RawMessage  `json:"result"`
	Input    json.RawMessage  `json:"input"`
	Error    *problem         `json:"error"`
	By       string           `json:"completed_by"`
	Waiting  []map[string]any `json:"waiting"`
	Gap      bool             `json:"gap"`
	Links    links            `json:"links"`
	Progress *struct {
		Percent float64
		Message string
	}
}

func (a *answer) run() (r toldRun) {
	a.Helper()
	a.into(&r)
	return r
}

func (a *answer) into(v any) {
	a.Helper()
	if err := json.Unmarshal(a.body, v); err != nil {
		a.Fatalf("%v: %s", err, a.body)
	}
}

func (a *answer) head(name, want string) *answer {
	a.Helper()
	if got := a.header.Get(name); got != want {
		a.Errorf("header %s: %q, want %q", name, got, want)
	}
	return a
}

// event is one server-sent event.
type event struct{ id, name, data string }

// listener is the client's end of a stream.
type listener struct {
	*site
	resp   *http.Response
	lines  *bufio.Scanner
	cancel context.CancelFunc
	retry  string
	beats  int
}

func (s *site) listen(path string, headers ...string) *listener {
	s.Helper()
	req := s.request("GET", path, "", append(headers, "Accept: text/event-stream")...)
	ctx, cancel := context.WithCancel(req.Context())
	resp, err := s.http.Do(req.WithContext(ctx))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { cancel(); resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		got, _ := io.ReadAll(resp.Body)
		s.judge(req, "", resp, got)
	} else {
		s.judge(req, "", resp, nil)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 8<<20)
	return &listener{site: s, resp: resp, lines: lines, cancel: cancel}
}

// next is the next event; name "" when the stream is over.
func (l *listener) next() (e event) {
	l.Helper()
	for l.lines.Scan() {
		line := l.lines.Text()
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "" && e.name != "":
			l.valid(e)
			return e
		case line == "" || line == ":":
			l.beats++
		case name == "retry":
			l.retry = value
		case name == "id":
			e.id = value
		case name == "event":
			e.name = value
		case name == "data":
			e.data = value
		}
	}
	return event{}
}

// valid judges an event by the schema that is for it.
func (l *listener) valid(e event) {
	l.Helper()
	schema := map[string]string{"snapshot": "Run", "state": "Run", "progress": "ProgressEvent", "message": "MessageEvent", "gone": "Gone",
		"chunk": "Chunk", "segment": "Segment", "end": "Run"}[e.name]
	if e.name == "end" && !strings.Contains(e.data, `"id"`) {
		schema = "StreamEnd"
	}
	if schema == "" {
		if e.data != "{}" {
			l.Errorf("event %s: %s", e.name, e.data)
		}
		return
	}
	if err := theSpec().valid(theSpec().named(schema), []byte(e.data)); err != nil {
		l.Errorf("event %s: %s: %v", e.name, e.data, err)
	}
}

func (e event) run(t *testing.T) (r toldRun) {
	t.Helper()
	if err := json.Unmarshal([]byte(e.data), &r); err != nil {
		t.Fatalf("event %s: %v: %s", e.name, err, e.data)
	}
	return r
}

// upTo reads events to the one of the name.
func (l *listener) upTo(name string) (all []event) {
	l.Helper()
	for {
		e := l.next()
		if e.name == "" {
			l.Fatalf("the stream is over without %s: %v", name, all)
		}
		if all = append(all, e); e.name == name {
			return all
		}
	}
}
