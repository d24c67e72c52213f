package server_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/remote"
)

// TestKill kills a server in the middle of what a worker does over it, and starts
// another in its place: all runs end, and nothing that was kept is done again.
func TestKill(t *testing.T) {
	runs := 300
	if raced {
		runs = 60
	}
	file := filepath.Join(t.TempDir(), "bide.db")
	first, address := serving(t, file, "127.0.0.1:0")
	store, err := remote.Dial("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	var mu sync.Mutex
	called := map[string]int{}
	half := make(chan struct{})
	tell := sync.OnceFunc(func() { close(half) })
	work := chain(func(name string, step int) {
		mu.Lock()
		defer mu.Unlock()
		called[fmt.Sprint(name, " ", step)]++
		if len(called) > runs*stepsARun/2 {
			tell()
		}
	})
	w := bide.NewWorker(store, bide.WorkerConfig{Lease: 2 * time.Second})
	w.Register(work)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	working, stop := context.WithCancel(ctx)
	worked := make(chan error, 1)
	go func() { worked <- w.Run(working) }()

	client := bide.NewClient(store)
	names := make(chan string, runs)
	for n := range runs {
		names <- fmt.Sprint("run-", n)
	}
	close(names)
	var callers sync.WaitGroup
	for range 50 {
		callers.Go(func() {
			for name := range names {
				h, err := work.Start(ctx, client, task{name, stepsARun}, bide.ID(name))
				if err != nil {
					t.Errorf("start %s: %v", name, err)
					continue
				}
				if got, err := h.Result(ctx); err != nil || got != stepsARun {
					t.Errorf("%s: %d, %v", name, got, err)
				}
			}
		})
	}
	select {
	case <-half:
	case <-ctx.Done():
		t.Error("half of the steps are not done in time")
	}
	kill(first)
	serving(t, file, address)
	callers.Wait()
	again := 0
	for n := range runs {
		name, twice := fmt.Sprint("run-", n), 0
		if h, err := store.History(ctx, name, 0, 0); err != nil || len(h) != stepsARun {
			t.Errorf("%s has %d records, %v", name, len(h), err)
		}
		mu.Lock()
		for i := range stepsARun {
			switch calls := called[fmt.Sprint(name, " ", i)]; calls {
			case 1:
			case 2:
				twice++
			default:
				t.Errorf("step %d of %s was called %d times", i, name, calls)
			}
		}
		mu.Unlock()
		if twice > 1 { // only one can have been under way
			t.Errorf("%d steps of %s were called twice", twice, name)
		}
		again += twice
	}
	t.Logf("%d runs, %d steps called again", runs, again)
	stop()
	if err := <-worked; err != nil {
		t.Error(err)
	}
}
