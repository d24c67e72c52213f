package server_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/server"
	"github.com/bide-dev/bide/sqlite"
)

// pipes is a loopback listener whose connections are pipes, for virtual time.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	end    func()
}

type pipe struct{ net.Conn }

var loopback = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7433}

func (pipe) LocalAddr() net.Addr  { return loopback }
func (pipe) RemoteAddr() net.Addr { return loopback }

func newPipes() *pipes {
	p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	p.end = cancel
	context.AfterFunc(ctx, func() { close(p.closed) })
	return p
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.end(); return nil }
func (p *pipes) Addr() net.Addr { return loopback }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- pipe{theirs}:
		return pipe{ours}, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// bubble is a server in virtual time.
type bubble struct {
	*testing.T
	store bide.Store
	srv   *server.Server
	pipes *pipes
	stop  func() error // ends the server, once
	ended chan error
}

// serve starts a server in a synctest bubble. The caller closes it.
func serve(t *testing.T, dir string, cfg server.Config) *bubble {
	t.Helper()
	store := openStoreIn(t, dir)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	srv, err := server.New(store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, store, srv)
}

func openStoreIn(t *testing.T, dir string) bide.Store {
	t.Helper()
	store, err := sqlite.Open(filepath.Join(dir, "bide.db"))
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func serveOn(t *testing.T, store bide.Store, srv *server.Server) *bubble {
	b := &bubble{T: t, store: store, srv: srv, pipes: newPipes(), ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { b.ended <- srv.Serve(ctx, b.pipes) }()
	b.stop = func() error {
		cancel()
		err := <-b.ended
		b.ended <- err
		return err
	}
	return b
}

func (b *bubble) close() {
	b.Helper()
	if err := b.stop(); err != nil {
		b.Error(err)
	}
	if err := b.store.Close(); err != nil {
		b.Error(err)
	}
}

// client returns a client of the server, over HTTP/1 or HTTP/2.
func (b *bubble) client(http2 bool) *http.Client {
	var protocols http.Protocols
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	return &http.Client{Transport: &http.Transport{DialContext: b.pipes.dial, Protocols: &protocols, DisableKeepAlives: !http2}}
}

// open begins a request whose answer is read bit by bit.
func (b *bubble) open(ctx context.Context, c *http.Client, target string) io.ReadCloser {
	b.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost:7433"+target, nil)
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := c.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	if resp.StatusCode != 200 {
		b.Fatalf("%s: %s", target, resp.Status)
	}
	return resp.Body
}

// metric returns the sum of a metric's values at this moment, those with the
// labels if any are given: `state="failed"`.
func (b *bubble) metric(name string, labels ...string) float64 {
	b.Helper()
	client := b.client(false)
	resp, err := client.Get("http://localhost:7433/metrics")
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.Fatal(err)
	}
	return sum(b, string(text), name, labels...)
}

func sum(t testing.TB, text, name string, labels ...string) (total float64) {
	t.Helper()
	for line := range strings.Lines(text) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if i := strings.LastIndexByte(line, '}'); i > 0 {
			series, value = line[:i+1], strings.TrimSpace(line[i+1:])
		}
		if base, _, _ := strings.Cut(series, "{"); base != name || strings.HasPrefix(line, "#") {
			continue
		}
		all := true
		for _, l := range labels {
			all = all && strings.Contains(series, l)
		}
		if !all {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatal(err)
		}
		total += v
	}
	return total
}
