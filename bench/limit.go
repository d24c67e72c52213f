package main

import (
	"context"
	"errors"
)

// runLimit measures the yardstick alone; n is the number of samples.
func runLimit(ctx context.Context, b *bench) (err error) {
	l, err := doors[b.store].limit(b.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	n := b.size(samples)
	for _, callers := range b.callers(100, 1000) {
		m := startMeter()
		var all []float64
		for range n {
			rows, err := l.sample(ctx, callers, limitFor)
			if err != nil {
				return err
			}
			all = append(all, rows)
		}
		cpu := m.used()
		if err := b.print(row{N: n, Inflight: callers, Value: median(all), Unit: "rows/s", usage: cpu}, nil); err != nil {
			return err
		}
	}
	return nil
}
