package netguard

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
)

// serve answers at an address of this host, and counts.
func serve(t *testing.T, addr string, h http.HandlerFunc) (base string, count *atomic.Int32) {
	t.Helper()
	listener, err := net.Listen("tcp", addr+":0")
	if err != nil {
		t.Skipf("this host has no %s: %v", addr, err)
	}
	count = &atomic.Int32{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		count.Add(1)
		h(w, r)
	}))
	_ = server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	return server.URL, count
}

func nothing(http.ResponseWriter, *http.Request) {}

// get fails the test unless the request is refused for this host and address.
func get(t *testing.T, client *http.Client, to, host, addr string) {
	t.Helper()
	resp, err := client.Get(to)
	if err == nil {
		_ = resp.Body.Close()
		t.Fatalf("%s: %s", to, resp.Status)
	}
	var blocked *BlockedError
	if !errors.As(err, &blocked) || blocked.Host != host || !strings.HasPrefix(blocked.Addr.String(), addr) {
		t.Fatalf("%s: %v (%+v), want %s at %s refused", to, err, blocked, host, addr)
	}
}

func TestTransport(t *testing.T) {
	inside, seen := serve(t, "127.0.0.1", nothing)
	client := &http.Client{Transport: Transport(nil)}
	get(t, client, inside, "127.0.0.1", "127.0.0.1")
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(inside, "http://"))
	get(t, client, "http://[::ffff:127.0.0.1]:"+port, "::ffff:127.0.0.1", "")
	if _, err := net.LookupHost("localhost"); err == nil {
		resp, err := client.Get("http://localhost:" + port) //nolint:bodyclose // there is none
		var blocked *BlockedError
		if !errors.As(err, &blocked) || blocked.Host != "localhost" || !blocked.Addr.IsLoopback() {
			t.Errorf("a name that leads inside: %v, %v", resp, err)
		}
	}
	if n := seen.Load(); n != 0 {
		t.Errorf("%d requests came through", n)
	}

	allowed := &http.Client{Transport: Transport(nil, netip.MustParsePrefix("127.0.0.1/32"))}
	resp, err := allowed.Get(inside)
	if err != nil || seen.Load() != 1 {
		t.Fatalf("allowed: %v, %d requests", err, seen.Load())
	}
	_ = resp.Body.Close()
}

// A server that may be reached redirects to one that may not.
func TestRedirectInside(t *testing.T) {
	inside, seen := serve(t, "127.0.0.1", nothing)
	var to string
	outside, asked := serve(t, "127.0.0.2", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, to, http.StatusTemporaryRedirect)
	})
	client := &http.Client{Transport: Transport(nil, netip.MustParsePrefix("127.0.0.2/32"))}
	to = inside + "/admin"
	get(t, client, outside, "127.0.0.1", "127.0.0.1")
	to = "http://169.254.169.254/latest/meta-data/"
	get(t, client, outside, "169.254.169.254", "169.254.169.254")
	if asked.Load() != 2 || seen.Load() != 0 {
		t.Errorf("outside was asked %d times, inside %d", asked.Load(), seen.Load())
	}
}

// Neither a proxy nor a dialler of the base goes round the guard.
func TestBaseCannotBypass(t *testing.T) {
	inside, seen := serve(t, "127.0.0.1", nothing)
	proxy, proxied := serve(t, "127.0.0.2", nothing)
	through, err := url.Parse(proxy)
	if err != nil {
		t.Fatal(err)
	}
	var dialled atomic.Int32
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		dialled.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	legacy := func(network, address string) (net.Conn, error) { return dial(t.Context(), network, address) }
	base := &http.Transport{
		Proxy:          http.ProxyURL(through),
		DialContext:    dial,
		DialTLSContext: dial,
		Dial:           legacy, //nolint:staticcheck // deprecated, but used where it is set
		DialTLS:        legacy, //nolint:staticcheck // the same
	}
	client := &http.Client{Transport: Transport(base, netip.MustParsePrefix("127.0.0.2/32"))}
	get(t, client, inside, "127.0.0.1", "127.0.0.1")
	get(t, client, strings.Replace(inside, "http:", "https:", 1), "127.0.0.1", "127.0.0.1")
	if seen.Load() != 0 || proxied.Load() != 0 || dialled.Load() != 0 {
		t.Errorf("%d requests inside, %d through the proxy, %d dialled by the base", seen.Load(), proxied.Load(), dialled.Load())
	}
	if base.Proxy == nil || base.DialContext == nil {
		t.Error("the base was changed")
	}
}
