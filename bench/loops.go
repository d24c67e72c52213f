package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/bide-dev/bide"
)

// The interval of the loops and how long they are watched, but for tests.
var (
	loopEvery = time.Second
	loopsFor  = 15 * time.Second
)

// runLoops lets loops run every second, begun evenly over the first one, and
// measures how late their iterations come: the value is the share that comes more
// than a second late. A loop that is overdue by more than that at the end counts
// as one that came late.
func runLoops(ctx context.Context, b *bench) (err error) {
	d, err := b.door("loops")
	if err != nil {
		return err
	}
	n := b.size(10_000)
	late := newLateness(2 * n * int(loopsFor/loopEvery+1))
	last := make([]atomic.Int64, n) // when the loop's last iteration ended
	var measuring atomic.Bool
	loops := make([]bide.Definition, n)
	for i := range loops {
		loops[i] = bide.Loop(fmt.Sprintf("loop-%06d", i), func(ctx context.Context) {
			if due := bide.ScheduledAt(ctx); measuring.Load() {
				late.add(time.Since(due))
			}
			last[i].Store(time.Now().UnixNano())
		}, bide.Every(loopEvery), bide.Exact{}, bide.InitialDelay(loopEvery+time.Duration(i)*loopEvery/time.Duration(n)))
	}
	before := resident()
	e, err := d.start(bide.WorkerConfig{}, loops...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	if err := pauseFor(ctx, 3*loopEvery); err != nil {
		return err
	}
	m := startMeter()
	measuring.Store(true)
	if err := pauseFor(ctx, loopsFor); err != nil {
		return err
	}
	measuring.Store(false)
	cpu, end, missing := m.used(), time.Now(), 0
	for i := range last {
		if end.Sub(time.Unix(0, last[i].Load())) > loopEvery+tooLate {
			missing++
		}
	}
	r := row{N: n, Inflight: n, Value: late.share(missing), Unit: "late", usage: cpu,
		P50: late.quantile(0.5), P99: late.quantile(0.99), Count: int(late.n.Load())}
	r.PerWait = float64(resident()-before) / float64(n)
	return b.print(r, d)
}

// pauseFor waits, or returns the error of ctx.
func pauseFor(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
