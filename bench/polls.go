package main

import (
	"context"
	"errors"
	"time"

	"github.com/bide-dev/bide"
)

const checks = 5

// poller looks five times, a second apart, the first time after a second: five
// seconds at best.
var poller = bide.Define("poller", func(ctx bide.Context, every time.Duration) (int, error) {
	return bide.Poll(ctx, "job",
		func(ctx context.Context) (int, error) { return bide.AttemptNumber(ctx), nil },
		func(n int) bool { return n >= checks },
		bide.Every(every), bide.Exact{}, bide.InitialDelay(every), bide.Timeout(time.Hour))
})

// pollEvery is a second, but for tests.
var pollEvery = time.Second

func runPolls(ctx context.Context, b *bench) (err error) {
	d, err := b.door("polls")
	if err != nil {
		return err
	}
	e, err := d.start(bide.WorkerConfig{}, poller)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	n := b.size(1000)
	callers := b.callers(n)[0]
	m := startMeter()
	took, err := load(ctx, n, callers, func(ctx context.Context, _ int) error {
		return startAndWait(ctx, e, poller, pollEvery)
	})
	if err != nil {
		return err
	}
	wall, cpu := m.wall(), m.used()
	return b.print(row{N: n, Inflight: callers, Value: wall.Seconds(), Unit: "s",
		P50: ms(quantile(took, 0.5)), P99: ms(quantile(took, 0.99)), usage: cpu}, d)
}
