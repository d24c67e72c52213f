package remote

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/internal/wire"
)

// chair is where a worker of a client waits, at the server.
type chair struct {
	mu      sync.Mutex
	number  uint64         // of the newest Claim
	stopped uint64         // Claims up to this one are over
	queue   []bide.Claimed // handed out by the store, and not acknowledged
	sent    int            // how many of them have gone out with the newest Claim
	given   bool           // anything has ever gone out
	under   *claiming      // at the store; nil: none
}

// claiming is a Claim at the store. It outlasts the request that began it, if
// that is repeated, and what it is given is never lost.
type claiming struct {
	cancel  context.CancelFunc
	done    chan struct{}
	max     int64
	waiting int // requests
	err     error
}

func (s *session) chair(worker string) *chair {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.chairs[worker]
	if x == nil {
		x = &chair{}
		s.chairs[worker] = x
	}
	return x
}

// Claim implements [wire.StoreHandler].
func (h *handler) Claim(ctx context.Context, req *connect.Request[wire.ClaimRequest]) (*connect.Response[wire.ClaimResponse], error) {
	s, err := h.session(req.Msg.GetClient())
	if err != nil {
		return nil, err
	}
	defer s.wait()()
	x := s.chair(req.Msg.GetWorker())
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.sit(req.Msg); err != nil {
		return nil, err
	}
	if len(x.queue) > 0 || x.under != nil { // nothing is asked of the store, but each Claim is a sign of life
		err := h.store.Commit(ctx, bide.Lease{Worker: req.Msg.GetWorker()}, bide.Batch{})
		if err != nil && !errors.Is(err, bide.ErrLeaseLost) {
			return nil, refusal(err)
		}
	}
	if len(x.queue) == 0 && x.under == nil && x.stopped < x.number {
		x.begin(ctx, h.store, req.Msg)
	}
	if u := x.under; u != nil {
		u.waiting++
		x.mu.Unlock()
		select {
		case <-u.done:
		case <-ctx.Done():
		}
		x.mu.Lock()
		if u.waiting--; u.waiting == 0 {
			u.cancel()
			if ctx.Err() != nil && (x.under == nil || x.under == u) {
				h.vacate(ctx, x, req.Msg.GetWorker())
			}
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case x.number != req.Msg.GetNumber():
			return nil, errLate
		case u.err != nil && len(x.queue) == 0 && !errors.Is(u.err, context.Canceled) && !errors.Is(u.err, context.DeadlineExceeded):
			return nil, refusal(u.err)
		}
	}
	return x.answer()
}

// sit makes the request's Claim the newest: what the one before was answered with
// is acknowledged. x.mu is held, but for a while.
func (x *chair) sit(req *wire.ClaimRequest) error {
	for x.under != nil && (x.number < req.GetNumber() || x.number == req.GetNumber() && x.under.max != req.GetMax()) {
		x.endLocked() // its client has given it up
	}
	switch {
	case req.GetNumber() < x.number:
		return errLate
	case req.GetNumber() > x.number:
		x.number = req.GetNumber()
		x.queue, x.sent = slices.Clone(x.queue[x.sent:]), 0
	}
	return nil
}

// endLocked ends the Claim at the store; x.mu is held, but not while it waits.
func (x *chair) endLocked() {
	u := x.under
	if u == nil {
		return
	}
	u.cancel()
	x.mu.Unlock()
	<-u.done
	x.mu.Lock()
}

// vacate gives back what was handed out for a worker that has hung up and that has
// never had anything: it may be one that is no more, by whose leases others would
// have to wait. If it asks again, it begins anew. x.mu is held, but for a while.
func (h *handler) vacate(ctx context.Context, x *chair, worker string) {
	if x.given {
		return
	}
	x.endLocked()
	if x.given || x.under != nil || len(x.queue) == 0 { // it has asked again meanwhile, or there is nothing to give back
		return
	}
	x.queue = nil
	_ = h.store.Commit(context.WithoutCancel(ctx), bide.Lease{Worker: worker}, bide.Batch{Next: bide.Parked{}}) // or it lapses
}

// begin begins a Claim at the store; x.mu is held.
func (x *chair) begin(ctx context.Context, store bide.Store, req *wire.ClaimRequest) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerAfter)
	u := &claiming{cancel: cancel, done: make(chan struct{}), max: req.GetMax()}
	x.under = u
	go func() {
		defer cancel()
		claimed, err := store.Claim(ctx, bide.Claim{Worker: req.GetWorker(), Queues: req.GetQueues(), Workflows: req.GetWorkflows(),
			Max: int(req.GetMax()), TTL: time.Duration(req.GetTtl())})
		x.mu.Lock()
		if x.under, u.err = nil, err; err == nil { // else what there is comes with the next
			x.queue = append(x.queue, claimed...)
		}
		x.mu.Unlock()
		close(u.done)
	}()
}

// answer sends what is there, as much as is right for one response; x.mu is held.
func (x *chair) answer() (*connect.Response[wire.ClaimResponse], error) {
	resp := &wire.ClaimResponse{}
	var e encoder
	n := 0
	for ; n < len(x.queue) && (n == 0 || e.size < pageBytes); n++ {
		c := &x.queue[n]
		out := e.claimed(c)
		for i := range c.History {
			if out.MoreHistory = e.size > pageBytes; out.MoreHistory {
				break
			}
			out.History = append(out.History, e.record(&c.History[i]))
		}
		resp.Claimed = append(resp.Claimed, out)
	}
	if e.err != nil {
		return nil, refusal(e.err)
	}
	x.sent, x.given = max(x.sent, n), x.given || n > 0
	return connect.NewResponse(resp), nil
}

// StopClaim implements [wire.StoreHandler].
func (h *handler) StopClaim(_ context.Context, req *connect.Request[wire.StopClaimRequest]) (*connect.Response[wire.StopClaimResponse], error) {
	s, err := h.session(req.Msg.GetClient())
	if err != nil {
		return nil, err
	}
	x := s.chair(req.Msg.GetWorker())
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stopped = max(x.stopped, req.Msg.GetNumber())
	if x.number <= req.Msg.GetNumber() {
		x.endLocked()
	}
	return connect.NewResponse(&wire.StopClaimResponse{}), nil
}

// leave ends the worker's Claim, since it gives back all that it has.
func (s *session) leave(worker string) {
	s.mu.Lock()
	x := s.chairs[worker]
	delete(s.chairs, worker)
	s.mu.Unlock()
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.endLocked()
	x.queue, x.sent, x.stopped = nil, 0, x.number
}
