package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/internal/wire"
)

// read makes a request that changes nothing, again and again until there is an
// answer, but not for too long.
func read[Req, Resp any](ctx context.Context, s *Store, rpc func(context.Context, *connect.Request[Req]) (*connect.Response[Resp], error), req *Req) (*Resp, error) {
	var since time.Time
	for failures := 0; ; failures++ {
		if s.isClosed() {
			return nil, bide.ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		call, cancel := context.WithTimeout(ctx, deafAfter)
		resp, err := rpc(call, connect.NewRequest(req))
		cancel()
		if err == nil {
			s.link.up()
			return resp.Msg, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if v := judge(s.url, err); v.final != nil {
			return nil, v.final
		}
		s.link.fail(err)
		if since.IsZero() {
			since = time.Now()
		} else if time.Since(since) > patience {
			return nil, &UnreachableError{URL: s.url, Err: err}
		}
		s.pause(ctx, failures)
	}
}

// Run implements [bide.Store].
func (s *Store) Run(ctx context.Context, id string) (bide.Run, error) {
	resp, err := read(ctx, s, s.rpc.Run, &wire.RunRequest{Id: id})
	if err != nil {
		return bide.Run{}, err
	}
	var d decoder
	run := d.run(resp.GetRun())
	return run, d.err
}

// Runs implements [bide.Store].
func (s *Store) Runs(ctx context.Context, q bide.Query) ([]bide.Run, error) {
	states := make([]wire.State, len(q.States))
	for i, st := range q.States {
		states[i] = wire.State(st)
	}
	resp, err := read(ctx, s, s.rpc.Runs, &wire.RunsRequest{States: states, Workflow: q.Workflow, Queue: q.Queue,
		Parent: q.Parent, IdPrefix: q.IDPrefix, Labels: q.Labels, Before: q.Before, Limit: int64(q.Limit)})
	if err != nil {
		return nil, err
	}
	var d decoder
	runs := every(resp.GetRuns(), d.run)
	return runs, d.err
}

// History implements [bide.Store].
func (s *Store) History(ctx context.Context, run string, after int64, limit int) ([]bide.Record, error) {
	var d decoder
	return pages(limit, func(left int) ([]bide.Record, bool, error) {
		resp, err := read(ctx, s, s.rpc.History, &wire.HistoryRequest{Run: run, After: after, Limit: int64(left)})
		if err != nil {
			return nil, false, err
		}
		page := every(resp.GetRecords(), d.record)
		if len(page) > 0 {
			after = page[len(page)-1].Seq
		}
		return page, resp.GetMore(), d.err
	})
}

// Chunks implements [bide.Store].
func (s *Store) Chunks(ctx context.Context, run string, after int64, limit int) ([]bide.Chunk, error) {
	var d decoder
	return pages(limit, func(left int) ([]bide.Chunk, bool, error) {
		resp, err := read(ctx, s, s.rpc.Chunks, &wire.ChunksRequest{Run: run, After: after, Limit: int64(left)})
		if err != nil {
			return nil, false, err
		}
		page := every(resp.GetChunks(), d.chunk)
		if len(page) > 0 {
			after = page[len(page)-1].Seq
		}
		return page, resp.GetMore(), d.err
	})
}

// pages reads until there is no more, or as many as the limit allows (0: all).
func pages[T any](limit int, read func(left int) (page []T, more bool, err error)) (all []T, err error) {
	for {
		left := 0
		if limit > 0 {
			left = limit - len(all)
		}
		page, more, err := read(left)
		if err != nil {
			return nil, err
		}
		if all == nil {
			all = page
		} else {
			all = append(all, page...)
		}
		if !more || len(page) == 0 || limit > 0 && len(all) >= limit {
			return all, nil
		}
	}
}

// Facts implements [bide.Store].
func (s *Store) Facts(ctx context.Context, kind string, keys ...string) ([]bide.Fact, error) {
	resp, err := read(ctx, s, s.rpc.Facts, &wire.FactsRequest{Kind: kind, Keys: keys})
	if err != nil {
		return nil, err
	}
	var d decoder
	facts := every(resp.GetFacts(), d.fact)
	return facts, d.err
}

// Status implements [bide.Admin].
func (s *Store) Status(ctx context.Context) (st bide.Status, err error) {
	resp, err := read(ctx, s, s.rpc.Status, &wire.StatusRequest{})
	if err != nil {
		return st, err
	}
	if err := json.Unmarshal(resp.GetStatus(), &st); err != nil {
		return st, fmt.Errorf("bide: the server's status cannot be read: %w", err)
	}
	return st, nil
}
