package server

import (
	"net/netip"
	"sync"
	"time"
)

const (
	mostFailures = 30          // of one address in failuresFor
	failuresFor  = time.Minute // after which all is forgotten
	mostFailing  = 10_000      // addresses that are counted
)

// failures counts the keys that were none, by the address that has tried them. Who
// tries out keys finds none, but each try is work and a line in a log; who gives the
// right one is never asked about here.
type failures struct {
	mu    sync.Mutex
	began time.Time
	by    map[netip.Addr]int
}

// add counts one, and returns after how long the address may try again, 0 if it may
// now. Of IPv6, what one customer has counts as one.
func (f *failures) add(remote string, now time.Time) time.Duration {
	at, _ := netip.ParseAddrPort(remote) // what has no address counts as one
	addr := at.Addr().Unmap().WithZone("")
	if addr.Is6() {
		if net, err := addr.Prefix(64); err == nil {
			addr = net.Addr()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if age := now.Sub(f.began); f.by == nil || age >= failuresFor || age < 0 {
		f.began, f.by = now, map[netip.Addr]int{}
	}
	if f.by[addr] == 0 && len(f.by) >= mostFailing {
		return 0
	}
	if f.by[addr]++; f.by[addr] <= mostFailures {
		return 0
	}
	return f.began.Add(failuresFor).Sub(now)
}
