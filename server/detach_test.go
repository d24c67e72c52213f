package server_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/server"
)

// reply is an answer as it came over a connection.
type reply struct {
	status         int
	header         http.Header
	close, chunked bool
	body           string
}

// exchange sends requests on a connection and reads an answer.
func exchange(t *testing.T, conn net.Conn, r *bufio.Reader, requests string) reply {
	t.Helper()
	if _, err := io.WriteString(conn, requests); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, resp.Close, len(resp.TransferEncoding) > 0, string(body)}
}

// A connection on which an answer was held serves further requests, if the client
// can have them: what it has sent before it had its answer, it sends again.
func TestHeldConnectionIsKept(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := serve(t, dir, server.Config{})
		defer b.close()
		run := waitingRun(t, b.store)
		plain := "GET /v1/runs/" + run + " HTTP/1.1\r\nHost: localhost\r\n\r\n"
		wait := "GET /v1/runs/" + run + "?wait=7 HTTP/1.1\r\nHost: localhost\r\n"
		for name, c := range map[string]struct {
			then string
			kept bool
		}{
			"":          {"\r\n", true},
			"close":     {"Connection: close\r\n\r\n", false},
			"pipelined": {"\r\n" + plain, false},
		} {
			conn, err := b.pipes.dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			r := bufio.NewReader(conn)
			for range 2 { // as a new connection, and as one that was handed back
				began := time.Now()
				got := exchange(t, conn, r, wait+"\r\n")
				if took := time.Since(began); got.status != 200 || got.close || !strings.Contains(got.body, run) || took != 7*time.Second ||
					got.header.Get("X-Content-Type-Options") != "nosniff" || got.header.Get("Date") == "" {
					t.Errorf("%s: after %v %+v", name, took, got)
				}
				time.Sleep(5 * time.Second)
			}
			if got := exchange(t, conn, r, wait+c.then); got.status != 200 || got.close == c.kept {
				t.Errorf("%s: %+v", name, got)
			}
			if !c.kept {
				if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
					t.Errorf("%s: %v", name, err)
				}
			} else if got := exchange(t, conn, r, plain); got.status != 200 || !strings.Contains(got.body, run) {
				t.Errorf("%s: %+v", name, got)
			}
			_ = conn.Close()
		}
		none := strings.Replace(wait, run, "none", 1)
		if got := b.exchange(none + "\r\n"); got.status != 404 || !strings.Contains(got.body, "not-found") {
			t.Errorf("%+v", got)
		}
		if n := b.metric("bide_http_requests_total", `code="200"`, `route="GET /v1/runs/{id}"`); n != 10 {
			t.Errorf("%v requests were counted", n)
		}
		if n := b.metric("bide_http_requests_total", `code="404"`); n != 1 {
			t.Errorf("%v were counted that found nothing", n)
		}
	})
}

// A client that speaks HTTP/1.0 knows no chunks.
func TestOldClient(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := serve(t, dir, server.Config{})
		defer b.close()
		run := waitingRun(t, b.store)
		go func() {
			time.Sleep(time.Second)
			if err := bide.NewClient(b.store).Terminate(context.Background(), run, ""); err != nil {
				t.Error(err)
			}
		}()
		got := b.exchange("GET /v1/runs/" + run + "/events HTTP/1.0\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
		if got.chunked || !strings.Contains(got.body, "event: end") {
			t.Errorf("%+v", got)
		}
	})
}

// Who leaves is not told, nor counted any more.
func TestReaderLeaves(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := serve(t, dir, server.Config{})
		defer b.close()
		run := waitingRun(t, b.store)
		for _, target := range []string{"/events", "?wait=60"} {
			conn, err := b.pipes.dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Fprintf(conn, "GET /v1/runs/%s%s HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n", run, target); err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = io.Copy(io.Discard, conn) }()
			synctest.Wait()
			if n := b.waiters(); n != "1" {
				t.Errorf("%s: %s wait", target, n)
			}
			_ = conn.Close()
			synctest.Wait()
			if n := b.waiters(); n != "0" {
				t.Errorf("%s: %s wait after it was left", target, n)
			}
			if n := b.metric("bide_http_streams"); n != 0 {
				t.Errorf("%s: %v streams are open", target, n)
			}
		}
	})
}

// exchange makes a request on a connection of its own.
func (b *bubble) exchange(request string) reply {
	b.Helper()
	conn, err := b.pipes.dial(b.Context(), "", "")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	return exchange(b.T, conn, bufio.NewReader(conn), request)
}

// waiters is how many requests are held.
func (b *bubble) waiters() string {
	b.Helper()
	got := b.exchange("GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	_, n, _ := strings.Cut(got.body, `"waiters":`)
	return strings.TrimSuffix(n, "}")
}

// With TLS it is the same.
func TestHeldOverTLS(t *testing.T) {
	cert, key := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	trust := certificate(t, cert, key)
	trust.NextProtos = []string{"http/1.1"}
	store := openStore(t)
	run := waitingRun(t, store)
	srv, _ := start(t, store, server.Config{TLSCert: cert, TLSKey: key})
	conn, err := (&tls.Dialer{Config: trust}).DialContext(t.Context(), "tcp", strings.TrimPrefix(srv.URL(), "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	r := bufio.NewReader(conn)
	for range 3 {
		got := exchange(t, conn, r, "GET /v1/runs/"+run+"?wait=1 HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: \"v1\"\r\n\r\n")
		if got.status != 200 || got.close || !strings.Contains(got.body, run) {
			t.Errorf("%+v", got)
		}
	}
	if err := bide.NewClient(store).Terminate(t.Context(), run, ""); err != nil {
		t.Fatal(err)
	}
	got := exchange(t, conn, r, "GET /v1/runs/"+run+"/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
	if got.status != 200 || !strings.Contains(got.body, "event: end") {
		t.Errorf("%+v", got)
	}
}
