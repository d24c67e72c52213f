package main

import (
	"context"
	"errors"

	"github.com/bide-dev/bide"
)

// runFinished compares the steps a second in a file that is full of finished
// runs with those in an empty one, turn about.
func runFinished(ctx context.Context, b *bench) (err error) {
	n, callers := b.size(300_000), b.callers(100)[0]
	var engines [2]*engine
	var full *door
	for i, name := range []string{"empty", "full"} {
		d, err := b.door(name)
		if err != nil {
			return err
		}
		if engines[i], err = d.start(bide.WorkerConfig{}, chainOf); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, engines[i].close()) }()
		full = d
	}
	ran := n
	if full.fill != nil {
		ran = min(n, 1000)
	}
	if _, err := load(ctx, ran, 2000, func(ctx context.Context, _ int) error {
		return startAndWait(ctx, engines[1], chainOf, 1)
	}); err != nil {
		return err
	}
	if full.fill != nil {
		if err := full.fill(ctx, n-ran); err != nil {
			return err
		}
	}
	runs := min(n, 8000)
	var all [2][]sample
	var ratios []float64
	for range 5 {
		for i, e := range engines {
			s, err := e.rate(ctx, runs, callers)
			if err != nil {
				return err
			}
			all[i] = append(all[i], s)
		}
		last := len(ratios)
		ratios = append(ratios, all[1][last].rate/all[0][last].rate)
	}
	r := middle(all[1]).row(n, callers)
	r.Ratio = median(ratios)
	return b.print(r, full)
}
