package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/bide-dev/bide"
)

// The interval of the checks and how long each sample is, but for tests.
var (
	checkEvery = 20 * time.Millisecond
	checksFor  = 4 * time.Second
)

// longHistory is of the run to compare with.
const shortHistory, longHistory = 3, 1000

// runChecks measures what a check of a poll takes of the processors, in runs of a
// short history and, in the same process, of a long one. n is then the history's
// records; the ratio is that of neighbouring samples.
func runChecks(ctx context.Context, b *bench) (err error) {
	d, err := b.door("checks")
	if err != nil {
		return err
	}
	var began, checked atomic.Int64
	var over atomic.Bool
	poller := bide.Define("long-poller", func(ctx bide.Context, records int) (bool, error) {
		for i := range records {
			if _, err := bide.Step(ctx, fmt.Sprint(stepName, i), func(context.Context) (string, error) { return "done", nil }); err != nil {
				return false, err
			}
		}
		began.Add(1)
		return bide.Poll(ctx, "job", func(context.Context) (bool, error) {
			checked.Add(1)
			return over.Load(), nil
		}, func(done bool) bool { return done }, bide.Every(checkEvery), bide.Exact{}, bide.NoTimeout{})
	})
	e, err := d.start(bide.WorkerConfig{}, poller)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	runs := b.size(50)
	// sample returns the microseconds of a check.
	sample := func(records int) (float64, usage, error) {
		began.Store(0)
		over.Store(false)
		handles := make([]*bide.Handle[bool], runs)
		for i := range handles {
			run, err := poller.Start(ctx, e.client, records)
			if err != nil {
				return 0, usage{}, err
			}
			handles[i] = run
		}
		for began.Load() < int64(runs) {
			if err := pauseFor(ctx, checkEvery); err != nil {
				return 0, usage{}, err
			}
		}
		if err := pauseFor(ctx, 5*checkEvery); err != nil {
			return 0, usage{}, err
		}
		resident() // what the steps have left
		before, m := checked.Load(), startMeter()
		if err := pauseFor(ctx, checksFor); err != nil {
			return 0, usage{}, err
		}
		used, n := m.used(), checked.Load()-before
		over.Store(true)
		for _, run := range handles {
			if _, err := run.Result(ctx); err != nil {
				return 0, usage{}, err
			}
		}
		return used.CPU * 1e6 / float64(max(n, 1)), used, nil
	}
	var short, long, ratios []float64
	var used [2]usage
	for range samples {
		a, u, err := sample(shortHistory)
		if err != nil {
			return err
		}
		z, v, err := sample(longHistory)
		if err != nil {
			return err
		}
		short, long, ratios, used = append(short, a), append(long, z), append(ratios, z/a), [2]usage{u, v}
	}
	if err := b.print(row{N: shortHistory, Inflight: runs, Value: median(short), Unit: "us/check", usage: used[0]}, d); err != nil {
		return err
	}
	return b.print(row{N: longHistory, Inflight: runs, Value: median(long), Unit: "us/check", Ratio: median(ratios), usage: used[1]}, d)
}
