package netguard

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// Control is for [net.Dialer.Control]: it refuses the address that is about to
// be dialled with a [*BlockedError].
func Control(network, address string, c syscall.RawConn) error {
	return control(nil)(network, address, c)
}

func control(allow []netip.Prefix) func(network, address string, c syscall.RawConn) error {
	return func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return &BlockedError{Host: address, Reason: "not an IP address and a port"}
		}
		return Check(to.Addr(), allow...)
	}
}

// Transport returns a copy of base (nil: [http.DefaultTransport]) that reaches
// public addresses and the allowed prefixes only, redirects and all. What base
// dials with is replaced. It uses no proxy, neither base's nor the environment's:
// a proxy would dial in its stead, and judge nothing.
func Transport(base *http.Transport, allow ...netip.Prefix) *http.Transport {
	if base == nil {
		var plain bool
		if base, plain = http.DefaultTransport.(*http.Transport); !plain { // the program has put its own there
			base = &http.Transport{ForceAttemptHTTP2: true}
		}
	}
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second, Control: control(allow)}
	t := base.Clone()
	t.Proxy = nil
	t.DialTLSContext = nil
	t.Dial, t.DialTLS = nil, nil //nolint:staticcheck // deprecated, but base's would be used
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if blocked, ok := errors.AsType[*BlockedError](err); ok {
			if host, _, err := net.SplitHostPort(address); err == nil {
				blocked.Host = host
			}
		}
		return conn, err
	}
	return t
}
