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

	"github.com/spf13/cobra"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/server"
)

// serveFlag is the flag that says each field of a server.Config.
var serveFlag = map[string]string{"Addr": "--addr", "TLSCert": "--tls-cert", "Hosts": "--host", "Origins": "--origin", "PublicURL": "--public-url"}

// newServer makes a server, and names the flag that is wrong if one is.
func newServer(t *target, store bide.Store, cfg server.Config) (*server.Server, error) {
	s, err := server.New(store, cfg)
	return s, t.inServeFlags(err)
}

// inServeFlags names the flag in the place of the field, and the store in the
// command that makes a key.
func (t *target) inServeFlags(err error) error {
	invalid, ok := errors.AsType[*bide.InvalidError](err)
	if !ok {
		return err
	}
	flag := serveFlag[invalid.Field]
	if flag == "" {
		flag = invalid.Field
	}
	return usage("%s: %s", flag, strings.ReplaceAll(invalid.Reason,
		"bide token create --scope admin", t.command("token", "create", "--scope", "admin")))
}

// listening is how often it is looked whether a server listens yet.
const listening = 5 * time.Millisecond

// runServer runs the server until ctx ends, and calls ready with its URL once it
// listens.
func runServer(ctx context.Context, t *target, s *server.Server, addr string, ready func(url string) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	ticker := time.NewTicker(listening)
	defer ticker.Stop()
	for s.URL() == "" {
		select {
		case err := <-ended:
			return t.listenError(addr, err)
		case <-ticker.C:
		}
	}
	if err := ready(s.URL()); err != nil {
		cancel()
		return errors.Join(err, <-ended)
	}
	return t.listenError(addr, <-ended)
}

func (t *target) listenError(addr string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return said(fmt.Sprintf("%s is taken, perhaps by another bide; --addr 127.0.0.1:0 takes a free port", addr), err)
	}
	return t.inServeFlags(err)
}

// logLevelFlag adds the flag that says how much is logged.
func logLevelFlag(c *cobra.Command, level *slog.Level) {
	c.Flags().Var(&levelValue{level}, "log-level", "`LEVEL` of what is logged: debug, info, warn or error")
	setting(c.Flags(), "log-level")
}

type levelValue struct{ level *slog.Level }

// String implements [pflag.Value].
func (v *levelValue) String() string {
	if v.level == nil { // as pflag asks for the zero value
		return ""
	}
	return strings.ToLower(v.level.String())
}

// Type implements [pflag.Value].
func (*levelValue) Type() string { return "level" }

// Set implements [pflag.Value].
func (v *levelValue) Set(s string) error {
	switch s {
	case "debug", "info", "warn", "error":
		return v.level.UnmarshalText([]byte(s))
	}
	return fmt.Errorf("%q is none of debug, info, warn, error", s)
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
