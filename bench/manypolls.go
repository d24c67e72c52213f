package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/bide-dev/bide"
)

// The interval of each of many polls, but for tests.
var manyEvery = 10 * time.Second

// manyRounds is for how many intervals they are watched.
const manyRounds = 3

// runManyPolls has many runs poll at a long interval, evenly spread over it, and
// measures how late their checks come: the value is the share that comes more than
// a second late, or not at all.
func runManyPolls(ctx context.Context, b *bench) (err error) {
	d, err := b.door("manypolls")
	if err != nil {
		return err
	}
	n, callers := b.size(100_000), b.callers(1000)[0]
	var from atomic.Pointer[time.Time] // of the first check
	late := newLateness(manyRounds * n)
	many := bide.Define("many", func(ctx bide.Context, i int) (bool, error) {
		first := from.Load().Add(time.Duration(i) * manyEvery / time.Duration(n))
		return bide.Poll(ctx, "job", func(context.Context) (bool, error) { return false, nil }, func(done bool) bool { return done },
			bide.Every(manyEvery), bide.Exact{}, bide.NoTimeout{}, bide.InitialDelay(max(time.Until(first), 0)),
			bide.OnCheck(func(c bide.Check) {
				if c.Attempt <= manyRounds {
					late.add(c.StartedAt.Sub(c.DueAt))
				}
			}))
	})
	before := resident()
	e, err := d.start(bide.WorkerConfig{}, many)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	began := time.Now().Add(500*time.Millisecond + time.Duration(n)*200*time.Microsecond) // the time to start them all
	from.Store(&began)
	if _, err := load(ctx, n, callers, func(ctx context.Context, i int) error {
		_, err := many.Start(ctx, e.client, i)
		return err
	}); err != nil {
		return err
	}
	if time.Until(began) <= 0 {
		return errLate
	}
	if err := pauseFor(ctx, time.Until(began)); err != nil {
		return err
	}
	m := startMeter()
	if err := pauseFor(ctx, time.Until(began.Add(manyRounds*manyEvery+tooLate))); err != nil {
		return err
	}
	cpu := m.used()
	r := row{N: n, Inflight: n, Value: late.share(manyRounds*n - int(late.n.Load())), Unit: "late", usage: cpu,
		P50: late.quantile(0.5), P99: late.quantile(0.99), Count: int(late.n.Load())}
	r.PerWait = float64(resident()-before) / float64(n)
	return b.print(r, d)
}
