package api

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/sqlite"
)

// quiet is a connection in memory whose client costs nothing: what the server
// writes is looked through for a text, and not kept.
type quiet struct {
	request []byte
	read    atomic.Bool
	gone    chan struct{}
	wants   []byte
	seen    func()
	tail    []byte
}

func (q *quiet) Read(p []byte) (int, error) {
	if q.read.CompareAndSwap(false, true) {
		return copy(p, q.request), nil
	}
	<-q.gone
	return 0, net.ErrClosed
}

func (q *quiet) Write(p []byte) (int, error) {
	if q.seen != nil && bytes.Contains(append(q.tail, p...), q.wants) {
		q.seen()
		q.seen = nil
	}
	q.tail = append(q.tail[:0], p[max(len(p)-len(q.wants), 0):]...)
	return len(p), nil
}

func (q *quiet) Close() error {
	select {
	case <-q.gone:
	default:
		close(q.gone)
	}
	return nil
}

func (*quiet) LocalAddr() net.Addr              { return &net.UnixAddr{} }
func (*quiet) RemoteAddr() net.Addr             { return &net.UnixAddr{} }
func (*quiet) SetDeadline(time.Time) error      { return nil }
func (*quiet) SetReadDeadline(time.Time) error  { return nil }
func (*quiet) SetWriteDeadline(time.Time) error { return nil }

// crowd lets n requests wait for a run and ends it. It returns the bytes that each
// of them costs the server, and when each saw the end.
func crowd(tb testing.TB, n int, request string) (each int, seen []time.Duration) {
	tb.Helper()
	store, err := sqlite.Open(":memory:")
	if err != nil {
		tb.Fatal(err)
	}
	defer store.Close()
	ctx := context.Background()
	if _, err := store.Create(ctx, []bide.NewRun{{ID: "r", Workflow: "w", Queue: "q", Input: []byte("1")}}); err != nil {
		tb.Fatal(err)
	}
	h := NewHandler(store, Config{Logger: slog.New(slog.DiscardHandler)})
	listener := &pipes{make(chan net.Conn), make(chan struct{})}
	server := &http.Server{Handler: h}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	before := inUse()
	var began time.Time
	var mu sync.Mutex
	var all sync.WaitGroup
	for range n {
		q := &quiet{request: []byte(request), gone: make(chan struct{}), wants: []byte(`"state":"terminated"`)}
		all.Add(1)
		q.seen = func() {
			mu.Lock()
			seen = append(seen, time.Since(began))
			mu.Unlock()
			all.Done()
		}
		listener.conns <- q
	}
	for !settled(h, n) {
		runtime.Gosched()
	}
	each = int(inUse()-before) / n
	began = time.Now()
	if err := store.Control(ctx, "r", bide.Command{Op: bide.OpTerminate}); err != nil {
		tb.Fatal(err)
	}
	all.Wait()
	slices.Sort(seen)
	return each, seen
}

// settled reports whether n readers wait for news of the run.
func settled(h *Handler, n int) bool {
	h.feeds.mu.Lock()
	f := h.feeds.feeds["r"]
	h.feeds.mu.Unlock()
	if f == nil || len(f.poke) > 0 {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	waiting := 0
	for ch := range f.subs {
		waiting += 1 - len(ch)
	}
	return waiting == n && f.begun == f.ended
}

func inUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

var waiting = map[string]string{
	"sse":      "GET /v1/runs/r/events HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n",
	"longpoll": "GET /v1/runs/r?wait=60 HTTP/1.1\r\nHost: h\r\n\r\n",
}

// BenchmarkCrowd is how long 5,000 who wait for one run wait for its end, and what
// they cost.
func BenchmarkCrowd(b *testing.B) {
	for name, request := range waiting {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				each, seen := crowd(b, 5000, request)
				b.ReportMetric(float64(each), "B/reader")
				b.ReportMetric(float64(seen[len(seen)*99/100].Milliseconds()), "p99-ms")
				b.ReportMetric(float64(seen[len(seen)-1].Milliseconds()), "max-ms")
			}
		})
	}
}

// A crowd is told, all of it, and costs little.
func TestCrowd(t *testing.T) {
	for name, request := range waiting {
		each, seen := crowd(t, 1000, request)
		if len(seen) != 1000 || each > 32<<10 && !raced {
			t.Errorf("%s: %d were told, %d bytes each", name, len(seen), each)
		}
		t.Logf("%s: %d bytes each, p99 %v", name, each, seen[990])
	}
}
