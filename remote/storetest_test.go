package remote_test

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/remote"
	"github.com/bide-dev/bide/sqlite"
	"github.com/bide-dev/bide/storetest"
)

func TestStore(t *testing.T) {
	if raceDetector {
		t.Skip("TestUnreliableStore does the same and more")
	}
	t.Run("HTTP2", func(t *testing.T) {
		storetest.Run(t, storetest.Door{Open: func(t *testing.T) bide.Store { return open(t, ":memory:", false, nil) }})
	})
	t.Run("HTTP1", func(t *testing.T) {
		storetest.Run(t, storetest.Door{
			Open:   func(t *testing.T) bide.Store { return open(t, filepath.Join(t.TempDir(), "bide.db"), true, nil) },
			Reopen: reopen,
		})
	})
}

// loopback is a store over a server of the same process, which ends with it.
type loopback struct {
	*remote.Store
	*server
	reopened func(t *testing.T) *loopback
}

// server serves a file to clients of this process, without a network: so that its
// time can be the test's.
type server struct {
	listener *pipes
	http     *http.Server
	inner    bide.Store
	client   *http.Client
}

func serve(t *testing.T, path string, old bool) *server {
	t.Helper()
	inner, err := sqlite.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	s := serveOn(muxOf(remote.NewHandler(inner)), old)
	s.inner = inner
	return s
}

func serveOn(h http.Handler, old bool) *server {
	s := &server{listener: newPipes(), http: &http.Server{Handler: h, Protocols: new(http.Protocols)}}
	s.http.Protocols.SetHTTP1(true)
	s.http.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = s.http.Serve(s.listener) }()
	transport := &http.Transport{DialContext: s.listener.dial, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(old)
	transport.Protocols.SetUnencryptedHTTP2(!old)
	s.client = &http.Client{Transport: transport}
	return s
}

func (s *server) close() error {
	_ = s.http.Close()
	err := s.inner.Close()
	s.client.CloseIdleConnections()
	return err
}

// open opens a store over a server of its own. meddle, if set, comes between them.
func open(t *testing.T, path string, old bool, meddle func(http.RoundTripper) http.RoundTripper) *loopback {
	t.Helper()
	s := serve(t, path, old)
	client := s.client
	if meddle != nil {
		client = &http.Client{Transport: meddle(client.Transport)}
	}
	store, err := remote.Dial("http://bide.test", remote.HTTPClient(client))
	if err != nil {
		t.Fatal(err)
	}
	return &loopback{Store: store, server: s, reopened: func(t *testing.T) *loopback { return open(t, path, old, meddle) }}
}

func (l *loopback) Close() error {
	err := l.Store.Close()
	_ = l.server.close()
	return err
}

func reopen(t *testing.T, old bide.Store) bide.Store {
	t.Helper()
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	return old.(*loopback).reopened(t)
}

// pipes is a listener whose connections are made of [net.Pipe].
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	over  chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), over: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.over:
		return nil, net.ErrClosed
	}
}

func (p *pipes) dial(ctx context.Context, network, address string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.over:
		return nil, &net.OpError{Op: "dial", Net: network, Err: net.ErrClosed}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.over) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }
