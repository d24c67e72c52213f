package main

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// mode is what a link does with what it carries.
type mode int

const (
	open  mode = iota
	hold       // nothing passes; what was sent meanwhile arrives once the link is healed
	half       // as hold, but only of what the dialing side sends
	lose       // what is sent is gone, and so are the connections that saw it: neither side is told
	reset      // connections are reset, new ones too
	delay      // everything is late
)

var modes = map[mode]string{open: "open", hold: "hold", half: "half", lose: "lose", reset: "reset", delay: "delay"}

// lateness is how long a link in mode delay keeps each piece.
const lateness = 100 * time.Millisecond

// link is a TCP proxy between one process and one other: what can be cut.
type link struct {
	name     string
	listener net.Listener
	target   func() (network, address string)
	done     context.Context

	mu      sync.Mutex
	mode    mode
	changed chan struct{} // closed at the next change of mode
	pairs   map[*pair]struct{}
}

// pair is a connection through a link.
type pair struct {
	near, far net.Conn
	doomed    chan struct{} // closed once something of it was lost
	doom      sync.Once
}

// newLink listens, and carries connections to where target says until ctx ends.
func newLink(ctx context.Context, name string, target func() (network, address string)) (*link, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &link{name: name, listener: listener, target: target, done: ctx, changed: make(chan struct{}), pairs: map[*pair]struct{}{}}
	context.AfterFunc(ctx, func() {
		_ = listener.Close()
		l.set(reset)
	})
	go l.accept()
	return l, nil
}

func (l *link) address() string { return l.listener.Addr().String() }

// set changes what the link does from now on.
func (l *link) set(m mode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mode = m
	close(l.changed)
	l.changed = make(chan struct{})
	for p := range l.pairs {
		switch m {
		case reset:
			p.reset()
		case lose:
			p.doom.Do(func() { close(p.doomed) })
		}
	}
}

func (l *link) now() (mode, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mode, l.changed
}

func (l *link) accept() {
	for {
		conn, err := l.listener.Accept()
		if err != nil {
			return
		}
		go l.carry(conn)
	}
}

func (l *link) carry(near net.Conn) {
	p := &pair{near: near, doomed: make(chan struct{})}
	if m, _ := l.now(); m == reset {
		p.reset()
		return
	}
	network, address := l.target()
	far, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(l.done, network, address)
	if err != nil { // nobody listens
		p.reset()
		return
	}
	p.far = far
	l.mu.Lock()
	l.pairs[p] = struct{}{}
	switch l.mode {
	case reset:
		p.reset()
	case lose:
		p.doom.Do(func() { close(p.doomed) })
	}
	l.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { l.copy(p, near, far, true) })
	both.Go(func() { l.copy(p, far, near, false) })
	both.Wait()
	l.mu.Lock()
	delete(l.pairs, p)
	l.mu.Unlock()
	_ = near.Close()
	_ = far.Close()
}

// copy passes on what comes from one side, and its end, as the link's mode has it.
func (l *link) copy(p *pair, from, to net.Conn, out bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if !l.pass(p, out) { // who does not hear of the end of a doomed one has to find out
			_, _ = io.Copy(io.Discard, from)
			return
		}
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				p.reset()
				return
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			if c, ok := to.(interface{ CloseWrite() error }); ok {
				_ = c.CloseWrite()
			}
			return
		default:
			p.reset()
			return
		}
	}
}

// pass waits until what has come may go on, and reports whether it ever may.
func (l *link) pass(p *pair, out bool) bool {
	for {
		m, changed := l.now()
		var late <-chan time.Time
		switch {
		case m == hold, m == half && out:
		case m == delay:
			late, changed = time.After(lateness), nil
		default:
			select {
			case <-p.doomed:
				return false
			default:
				return true
			}
		}
		select {
		case <-changed:
		case <-late:
			return true
		case <-p.doomed:
			return false
		}
	}
}

// reset ends both sides at once, with an RST where there can be one.
func (p *pair) reset() {
	for _, c := range []net.Conn{p.near, p.far} {
		if c == nil {
			continue
		}
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
}
