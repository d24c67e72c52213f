package server

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/bide-dev/bide"
)

// hosts are the names under which a server lets itself be called. A page of
// another site that has its own name point to this machine (DNS rebinding) is
// same-origin in the eyes of the browser, so that neither the same-origin policy
// nor [http.CrossOriginProtection] stops it; but its requests carry its own name.
// An address cannot be rebound, so one is judged by what the server listens on.
// The port says nothing and is not looked at: a tunnel or a container may have
// another outside.
type hosts struct {
	names    map[string]bool
	addrs    map[netip.Addr]bool
	loopback bool // any loopback address, and localhost
	anyAddr  bool
}

// newHosts returns the hosts of a server that listens on addr, and those named.
func newHosts(addr string, named []string) (*hosts, error) {
	h := &hosts{names: map[string]bool{}, addrs: map[netip.Addr]bool{}}
	bind, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, &bide.InvalidError{Field: "Addr", Reason: "must be host:port, as in 127.0.0.1:7433"}
	}
	ip, err := netip.ParseAddr(bind)
	switch {
	case bind == "" || err == nil && ip.IsUnspecified():
		h.anyAddr, h.loopback = true, true
	case err == nil:
		h.addrs[ip.Unmap().WithZone("")] = true
		h.loopback = ip.Unmap().IsLoopback()
	case isLocalhost(strings.ToLower(bind)):
		h.loopback = true
	default:
		h.names[strings.ToLower(strings.TrimSuffix(bind, "."))] = true
	}
	for _, name := range named {
		host, ok := parseHost(name)
		if !ok || host != strings.ToLower(strings.Trim(name, "[]")) {
			return nil, &bide.InvalidError{Field: "Hosts", Reason: "\"" + name + "\" is no host name; give it as in bide.example.com, without scheme, port or path"}
		}
		if ip, err := netip.ParseAddr(host); err == nil {
			h.addrs[ip.Unmap()] = true
		} else {
			h.names[host] = true
		}
	}
	return h, nil
}

// allow reports whether a request for the host may be answered.
func (h *hosts) allow(r *http.Request) bool {
	host, ok := parseHost(r.Host)
	if !ok || r.URL.User != nil {
		return false
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		ip = ip.Unmap()
		return h.anyAddr || h.addrs[ip] || h.loopback && ip.IsLoopback()
	}
	return h.names[host] || h.loopback && isLocalhost(host)
}

// parseHost returns the host of a Host header, in lower case, without its port,
// brackets and the dot that a full name may end in.
func parseHost(header string) (host string, ok bool) {
	host = header
	if strings.HasPrefix(host, "[") {
		end := strings.IndexByte(host, ']')
		if end < 0 {
			return "", false
		}
		if ip, err := netip.ParseAddr(host[1:end]); err != nil || !ip.Is6() || ip.Zone() != "" {
			return "", false
		}
		return strings.ToLower(host[1:end]), isPort(host[end+1:])
	}
	if i := strings.IndexByte(host, ':'); i >= 0 {
		if !isPort(host[i:]) {
			return "", false
		}
		host = host[:i]
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	for i := range len(host) {
		c := host[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_' {
			return "", false
		}
	}
	return host, host != ""
}

// isPort reports whether a Host header may end so: with nothing, or a port.
func isPort(s string) bool {
	if s == "" {
		return true
	}
	if s[0] != ':' || len(s) > 6 {
		return false
	}
	for _, c := range s[1:] {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

func isLocalhost(name string) bool {
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// isLocal reports whether the request comes from this machine, for all that can
// be told: to a loopback address, from one, by a name of it, and not by way of a
// proxy that says so.
func isLocal(r *http.Request) bool {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok || !isLoopback(addr.String()) || !isLoopback(r.RemoteAddr) {
		return false
	}
	for _, header := range []string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip"} {
		if _, proxied := r.Header[header]; proxied {
			return false
		}
	}
	host, ok := parseHost(r.Host)
	if ip, err := netip.ParseAddr(host); err == nil {
		return ok && ip.Unmap().IsLoopback()
	}
	return ok && isLocalhost(host)
}

func isLoopback(hostPort string) bool {
	at, err := netip.ParseAddrPort(hostPort)
	return err == nil && at.Addr().Unmap().IsLoopback()
}
