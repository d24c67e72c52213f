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
	timer *time.Timer  // under Store.mu, but that only the writer makes it
	told  int64        // which of these the workers have been told of; under Store.mu
}

// seen notes that the database has had the sign of life that was sent at the time.
func (w *writer) seen(sent time.Time) {
	if w.s.alone {
		return
	}
	ttl := w.ttl()
	at := int64(sent.Sub(w.start) + ttl)
	was := w.s.lapse.at.Swap(at)
	if l := &w.s.lapse; l.timer == nil || at < was {
		w.s.mu.Lock()
		defer w.s.mu.Unlock()
		if l.timer == nil {
			l.timer = time.AfterFunc(ttl, w.s.lapsed)
		} else { // it would ring too late: a worker of less patience has come
			l.timer.Reset(ttl)
		}
	}
}

func (s *Store) lapsed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed() {
		return
	}
	at := s.lapse.at.Load()
	if left := time.Duration(at) - time.Since(s.w.start); left > 0 {
		s.lapse.timer.Reset(left)
		return
	}
	s.lapse.timer.Reset(lookAgain) // whether it is heard again
	if s.lapse.told == at {
		return
	}
	s.lapse.told = at
	for _, x := range s.workers {
		x.lapsed = true
		if x.halt != nil {
			x.halt()
		}
		x.ring()
	}
}

// letGo is what a worker is told when its leases have lapsed.
func (x *worker) letGo() []bide.Claimed {
	return []bide.Claimed{{Lease: bide.Lease{Worker: x.id}, News: true, Lost: true}}
}
