package sqlite

import "github.com/bide-dev/bide"

// watcher waits for changes of one run.
type watcher struct {
	ends bool
	ch   chan *bide.Run
}

// Wake implements [bide.Waker].
func (s *Store) Wake(id string, ends bool) (<-chan *bide.Run, func()) {
	x := &watcher{ends: ends, ch: make(chan *bide.Run, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers[id] = append(s.watchers[id], x)
	if !ends {
		s.watching.Add(1)
	}
	if s.live[id] == nil || s.isClosed() {
		x.ch <- nil // it may have ended before
	}
	return x.ch, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unwatch(id, x)
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
}
