package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/server"
)

// serveFlag is the flag that says each field of a server.Config.
var serveFlag = map[string]string{"Addr": "--addr", "TLSCert": "--tls-cert", "Hosts": "--host", "Origins": "--origin", "PublicURL": "--public-url"}

// newServer makes a server, and names the flag that is wrong if one is.
func newServer(store bide.Store, cfg server.Config) (*server.Server, error) {
	s, err := server.New(store, cfg)
	return s, inServeFlags(err)
}

func inServeFlags(err error) error {
	invalid, ok := errors.AsType[*bide.InvalidError](err)
	if !ok {
		return err
	}
	flag := serveFlag[invalid.Field]
	if flag == "" {
		flag = invalid.Field
	}
	return usage("%s: %s", flag, invalid.Reason)
}

// listening is how often it is looked whether a server listens yet.
const listening = 5 * time.Millisecond

// runServer runs the server until ctx ends, and calls ready with its URL once it
// listens.
func runServer(ctx context.Context, s *server.Server, addr string, ready func(url string) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	ticker := time.NewTicker(listening)
	defer ticker.Stop()
	for s.URL() == "" {
		select {
		case err := <-ended:
			return listenError(addr, err)
		case <-ticker.C:
		}
	}
	if err := ready(s.URL()); err != nil {
		cancel()
		return errors.Join(err, <-ended)
	}
	return listenError(addr, <-ended)
}

func listenError(addr string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return said(fmt.Sprintf("%s is taken, perhaps by another bide; --addr 127.0.0.1:0 takes a free port", addr), err)
	}
	return inServeFlags(err)
}

// logTo is a log on the screen.
func logTo(show *screen, level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(show, &slog.HandlerOptions{Level: level}))
}

// program is how this program was called, to be said in messages.
func program() string {
	if strings.Contains(filepath.ToSlash(os.Args[0]), "/go-build") {
		return "go run ./cmd/bide"
	}
	return "bide"
}
