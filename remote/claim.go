package remote

import (
	"context"
	"time"

	"connectrpc.com/connect"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/internal/wire"
)

// seat is a worker, by whom one Claim at a time is made.
type seat struct {
	turn   chan struct{}
	number uint64 // of the Claim under way or to come; the ones before are acknowledged by it
}

func (s *Store) seat(worker string) *seat {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.seats[worker]
	if x == nil {
		x = &seat{turn: make(chan struct{}, 1), number: 1}
		s.seats[worker] = x
	}
	return x
}

// Claim implements [bide.Store]. While it waits, so does a Claim at the server;
// between two calls nothing is fetched beforehand.
func (s *Store) Claim(ctx context.Context, c bide.Claim) ([]bide.Claimed, error) {
	x := s.seat(c.Worker)
	select {
	case x.turn <- struct{}{}:
		defer func() { <-x.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var since time.Time
	for failures := 0; ; failures++ {
		if s.isClosed() {
			return nil, bide.ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		began := time.Now()
		resp, err := s.askForRuns(ctx, x, c)
		if err == nil {
			s.link.up()
			claimed, err := s.receive(ctx, resp)
			if err != nil {
				return nil, err // they are handed out again: not acknowledged
			}
			x.number++
			if len(claimed) > 0 {
				return claimed, nil
			}
			failures, since = -1, time.Time{}
			continue
		}
		if ctx.Err() != nil || s.isClosed() {
			continue
		}
		if v := judge(s.url, err); v.final != nil {
			return nil, v.final
		}
		s.link.fail(err)
		switch {
		case since.IsZero() || time.Since(began) > time.Second: // it was in touch meanwhile
			failures, since = 0, time.Now()
		case time.Since(since) > patience:
			return nil, &UnreachableError{URL: s.url, Err: err}
		}
		s.pause(ctx, failures)
	}
}

// stopWithin is how long a Claim whose ctx has ended waits for the server to say
// that it has ended there too.
const stopWithin = time.Second

// askForRuns makes the request. When ctx ends, the Claim at the server is ended
// first, so that nothing is handed out to one that no longer listens.
func (s *Store) askForRuns(ctx context.Context, x *seat, c bide.Claim) (*wire.ClaimResponse, error) {
	call, cancel := context.WithTimeout(s.base, deafAfter)
	defer cancel()
	number := x.number
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(stopWithin, cancel)
		defer timer.Stop()
		req := &wire.StopClaimRequest{Client: s.id, Worker: c.Worker, Number: number}
		if _, err := s.rpc.StopClaim(call, connect.NewRequest(req)); err != nil {
			cancel()
		}
		<-call.Done()
	})
	defer stop()
	resp, err := s.rpc.Claim(call, connect.NewRequest(&wire.ClaimRequest{Client: s.id, Number: number, Worker: c.Worker,
		Queues: c.Queues, Workflows: c.Workflows, Max: int64(c.Max), Ttl: int64(c.TTL)}))
	if err != nil {
		return nil, err
	}
	return resp.Msg, nil
}

// receive reads what came, and what of a long history did not come with it.
func (s *Store) receive(ctx context.Context, resp *wire.ClaimResponse) ([]bide.Claimed, error) {
	var d decoder
	claimed := every(resp.GetClaimed(), d.claimed)
	if d.err != nil {
		return nil, d.err
	}
	for i, c := range resp.GetClaimed() {
		if !c.GetMoreHistory() {
			continue
		}
		after := int64(0)
		if n := len(claimed[i].History); n > 0 {
			after = claimed[i].History[n-1].Seq
		}
		rest, err := s.History(context.WithoutCancel(ctx), c.GetRunId(), after, 0)
		if err != nil {
			return nil, err
		}
		claimed[i].History = append(claimed[i].History, rest...)
	}
	return claimed, nil
}
