package remote_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/internal/wire"
	"github.com/bide-dev/bide/remote"
	"github.com/bide-dev/bide/sqlite"
)

func request[T any](msg *T) *connect.Request[T] { return connect.NewRequest(msg) }

func restored(t *testing.T, data []byte) error {
	t.Helper()
	var f bide.Failure
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatalf("%q is no failure: %v", data, err)
	}
	return f.Err()
}

func muxOf(path string, h http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(path, h)
	return mux
}

func TestDial(t *testing.T) {
	for _, url := range []string{"", "bide.db", "localhost:8080", "ftp://x", "http://", "http://user@host", "http://host?a=b"} {
		if _, err := remote.Dial(url); bide.Code(err) != "invalid" {
			t.Errorf("Dial(%q): %v, want an InvalidError", url, err)
		}
	}
	if _, err := remote.Dial("http://host", remote.HTTPClient(&http.Client{Timeout: time.Second})); bide.Code(err) != "invalid" {
		t.Errorf("a client with a Timeout: %v, want an InvalidError", err)
	}
}

// TestToken checks that the token goes with requests of either kind, and that a
// server which does not accept it is not asked again and again.
func TestToken(t *testing.T) {
	inner, err := sqlite.Open(":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	h := muxOf(remote.NewHandler(inner))
	var refused atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer bide_secret" {
			refused.Add(1)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	}))
	defer srv.Close()
	store, err := remote.Dial(srv.URL, remote.Token("bide_secret"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Create(t.Context(), []bide.NewRun{{ID: "a", Workflow: "w", Queue: "q"}}); err != nil {
		t.Fatal(err)
	}
	ch, stop := store.Wake("a", false)
	if err := store.Control(t.Context(), "a", bide.Command{Op: bide.OpTerminate}); err != nil {
		t.Fatal(err)
	}
	<-ch
	stop()
	if st, err := store.Status(t.Context()); err != nil || len(st.Counts) != 1 {
		t.Errorf("status %+v, %v", st, err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	if n := refused.Load(); n != 0 {
		t.Errorf("%d requests went without the token", n)
	}

	stranger, err := remote.Dial(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	_, err = stranger.Run(t.Context(), "a")
	if bide.Code(err) != "invalid" || !strings.Contains(err.Error(), "token") {
		t.Errorf("without the token: %v, want an InvalidError that names it", err)
	}
	if err := stranger.Control(t.Context(), "a", bide.Command{Op: bide.OpCancel}); bide.Code(err) != "invalid" {
		t.Errorf("without the token: %v, want an InvalidError", err)
	}
}

// faulty is a store whose writes and reads fail.
type faulty struct {
	bide.Store
	err error
}

func (f faulty) Run(context.Context, string) (bide.Run, error)             { return bide.Run{}, f.err }
func (f faulty) Commit(context.Context, bide.Lease, bide.Batch) error      { return f.err }
func (f faulty) Claim(context.Context, bide.Claim) ([]bide.Claimed, error) { return nil, f.err }
func (f faulty) Create(context.Context, []bide.NewRun) ([]bide.Created, error) {
	return []bide.Created{{Err: f.err}}, nil
}

// TestErrors checks that errors are themselves again at the client, whichever way
// they come.
func TestErrors(t *testing.T) {
	for _, want := range []error{bide.ErrNotFound, bide.ErrRunEnded, bide.ErrLeaseLost, bide.ErrFactChanged, bide.ErrStoreFull,
		bide.ErrReadOnly, bide.ErrGone, &bide.InvalidError{Field: "f", Reason: "r"}, &bide.ConflictError{ID: "i", Key: "k"},
		&bide.PayloadTooLargeError{Field: "f", Size: 2, Limit: 1}, errors.New("the disk is on fire")} {
		srv := httptest.NewServer(muxOf(remote.NewHandler(faulty{err: want})))
		store, err := remote.Dial(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		_, read := store.Run(t.Context(), "a")
		_, claim := store.Claim(t.Context(), bide.Claim{Worker: "w", TTL: time.Second})
		commit := store.Commit(t.Context(), bide.Lease{Run: "a"}, bide.Batch{})
		created, err := store.Create(t.Context(), []bide.NewRun{{}})
		if err != nil {
			t.Fatal(err)
		}
		for way, got := range map[string]error{"read": read, "claim": claim, "commit": commit, "create": created[0].Err} {
			if got == nil || bide.Code(got) != bide.Code(want) || !strings.Contains(got.Error(), want.Error()) {
				t.Errorf("%s: %v, want %v", way, got, want)
			}
			if bide.Code(want) != "" && bide.NewFailure(got).Type != bide.NewFailure(want).Type {
				t.Errorf("%s: %v came as a %T", way, want, got)
			}
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
		srv.Close()
	}
}

// TestUnreachable checks what a caller hears when nobody answers, and when.
func TestUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, filepath.Join(t.TempDir(), "bide.db"), false, nil)
		if _, err := l.Create(t.Context(), []bide.NewRun{{ID: "a", Workflow: "w", Queue: "q"}}); err != nil {
			t.Fatal(err)
		}
		if err := l.server.close(); err != nil {
			t.Fatal(err)
		}
		_ = l.listener.Close()
		for name, call := range map[string]func() error{
			"read":    func() error { _, err := l.Run(t.Context(), "a"); return err },
			"control": func() error { return l.Control(t.Context(), "a", bide.Command{Op: bide.OpCancel}) },
			"claim": func() error {
				_, err := l.Claim(t.Context(), bide.Claim{Worker: "w", Queues: []string{"q"}, Workflows: []string{"w"}, Max: 1, TTL: time.Minute})
				return err
			},
			"commit": func() error {
				return l.Commit(t.Context(), bide.Lease{Run: "a", Worker: "w", Epoch: 1}, bide.Batch{Next: bide.Done{}})
			},
		} {
			began := time.Now()
			err := call()
			var unreachable *remote.UnreachableError
			if !errors.As(err, &unreachable) || unreachable.Sent || unreachable.URL != "http://bide.test" || bide.Code(err) != "unreachable" {
				t.Errorf("%s: %v, want an UnreachableError of what was not sent", name, err)
			}
			if d := time.Since(began); d < 9*time.Second || d > 22*time.Second {
				t.Errorf("%s gave up after %v", name, d)
			}
		}
		if err := l.Store.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestSame checks that the store is the same as one that is opened here, for a
// program: one line differs.
func TestSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store bide.Store = open(t, filepath.Join(t.TempDir(), "bide.db"), false, nil)
		defer store.Close()
		work := chain(func(string, int) error { return nil })
		worker := bide.NewWorker(store, bide.WorkerConfig{})
		worker.Register(work)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- worker.Run(ctx) }()
		h, err := work.Start(ctx, bide.NewClient(store), task{Steps: 3})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := h.Result(ctx); err != nil || got != 3 {
			t.Errorf("result %d, %v", got, err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the worker: %v", err)
		}
	})
}

// TestRepeated checks that a write which was sent twice is carried out once, also
// by a server that knows nothing of the first time.
func TestRepeated(t *testing.T) {
	inner, err := sqlite.Open(":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	first := wireClient(t, inner)
	second := wireClient(t, inner) // as if the first was killed: it remembers nothing
	facts := &wire.Write{Write: &wire.Write_Commit{Commit: &wire.CommitWrite{Batch: &wire.Batch{
		Facts: []*wire.Fact{{Kind: "k", Key: "a", Value: []byte("1")}}}}}}
	create := &wire.Write{Write: &wire.Write_Create{Create: &wire.CreateWrite{Runs: []*wire.NewRun{{Workflow: "w", Queue: "q", Key: "random"}}}}}
	extend := &wire.Write{Write: &wire.Write_Control{Control: &wire.ControlWrite{Run: "x", Op: wire.Op_OP_EXTEND_WAIT}}}
	writes := []*wire.Write{facts, create, extend}
	send := func(rpc wire.StoreClient, req *wire.WriteRequest) []*wire.Outcome {
		t.Helper()
		req.Client, req.Number, req.Writes = "c", 1, writes
		resp, err := rpc.Write(t.Context(), request(req))
		if err != nil {
			t.Fatal(err)
		}
		out := make([]*wire.Outcome, len(writes))
		for _, o := range resp.Msg.GetOutcomes() {
			out[o.GetIndex()] = o
		}
		return out
	}
	resp, err := first.Write(t.Context(), request(&wire.WriteRequest{Client: "c"}))
	if err != nil {
		t.Fatal(err)
	}
	token := resp.Msg.GetToken()
	before := send(first, &wire.WriteRequest{Token: token})
	again := send(first, &wire.WriteRequest{Token: token, Repeated: true})
	elsewhere := send(second, &wire.WriteRequest{Token: token, Repeated: true})
	id := before[1].GetCreated()[0].GetId()
	if before[0].GetError() != nil || !before[1].GetCreated()[0].GetIsNew() || bide.Code(restored(t, before[2].GetError())) != "not_found" {
		t.Errorf("the first time: %v", before)
	}
	for i, o := range again {
		if o.String() != before[i].String() {
			t.Errorf("repeated: %v, want %v", o, before[i])
		}
	}
	if elsewhere[0].GetError() != nil {
		t.Errorf("a change of facts is held against itself: %s", elsewhere[0].GetError())
	}
	if got := elsewhere[1].GetCreated()[0]; got.GetId() != id {
		t.Errorf("created %q, and then %q", id, got.GetId())
	}
	if !elsewhere[2].GetUnknown() {
		t.Errorf("an extension that may have been made: %v, want unknown", elsewhere[2])
	}
	if f, err := inner.Facts(t.Context(), "k"); err != nil || len(f) != 1 {
		t.Errorf("facts %v, %v", f, err)
	}
}

func wireClient(t *testing.T, store bide.Store) wire.StoreClient {
	t.Helper()
	srv := httptest.NewServer(muxOf(remote.NewHandler(store)))
	t.Cleanup(srv.Close)
	return wire.NewStoreClient(srv.Client(), srv.URL)
}

// TestDoubtfulCommit checks that a commit which may have been carried out by a
// server before this one is not carried out a second time: the turn is given back.
func TestDoubtfulCommit(t *testing.T) {
	inner, err := sqlite.Open(":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	if _, err := inner.Create(t.Context(), []bide.NewRun{{ID: "a", Workflow: "w", Queue: "q"}}); err != nil {
		t.Fatal(err)
	}
	c := bide.Claim{Worker: "x", Queues: []string{"q"}, Workflows: []string{"w"}, Max: 1, TTL: time.Hour}
	claimed, err := inner.Claim(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	l := claimed[0].Lease
	commit := &wire.Write{Write: &wire.Write_Commit{Commit: &wire.CommitWrite{Run: l.Run, Worker: l.Worker, Epoch: l.Epoch, Key: l.Key,
		Batch: &wire.Batch{Records: []*wire.Record{{Path: "1", Kind: wire.Kind_KIND_STEP, Name: "s"}}}}}}
	for _, req := range []*wire.WriteRequest{{Token: "first"}, {Token: "first", Repeated: true}} {
		req.Client, req.Number, req.Writes = "c", 1, []*wire.Write{commit}
		resp, err := wireClient(t, inner).Write(t.Context(), request(req))
		if err != nil {
			t.Fatal(err)
		}
		want := ""
		if req.GetRepeated() {
			want = "lease_lost"
		}
		got := ""
		if data := resp.Msg.GetOutcomes()[0].GetError(); data != nil {
			got = bide.Code(restored(t, data))
		}
		if got != want {
			t.Errorf("repeated %v: %q, want %q", req.GetRepeated(), got, want)
		}
	}
	next, err := inner.Claim(t.Context(), c)
	if err != nil || len(next) != 1 || next[0].Run.ID != "a" || len(next[0].History) != 1 {
		t.Errorf("then %+v, %v; want the run with its one record", next, err)
	}
}
