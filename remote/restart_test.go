package remote_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/remote"
	"github.com/bide-dev/bide/sqlite"
)

// swapped is a server whose store can be ended and opened again under its clients.
type swapped struct {
	t       *testing.T
	path    string
	store   *sqlite.Store
	handler atomic.Pointer[http.Handler]
	drop    atomic.Bool // requests are cut off
	streams sync.Map    // their cancels
}

// cut ends the requests under way.
func (s *swapped) cut() {
	s.streams.Range(func(_, cancel any) bool {
		cancel.(context.CancelFunc)()
		return true
	})
}

func (s *swapped) open() {
	s.t.Helper()
	store, err := sqlite.Open(s.path)
	if err != nil {
		s.t.Fatal(err)
	}
	_, h := remote.NewHandler(store)
	s.store = store
	s.handler.Store(&h)
}

func (s *swapped) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.drop.Load() {
		panic(http.ErrAbortHandler)
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	s.streams.Store(r, cancel)
	defer s.streams.Delete(r)
	(*s.handler.Load()).ServeHTTP(w, r.WithContext(ctx))
}

// through is a transport that calls a handler, without a network between.
func through(t *testing.T, h http.Handler) (store *remote.Store, end func()) {
	t.Helper()
	s := serveOn(h, false)
	store, err := remote.Dial("http://bide.test", remote.HTTPClient(s.client))
	if err != nil {
		t.Fatal(err)
	}
	return store, func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
		_ = s.http.Close()
		s.client.CloseIdleConnections()
	}
}

// TestRestart ends the server's store again and again, in good order, and opens it
// anew: workers and clients take no notice, and watchers miss nothing.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &swapped{t: t, path: filepath.Join(t.TempDir(), "bide.db")}
		s.open()
		store, end := through(t, s)
		defer func() {
			end()
			_ = s.store.Close()
		}()
		work := bide.Define("work", func(ctx bide.Context, n int) (int, error) {
			for i := range n {
				if _, err := bide.Step(ctx, "s", func(ctx context.Context) (int, error) {
					time.Sleep(100 * time.Millisecond)
					return i, nil
				}); err != nil {
					return 0, err
				}
			}
			return n, nil
		})
		worker := bide.NewWorker(store, bide.WorkerConfig{Lease: 10 * time.Second})
		worker.Register(work)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		done := make(chan error, 1)
		go func() { done <- worker.Run(ctx) }()
		all, stop := store.Wake("", false)
		defer stop()
		client := bide.NewClient(store)
		var runs sync.WaitGroup
		for i := range 20 {
			runs.Go(func() {
				time.Sleep(time.Duration(i) * 50 * time.Millisecond)
				h, err := work.Start(ctx, client, 20)
				if err != nil {
					t.Errorf("start: %v", err)
					return
				}
				if n, err := h.Result(ctx); err != nil || n != 20 {
					t.Errorf("%s: %d, %v", h.ID(), n, err)
				}
			})
		}
		for range 4 {
			time.Sleep(400 * time.Millisecond)
			if err := s.store.Close(); err != nil {
				t.Error(err)
			}
			time.Sleep(200 * time.Millisecond) // in which the server says that it ends
			s.open()
			s.cut()
			select {
			case <-all:
			default:
			}
			select {
			case <-all:
			case <-time.After(10 * time.Second):
				t.Error("who watches heard nothing after the restart")
			}
		}
		runs.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the worker: %v", err)
		}
		found, err := s.store.Runs(t.Context(), bide.Query{})
		if err != nil || len(found) != 20 {
			t.Errorf("%d runs, %v; want 20", len(found), err)
		}
	})
}

// TestWakeAgain cuts the stream of wake-ups: each watcher is given a hint after
// that, and hears of what comes later.
func TestWakeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &swapped{t: t, path: ":memory:"}
		s.open()
		defer s.store.Close()
		store, end := through(t, s)
		defer end()
		if _, err := store.Create(t.Context(), []bide.NewRun{{ID: "a", Workflow: "w", Queue: "q"}}); err != nil {
			t.Fatal(err)
		}
		ch, stop := store.Wake("a", false)
		defer stop()
		hear := func(what string) {
			t.Helper()
			select {
			case <-ch:
			case <-time.After(time.Minute):
				t.Errorf("not woken by %s", what)
			}
		}
		synctest.Wait()
		select {
		case <-ch:
		default:
		}
		s.drop.Store(true)
		s.cut()
		time.Sleep(time.Second)
		if _, err := s.store.Signal(t.Context(), "a", bide.Message{Name: "missed"}); err != nil {
			t.Fatal(err)
		}
		s.drop.Store(false)
		hear("the way's being open again")
		time.Sleep(time.Second)
		if _, err := store.Signal(t.Context(), "a", bide.Message{Name: "m"}); err != nil {
			t.Fatal(err)
		}
		hear("a signal")
	})
}

// slow is a store in which commits to some runs take for ever.
type slow struct {
	bide.Store
	release chan struct{}
}

func (s slow) Commit(ctx context.Context, l bide.Lease, b bide.Batch) error {
	if strings.HasPrefix(l.Run, "slow") {
		<-s.release
		return nil
	}
	return s.Store.Commit(ctx, l, b)
}

// TestSlowWrite checks that writes which take long hold up no others, however many
// there are, and are answered in the end.
func TestSlowWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, err := sqlite.Open(":memory:")
		if err != nil {
			t.Fatal(err)
		}
		defer inner.Close()
		held := slow{inner, make(chan struct{})}
		_, h := remote.NewHandler(held)
		store, end := through(t, h)
		defer end()
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				if err := store.Commit(t.Context(), bide.Lease{Run: fmt.Sprint("slow", i), Worker: "w"}, bide.Batch{}); err != nil {
					t.Errorf("a slow commit: %v", err)
				}
			})
			began := time.Now()
			if _, err := store.Create(t.Context(), []bide.NewRun{{Workflow: "w", Queue: "q"}}); err != nil {
				t.Error(err)
			}
			if d := time.Since(began); d > 200*time.Millisecond {
				t.Errorf("beside %d slow commits a start took %v", i+1, d)
			}
		}
		time.Sleep(time.Minute)
		close(held.release)
		all.Wait()
	})
}

// TestLargeHistory checks that a history which does not fit one response comes
// whole, by reading and with a claim.
func TestLargeHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, ":memory:", false, nil)
		defer l.Close()
		if _, err := l.Create(t.Context(), []bide.NewRun{{ID: "a", Workflow: "w", Queue: "q"}}); err != nil {
			t.Fatal(err)
		}
		claim := func() bide.Claimed {
			got, err := l.Claim(t.Context(), bide.Claim{Worker: "x", Queues: []string{"q"}, Workflows: []string{"w"}, Max: 1, TTL: time.Hour})
			if err != nil || len(got) != 1 {
				t.Fatalf("claimed %d, %v", len(got), err)
			}
			return got[0]
		}
		c := claim()
		big := json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)
		for i := range 12 {
			b := bide.Batch{Records: []bide.Record{{Path: fmt.Sprint(i), Kind: bide.KindStep, Data: big}}}
			for j := range 100 {
				b.Records = append(b.Records, bide.Record{Path: fmt.Sprintf("%d.%d", i, j), Kind: bide.KindStep})
			}
			if i == 11 {
				b.Next = bide.Parked{WakeAt: time.Now()}
			}
			if err := l.Commit(t.Context(), c.Lease, b); err != nil {
				t.Fatal(err)
			}
		}
		h, err := l.History(t.Context(), "a", 0, 0)
		if err != nil || len(h) != 12*101 {
			t.Errorf("%d records, %v; want %d", len(h), err, 12*101)
		}
		if h, err := l.History(t.Context(), "a", 0, 700); err != nil || len(h) != 700 {
			t.Errorf("%d records, %v; want 700", len(h), err)
		}
		again := claim()
		if len(again.History) != len(h) {
			t.Fatalf("claimed with %d records, want %d", len(again.History), len(h))
		}
		for i := range h {
			if again.History[i].Seq != h[i].Seq || len(again.History[i].Data) != len(h[i].Data) {
				t.Fatalf("record %d: %s, want %s", i, again.History[i].Path, h[i].Path)
			}
		}
	})
}
