package main

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/url"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/postgres"
	"github.com/bide-dev/bide/remote"
)

// connect reaches a store that is elsewhere.
func (t *target) connect(ctx context.Context) (bide.Store, error) {
	if t.server == "" {
		return postgres.Open(ctx, t.db)
	}
	if err := listens(ctx, t.server); err != nil {
		return nil, err
	}
	var options []remote.Option
	if t.token != "" {
		options = append(options, remote.Token(t.token))
	}
	store, err := remote.Dial(t.server, options...)
	if invalid, ok := errors.AsType[*bide.InvalidError](err); ok {
		return nil, usage("--server %q: %s", t.server, invalid.Reason)
	}
	return store, err
}

// listens reports at once that nothing listens on this machine, where a server
// elsewhere is given the time to come back.
func listens(ctx context.Context, server string) error {
	u, err := url.Parse(server)
	if err != nil {
		return usage("--server: %w", err)
	}
	if ip := net.ParseIP(u.Hostname()); u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil
	}
	conn, err := (&net.Dialer{Timeout: reachWithin}).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), u.Scheme)))
	if errors.Is(err, syscall.ECONNREFUSED) {
		return &remote.UnreachableError{URL: server}
	} else if err == nil {
		_ = conn.Close()
	}
	return nil // whatever else is wrong, the store's client says
}

func isUnreachable(err error) bool {
	_, server := errors.AsType[*remote.UnreachableError](err)
	_, database := errors.AsType[*pgconn.ConnectError](err)
	return server || database
}

// inWords says of an error of a server's what to do about it.
func inWords(err error) error {
	if e, ok := errors.AsType[*remote.UnreachableError](err); ok && !e.Sent {
		return said("no server answers at "+e.URL+"; bide dev starts one, --server URL names another, --db FILE a file", err)
	}
	if e, ok := errors.AsType[*bide.InvalidError](err); ok && e.Field == "token" {
		return said("the server does not accept the key, or not its scope; give one that may as BIDE_TOKEN, bide token create makes them", err)
	}
	return err
}
