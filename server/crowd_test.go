package server_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/server"
)

// beReaders opens so many connections, makes a request on each, and writes for each
// when the end of the run was seen.
func beReaders(count, address, request string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	ends := make(chan string, n)
	for range n {
		conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", address)
		if err != nil {
			return err
		}
		if _, err := io.WriteString(conn, waiting[request]); err != nil {
			return err
		}
		go func() {
			var all []byte
			for buf := make([]byte, 4<<10); !bytes.Contains(all, []byte(`"state":"terminated"`)); {
				n, err := conn.Read(buf)
				if err != nil {
					ends <- err.Error()
					return
				}
				all = append(all, buf[:n]...)
			}
			ends <- strconv.FormatInt(time.Now().UnixNano(), 10)
		}()
	}
	for range n {
		fmt.Println(<-ends)
	}
	return nil
}

var waiting = map[string]string{
	"sse":      "GET /v1/runs/r/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n",
	"longpoll": "GET /v1/runs/r?wait=60 HTTP/1.1\r\nHost: localhost\r\n\r\n",
}

// crowd lets n clients, in a process of their own, wait for a run and ends it. It
// returns the bytes that each of them costs the server, and when each saw the end.
func crowd(tb testing.TB, n int, request string) (each int, seen []time.Duration) {
	tb.Helper()
	store := openStore(tb)
	if _, err := store.Create(tb.Context(), []bide.NewRun{{ID: "r", Workflow: "w", Queue: "q", Input: []byte("1")}}); err != nil {
		tb.Fatal(err)
	}
	srv, stop := start(tb, store, server.Config{})
	before := inUse()
	address := strings.TrimPrefix(srv.URL(), "http://")
	cmd, out := process(tb, "readers", strconv.Itoa(n), address, request)
	for held := fmt.Sprintf(`"waiters":%d}`, n); ; {
		if _, body := ask(tb, "GET", srv.URL()+"/v1/status", ""); strings.Contains(body, held) {
			break
		}
	}
	for last := uint64(0); ; { // until each has its stream, or waits
		if now := inUse(); now >= last-last/200 && now <= last+last/200 {
			each = int(now-before) / n
			break
		} else {
			last = now
		}
	}
	began := time.Now()
	if err := store.Control(tb.Context(), "r", bide.Command{Op: bide.OpTerminate}); err != nil {
		tb.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		at, err := strconv.ParseInt(lines.Text(), 10, 64)
		if err != nil {
			tb.Fatal(lines.Text())
		}
		seen = append(seen, time.Unix(0, at).Sub(began))
	}
	if err := cmd.Wait(); err != nil {
		tb.Fatal(err)
	}
	if err := stop(); err != nil {
		tb.Fatal(err)
	}
	slices.Sort(seen)
	return each, seen
}

func inUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// BenchmarkCrowd is how long 5,000 who wait for one run wait for its end, and what
// they cost.
func BenchmarkCrowd(b *testing.B) {
	for name := range waiting {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				each, seen := crowd(b, 5000, name)
				b.ReportMetric(float64(each), "B/reader")
				b.ReportMetric(float64(seen[len(seen)*99/100].Milliseconds()), "p99-ms")
				b.ReportMetric(float64(seen[len(seen)-1].Milliseconds()), "max-ms")
			}
		})
	}
}

// A crowd is told, all of it and soon, and costs little. How soon is for the benchmark
// to say: here the bound is one that a busy machine keeps, too.
func TestCrowd(t *testing.T) {
	n, soon := 1000, 2*time.Second
	if raced {
		n = 50
	}
	for name := range waiting {
		each, seen := crowd(t, n, name)
		if len(seen) != n || each > 20<<10 && !raced {
			t.Errorf("%s: %d were told, %d bytes each", name, len(seen), each)
		}
		if len(seen) == 0 {
			continue
		}
		p99 := seen[len(seen)*99/100]
		t.Logf("%s: of %d readers 99 %% were told in %v, all in %v; %d bytes each", name, n, p99, seen[len(seen)-1], each)
		if p99 > soon && !raced {
			t.Errorf("%s: p99 %v, want less than %v", name, p99, soon)
		}
	}
}
