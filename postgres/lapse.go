package postgres

import (
	"sync/atomic"
	"time"

	"github.com/bide-dev/bide"
)

// lapse is when others may take this process for dead, as far as it knows: its
// workers are told then, since what they hold may be in other hands.
type lapse struct {
	at    atomic.Int64 // in nanoseconds since the writer's start
	timer *time.Timer  // the writer's, once made
}

// seen notes that the database has had the sign of life that was sent at the time.
func (w *writer) seen(sent time.Time) {
	if w.s.alone {
		return
	}
	ttl := w.ttl()
	was := w.s.lapse.at.Swap(int64(sent.Sub(w.start) + ttl))
	switch l := &w.s.lapse; {
	case l.timer == nil:
		w.s.mu.Lock()
		l.timer = time.AfterFunc(ttl, w.s.lapsed)
		w.s.mu.Unlock()
	case was <= int64(time.Since(w.start)), int64(ttl) < was-int64(sent.Sub(w.start)): // it has rung, or would ring too late
		l.timer.Reset(ttl)
	}
}

func (s *Store) lapsed() {
	if s.isClosed() {
		return
	}
	at := s.lapse.at.Load()
	left := time.Duration(at) - time.Since(s.w.start)
	s.mu.Lock()
	defer s.mu.Unlock()
	if left > 0 {
		s.lapse.timer.Reset(left)
		return
	}
	for _, x := range s.workers {
		x.lapsed = true
		if x.halt != nil {
			x.halt()
		}
		x.ring()
	}
	s.lapse.timer.Reset(idleFor) // until it is heard again
}

// letGo is what a worker is told when its leases have lapsed.
func (x *worker) letGo() []bide.Claimed {
	return []bide.Claimed{{Lease: bide.Lease{Worker: x.id}, News: true, Lost: true}}
}
