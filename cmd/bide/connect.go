package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/internal/wire"
	"github.com/bide-dev/bide/postgres"
	"github.com/bide-dev/bide/remote"
)

// connect reaches a store that is elsewhere.
func (t *target) connect(ctx context.Context) (bide.Store, error) {
	if t.server == "" {
		return postgres.Open(ctx, t.db)
	}
	var options []remote.Option
	if t.token != "" {
		options = append(options, remote.Token(t.token))
	}
	store, err := remote.Dial(t.server, options...)
	if invalid, ok := errors.AsType[*bide.InvalidError](err); ok {
		return nil, usage("--server %q: %s", t.server, invalid.Reason)
	} else if err != nil {
		return nil, err
	}
	if err := knock(ctx, t.server); err != nil {
		_ = store.Close()
		return nil, err
	}
	return store, nil
}

// knockWithin is how long is waited for what is only found out to be told sooner.
const knockWithin = 3 * time.Second

// knock finds out at once what no waiting mends: nothing listens on this machine,
// there is no such host, or what answers is no bide server. A server elsewhere that
// does not answer is given the time to come back, by the store's client.
func knock(ctx context.Context, server string) error {
	if err := listens(ctx, server); err != nil {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, knockWithin)
	defer cancel()
	// Without a key, so that none is given to whoever answers; bide does not answer a
	// GET of this path by anything but an error.
	req, err := http.NewRequestWithContext(asking, http.MethodGet, strings.TrimRight(server, "/")+wire.StoreWriteProcedure, nil)
	if err != nil {
		return usage("--server: %w", err)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && hopeless(err):
		return &remote.UnreachableError{URL: server, Err: err}
	case err != nil:
		return nil
	}
	_ = resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusNotFound, http.StatusOK, http.StatusBadRequest, http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther:
		err = fmt.Errorf("what answers there is no bide server: %s", resp.Status)
		if at := resp.Header.Get("Location"); at != "" {
			err = fmt.Errorf("%w, to %s", err, place(at))
		}
	case http.StatusMisdirectedRequest:
		err = fmt.Errorf("%s: the server does not go by that name; give it --host", resp.Status)
	}
	if err != nil {
		return &remote.UnreachableError{URL: server, Err: err}
	}
	return nil
}

// hopeless reports whether the same request fails again.
func hopeless(err error) bool {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return dns.IsNotFound
	}
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	return errors.Is(err, http.ErrSchemeMismatch) || errors.As(err, &certificate) || errors.As(err, &record) || errors.As(err, &alert)
}

// listens reports that nothing listens on this machine.
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
		return &remote.UnreachableError{URL: server, Err: err}
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

// isRefused reports whether a server did not accept the key, or not for this.
func isRefused(err error) bool {
	invalid, ok := errors.AsType[*bide.InvalidError](err)
	return ok && invalid.Field == "token"
}

// inWords says of an error of a server's what to do about it.
func inWords(err error) error {
	if e, ok := errors.AsType[*remote.UnreachableError](err); ok && !e.Sent {
		return said("no server answers at "+e.URL+why(e.Err)+"; bide dev starts one, --server URL names another, --db FILE a file", err)
	}
	if !isRefused(err) {
		return err
	}
	invalid, _ := errors.AsType[*bide.InvalidError](err)
	if rpc, ok := errors.AsType[*connect.Error](err); ok && rpc.Code() == connect.CodeUnauthenticated {
		return said("the server asks for a key that it knows; give one as BIDE_TOKEN, bide token create makes them", err)
	}
	scope := "the scope that this needs"
	if name, ok := strings.CutPrefix(invalid.Reason, "has not the scope "); ok {
		scope = "the scope " + name
	}
	return said("the key has not "+scope+"; give one that has as BIDE_TOKEN, bide token create makes them", err)
}

// why is the cause of an error, to be put behind it.
func why(err error) string {
	if err == nil {
		return ""
	}
	if inner, ok := errors.AsType[*url.Error](err); ok { // what was asked is our business
		err = inner.Err
	}
	return ": " + err.Error()
}
