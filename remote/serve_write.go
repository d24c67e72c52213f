package remote

import (
	"context"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/internal/wire"
)

// call is a request with writes, by which its repetitions find what it came to.
type call struct {
	outcomes []atomic.Pointer[wire.Outcome] // nil: not yet
	left     atomic.Int64
	done     chan struct{} // closed when all are there
}

const (
	// answerAfter is when a request is answered at the latest: proxies hang up on one
	// that takes long. What has no outcome by then is asked for again.
	answerAfter = 10 * time.Second
	// partly is how long those that are done wait for the others of their request.
	partly = 5 * time.Millisecond
)

// Write implements [wire.StoreHandler].
func (h *handler) Write(ctx context.Context, req *connect.Request[wire.WriteRequest]) (*connect.Response[wire.WriteResponse], error) {
	s, err := h.session(req.Msg.GetClient())
	if err != nil {
		return nil, err
	}
	if len(req.Msg.GetWrites()) == 0 {
		return connect.NewResponse(&wire.WriteResponse{Token: s.token}), nil
	}
	c, isNew, ok := s.call(req.Msg)
	if !ok {
		return nil, errLate
	}
	defer h.hands.begin()()
	if isNew {
		h.carryOut(context.WithoutCancel(ctx), s, c, req.Msg)
	}
	defer s.wait()()
	c.wait(ctx, int64(req.Msg.GetHave()))
	resp := &wire.WriteResponse{Token: s.token}
	for i := range c.outcomes {
		if o := c.outcomes[i].Load(); o != nil {
			resp.Outcomes = append(resp.Outcomes, o)
		}
	}
	return connect.NewResponse(resp), nil
}

// call finds the call that the request repeats, or makes it. It is not ok if that
// was answered already: a duplicate that nobody waits for.
func (s *session) call(req *wire.WriteRequest) (c *call, isNew, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := range s.calls {
		if n < req.GetAnswered() {
			delete(s.calls, n)
		}
	}
	s.answered = max(s.answered, req.GetAnswered())
	if c := s.calls[req.GetNumber()]; c != nil {
		return c, false, true
	}
	if req.GetNumber() < s.answered {
		return nil, false, false
	}
	n := len(req.GetWrites())
	c = &call{outcomes: make([]atomic.Pointer[wire.Outcome], n), done: make(chan struct{})}
	c.left.Store(int64(n))
	s.calls[req.GetNumber()] = c
	return c, true, true
}

// wait waits until all is done, or for a little while if more is done than the
// client knows of.
func (c *call) wait(ctx context.Context, have int64) {
	ticker := time.NewTicker(partly)
	defer ticker.Stop()
	for began := time.Now(); time.Since(began) < answerAfter; {
		select {
		case <-c.done:
			return
		case <-ctx.Done():
			return
		case <-ticker.C:
			if int64(len(c.outcomes))-c.left.Load() > have {
				return
			}
		}
	}
}

// carryOut begins the writes side by side, so that the store can gather them.
func (h *handler) carryOut(ctx context.Context, s *session, c *call, req *wire.WriteRequest) {
	doubt := req.GetRepeated() && req.GetToken() != s.token
	for i, w := range req.GetWrites() {
		h.hands.do(func() {
			x := exec{handler: h, session: s, doubt: doubt, id: opID{req.GetClient(), req.GetNumber(), i}}
			out := x.write(ctx, w)
			out.Index = uint32(i) //nolint:gosec // of a list
			c.outcomes[i].Store(out)
			if c.left.Add(-1) == 0 {
				close(c.done)
			}
		})
	}
}

// refused is the outcome of a write that was not carried out.
func refused(err error) *wire.Outcome { return &wire.Outcome{Error: failure(err)} }

var errNoWrite = &bide.InvalidError{Field: "write", Reason: "is of no known kind; the client is newer than the server"}
