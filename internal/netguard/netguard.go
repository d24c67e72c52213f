// Package netguard keeps requests to URLs that callers give away from the
// network that this process stands in: its own host, private networks and the
// metadata services of clouds (server-side request forgery).
//
// Addresses are judged when they are dialled, not when a name is looked up: a
// name can mean a public address at the one time and a private one at the other,
// and a redirect can lead anywhere.
//
// What is refused is what the IANA IPv4 and IPv6 Special-Purpose Address
// Registries (RFC 6890) do not call globally reachable, multicast, and IPv6
// outside 2000::/3, the only block given out so far. An IPv6 address that carries
// an IPv4 address (mapped, NAT64, 6to4, Teredo) is judged by that one. A NAT64
// prefix of a network's own (RFC 6052) cannot be known here; a host that has one
// needs a firewall too.
package netguard

import (
	"fmt"
	"net/netip"
	"net/url"
)

// BlockedError is a URL or an address that callers may not reach. Its text is for
// logs: that a name leads to a private address is more than its sender should
// learn.
type BlockedError struct {
	Host   string     `json:"host"` // as it was asked for
	Addr   netip.Addr `json:"addr"` // invalid if no address was dialled
	Reason string     `json:"reason"`
}

func (e *BlockedError) Error() string {
	host := e.Host
	if e.Addr.IsValid() && host != e.Addr.String() {
		if host != "" {
			host += ": "
		}
		host += e.Addr.String()
	}
	return fmt.Sprintf("netguard: %s: %s", host, e.Reason)
}

// Code returns "address_blocked".
func (e *BlockedError) Code() string { return "address_blocked" }

// CheckURL refuses a URL that could not be meant: another scheme than http and
// https, a user or password in it, or no host. It does not look at addresses,
// which only [Transport] can. Call it for redirects too, in
// [net/http.Client.CheckRedirect].
func CheckURL(u *url.URL) error {
	switch {
	case u == nil:
		return &BlockedError{Reason: "there is no URL"}
	case u.Scheme != "http" && u.Scheme != "https":
		return &BlockedError{Host: u.Host, Reason: fmt.Sprintf("scheme %q is not http or https", u.Scheme)}
	case u.User != nil:
		return &BlockedError{Host: u.Host, Reason: "the URL has a user in it; put credentials in a header"}
	case u.Hostname() == "":
		return &BlockedError{Reason: "the URL has no host"}
	}
	return nil
}

// Check refuses an address that callers may not reach, unless it is in one of
// the allowed prefixes.
func Check(addr netip.Addr, allow ...netip.Prefix) error {
	if reason := blocked(addr, allow); reason != "" {
		return &BlockedError{Host: addr.String(), Addr: addr, Reason: reason}
	}
	return nil
}

// blocked says why an address is refused, or "".
func blocked(addr netip.Addr, allow []netip.Prefix) string {
	if !addr.IsValid() {
		return "not an IP address"
	}
	addr = addr.Unmap().WithZone("")
	for _, prefix := range allow {
		if prefix.Contains(addr) {
			return ""
		}
	}
	for _, carrier := range carriers {
		if !carrier.prefix.Contains(addr) {
			continue
		}
		for _, inner := range carrier.carried(addr.As16()) {
			if reason := blocked(inner, allow); reason != "" {
				return fmt.Sprintf("%s of %v: %s", carrier.name, inner, reason)
			}
		}
		return ""
	}
	for _, special := range specials {
		if special.prefix.Contains(addr) {
			return special.name
		}
	}
	if addr.Is6() && !global6.Contains(addr) {
		return "not global unicast"
	}
	return ""
}
