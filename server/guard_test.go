package server_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide/server"
)

// raw sends a request as it is written here, which no client would, and returns
// the answer's head. Headers are lines.
func raw(t testing.TB, srv *server.Server, method, target, host string, headers ...string) head {
	t.Helper()
	addr := strings.TrimPrefix(srv.URL(), "http://")
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	body := ""
	if method == "POST" {
		body = "{}"
	}
	_, _ = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", method, target, host, len(body))
	for _, line := range headers {
		_, _ = fmt.Fprintf(conn, "%s\r\n", line)
	}
	_, _ = fmt.Fprintf(conn, "\r\n%s", body)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%s %s, Host %q: %v", method, target, host, err)
	}
	_ = resp.Body.Close()
	return head{resp.Status, resp.StatusCode, resp.Header}
}

// doors are requests of each kind that the server answers.
var doors = []struct {
	name, method, target string
	mutates              bool
	header               string
}{
	{"GET", "GET", "/v1/runs", false, "Accept: application/json"},
	{"POST", "POST", "/v1/runs", true, "Accept: application/json"},
	{"SSE", "GET", "/v1/events?runs=none", false, "Accept: text/event-stream"},
	{"Connect", "POST", "/bide.v1.Store/Run", true, "Connect-Protocol-Version: 1"},
	{"metrics", "GET", "/metrics", false, "Accept: */*"},
}

// What a page of another site, or a name that was made to point here, can get a
// browser to send to a server that is open to its own machine.
func TestHostAndOrigin(t *testing.T) {
	srv, _ := start(t, openStore(t), server.Config{})
	at := strings.TrimPrefix(srv.URL(), "http://")
	_, port, _ := net.SplitHostPort(at)
	const (
		passes     = 0
		misdirects = http.StatusMisdirectedRequest
		// A request that changes something is refused; what is read, a page of
		// another site is not shown by its browser.
		crosses = http.StatusForbidden
	)
	for _, c := range []struct {
		name    string
		host    string
		headers []string
		want    int
	}{
		{"as it is", at, nil, passes},
		{"localhost", "localhost:" + port, nil, passes},
		{"upper case", "LOCALHOST:" + port, nil, passes},
		{"trailing dot", "localhost.:" + port, nil, passes},
		{"IPv6", "[::1]:" + port, nil, passes},
		{"IPv6 in full", "[0:0:0:0:0:0:0:1]:" + port, nil, passes},
		{"IPv6 without port", "[::1]", nil, passes},
		{"IPv4 in IPv6", "[::ffff:127.0.0.1]:" + port, nil, passes},
		{"without port", "localhost", nil, passes},
		{"another port, as through a tunnel", "localhost:8080", nil, passes},
		{"a name below localhost", "bide.localhost:" + port, nil, passes},

		{"rebinding", "evil.example:" + port, nil, misdirects},
		{"rebinding, same-origin to the browser", "evil.example:" + port, []string{"Origin: http://evil.example:" + port, "Sec-Fetch-Site: same-origin"}, misdirects},
		{"rebinding, trailing dot", "evil.example.:" + port, nil, misdirects},
		{"the address in a name", "127.0.0.1.evil.example:" + port, nil, misdirects},
		{"localhost in a name", "localhost.evil.example:" + port, nil, misdirects},
		{"two dots", "localhost..:" + port, nil, misdirects},
		{"any address", "0.0.0.0:" + port, nil, misdirects},
		{"metadata", "169.254.169.254", nil, misdirects},
		{"a decimal address", "2130706433:" + port, nil, misdirects},
		{"a zone", "[::1%25lo]:" + port, nil, misdirects},
		{"userinfo", "user@localhost:" + port, nil, misdirects},
		{"userinfo that looks like the host", "localhost:" + port + "@evil.example", nil, misdirects},
		{"no port", "localhost:http", nil, misdirects},
		{"two ports", "localhost:" + port + ":80", nil, misdirects},
		{"an open bracket", "[::1", nil, misdirects},
		{"empty", "", nil, misdirects},

		{"cross-site form", at, []string{"Origin: https://evil.example", "Sec-Fetch-Site: cross-site"}, crosses},
		{"another port of localhost", at, []string{"Origin: http://localhost:3000", "Sec-Fetch-Site: same-site"}, crosses},
		{"another port, an old browser", at, []string{"Origin: http://127.0.0.1:3000"}, crosses},
		{"null origin", at, []string{"Origin: null", "Sec-Fetch-Site: cross-site"}, crosses},
		{"null origin, an old browser", at, []string{"Origin: null"}, crosses},
		{"same origin", at, []string{"Origin: http://" + at, "Sec-Fetch-Site: same-origin"}, passes},
		{"typed into the address line", at, []string{"Sec-Fetch-Site: none"}, passes},
	} {
		for _, door := range doors {
			resp := raw(t, srv, door.method, door.target, c.host, append([]string{door.header}, c.headers...)...)
			want := c.want
			if want == crosses && !door.mutates {
				want = passes
			}
			refused := resp.StatusCode == misdirects || resp.StatusCode == crosses || resp.StatusCode == 401
			malformed := want == misdirects && resp.StatusCode == 400 // net/http was first
			if want == passes && refused || want != passes && resp.StatusCode != want && !malformed {
				t.Errorf("%s, %s: %s, want %d", c.name, door.name, resp.Status, want)
			}
			if h := resp.Header.Get("Access-Control-Allow-Origin"); h != "" {
				t.Errorf("%s, %s: may be read by %s", c.name, door.name, h)
			}
			if resp.Header.Get("Cross-Origin-Resource-Policy") != "same-origin" && want == passes {
				t.Errorf("%s, %s: can be embedded elsewhere", c.name, door.name)
			}
		}
	}
	for _, target := range []string{"http://evil.example/v1/runs", "http://user@localhost/v1/runs"} {
		if resp := raw(t, srv, "GET", target, "localhost"); resp.StatusCode != misdirects && resp.StatusCode != 400 {
			t.Errorf("%s: %s", target, resp.Status)
		}
	}
}

// The name stands elsewhere in HTTP/2, and is judged alike.
func TestHostHTTP2(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := serve(t, dir, server.Config{})
		defer b.close()
		client := b.client(true)
		defer client.CloseIdleConnections()
		for host, want := range map[string]int{"localhost:7433": 200, "LOCALHOST.": 200, "[::1]": 200, "evil.example:7433": 421, "127.0.0.1.evil.example": 421} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost:7433/v1/runs", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = host
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != want || resp.ProtoMajor != 2 {
				t.Errorf("%s: %s %s", host, resp.Proto, resp.Status)
			}
		}
	})
}

// Public is told by the path, so it can be written in one way only.
func TestPathsHaveOneForm(t *testing.T) {
	store := openStore(t)
	if _, _, err := server.CreateKey(t.Context(), store, "k", []server.Scope{server.ScopeAdmin}, 0); err != nil {
		t.Fatal(err)
	}
	srv, _ := start(t, store, server.Config{})
	for _, target := range []string{"/v1/hooks/../runs", "/v1/hooks/%2e%2e/runs", "//v1/runs", "/healthz/../v1/runs", "/v1/hooks/..%2fruns", "/./v1/runs", "/v1/approvals//../runs",
		"/v1/hooks%2f..%2fruns", "/healthz%2f..%2fv1/runs", "/v1/approvals/%2e%2e/runs", "/v1/%68ooks/x", "/%76%31/runs", "/v1/approvals/%2F..%2F..%2Fruns", "/%2e/v1/runs", "/v1/hooks/%2F"} {
		for _, method := range []string{"GET", "POST"} {
			if resp := raw(t, srv, method, target, "localhost"); resp.StatusCode != 404 && resp.StatusCode != 401 && resp.StatusCode != 405 {
				t.Errorf("%s %s: %s", method, target, resp.Status)
			}
		}
	}
}

func TestNamedHostsAndOrigins(t *testing.T) {
	srv, _ := start(t, openStore(t), server.Config{Hosts: []string{"bide.example.com", "10.1.2.3"}, PublicURL: "https://public.example.com/x",
		Origins: []string{"https://app.example.com"}})
	for host, want := range map[string]int{"bide.example.com": 401, "BIDE.example.com.:443": 401, "public.example.com": 401, "10.1.2.3:80": 401, "other.example.com": 421, "10.1.2.4": 421} {
		// 401: whoever comes by a public name is not of this machine.
		if resp := raw(t, srv, "GET", "/v1/runs", host); resp.StatusCode != want {
			t.Errorf("%s: %s", host, resp.Status)
		}
		if resp := raw(t, srv, "GET", "/healthz", host); resp.StatusCode != 200 && want != 421 {
			t.Errorf("%s: health: %s", host, resp.Status)
		}
	}
	origin := []string{"Origin: https://app.example.com", "Sec-Fetch-Site: cross-site"}
	resp := raw(t, srv, "OPTIONS", "/v1/runs", "localhost", append(origin, "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization")...)
	if resp.StatusCode != 204 || resp.Header.Get("Access-Control-Allow-Origin") != "https://app.example.com" ||
		!strings.Contains(resp.Header.Get("Access-Control-Allow-Headers"), "Authorization") || resp.Header.Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("preflight: %s %v", resp.Status, resp.Header)
	}
	resp = raw(t, srv, "POST", "/v1/runs", "localhost", origin...)
	if resp.StatusCode == 403 || resp.Header.Get("Access-Control-Allow-Origin") != "https://app.example.com" || !strings.Contains(resp.Header.Get("Vary"), "Origin") {
		t.Errorf("named origin: %s %v", resp.Status, resp.Header)
	}
	for _, other := range []string{"https://app.example.com.evil.example", "https://app.example.com:444", "http://app.example.com", "https://APP.example.com"} {
		resp = raw(t, srv, "POST", "/v1/runs", "localhost", "Origin: "+other, "Sec-Fetch-Site: cross-site")
		if resp.StatusCode != 403 || resp.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %s %v", other, resp.Status, resp.Header)
		}
	}
}

// A proxy on this machine makes requests of the whole world look local.
func TestProxiedIsNotLocal(t *testing.T) {
	srv, _ := start(t, openStore(t), server.Config{})
	for _, header := range []string{"X-Forwarded-For: 203.0.113.7", "Forwarded: for=203.0.113.7", "Via: 1.1 proxy", "x-real-ip: 203.0.113.7", "X-Forwarded-Host: bide.example.com"} {
		if resp := raw(t, srv, "GET", "/v1/runs", "localhost", header); resp.StatusCode != 401 {
			t.Errorf("%s: %s", header, resp.Status)
		}
	}
}

// In a program of the user's the handler does not know what it listens on: it goes
// by where the connection is from.
func TestMountedIsLocalOnly(t *testing.T) {
	srv, err := server.New(openStore(t), server.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		at, from string
		want     bool
	}{{"127.0.0.1:80", "127.0.0.1:5000", true}, {"[::1]:80", "[::1]:5000", true}, {"10.0.0.1:80", "10.0.0.2:5000", false}, {"127.0.0.1:80", "10.0.0.2:5000", false}, {"", "127.0.0.1:1", false}} {
		ctx := t.Context()
		if c.at != "" {
			addr, err := net.ResolveTCPAddr("tcp", c.at)
			if err != nil {
				t.Fatal(err)
			}
			ctx = context.WithValue(ctx, http.LocalAddrContextKey, net.Addr(addr))
		}
		r, w := request(ctx, "GET", "/metrics")
		r.RemoteAddr = c.from
		srv.ServeHTTP(w, r)
		if ok := w.Code == 200; ok != c.want {
			t.Errorf("at %q from %q: %d", c.at, c.from, w.Code)
		}
	}
}
