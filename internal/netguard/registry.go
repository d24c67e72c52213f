package netguard

import "net/netip"

// special is a block that is not for the public, and what it is.
type special struct {
	prefix netip.Prefix
	name   string
}

// specials are the blocks of the registries that are not globally reachable, and
// one address that looks public and is not. The most telling name comes first.
var specials = []special{
	// https://www.iana.org/assignments/iana-ipv4-special-registry
	{netip.MustParsePrefix("0.0.0.0/8"), "this network (RFC 791)"},
	{netip.MustParsePrefix("10.0.0.0/8"), "private (RFC 1918)"},
	{netip.MustParsePrefix("100.64.0.0/10"), "shared by carrier-grade NAT (RFC 6598)"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback (RFC 1122)"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local, where clouds keep metadata (RFC 3927)"},
	{netip.MustParsePrefix("172.16.0.0/12"), "private (RFC 1918)"},
	{netip.MustParsePrefix("192.0.0.0/24"), "IETF protocol assignment (RFC 6890)"},
	{netip.MustParsePrefix("192.0.2.0/24"), "documentation (RFC 5737)"},
	{netip.MustParsePrefix("192.88.99.0/24"), "6to4 relay anycast (RFC 7526)"},
	{netip.MustParsePrefix("192.168.0.0/16"), "private (RFC 1918)"},
	{netip.MustParsePrefix("198.18.0.0/15"), "benchmarking (RFC 2544)"},
	{netip.MustParsePrefix("198.51.100.0/24"), "documentation (RFC 5737)"},
	{netip.MustParsePrefix("203.0.113.0/24"), "documentation (RFC 5737)"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast (RFC 5771)"},
	{netip.MustParsePrefix("255.255.255.255/32"), "broadcast (RFC 919)"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved (RFC 1112)"},

	// Public by its number, but the host itself answers there to its own guests.
	{netip.MustParsePrefix("168.63.129.16/32"), "Azure's service for virtual machines"},

	// https://www.iana.org/assignments/iana-ipv6-special-registry
	{netip.MustParsePrefix("::/128"), "unspecified (RFC 4291)"},
	{netip.MustParsePrefix("::1/128"), "loopback (RFC 4291)"},
	{netip.MustParsePrefix("::/96"), "IPv4-compatible (RFC 4291)"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "local NAT64 (RFC 8215)"},
	{netip.MustParsePrefix("100::/64"), "discarded (RFC 6666)"},
	{netip.MustParsePrefix("2001::/23"), "IETF protocol assignment (RFC 2928)"},
	{netip.MustParsePrefix("2001:db8::/32"), "documentation (RFC 3849)"},
	{netip.MustParsePrefix("3fff::/20"), "documentation (RFC 9637)"},
	{netip.MustParsePrefix("5f00::/16"), "segment routing (RFC 9602)"},
	{netip.MustParsePrefix("fc00::/7"), "unique local (RFC 4193)"},
	{netip.MustParsePrefix("fe80::/10"), "link-local (RFC 4291)"},
	{netip.MustParsePrefix("fec0::/10"), "site-local (RFC 3879)"},
	{netip.MustParsePrefix("ff00::/8"), "multicast (RFC 4291)"},
}

// global6 is what is given out of IPv6 (RFC 4291 and
// https://www.iana.org/assignments/ipv6-address-space).
var global6 = netip.MustParsePrefix("2000::/3")

// carrier is a block of IPv6 whose addresses have IPv4 addresses in them.
type carrier struct {
	prefix  netip.Prefix
	name    string
	carried func(a [16]byte) []netip.Addr
}

var carriers = []carrier{
	{netip.MustParsePrefix("64:ff9b::/96"), "NAT64 (RFC 6052)", func(a [16]byte) []netip.Addr {
		return []netip.Addr{netip.AddrFrom4([4]byte(a[12:]))}
	}},
	{netip.MustParsePrefix("2002::/16"), "6to4 (RFC 3056)", func(a [16]byte) []netip.Addr {
		return []netip.Addr{netip.AddrFrom4([4]byte(a[2:6]))}
	}},
	// The server, and the client with its bits turned.
	{netip.MustParsePrefix("2001::/32"), "Teredo (RFC 4380)", func(a [16]byte) []netip.Addr {
		return []netip.Addr{netip.AddrFrom4([4]byte(a[4:8])), netip.AddrFrom4([4]byte{^a[12], ^a[13], ^a[14], ^a[15]})}
	}},
}
