package remote

import (
	"sync"
	"sync/atomic"
)

// link knows whether the server answers, so that those who wait for it look at
// the clock only while it does not.
type link struct {
	broken atomic.Bool

	mu   sync.Mutex
	down chan struct{} // closed while it does not
	err  error         // the last attempt's
}

// up notes an answer.
func (l *link) up() {
	if !l.broken.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken.Load() {
		l.down = make(chan struct{})
		l.broken.Store(false)
	}
}

// fail notes an attempt without one.
func (l *link) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
	if !l.broken.Load() {
		l.broken.Store(true)
		close(l.down)
	}
}

// trouble is closed while the server does not answer.
func (l *link) trouble() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.down
}

func (l *link) lastErr() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}
