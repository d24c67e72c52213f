package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/server"
)

// Clients that send their requests byte by byte are cut off.
func TestSlowRequests(t *testing.T) {
	for name, head := range map[string]string{
		"header": "GET /v1/runs HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
		"body":   "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n\"",
		"unread": "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n",
		"hook":   "POST /v1/hooks/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				b := serve(t, dir, server.Config{})
				defer b.close()
				conn, err := b.pipes.dial(t.Context(), "", "")
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				go func() { _, _ = io.Copy(io.Discard, conn) }()
				if _, err = io.WriteString(conn, head); err != nil {
					t.Fatal(err)
				}
				for err == nil && time.Since(began) < time.Hour {
					time.Sleep(3 * time.Second)
					_, err = io.WriteString(conn, "x")
				}
				if took := time.Since(began); took > 40*time.Second {
					t.Errorf("a slow %s is borne for %v", name, took)
				}
			})
		})
	}
}

// The same over HTTP/2, where a connection is not cut off for one of its streams.
func TestSlowBodyHTTP2(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := serve(t, dir, server.Config{})
		defer b.close()
		client := b.client(true)
		defer client.CloseIdleConnections()
		body, drip := io.Pipe()
		stop := make(chan struct{})
		go func() {
			for range 1000 {
				select {
				case <-stop:
					return
				case <-time.After(3 * time.Second):
					if _, err := drip.Write([]byte(" ")); err != nil {
						return
					}
				}
			}
		}()
		began := time.Now()
		resp, err := client.Post("http://localhost:7433/v1/runs", "application/json", body)
		if err == nil {
			_ = resp.Body.Close()
		}
		if took := time.Since(began); took > 40*time.Second || err == nil && resp.StatusCode < 400 {
			t.Errorf("a slow body is borne for %v: %v", took, err)
		}
		close(stop)
		_ = drip.Close()
	})
}

// What bounds slow clients does not end streams, whatever the protocol.
func TestStreamsLast(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				b := serve(t, dir, server.Config{})
				defer b.close()
				client := b.client(http2)
				defer client.CloseIdleConnections()
				run := waitingRun(t, b.store)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				body := b.open(ctx, client, "/v1/runs/"+run+"/events")
				began := time.Now()
				go func() {
					time.Sleep(5 * time.Minute)
					if err := bide.NewClient(b.store).Terminate(context.Background(), run, ""); err != nil {
						t.Error(err)
					}
				}()
				events, err := io.ReadAll(body)
				if took := time.Since(began); err != nil || took < 5*time.Minute || !strings.Contains(string(events), "event: end") {
					t.Errorf("after %v: %v, %q", took, err, events)
				}
			})
		})
	}
}

// waitingRun starts a run that no worker knows.
func waitingRun(t testing.TB, store bide.Store) string {
	t.Helper()
	created, err := store.Create(t.Context(), []bide.NewRun{{Workflow: "nobody", Queue: "nowhere", Input: []byte("null")}})
	if err != nil || created[0].Err != nil {
		t.Fatal(err, created)
	}
	return created[0].ID
}

// Who does not read what it has asked for is cut off, and leaves nothing behind.
func TestDeafStream(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := serve(t, dir, server.Config{})
		defer b.close()
		run := waitingRun(t, b.store)
		conn, err := b.pipes.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := fmt.Fprintf(conn, "GET /v1/runs/%s/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n", run); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 16), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		synctest.Wait()
		if n := b.metric("bide_http_streams"); n != 1 {
			t.Errorf("%v streams are open", n)
		}
		time.Sleep(time.Minute)
		if n := b.metric("bide_http_streams"); n != 0 {
			t.Errorf("%v streams are open after a minute that nobody reads", n)
		}
	})
}

func TestTooLarge(t *testing.T) {
	srv, _ := start(t, openStore(t), server.Config{})
	for _, target := range []string{"/v1/runs", "/v1/hooks/x"} {
		for name, framing := range map[string]string{"announced": "Content-Length: 8388608", "chunked": "Transfer-Encoding: chunked"} {
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(srv.URL(), "http://"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%s\r\n\r\n", target, framing); err != nil {
				t.Fatal(err)
			}
			if name == "chunked" {
				chunk := fmt.Sprintf("%x\r\n%s\r\n", 64<<10, strings.Repeat(" ", 64<<10))
				go func() {
					for range 128 { // until it is cut off
						if _, err := io.WriteString(conn, chunk); err != nil {
							return
						}
					}
				}()
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			var body [1 << 10]byte
			n, _ := io.ReadFull(resp.Body, body[:])
			_ = resp.Body.Close()
			_ = conn.Close()
			if target == "/v1/hooks/x" && name == "chunked" { // what is sent to an unknown token is not read
				continue
			}
			if resp.StatusCode != 413 || !strings.Contains(string(body[:n]), "payload-too-large") {
				t.Errorf("%s, %s: %s %s", target, name, resp.Status, body[:n])
			}
		}
	}
	if resp, _ := ask(t, "GET", srv.URL()+"/healthz", "", "X-Large", strings.Repeat("x", 64<<10)); resp.StatusCode != 431 {
		t.Errorf("a large header: %s", resp.Status)
	}
}

// Who waits is told when the server stops, and what is under way ends.
func TestGracefulShutdown(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := serve(t, dir, server.Config{})
		defer b.close()
		stepping, finish := make(chan struct{}), make(chan struct{})
		slow := bide.Define("slow", func(ctx bide.Context, _ string) (string, error) {
			return bide.Step(ctx, "work", func(context.Context) (string, error) {
				close(stepping)
				<-finish
				return "done", nil
			})
		})
		work, stopWork := context.WithCancel(t.Context())
		worked := make(chan error, 1)
		worker := bide.NewWorker(b.srv.Store(), bide.WorkerConfig{})
		worker.Register(slow)
		go func() { worked <- worker.Run(work) }()
		handle, err := slow.Start(t.Context(), bide.NewClient(b.store), "x", bide.ID("r"))
		if err != nil {
			t.Fatal(err)
		}
		<-stepping
		run := waitingRun(t, b.store)
		type answer struct {
			text string
			err  error
			took time.Duration
		}
		began := time.Now()
		events, polls := make(chan answer, 1), make(chan answer, 1)
		streaming, polling := b.client(false), b.client(true)
		defer polling.CloseIdleConnections()
		stream := b.open(t.Context(), streaming, "/v1/runs/"+run+"/events")
		go func() {
			text, err := io.ReadAll(stream)
			events <- answer{string(text), err, time.Since(began)}
		}()
		go func() {
			resp, err := polling.Get("http://localhost:7433/v1/runs/" + run + "?wait=60")
			if err != nil {
				polls <- answer{err: err}
				return
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			polls <- answer{resp.Status + " " + string(text), err, time.Since(began)}
		}()
		time.Sleep(5 * time.Second)
		stopWork()
		go func() { time.Sleep(time.Second); close(finish) }()
		if err := b.stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("stopped after %v", took)
		}
		if err := <-worked; err != nil {
			t.Error(err)
		}
		if e := <-events; e.err != nil || !strings.Contains(e.text, "event: closing") || !strings.Contains(e.text, "retry: ") || e.took > 7*time.Second {
			t.Errorf("the stream: %+v", e)
		}
		if p := <-polls; p.err != nil || !strings.HasPrefix(p.text, "200 ") || !strings.Contains(p.text, run) || p.took > 7*time.Second {
			t.Errorf("the poll: %+v", p)
		}
		if got, err := handle.Get(t.Context()); err != nil || got.State != bide.Succeeded {
			t.Errorf("the turn: %+v %v", got.State, err)
		}
		if _, err := b.client(false).Get("http://localhost:7433/healthz"); err == nil { //nolint:bodyclose // there is none
			t.Error("it still answers")
		}
		if _, err := b.store.Facts(t.Context(), "x"); errors.Is(err, bide.ErrClosed) {
			t.Error("the server has closed a store that is not its own")
		}
	})
}

// A handler that does not end is cut off after the grace period.
func TestUngracefulShutdown(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := serve(t, dir, server.Config{})
		conn, err := b.pipes.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := io.WriteString(conn, "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		began := time.Now()
		b.close()
		if took := time.Since(began); took > 11*time.Second {
			t.Errorf("stopped after %v", took)
		}
	})
}
