package remote

import (
	"context"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/internal/wire"
)

// wakes is a client's stream of what it is to be told, and its watches. They end
// with the stream: the client names those that it has when it asks for the next. One
// for the end of a run ends with that, on both sides.
type wakes struct {
	store  bide.Store
	number uint64
	cancel context.CancelFunc
	bell   chan struct{}

	mu      sync.Mutex
	over    bool
	watches map[uint64]watched
	gone    map[uint64]bool      // given up before they came: requests overtake each other
	pending map[uint64]*bide.Run // by watch: what is to be told
}

// watched is a watch, as the server has it.
type watched struct {
	stop func() // gives it up
	ends bool
}

// aliveEvery is how often a client is told that the stream is alive.
const aliveEvery = 5 * time.Second

// Wake implements [wire.StoreHandler].
func (h *handler) Wake(ctx context.Context, req *connect.Request[wire.WakeRequest], stream *connect.ServerStream[wire.WakeResponse]) error {
	s, err := h.session(req.Msg.GetClient())
	if err != nil {
		return err
	}
	defer s.wait()()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &wakes{store: h.store, number: req.Msg.GetNumber(), cancel: cancel, bell: make(chan struct{}, 1),
		watches: map[uint64]watched{}, gone: map[uint64]bool{}, pending: map[uint64]*bide.Run{}}
	if !s.begin(w) {
		return errLate
	}
	defer w.end()
	for _, m := range req.Msg.GetWatches() {
		w.add(m)
	}
	if err := stream.Send(&wire.WakeResponse{}); err != nil {
		return err
	}
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-alive.C:
			if err := stream.Send(&wire.WakeResponse{}); err != nil {
				return err
			}
		case <-w.bell:
			for msg := w.take(); msg != nil; msg = w.take() {
				if err := stream.Send(msg); err != nil {
					return err
				}
			}
		}
	}
}

// begin makes it the client's stream, unless a newer one is.
func (s *session) begin(w *wakes) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wakes != nil {
		if s.wakes.number >= w.number {
			return false
		}
		s.wakes.cancel()
	}
	s.wakes = w
	return true
}

// watch adds or removes one watch.
func (s *session) watch(m *wire.WatchWrite) {
	s.mu.Lock()
	w := s.wakes
	s.mu.Unlock()
	if w == nil || w.number != m.GetWake() {
		return
	}
	if m.GetRemove() {
		w.remove(m.GetWatch().GetId())
	} else {
		w.add(m.GetWatch())
	}
}

func (w *wakes) add(m *wire.Watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := m.GetId()
	if w.gone[id] {
		delete(w.gone, id)
		return
	}
	if _, known := w.watches[id]; known || w.over {
		return
	}
	ch, stop := bide.Wake(w.store, m.GetRun(), m.GetEnds())
	quit := make(chan struct{})
	w.watches[id] = watched{ends: m.GetEnds(), stop: func() {
		stop()
		close(quit)
	}}
	go func() {
		for {
			select {
			case run := <-ch:
				w.tell(id, run)
			case <-quit:
				return
			}
		}
	}()
}

func (w *wakes) remove(id uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x, known := w.watches[id]
	if !known {
		w.gone[id] = !w.over
		return
	}
	x.stop()
	delete(w.watches, id)
	delete(w.pending, id)
}

func (w *wakes) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	for _, x := range w.watches {
		x.stop()
	}
	clear(w.watches)
}

// tell notes what is to be told. Several hints fold into one.
func (w *wakes) tell(id uint64, run *bide.Run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.watches[id]; !known {
		return
	}
	w.pending[id] = run
	select {
	case w.bell <- struct{}{}:
	default:
	}
}

// take returns what is to be told, as much as is right for one message, or nil.
func (w *wakes) take() *wire.WakeResponse {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending) == 0 {
		return nil
	}
	msg := &wire.WakeResponse{}
	var e encoder
	for id, run := range w.pending {
		if e.size > pageBytes {
			break
		}
		out := &wire.Woken{Id: id}
		if run != nil {
			out.Run = e.run(run)
			if x := w.watches[id]; e.err != nil { // a hint will do
				out.Run, e.err = nil, nil
			} else if x.ends {
				x.stop()
				delete(w.watches, id)
			}
		}
		msg.Woken = append(msg.Woken, out)
		delete(w.pending, id)
	}
	return msg
}
