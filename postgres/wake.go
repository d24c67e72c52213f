package postgres

import (
	"github.com/bide-dev/bide"
)

// watcher waits for changes of one run, or with an empty id of any.
type watcher struct {
	ends bool
	ch   chan *bide.Run
}

// Wake implements [bide.Waker]. All who wait share the process's one listening
// connection.
func (s *Store) Wake(id string, ends bool) (<-chan *bide.Run, func()) {
	x := &watcher{ends: ends, ch: make(chan *bide.Run, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.watchers) == 0 && s.group != nil { // a process that only waits has to be known, too
		_ = s.group.Add(&op{tick: true})
	}
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

// watched reports whether anyone watches a run.
func (s *Store) watched() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watchers) > 0
}

// dismiss lets those who watch see that the store is closed.
func (s *Store) dismiss() { s.hintAll() }

// hintAll lets all who watch look for themselves.
func (s *Store) hintAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, list := range s.watchers {
		for _, x := range list {
			x.tell(nil)
		}
	}
}

func (x *watcher) tell(run *bide.Run) {
	select {
	case x.ch <- run:
	default: // a hint is waiting already
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
		if !x.ends || t.over {
			x.tell(t.ended)
		}
	}
	for _, x := range s.watchers[""] {
		x.tell(nil)
	}
}
