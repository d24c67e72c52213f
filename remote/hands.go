package remote

import "sync"

// hands are goroutines that carry out writes, one after the other, as long as
// there are requests: one that has written to a store before has the stack that
// this takes.
type hands struct {
	jobs chan func()

	mu       sync.Mutex
	requests int
	idle     chan struct{} // closed when there are none
}

func newHands() *hands { return &hands{jobs: make(chan func())} }

// begin notes that a request has come, until the returned function is called.
func (h *hands) begin() (end func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.requests == 0 {
		h.idle = make(chan struct{})
	}
	h.requests++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.requests--; h.requests == 0 {
			close(h.idle)
		}
	}
}

// do has a job of a request done, by one that is free or by a new one.
func (h *hands) do(job func()) {
	select {
	case h.jobs <- job:
	default:
		h.mu.Lock()
		idle := h.idle
		h.mu.Unlock()
		go h.work(job, idle)
	}
}

func (h *hands) work(job func(), idle <-chan struct{}) {
	for {
		job()
		select {
		case job = <-h.jobs:
		case <-idle:
			return
		}
	}
}
