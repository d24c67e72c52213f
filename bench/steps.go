package main

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"time"

	"github.com/bide-dev/bide"
)

const (
	stepsARun = 10
	stepName  = "work"
	samples   = 3
)

// limitFor is how long the limit is sampled: shorter is noise, but for tests.
var limitFor = 2 * time.Second

// payload is 100 bytes of JSON.
var payload = strings.Repeat("x", 98)

func work(context.Context) (string, error) { return payload, nil }

// chainOf is a run of so many steps, one after the other.
var chainOf = bide.Define("chain", func(ctx bide.Context, n int) (string, error) {
	var last string
	for range n {
		v, err := bide.Step(ctx, stepName, work)
		if err != nil {
			return "", err
		}
		last = v
	}
	return last, nil
})

// sample is one measurement of a rate.
type sample struct {
	rate, p50, p99 float64
	usage          usage
}

// rate runs n runs of ten steps.
func (e *engine) rate(ctx context.Context, n, callers int) (sample, error) {
	m := startMeter()
	took, err := load(ctx, n, callers, func(ctx context.Context, _ int) error {
		return startAndWait(ctx, e, chainOf, stepsARun)
	})
	if err != nil {
		return sample{}, err
	}
	rate, used := float64(n*stepsARun)/m.wall().Seconds(), m.used()
	return sample{rate, ms(quantile(took, 0.5)), ms(quantile(took, 0.99)), used}, nil
}

// middle is the sample with the median rate.
func middle(all []sample) sample {
	rates := make([]float64, len(all))
	for i, s := range all {
		rates[i] = s.rate
	}
	m := median(rates)
	for _, s := range all {
		if s.rate == m {
			return s
		}
	}
	return sample{}
}

func (s sample) row(n, callers int) row {
	return row{N: n, Inflight: callers, Value: s.rate, Unit: "steps/s", P50: s.p50, P99: s.p99, usage: s.usage}
}

// runSteps measures steps a second; p50 and p99 are of a whole run. Samples of
// the limit come in between, so that a slow moment of the machine is the same for
// both; the ratio is the median of those of neighbours.
func runSteps(ctx context.Context, b *bench) (err error) {
	d, err := b.door("steps")
	if err != nil {
		return err
	}
	e, err := d.start(bide.WorkerConfig{}, chainOf)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	var l yardstick
	if b.limit {
		if l, err = doors[b.store].limit(filepath.Join(b.dir, "steps")); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, l.close()) }()
	}
	n := b.size(20_000)
	if _, err := e.rate(ctx, min(n, 500), 100); err != nil { // the first files, pages and stacks
		return err
	}
	for _, callers := range b.callers(100, 1000) {
		var all []sample
		var limits, ratios []float64
		for range samples {
			if l != nil {
				rows, err := l.sample(ctx, callers, limitFor)
				if err != nil {
					return err
				}
				limits = append(limits, rows)
			}
			s, err := e.rate(ctx, n, callers)
			if err != nil {
				return err
			}
			all = append(all, s)
			if l != nil {
				ratios = append(ratios, s.rate/limits[len(limits)-1])
			}
		}
		r := middle(all).row(n, callers)
		if l != nil {
			r.Ratio = median(ratios)
			if err := b.print(row{Workload: "limit", N: samples, Inflight: callers, Value: median(limits), Unit: "rows/s"}, nil); err != nil {
				return err
			}
		}
		if err := b.print(r, d); err != nil {
			return err
		}
	}
	return nil
}
