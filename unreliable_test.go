package bide_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
)

// unreliable is a store whose calls fail before they have done anything, and are
// slow, as its dice say.
type unreliable struct {
	bide.Store
	mu     sync.Mutex
	rng    *rand.Rand
	failed int
}

var errOutage = errors.New("the disk is on holiday")

// roll waits a while and says whether the call fails.
func (u *unreliable) roll() error {
	u.mu.Lock()
	var err error
	switch u.rng.IntN(10) {
	case 0:
		err = errOutage
	case 1:
		err = bide.ErrStoreFull
	}
	if err != nil {
		u.failed++
	}
	u.mu.Unlock()
	u.lag()
	return err
}

func (u *unreliable) lag() {
	u.mu.Lock()
	d := time.Duration(u.rng.Int64N(int64(50 * time.Millisecond)))
	u.mu.Unlock()
	time.Sleep(d)
}

func (u *unreliable) Claim(ctx context.Context, c bide.Claim) ([]bide.Claimed, error) {
	if err := u.roll(); err != nil {
		return nil, err
	}
	defer u.lag()
	return u.Store.Claim(ctx, c)
}

func (u *unreliable) Commit(ctx context.Context, l bide.Lease, b bide.Batch) error {
	if _, goodbye := b.Next.(bide.Parked); !goodbye || l.Run != "" { // it is said once
		if err := u.roll(); err != nil {
			return err
		}
	}
	defer u.lag()
	return u.Store.Commit(ctx, l, b)
}

func (u *unreliable) Create(ctx context.Context, runs []bide.NewRun) ([]bide.Created, error) {
	if err := u.roll(); err != nil {
		return nil, err
	}
	return u.Store.Create(ctx, runs)
}

func (u *unreliable) Signal(ctx context.Context, run string, m bide.Message) (bool, error) {
	if err := u.roll(); err != nil {
		return false, err
	}
	return u.Store.Signal(ctx, run, m)
}

func (u *unreliable) Facts(ctx context.Context, kind string, keys ...string) ([]bide.Fact, error) {
	if err := u.roll(); err != nil {
		return nil, err
	}
	return u.Store.Facts(ctx, kind, keys...)
}

// TestUnreliableStore protects runs from a store that fails now and then: each
// ends as if it never had, with the same history, each finished step once.
func TestUnreliableStore(t *testing.T) {
	failures, seeds := 0, uint64(50)
	if short() {
		seeds = 10
	}
	for _, workflow := range slices.Sorted(maps.Keys(inputs)) {
		whole := live(t, workflow, 0, inMemory(), 0, false)
		for seed := range seeds {
			got, failed := liveUnreliably(t, workflow, seed)
			failures += failed
			if got.run.State != whole.run.State || string(got.run.Result) != string(whole.run.Result) {
				t.Errorf("%s, seed %d: %s %s %v, want %s %s", workflow, seed, got.run.State, got.run.Result, got.run.Error, whole.run.State, whole.run.Result)
			}
			if !slices.Equal(got.lines, whole.lines) {
				t.Errorf("%s, seed %d: the history differs:\n%s\nwant\n%s", workflow, seed, strings.Join(got.lines, "\n"), strings.Join(whole.lines, "\n"))
			}
			for step, n := range got.calls {
				if n != whole.calls[step] {
					t.Errorf("%s, seed %d: step %s was called %d times, want %d", workflow, seed, step, n, whole.calls[step])
				}
			}
			if t.Failed() {
				return
			}
		}
	}
	t.Logf("%d failed calls", failures)
}

func liveUnreliably(t *testing.T, workflow string, seed uint64) (l life, failed int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := inMemory().open(t)
		u := &unreliable{Store: store, rng: rand.New(rand.NewPCG(seed, 7))}
		w := &world{calls: map[string]int{}, client: bide.NewClient(store)}
		if _, err := w.client.DeliverEvent(t.Context(), "shop", "order-1", bide.Delivery{Body: []byte(`"paid"`)}); err != nil {
			t.Fatal(err)
		}
		defs := slices.Collect(maps.Values(cast(w)))
		// The lease is long, so that only commits are at stake, not the leases.
		worker := bide.NewWorker(u, bide.WorkerConfig{MaxWarm: int(seed%2) - 1, Seed: seed + 1, PublicURL: "https://bide.test", Lease: 1000 * time.Hour, Logger: slog.New(slog.DiscardHandler)})
		worker.Register(defs...)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- worker.Run(ctx) }()

		client := bide.NewClient(u, defs...)
		until := func(fn func() error) {
			for err := fn(); err != nil; err = fn() {
				if !errors.Is(err, errOutage) && !errors.Is(err, bide.ErrStoreFull) {
					t.Fatal(err)
				}
			}
		}
		until(func() error {
			_, _, err := client.Start(ctx, workflow, json.RawMessage(inputs[workflow]), bide.ID("it"))
			return err
		})
		until(func() error {
			err := client.Signal(ctx, "it", "early", "bird", bide.Key("one"))
			if errors.Is(err, bide.ErrRunEnded) { // it needs none
				return nil
			}
			return err
		})
		if workflow == "canceled" {
			cancels := time.AfterFunc(time.Hour, func() {
				if err := client.Cancel(ctx, "it", "enough"); err != nil {
					t.Error(err)
				}
			})
			defer cancels.Stop()
		}
		l.run = await(t, bide.NewClient(store), "it")
		records, err := client.History(ctx, "it", 0)
		if err != nil {
			t.Fatal(err)
		}
		l.lines = script(records)
		cancel()
		if err := errors.Join(<-done, store.Close()); err != nil {
			t.Error(err)
		}
		l.calls, failed = w.calls, u.failed
	})
	return l, failed
}
