package bide_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/wait"
)

// answer is one line of a [service]'s script. The zero answer is 200 without a body.
type answer struct {
	status int // default 200
	header map[string]string
	body   string
	size   int64         // of filler after the body, in bytes
	delay  time.Duration // before it
	hang   bool          // it never comes
}

// request is what a [service] was asked.
type request struct {
	at     time.Duration // since the service began
	method string
	path   string
	header http.Header
}

// service is an HTTP service that answers by a script, line by line; the last line
// goes on for ever. It lives in memory, so that time is virtual: its connections
// are pipes. The listener's and client's own machinery is that of net/http.
type service struct {
	client *http.Client
	url    string

	mu     sync.Mutex
	began  time.Time
	script []answer
	asked  []request
	sent   int64 // bytes of filler that went out
	pipes  chan net.Conn
	closed chan struct{}
}

// serve sets a service up, in the bubble that it is called in. It ends with the test.
func serve(t testing.TB, script ...answer) *service {
	s := &service{url: "http://service.example", began: time.Now(), script: script, pipes: make(chan net.Conn), closed: make(chan struct{})}
	transport := &http.Transport{DialContext: s.dial}
	s.client = &http.Client{Transport: transport}
	server := &http.Server{Handler: s, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(s) }()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = server.Close()
		<-done
	})
	return s
}

func (s *service) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case s.pipes <- far:
		return near, nil
	case <-s.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements [net.Listener].
func (s *service) Accept() (net.Conn, error) {
	select {
	case c := <-s.pipes:
		return c, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (s *service) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
	return nil
}

// Addr implements [net.Listener].
func (s *service) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }

// ServeHTTP answers with the next line of the script.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	a := s.script[min(len(s.asked), len(s.script)-1)]
	s.asked = append(s.asked, request{time.Since(s.began), r.Method, r.URL.Path, r.Header.Clone()})
	s.mu.Unlock()
	timer := time.NewTimer(a.delay)
	defer timer.Stop()
	if a.hang {
		timer.Stop()
	}
	select {
	case <-timer.C:
	case <-r.Context().Done():
		return
	}
	for k, v := range a.header {
		w.Header()[http.CanonicalHeaderKey(k)] = []string{v}
	}
	w.WriteHeader(max(a.status, 200))
	_, err := io.WriteString(w, a.body)
	filler := make([]byte, 64<<10)
	for left := a.size; left > 0 && err == nil; {
		n := 0
		n, err = w.Write(filler[:min(left, int64(len(filler)))])
		left -= int64(n)
		s.mu.Lock()
		s.sent += int64(n)
		s.mu.Unlock()
	}
}

// requests returns what the service was asked so far.
func (s *service) requests() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// at returns when the service was asked.
func (s *service) at() []time.Duration {
	var at []time.Duration
	for _, r := range s.requests() {
		at = append(at, r.at)
	}
	return at
}

var errTooMuch = errors.New("the answer is too long")

const mostBody = 1 << 20

// ask is a check as a careful client makes it: conditional, of limited length, and
// with what the server says observed. Its value is the body.
func (s *service) ask(ctx context.Context) (string, error) {
	return s.do(ctx, http.MethodGet, "/job")
}

func (s *service) do(ctx context.Context, method, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, nil)
	if err != nil {
		return "", err
	}
	last := bide.LastObservation(ctx)
	if last.ETag != "" {
		req.Header.Set("If-None-Match", last.ETag)
	}
	if last.LastModified != "" {
		req.Header.Set("If-Modified-Since", last.LastModified)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if err := wait.CheckResponse(resp); err != nil {
		return "", err
	}
	if err := bide.Observe(ctx, bide.Observation{Hint: wait.ParseHint(resp.StatusCode, resp.Header, time.Now()),
		Unchanged: resp.StatusCode == http.StatusNotModified, ETag: resp.Header.Get("ETag"), LastModified: resp.Header.Get("Last-Modified")}); err != nil {
		return "", err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostBody+1))
	if len(body) > mostBody {
		return "", errTooMuch
	}
	return string(body), err
}

// isDone is what the tests' polls wait for.
func isDone(body string) bool { return body == "done" }

// asking is a poll of a scripted service that has ended.
type asking struct {
	*env
	*service
	id     string
	got    string
	err    error
	record bide.Record // of the poll, its last
	checks []bide.Check
}

// poll runs a poll of a service with the script twice: in memory all the time,
// and parked between any two checks, so that each goes by what was kept. Both must
// be as the test says.
func poll(t *testing.T, script []answer, opts []bide.PollOption, look func(*asking)) {
	t.Helper()
	for name, warm := range map[string]time.Duration{"warm": 10000 * time.Hour, "parked": 0} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(e *env) {
				a := &asking{env: e, service: serve(e.T, script...)}
				w := bide.Define("asks", func(ctx bide.Context, _ none) (string, error) {
					return bide.Poll(ctx, "job", a.ask, isDone, append([]bide.PollOption{bide.OnCheck(func(c bide.Check) { a.checks = append(a.checks, c) })}, opts...)...)
				})
				cfg := e.config()
				if cfg.WarmFor = warm; warm == 0 {
					cfg.MaxWarm = -1
				}
				e.workAs(cfg, w)
				h := start(e, w, none{})
				a.id = h.ID()
				a.got, a.err = result(e, h)
				for _, r := range e.history(a.id) {
					if r.Kind == bide.KindPoll {
						a.record = r
					}
				}
				look(a)
			})
		})
	}
}

// wantAt checks when the service was asked, in seconds.
func (a *asking) wantAt(seconds ...float64) {
	a.Helper()
	var want []time.Duration
	for _, s := range seconds {
		want = append(want, time.Duration(s*float64(time.Second)))
	}
	if got := a.at(); !slices.Equal(got, want) {
		a.Errorf("asked at %v, want %v (%v)", got, want, a.err)
	}
}

// wantDone checks that the poll came to its end.
func (a *asking) wantDone() {
	a.Helper()
	if a.got != "done" || a.err != nil {
		a.Errorf("got %q, %v", a.got, a.err)
	}
}

func exactly(opts ...bide.PollOption) []bide.PollOption { return append(opts, bide.Exact{}) }

var pending = answer{status: http.StatusAccepted}

var isThere = answer{body: "done"}

// refused is an answer of the status with a header.
func refused(status int, header ...string) answer {
	a := answer{status: status, header: map[string]string{}}
	for i := 0; i+1 < len(header); i += 2 {
		a.header[header[i]] = header[i+1]
	}
	return a
}

// TestService protects the tests that lean on the scripted service: what it
// records, and that it takes no time but what its script says.
func TestService(t *testing.T) {
	inBubble(t, func(e *env) {
		s := serve(e.T, answer{delay: 3 * time.Second, body: "a", header: map[string]string{"X-A": "b"}}, answer{hang: true})
		resp, err := s.client.Get(s.url + "/x")
		e.ok(err)
		body, err := io.ReadAll(resp.Body)
		e.ok(err)
		e.ok(resp.Body.Close())
		if string(body) != "a" || resp.Header.Get("X-A") != "b" || resp.Header.Get("Date") != time.Now().UTC().Format(http.TimeFormat) {
			e.Errorf("got %q, %v", body, resp.Header)
		}
		ctx, cancel := context.WithTimeout(e.Context(), 5*time.Second)
		defer cancel()
		if _, err := s.do(ctx, http.MethodDelete, "/y"); !errors.Is(err, context.DeadlineExceeded) {
			e.Errorf("the one that hangs gave %v", err)
		}
		got := s.requests()
		if len(got) != 2 || got[0].at != 0 || got[0].path != "/x" || got[1].at != 3*time.Second || got[1].method != http.MethodDelete || time.Since(s.began) != 8*time.Second {
			e.Errorf("it was asked %+v, and it took %v", got, time.Since(s.began))
		}
	})
}
