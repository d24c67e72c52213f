package remote

import (
	"context"
	"time"

	"connectrpc.com/connect"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/internal/wire"
)

// watch is what one call of Wake has handed out.
type watch struct {
	run    string
	ends   bool
	ch     chan *bide.Run
	placed chan struct{} // closed when the server has it, or had
	late   bool          // that is not waited for any more; under Store.mu
}

// place notes that the server has it. What may have been missed before is worth a
// hint; of an end the server says so itself. Store.mu is held.
func (w *watch) place() {
	select {
	case <-w.placed:
		w.late = true // that was another server, or another stream
	default:
		close(w.placed)
	}
	if w.late && !w.ends {
		w.hint(nil)
	}
}

// hint lets the watcher look; two fold into one.
func (w *watch) hint(run *bide.Run) {
	select {
	case w.ch <- run:
	default:
	}
}

// wakeStream is the stream over which the server tells of changes. Fields are
// under Store.mu.
type wakeStream struct {
	begun  bool // the goroutine that keeps it up
	over   chan struct{}
	number uint64 // of the newest
	ready  bool   // the server has it
	listed uint64 // watches up to here were named when it was asked for
	gone   []uint64
}

// placeWithin is how long Wake waits for the server to have heard of it.
const placeWithin = time.Second

// Wake implements [bide.Waker]. When the server was out of reach, every watcher
// is given a hint, since something may have been missed.
func (s *Store) Wake(id string, ends bool) (<-chan *bide.Run, func()) {
	w := &watch{run: id, ends: ends, ch: make(chan *bide.Run, 1), placed: make(chan struct{})}
	n := s.watch(w)
	if n == 0 {
		return w.ch, func() {}
	}
	if !ends { // of an end the server tells afterwards too, of a change it does not
		timer := time.NewTimer(placeWithin)
		defer timer.Stop()
		select {
		case <-w.placed:
		case <-s.closed:
		case <-timer.C:
			s.mu.Lock()
			w.late = true
			s.mu.Unlock()
		}
	}
	return w.ch, func() { s.unwatch(n) }
}

// watch gives the watch its number, 0 if the store is closed.
func (s *Store) watch(w *watch) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed() {
		w.hint(nil)
		return 0
	}
	s.watched++
	s.watches[s.watched] = w
	if s.wake.ready {
		s.tell(s.watched, w, false)
	}
	if !s.wake.begun {
		s.wake.begun, s.wake.over = true, make(chan struct{})
		go s.listen()
	}
	return s.watched
}

func (s *Store) unwatch(n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.watches[n]
	if w == nil {
		return
	}
	delete(s.watches, n)
	switch {
	case s.wake.ready:
		s.tell(n, w, true)
	case n <= s.wake.listed:
		s.wake.gone = append(s.wake.gone, n)
	}
}

// tell sends the server a change of what is watched, with the next writes; s.mu is
// held.
func (s *Store) tell(n uint64, w *watch, remove bool) {
	msg := &wire.WatchWrite{Wake: s.wake.number, Watch: &wire.Watch{Id: n, Run: w.run, Ends: w.ends}, Remove: remove}
	o := &op{write: &wire.Write{Write: &wire.Write_Watch{Watch: msg}}, size: overhead, quiet: true}
	if !remove && !w.ends {
		o.then = func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			w.place()
		}
	}
	_ = s.group.Add(o)
}

// listen keeps the stream up until the store is closed.
func (s *Store) listen() {
	defer close(s.wake.over)
	for failures := 0; ; failures++ {
		began := time.Now()
		err := s.stream()
		if time.Since(began) > time.Second {
			failures = 0
		}
		s.mu.Lock()
		s.wake.ready, s.wake.listed, s.wake.gone = false, 0, nil
		s.mu.Unlock()
		if s.isClosed() {
			return
		}
		if err != nil {
			s.link.fail(err)
		}
		s.pause(s.base, failures)
	}
}

// stream asks for the stream and passes on what comes, until it ends.
func (s *Store) stream() error {
	ctx, cancel := context.WithCancel(s.base)
	defer cancel()
	alive := time.AfterFunc(deafAfter, cancel)
	defer alive.Stop()
	s.mu.Lock()
	s.wake.number++
	s.wake.listed = s.watched
	req := &wire.WakeRequest{Client: s.id, Number: s.wake.number}
	for n, w := range s.watches {
		req.Watches = append(req.Watches, &wire.Watch{Id: n, Run: w.run, Ends: w.ends})
	}
	s.mu.Unlock()
	stream, err := s.rpc.Wake(ctx, connect.NewRequest(req))
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	for first := true; stream.Receive(); first = false {
		alive.Reset(deafAfter)
		if first {
			s.link.up()
			s.begin()
		}
		s.pass(stream.Msg().GetWoken())
	}
	return stream.Err()
}

// begin brings the server up to date with what has changed while the stream was
// asked for.
func (s *Store) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wake.ready = true
	for n, w := range s.watches {
		if n > s.wake.listed {
			s.tell(n, w, false)
		} else {
			w.place()
		}
	}
	for _, n := range s.wake.gone {
		s.tell(n, &watch{}, true)
	}
	s.wake.gone = nil
}

// pass hands out what the server tells of.
func (s *Store) pass(woken []*wire.Woken) {
	for _, m := range woken {
		var run *bide.Run
		if m.GetRun() != nil {
			var d decoder
			if r := d.run(m.GetRun()); d.err == nil {
				run = &r
			}
		}
		s.mu.Lock()
		if w := s.watches[m.GetId()]; w != nil {
			w.hint(run)
			if w.ends && run != nil { // the server has ended it too
				delete(s.watches, m.GetId())
			}
		}
		s.mu.Unlock()
	}
}

// dismiss lets those who watch see that the store is closed.
func (s *Store) dismiss() {
	s.mu.Lock()
	over := s.wake.over
	for _, w := range s.watches {
		w.hint(nil)
	}
	s.mu.Unlock()
	if over != nil {
		<-over
	}
}
