package main

import (
	"context"
	"errors"
	"time"

	"github.com/bide-dev/bide"
)

// runResume measures how soon a run with a long history goes on: from setting a
// worker to work on a reopened store to the first live step.
func runResume(ctx context.Context, b *bench) (err error) {
	d, err := b.door("resume")
	if err != nil {
		return err
	}
	ready, live := make(chan struct{}, 1), make(chan time.Time, 1)
	long := bide.Define("long", func(ctx bide.Context, n int) (string, error) {
		for range n {
			if _, err := bide.Step(ctx, stepName, work); err != nil {
				return "", err
			}
		}
		select {
		case ready <- struct{}{}:
		default:
		}
		for {
			if _, err := bide.Receive[int](ctx, "go"); err != nil {
				return "", err
			}
			if _, err := bide.Step(ctx, stepName, func(ctx context.Context) (string, error) {
				live <- time.Now()
				return payload, nil
			}); err != nil {
				return "", err
			}
		}
	})
	n := b.size(10_000)
	e, err := d.start(bide.WorkerConfig{}, long)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	run, err := long.Start(ctx, e.client, n)
	if err != nil {
		return err
	}
	select {
	case <-ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	m := startMeter()
	var took []time.Duration
	for i := range 9 {
		if err := parked(ctx, e.client, run.ID(), bide.KindReceive); err != nil {
			return err
		}
		if err := e.rest(); err != nil {
			return err
		}
		if err := e.client.Signal(ctx, run.ID(), "go", i); err != nil {
			return err
		}
		if err := e.close(); err != nil {
			return err
		}
		store, err := d.open()
		if err != nil {
			return err
		}
		e.store, e.client = store, bide.NewClient(store)
		began := time.Now()
		e.work(bide.WorkerConfig{}, long)
		select {
		case at := <-live:
			took = append(took, at.Sub(began))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	cpu := m.used()
	p50 := ms(quantile(took, 0.5))
	return b.print(row{N: n, Inflight: 1, Value: p50, Unit: "ms", P50: p50, P99: ms(quantile(took, 0.99)), usage: cpu}, d)
}
