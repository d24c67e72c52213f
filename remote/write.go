package remote

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/internal/wire"
)

// op is one write and, in the end, its outcome.
type op struct {
	write  *wire.Write
	size   int
	fenced bool // a commit under a lease: it must not be given up once it was sent
	quiet  bool // nobody waits for it
	then   func()

	state   atomic.Int32
	done    chan struct{}
	outcome *wire.Outcome
	err     error
}

// What becomes of an op before it has an outcome.
const (
	waiting   int32 = iota // the server has not seen it
	sent                   // it may have
	abandoned              // its caller has gone
)

// slots is how many requests with writes are under way at most, but for those that
// take longer than slotFor. While all are, writes gather.
const (
	slots   = 2
	slotFor = 50 * time.Millisecond
)

// A request has so many writes at most, or bytes, about.
const (
	maxWrites  = 1000
	maxGather  = 4 << 20
	maxRequest = 64 << 20
)

// deafAfter is how long a request may go without an answer, and the stream of wake-ups
// without a sign of life: a server that has nothing to say says so sooner. A connection
// may die without a word; it is noticed well before the lease of a worker lapses, by
// default.
const deafAfter = answerAfter + 5*time.Second

// do sends a write with those of others, and returns its outcome.
func (s *Store) do(ctx context.Context, o *op) (*wire.Outcome, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if o.size > maxRequest {
		return nil, &bide.InvalidError{Field: "batch", Reason: "is too large to be sent at once; keep results elsewhere and pass a reference"}
	}
	if s.isClosed() {
		return nil, bide.ErrClosed
	}
	o.done = make(chan struct{})
	if s.group.Add(o) != nil {
		return nil, bide.ErrClosed
	}
	for {
		select {
		case <-o.done:
			return o.outcome, o.err
		case <-s.link.trouble():
		}
		if err := s.wait(ctx, o); err != nil {
			return nil, err
		}
	}
}

// wait waits for the op's outcome while the server does not answer, but not too
// long. An error gives the op up.
func (s *Store) wait(ctx context.Context, o *op) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	gone := ctx.Done()
	for {
		select {
		case <-o.done:
			return nil
		case <-gone:
			if o.state.CompareAndSwap(waiting, abandoned) {
				return ctx.Err()
			}
			gone = nil // its outcome would stay unknown
		case <-timer.C:
			switch {
			case !s.link.broken.Load():
				return nil
			case o.state.CompareAndSwap(waiting, abandoned):
				return &UnreachableError{URL: s.url, Err: s.link.lastErr()}
			case (!o.fenced || s.isClosed()) && o.state.CompareAndSwap(sent, abandoned):
				return &UnreachableError{URL: s.url, Sent: true, Err: s.link.lastErr()}
			}
			timer.Reset(patience)
		}
	}
}

// flush sends what has gathered. A slot is free for it, and when it returns there
// is one for the next.
func (s *Store) flush(ops []*op) {
	for len(ops) > 0 {
		n, size := 0, 0
		for n < len(ops) && n < maxWrites && (n == 0 || size+ops[n].size <= maxGather) {
			size += ops[n].size
			n++
		}
		r := &request{ops: slices.Clone(ops[:n]), free: sync.OnceFunc(func() { <-s.slots })}
		s.sending.Go(func() {
			timer := time.AfterFunc(slotFor, func() {
				if !s.link.broken.Load() {
					r.free()
				}
			})
			s.send(r)
			timer.Stop()
			r.free()
		})
		ops = ops[n:]
		s.slots <- struct{}{}
	}
}

// request is writes that are sent together, under one number.
type request struct {
	ops   []*op
	free  func() // gives its slot up
	left  int    // without an outcome
	again bool
	token string // of the session that it was first sent in
}

// send sends the request until all its ops have an outcome, or nobody waits for
// one. What a server does not carry out since it ends, it sends anew.
func (s *Store) send(r *request) {
	for n := 0; len(r.ops) > 0; n++ {
		if n > 0 && !s.pause(s.base, n-1) {
			r.end(errClosing)
			return
		}
		s.ask(r)
	}
}

var (
	errClosing = errors.New("the store was closed")
	errEnding  = errors.New("the server is ending")
)

// ask sends the request under a new number until there are outcomes. It leaves
// the ops that have to be sent anew.
func (s *Store) ask(r *request) {
	var refused []*op
	doubt := false
	writes := make([]*wire.Write, len(r.ops))
	for i, o := range r.ops {
		writes[i] = o.write
	}
	r.left = len(r.ops)
	number := s.takeOff()
	defer s.land(number)
	msg := &wire.WriteRequest{Client: s.id, Number: number, Writes: writes}
	var resp *wire.WriteResponse
	var err error
	for failures := 0; r.left > 0; {
		if !r.depart() {
			r.ops = nil
			return
		}
		s.mu.Lock()
		msg.Answered = slices.Min(s.flying)
		if !r.again {
			r.token = s.token
		}
		s.mu.Unlock()
		hello := r.token == "" && !r.again
		if hello { // so that it can be told later whether a server is the same
			resp, err = s.write(&wire.WriteRequest{Client: s.id})
		} else {
			msg.Repeated, msg.Token, msg.Have = r.again, r.token, uint32(len(r.ops)-r.left) //nolint:gosec // at most maxWrites
			resp, err = s.write(msg)
		}
		if err == nil {
			failures = 0
			if hello {
				continue
			}
			more, unsure := s.settle(r, resp)
			refused, doubt = append(refused, more...), doubt || unsure
			r.again, r.token = true, resp.GetToken()
			if r.left > 0 { // what is slow is not to keep others waiting
				r.free()
			}
			continue
		}
		v := judge(s.url, err)
		if v.final != nil {
			s.link.up()
			r.end(v.final)
			r.ops = nil
			return
		}
		if v.sent && !hello {
			r.again = true
		} else {
			r.stay()
		}
		s.link.fail(err)
		if !s.pause(s.base, failures) || s.isClosed() && r.idle() {
			r.end(&UnreachableError{URL: s.url, Sent: r.again, Err: errClosing})
			r.ops = nil
			return
		}
		failures++
	}
	r.ops, r.again, r.token = refused, doubt, ""
	if len(refused) > 0 {
		s.link.fail(errEnding)
		r.stay()
	}
}

// write makes the request once.
func (s *Store) write(msg *wire.WriteRequest) (*wire.WriteResponse, error) {
	ctx, cancel := context.WithTimeout(s.base, deafAfter)
	defer cancel()
	resp, err := s.rpc.Write(ctx, connect.NewRequest(msg))
	if err != nil {
		return nil, err
	}
	s.link.up()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = resp.Msg.GetToken()
	return resp.Msg, nil
}

// takeOff gives the next request its number.
func (s *Store) takeOff() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number++
	s.flying = append(s.flying, s.number)
	return s.number
}

func (s *Store) land(number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flying = slices.DeleteFunc(s.flying, func(n uint64) bool { return n == number })
}

// depart marks what is about to be sent, and reports whether anybody still waits
// for any of it.
func (r *request) depart() bool {
	wanted := false
	for _, o := range r.ops {
		if o.quiet || o.outcome == nil && o.err == nil && (o.state.CompareAndSwap(waiting, sent) || o.state.Load() == sent) {
			wanted = true
		}
	}
	return wanted
}

// stay takes that back: it has not left.
func (r *request) stay() {
	if r.again {
		return
	}
	for _, o := range r.ops {
		o.state.CompareAndSwap(sent, waiting)
	}
}

// idle reports whether nobody waits for any of it.
func (r *request) idle() bool {
	return !slices.ContainsFunc(r.ops, func(o *op) bool { return !o.quiet && o.state.Load() != abandoned })
}

// end gives all that have no outcome an error.
func (r *request) end(err error) {
	for _, o := range r.ops {
		if o.outcome == nil && o.err == nil {
			o.finish(nil, err)
		}
	}
	r.left = 0
}

func (o *op) finish(outcome *wire.Outcome, err error) {
	o.outcome, o.err = outcome, err
	if o.done != nil {
		close(o.done)
	}
	if o.then != nil && err == nil {
		o.then()
	}
}

// settle hands out what outcomes there are. It returns the ops that the server has
// not carried out, since it ends, and whether that is in doubt for any of them.
func (s *Store) settle(r *request, resp *wire.WriteResponse) (refused []*op, doubt bool) {
	for _, out := range resp.GetOutcomes() {
		i := int(out.GetIndex())
		if i >= len(r.ops) || r.ops[i].outcome != nil || r.ops[i].err != nil {
			continue
		}
		o := r.ops[i]
		switch {
		case out.GetClosed() || out.GetUnknown() && o.fenced:
			refused = append(refused, o)
			doubt = doubt || out.GetUnknown()
		case out.GetUnknown():
			o.finish(nil, &UnreachableError{URL: s.url, Sent: true})
		default:
			o.finish(out, restore(out.GetError()))
		}
		r.left--
	}
	return refused, doubt
}
