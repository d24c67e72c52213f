package main

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bide-dev/bide"
)

// load calls fn with 0 to n-1 from so many goroutines, until all are done or one
// fails, and returns how long each call took.
func load(ctx context.Context, n, callers int, fn func(ctx context.Context, i int) error) ([]time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	took := make([]time.Duration, n)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, callers) {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				began := time.Now()
				if err := fn(ctx, i); err != nil {
					cancel(err)
					return
				}
				took[i] = time.Since(began)
			}
		})
	}
	wg.Wait()
	return took, context.Cause(ctx)
}

// quantile sorts d.
func quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[min(int(q*float64(len(d))), len(d)-1)]
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// startAndWait is what a client in flight does.
func startAndWait[In, Out any](ctx context.Context, e *engine, w *bide.Workflow[In, Out], in In) error {
	run, err := w.Start(ctx, e.client, in)
	if err != nil {
		return err
	}
	_, err = run.Result(ctx)
	return err
}

// recent remembers the last so many of the numbers it is told. A worker holds
// fewer turns than that, so every earlier one has been committed.
type recent struct {
	count atomic.Int64
	ring  [8192]atomic.Int64
}

func (r *recent) add(v int64) {
	i := r.count.Add(1) - 1
	r.ring[i%int64(len(r.ring))].Store(v)
}

func (r *recent) all() []int64 {
	n := min(r.count.Load(), int64(len(r.ring)))
	list := make([]int64, n)
	for i := range list {
		list[i] = r.ring[i].Load()
	}
	return list
}

// until waits for the count to reach n.
func (r *recent) until(ctx context.Context, n int) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for r.count.Load() < int64(n) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}
