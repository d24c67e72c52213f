package sqlite

import (
	"time"

	"github.com/bide-dev/bide"
)

// watcher waits for changes of one run.
type watcher struct {
	ends bool
	ch   chan *bide.Run
}

// Wake implements [bide.Waker].
func (s *Store) Wake(id string, ends bool) (<-chan *bide.Run, func()) {
	x := &watcher{ends: ends, ch: make(chan *bide.Run, 1)}
	if s.readOnly {
		return x.ch, s.hint(x.ch)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers[id] = append(s.watchers[id], x)
	if !ends {
		s.watching.Add(1)
	}
	if id != "" && s.live[id] == nil || s.isClosed() {
		x.ch <- nil // it may have ended before
	}
	return x.ch, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unwatch(id, x)
	}
}

// lookAround is how often one who looks on beside the owner is told to look.
const lookAround = 500 * time.Millisecond

// hint makes the channel receive again and again, until the store is closed or
// the returned function is called: of another process's commits nobody tells.
func (s *Store) hint(ch chan *bide.Run) (stop func()) {
	done := make(chan struct{})
	ch <- nil
	go func() {
		ticker := time.NewTicker(lookAround)
		defer ticker.Stop()
		for over := false; !over; {
			select {
			case <-done:
				return
			case <-s.closed:
				over = true
			case <-ticker.C:
			}
			select {
			case ch <- nil:
			default:
			}
		}
	}()
	return func() { close(done) }
}

// dismiss lets those who watch see that the store is closed.
func (s *Store) dismiss() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, list := range s.watchers {
		for _, x := range list {
			select {
			case x.ch <- nil:
			default:
			}
		}
	}
}

func (s *Store) unwatch(id string, x *watcher) {
	list := s.watchers[id]
	for i, y := range list {
		if x != y {
			continue
		}
		list[i] = list[len(list)-1]
		if list = list[:len(list)-1]; len(list) == 0 {
			delete(s.watchers, id)
		} else {
			s.watchers[id] = list
		}
		if !x.ends {
			s.watching.Add(-1)
		}
		return
	}
}

// notify tells those who watch a run of a commit to it; mu is held.
func (s *Store) notify(t touch) {
	if t.freed != nil && s.live[t.id] == t.freed {
		delete(s.live, t.id)
	}
	for _, x := range s.watchers[t.id] {
		if x.ends && !t.over {
			continue
		}
		select {
		case x.ch <- t.ended:
		default: // a hint is waiting already
		}
	}
	for _, x := range s.watchers[""] {
		select {
		case x.ch <- nil:
		default:
		}
	}
}
