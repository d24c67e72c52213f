package netguard

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	for _, c := range []struct{ addr, reason string }{
		{"8.8.8.8", ""},
		{"1.1.1.1", ""},
		{"93.184.215.14", ""},
		{"192.0.1.1", ""},
		{"2606:4700:4700::1111", ""},
		{"2a00:1450:4001:80e::200e", ""},
		{"2001:4860:4860::8888", ""},
		{"::ffff:8.8.8.8", ""},
		{"64:ff9b::8.8.8.8", ""},
		{"2002:808:808::1", ""},
		{"2001:0:808:808::f7f7:f7f7", ""}, // Teredo, 8.8.8.8 twice

		{"127.0.0.1", "loopback"},
		{"127.255.255.254", "loopback"},
		{"0.0.0.0", "this network"},
		{"0.1.2.3", "this network"},
		{"10.0.0.1", "private"},
		{"172.16.0.1", "private"},
		{"172.31.255.255", "private"},
		{"192.168.1.1", "private"},
		{"169.254.169.254", "metadata"}, // AWS, GCP, Azure
		{"100.100.100.200", "NAT"},      // Alibaba's metadata
		{"192.0.0.192", "IETF"},         // Oracle's
		{"168.63.129.16", "Azure"},
		{"192.0.2.1", "documentation"},
		{"192.88.99.1", "6to4 relay"},
		{"198.18.0.1", "benchmarking"},
		{"198.51.100.1", "documentation"},
		{"203.0.113.1", "documentation"},
		{"224.0.0.1", "multicast"},
		{"239.255.255.255", "multicast"},
		{"240.0.0.1", "reserved"},
		{"255.255.255.255", "broadcast"},

		{"::1", "loopback"},
		{"::", "unspecified"},
		{"::127.0.0.1", "IPv4-compatible"},
		{"::ffff:127.0.0.1", "loopback"},
		{"::ffff:169.254.169.254", "metadata"},
		{"::ffff:0:127.0.0.1", "not global unicast"}, // translated, RFC 2765
		{"64:ff9b::127.0.0.1", "NAT64 (RFC 6052) of 127.0.0.1: loopback"},
		{"64:ff9b::a9fe:a9fe", "metadata"},
		{"64:ff9b:1::8.8.8.8", "local NAT64"},
		{"2002:7f00:1::", "6to4 (RFC 3056) of 127.0.0.1: loopback"},
		{"2002:c0a8:101::1", "private"},
		{"2001:0:7f00:1::f7f7:f7f7", "Teredo (RFC 4380) of 127.0.0.1: loopback"},
		{"2001:0:808:808::80ff:fffe", "Teredo (RFC 4380) of 127.0.0.1: loopback"},
		{"100::1", "discarded"},
		{"2001:2::1", "IETF"},
		{"2001:10::1", "IETF"},
		{"2001:db8::1", "documentation"},
		{"3fff::1", "documentation"},
		{"5f00::1", "segment routing"},
		{"fc00::1", "unique local"},
		{"fd00:ec2::254", "unique local"}, // AWS metadata
		{"fe80::1", "link-local"},
		{"fe80::1%eth0", "link-local"},
		{"fec0::1", "site-local"},
		{"ff02::1", "multicast"},
		{"4000::1", "not global unicast"},
		{"1fff:ffff::1", "not global unicast"},
	} {
		addr := netip.MustParseAddr(c.addr)
		err := Check(addr)
		if c.reason == "" {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		var blocked *BlockedError
		if !errors.As(err, &blocked) || blocked.Addr != addr || blocked.Code() != "address_blocked" || !strings.Contains(err.Error(), addr.String()+": ") || !strings.Contains(blocked.Reason, c.reason) {
			t.Errorf("%s: %v, want %q", c.addr, err, c.reason)
		}
	}
	if err := Check(netip.Addr{}); err == nil {
		t.Error("no address is let through")
	}
}

func TestAllow(t *testing.T) {
	allow := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/32"), netip.MustParsePrefix("fe80::/10")}
	for addr, ok := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "64:ff9b::10.1.2.3": true, "2002:a01:203::": true,
		"10.2.0.0": false, "fd00:1::7": true, "fd00:2::7": false, "fe80::1%eth0": true, "127.0.0.1": false, "8.8.8.8": true,
		"2001:0:a01:203::80ff:fffe": false, // Teredo: the server is allowed, the client is 127.0.0.1
	} {
		if err := Check(netip.MustParseAddr(addr), allow...); (err == nil) != ok {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

// The first and the last address of each block are refused.
func TestEdges(t *testing.T) {
	for _, s := range specials {
		first := s.prefix.Masked().Addr()
		last := first.AsSlice()
		for i := s.prefix.Bits(); i < len(last)*8; i++ {
			last[i/8] |= 1 << (7 - i%8)
		}
		end, _ := netip.AddrFromSlice(last)
		if Check(first) == nil || Check(end) == nil {
			t.Errorf("%v: %v, %v", s.prefix, Check(first), Check(end))
		}
	}
	for _, neighbour := range []string{
		"1.0.0.0", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0",
		"169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.167.255.255", "192.169.0.0",
		"198.17.255.255", "198.20.0.0", "223.255.255.255", "2001:200::", "2001:db7:ffff::", "2001:db9::", "2003::", "3ffe::", "2000::",
	} {
		if err := Check(netip.MustParseAddr(neighbour)); err != nil {
			t.Error(err)
		}
	}
}

// Whatever the standard library knows to be special is refused, and an IPv4
// address is judged the same however it is carried.
func TestRandomAddresses(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	let := 0
	for range 100_000 {
		var b [16]byte
		binary.BigEndian.PutUint64(b[:], rng.Uint64())
		binary.BigEndian.PutUint64(b[8:], rng.Uint64())
		v4, v6 := netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom16(b)
		for _, addr := range []netip.Addr{v4, v6} {
			if Check(addr) == nil && (!addr.IsGlobalUnicast() || addr.IsPrivate() || addr.IsLoopback() || addr.IsMulticast() || addr.IsLinkLocalUnicast() || addr.IsUnspecified()) {
				t.Fatalf("%v is let through", addr)
			}
		}
		want := Check(v4) == nil
		if want {
			let++
		}
		a := v4.As4()
		carried := map[string]netip.Addr{
			"mapped": netip.AddrFrom16(v4.As16()),
			"NAT64":  netip.AddrFrom16([16]byte{0, 0x64, 0xff, 0x9b, 12: a[0], a[1], a[2], a[3]}),
			"6to4":   netip.AddrFrom16([16]byte{0x20, 0x02, a[0], a[1], a[2], a[3], 15: b[0]}),
			"Teredo": netip.AddrFrom16([16]byte{0x20, 0x01, 0, 0, 8, 8, 8, 8, b[0], b[1], b[2], b[3], ^a[0], ^a[1], ^a[2], ^a[3]}),
		}
		for name, addr := range carried {
			if got := Check(addr) == nil; got != want {
				t.Fatalf("%v as %s, %v: let through %v, want %v", v4, name, addr, got, want)
			}
		}
	}
	if let < 50_000 {
		t.Errorf("only %d of 100000 IPv4 addresses are let through", let)
	}
}

func TestCheckURL(t *testing.T) {
	for text, reason := range map[string]string{
		"http://example.com/x?y":       "",
		"https://example.com:8443":     "",
		"HTTPS://[2606:4700::1111]/":   "",
		"ftp://example.com":            `scheme "ftp" is not http or https`,
		"file:///etc/passwd":           `scheme "file"`,
		"gopher://127.0.0.1:6379/_":    `scheme "gopher"`,
		"//example.com":                `scheme ""`,
		"javascript:alert(1)":          `scheme "javascript"`,
		"http://user@example.com":      "has a user",
		"http://user:secret@evil.com/": "has a user",
		"http://@evil.com/":            "has a user",
		"http:///x":                    "no host",
		"http://:80/":                  "no host",
		"http:example.com":             "no host",
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		err = CheckURL(u)
		if reason == "" {
			if err != nil {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		var blocked *BlockedError
		if !errors.As(err, &blocked) || !strings.Contains(err.Error(), reason) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", text, err, reason)
		}
	}
	if CheckURL(nil) == nil {
		t.Error("no URL is let through")
	}
}

func FuzzControl(f *testing.F) {
	for _, address := range []string{"127.0.0.1:80", "8.8.8.8:443", "[::1%lo]:1", "localhost:80", "/run/docker.sock", "", "2130706433:80", "[::ffff:7f00:1]:80", "8.8.8.8:99999"} {
		f.Add(address)
	}
	f.Fuzz(func(t *testing.T, address string) {
		err := Control("tcp", address, nil)
		to, bad := netip.ParseAddrPort(address)
		var blocked *BlockedError
		switch {
		case err != nil && !errors.As(err, &blocked):
			t.Errorf("%q: %v", address, err)
		case err == nil && (bad != nil || to.Addr().IsPrivate() || to.Addr().IsLoopback() || to.Addr().Unmap().IsLoopback()):
			t.Errorf("%q is let through", address)
		}
	})
}
