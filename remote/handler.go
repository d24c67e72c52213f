package remote

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/internal/wire"
)

// NewHandler serves the store to those who [Dial], under the path that it returns.
// It asks nobody who they are: who may reach it may do everything. Give
// the [http.Server] no WriteTimeout: the stream of wake-ups lasts.
//
// When the store is closed the clients take the server for one that is about to
// be started again.
func NewHandler(store bide.Store) (path string, h http.Handler) {
	return wire.NewStoreHandler(&handler{store: store, hands: newHands(), sessions: map[string]*session{}},
		connect.WithReadMaxBytes(maxRequest+maxRequest/4))
}

// handler is the server's side of a [Store].
type handler struct {
	store bide.Store
	hands *hands

	mu       sync.Mutex
	sessions map[string]*session
	swept    time.Time
}

// session is what the server knows of one client. That it is lost, the client
// sees by its token.
type session struct {
	token string

	mu       sync.Mutex
	heard    time.Time        // of the client, last
	busy     int              // requests of it that wait
	calls    map[uint64]*call // by number: requests with writes that were not acknowledged
	answered uint64           // those below are
	chairs   map[string]*chair
	wakes    *wakes // the newest
}

// forgetAfter is how long a session outlasts the last word of its client.
const forgetAfter = 15 * time.Minute

// session finds the client's session, or begins one.
func (h *handler) session(client string) (*session, error) {
	if client == "" || len(client) > 64 {
		return nil, refusal(&bide.InvalidError{Field: "client", Reason: "must be a random text of at most 64 bytes"})
	}
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.sessions[client]
	if s == nil {
		h.sweep(now)
		var token [8]byte
		_, _ = rand.Read(token[:]) // never fails
		s = &session{token: hex.EncodeToString(token[:]), calls: map[uint64]*call{}, chairs: map[string]*chair{}}
		h.sessions[client] = s
	}
	s.mu.Lock()
	s.heard = now
	s.mu.Unlock()
	return s, nil
}

// sweep forgets the sessions of clients that have gone; mu is held.
func (h *handler) sweep(now time.Time) {
	if now.Sub(h.swept) < time.Minute {
		return
	}
	h.swept = now
	for id, s := range h.sessions {
		s.mu.Lock()
		if s.busy == 0 && now.Sub(s.heard) > forgetAfter {
			delete(h.sessions, id)
		}
		s.mu.Unlock()
	}
}

// wait notes that a request of the client waits, until the returned function is
// called.
func (s *session) wait() (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy--
		s.heard = time.Now()
	}
}

// pageBytes is about how much one response holds, if a single thing is not more.
const pageBytes = 4 << 20

// pageRecords is how many records or chunks are read at a time.
const pageRecords = 500

// Run implements [wire.StoreHandler].
func (h *handler) Run(ctx context.Context, req *connect.Request[wire.RunRequest]) (*connect.Response[wire.RunResponse], error) {
	run, err := h.store.Run(ctx, req.Msg.GetId())
	if err != nil {
		return nil, refusal(err)
	}
	var e encoder
	return answer(&wire.RunResponse{Run: e.run(&run)}, e.err)
}

func answer[T any](msg *T, err error) (*connect.Response[T], error) {
	if err != nil {
		return nil, refusal(err)
	}
	return connect.NewResponse(msg), nil
}

// Runs implements [wire.StoreHandler].
func (h *handler) Runs(ctx context.Context, req *connect.Request[wire.RunsRequest]) (*connect.Response[wire.RunsResponse], error) {
	q, d := req.Msg, decoder{strict: true}
	query := bide.Query{Workflow: q.GetWorkflow(), Queue: q.GetQueue(), Parent: q.GetParent(), IDPrefix: q.GetIdPrefix(),
		Labels: q.GetLabels(), Before: q.GetBefore(), Limit: int(q.GetLimit())}
	for _, st := range q.GetStates() {
		query.States = append(query.States, small[bide.State](&d, "state", st))
	}
	if d.err != nil {
		return nil, refusal(d.err)
	}
	runs, err := h.store.Runs(ctx, query)
	if err != nil {
		return nil, refusal(err)
	}
	var e encoder
	return answer(&wire.RunsResponse{Runs: each(runs, e.run)}, e.err)
}

// page cuts a list that was read with one more than asked for, where it gets too
// long to be sent at once, and reports whether there is more.
func page[From, To any](e *encoder, list []From, limit int, convert func(*From) To) (out []To, more bool) {
	for i := range list {
		if i == limit || i > 0 && e.size > pageBytes {
			return out, true
		}
		out = append(out, convert(&list[i]))
	}
	return out, false
}

// within is how many to read at once, if the limit allows (0: all).
func within(limit int64) int {
	if limit <= 0 || limit > pageRecords {
		return pageRecords
	}
	return int(limit)
}

// History implements [wire.StoreHandler].
func (h *handler) History(ctx context.Context, req *connect.Request[wire.HistoryRequest]) (*connect.Response[wire.HistoryResponse], error) {
	n := within(req.Msg.GetLimit())
	records, err := h.store.History(ctx, req.Msg.GetRun(), req.Msg.GetAfter(), n+1)
	if err != nil {
		return nil, refusal(err)
	}
	var e encoder
	out, more := page(&e, records, n, e.record)
	return answer(&wire.HistoryResponse{Records: out, More: more}, e.err)
}

// Chunks implements [wire.StoreHandler].
func (h *handler) Chunks(ctx context.Context, req *connect.Request[wire.ChunksRequest]) (*connect.Response[wire.ChunksResponse], error) {
	n := within(req.Msg.GetLimit())
	chunks, err := h.store.Chunks(ctx, req.Msg.GetRun(), req.Msg.GetAfter(), n+1)
	if err != nil {
		return nil, refusal(err)
	}
	var e encoder
	out, more := page(&e, chunks, n, e.chunk)
	return answer(&wire.ChunksResponse{Chunks: out, More: more}, e.err)
}

// Facts implements [wire.StoreHandler].
func (h *handler) Facts(ctx context.Context, req *connect.Request[wire.FactsRequest]) (*connect.Response[wire.FactsResponse], error) {
	facts, err := h.store.Facts(ctx, req.Msg.GetKind(), req.Msg.GetKeys()...)
	if err != nil {
		return nil, refusal(err)
	}
	var e encoder
	return answer(&wire.FactsResponse{Facts: each(facts, e.fact)}, e.err)
}

var errNoAdmin = &bide.InvalidError{Field: "store", Reason: "the server's store is no bide.Admin"}

// Status implements [wire.StoreHandler].
func (h *handler) Status(ctx context.Context, _ *connect.Request[wire.StatusRequest]) (*connect.Response[wire.StatusResponse], error) {
	admin, ok := h.store.(bide.Admin)
	if !ok {
		return nil, refusal(errNoAdmin)
	}
	st, err := admin.Status(ctx)
	if err != nil {
		return nil, refusal(err)
	}
	data, err := json.Marshal(st)
	return answer(&wire.StatusResponse{Status: data}, err)
}

var errLate = connect.NewError(connect.CodeAborted, errors.New("bide: this request was answered before"))
