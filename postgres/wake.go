package postgres

import (
	"time"

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
	if (len(s.watchers) == 0 || s.noNotify && s.still() > 10*lookPoll) && s.group != nil { // a process that only waits has to be known, too
		s.stir()
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

// stir notes that something moves: where no notifications come, that is looked after.
func (s *Store) stir() { s.stirred.Store(int64(time.Since(s.w.start))) }

// still is how long nothing has moved.
func (s *Store) still() time.Duration { return time.Since(s.w.start) - time.Duration(s.stirred.Load()) }

// watched reports whether anyone watches a run.
func (s *Store) watched() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watchers) > 0
}

// endedOf are those of some runs that are over.
const endedOf = `SELECT k, coalesce(id, '') FROM bide.run WHERE k = ANY ($1) AND ended > 0
	UNION ALL SELECT k, id FROM bide.run WHERE id = ANY ($2) AND ended > 0`

// lookAtWatched sees which of the runs that are watched here have ended: notifications
// may be missed, or not come at all.
func (w *writer) lookAtWatched() error {
	ks, ids := w.s.watchedRuns()
	if len(ks) == 0 && len(ids) == 0 {
		return nil
	}
	rows, err := w.conn.Query(w.ctx, w.s.sql(endedOf), ks, ids)
	if err != nil {
		return err
	}
	h := hint{}
	for rows.Next() {
		var k int64
		var id string
		if err := rows.Scan(&k, &id); err != nil {
			return err
		}
		if id == "" {
			id = w.s.madeID(k)
		}
		h.Ended = append(h.Ended, id)
	}
	if rows.Err() == nil && len(h.Ended) > 0 {
		w.s.stir()
		w.s.relay(&h)
	}
	return rows.Err()
}

// watchedRuns are the runs that are watched, by number and by given id. Where nobody
// tells of changes, those who want more than ends are to look for themselves.
func (s *Store) watchedRuns() (ks []int64, ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, list := range s.watchers {
		for _, x := range list {
			if s.noNotify && !x.ends {
				x.tell(nil)
			}
		}
		if k, made := s.parseID(id); made {
			ks = append(ks, k)
		} else if id != "" {
			ids = append(ids, id)
		}
	}
	return ks, ids
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
