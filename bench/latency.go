package main

import (
	"context"
	"errors"
	"time"

	"github.com/bide-dev/bide"
)

// runLatency measures start → result of a run of one step.
func runLatency(ctx context.Context, b *bench) error { return oneAtATime(ctx, b, 1, b.size(10_000)) }

// runChain measures one step inside a run of a hundred: the time of the run by
// the number of its steps.
func runChain(ctx context.Context, b *bench) error { return oneAtATime(ctx, b, 100, b.size(200)) }

func oneAtATime(ctx context.Context, b *bench, steps, n int) (err error) {
	d, err := b.door(b.workload)
	if err != nil {
		return err
	}
	e, err := d.start(bide.WorkerConfig{}, chainOf)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	callers := b.callers(1)[0]
	one := func(ctx context.Context, _ int) error { return startAndWait(ctx, e, chainOf, steps) }
	if _, err := load(ctx, min(n, 100), callers, one); err != nil {
		return err
	}
	m := startMeter()
	took, err := load(ctx, n, callers, one)
	if err != nil {
		return err
	}
	cpu := m.used()
	for i := range took {
		took[i] /= time.Duration(steps)
	}
	p50 := ms(quantile(took, 0.5))
	return b.print(row{N: n, Inflight: callers, Value: p50, Unit: "ms", P50: p50, P99: ms(quantile(took, 0.99)), usage: cpu}, d)
}
