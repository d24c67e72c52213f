package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/bide-dev/bide"
)

// gracePeriod is how long requests in flight have to end when the server stops.
const gracePeriod = 10 * time.Second

// Run listens, serves, sends the webhooks of runs that end and runs the probe loops,
// those that were made over HTTP, until ctx ends. Then it stops with grace and returns
// nil: streams of events are told that it closes, long polls are answered, and what
// else is in flight has ten seconds.
//
// A program that mounts the handler in a server of its own sends and runs neither:
// they wait for a Run on the same store.
//
// A server runs once. It returns an [bide.InvalidError] when Addr is not a loopback address and the
// store has no API key, and the error of listening or serving.
func (s *Server) Run(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.cfg.Addr)
	switch {
	case ctx.Err() != nil && err != nil:
		return nil //nolint:nilerr // it was to stop before it had begun
	case err != nil:
		return fmt.Errorf("server: %w", err)
	}
	return s.serve(ctx, listener)
}

// serve is Run on a listener, which it closes.
func (s *Server) serve(ctx context.Context, listener net.Listener) error {
	defer func() { _ = listener.Close() }()
	if err := s.mayListen(ctx, listener.Addr()); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if s.cfg.TLSCert != "" {
		cert, err := tls.LoadX509KeyPair(s.cfg.TLSCert, s.cfg.TLSKey)
		if err != nil {
			return &bide.InvalidError{Field: "TLSCert", Reason: err.Error()}
		}
		listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}})
	}
	if s.cfg.TLSCert == "" && !isLoopback(listener.Addr().String()) {
		s.log.Warn("API keys travel in the clear unless a proxy with TLS stands in front", "addr", listener.Addr().String())
	}
	at := s.listenURL(listener.Addr())
	s.url.Store(&at)

	requests, cancelRequests := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelRequests()
	hs := s.httpServer(requests)
	working, stopWork := context.WithCancel(ctx)
	var work sync.WaitGroup
	failed := make(chan error, 2)
	work.Go(func() { failed <- hs.Serve(listener) })
	if !s.cfg.ReadOnly {
		work.Go(func() {
			if err := s.sendWebhooks(working); err != nil {
				failed <- err
			}
		})
		work.Go(func() { s.loops.run(working) })
	}
	s.log.Info("serving", "url", at, "read_only", s.cfg.ReadOnly)
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	stopWork()
	s.stop(hs, cancelRequests)
	work.Wait()
	return err
}

// mayListen refuses an address that others can reach while anyone could use it.
func (s *Server) mayListen(ctx context.Context, addr net.Addr) error {
	if isLoopback(addr.String()) {
		return nil
	}
	keys, err := Keys(ctx, s.keys.store)
	if err != nil {
		return err
	}
	for _, k := range keys {
		if !k.expired(time.Now()) {
			return nil
		}
	}
	return &bide.InvalidError{Field: "Addr", Reason: s.cfg.Addr + " can be reached from other machines, and the store has no API key that holds: make one with `" +
		createCommand + "`, or listen on " + DefaultAddr}
}

// httpServer bounds what a client may cost that is slow or says nothing. There is
// no timeout for a whole request or answer: it would end long polls and streams.
func (s *Server) httpServer(base context.Context) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true) // for proxies and clients that share connections
	return &http.Server{
		Handler:           s,
		ReadHeaderTimeout: headTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		Protocols:         &protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 250,
			SendPingTimeout:      30 * time.Second,
			PingTimeout:          15 * time.Second,
			WriteByteTimeout:     writeTimeout,
		},
		BaseContext: func(net.Listener) context.Context { return base },
		ErrorLog:    slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// stop ends what is served: nothing new first, then what can say goodbye, then
// what can wait, and in the end all.
func (s *Server) stop(hs *http.Server, cancelRequests context.CancelFunc) {
	s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), gracePeriod)
	defer cancel()
	if err := hs.Shutdown(ctx); err != nil {
		s.log.Warn("some requests did not end in time and are cut off", "error", err)
		cancelRequests()
		if err := hs.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			s.log.Debug("cannot close the server", "error", err)
		}
	}
}

// listenURL is where a program on this machine reaches the server.
func (s *Server) listenURL(addr net.Addr) string {
	scheme := "http://"
	if s.cfg.TLSCert != "" {
		scheme = "https://"
	}
	host := addr.String()
	if at, err := netip.ParseAddrPort(host); err == nil && at.Addr().IsUnspecified() {
		host = net.JoinHostPort("localhost", fmt.Sprint(at.Port()))
	}
	return scheme + host + strings.TrimSuffix(s.cfg.Prefix, "/")
}
