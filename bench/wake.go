package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bide-dev/bide"
)

type nap struct {
	I     int64     `json:"i"`
	Until time.Time `json:"until"`
}

var errLate = errors.New("not all were asleep in time; give a smaller -n")

// runWake has all runs sleep until one instant, and measures from that instant
// until the last has ended. The instant is chosen beforehand; a machine that is
// too slow for it gets others, later ones.
func runWake(ctx context.Context, b *bench) error {
	lead := time.Second + time.Duration(b.size(wakers))*40*time.Microsecond
	for try := 1; ; try++ {
		err := wakeAll(ctx, b, fmt.Sprint("wake-", try), lead)
		if try == 3 || !errors.Is(err, errLate) {
			return err
		}
		lead *= 4
	}
}

const wakers = 200_000

func wakeAll(ctx context.Context, b *bench, name string, lead time.Duration) (err error) {
	d, err := b.door(name)
	if err != nil {
		return err
	}
	var asleep, awake recent
	napper := bide.Define("napper", func(ctx bide.Context, in nap) (string, error) {
		asleep.add(in.I) // and once more when it wakes
		if err := bide.SleepUntil(ctx, in.Until); err != nil {
			return "", err
		}
		awake.add(in.I)
		return "", nil
	})
	// None may stay warm: all are to be woken by the store.
	e, err := d.start(bide.WorkerConfig{MaxWarm: -1}, napper)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()

	n, callers := b.size(wakers), b.callers(1000)[0]
	until := time.Now().Add(lead)
	runs := make([]*bide.Handle[string], n)
	if _, err := load(ctx, n, callers, func(ctx context.Context, i int) error {
		run, err := napper.Start(ctx, e.client, nap{int64(i), until})
		runs[i] = run
		return err
	}); err != nil {
		return err
	}
	if err := asleep.until(ctx, n); err != nil {
		return err
	}
	for _, i := range asleep.all() {
		if time.Until(until) <= 0 {
			return errLate
		}
		if err := parked(ctx, e.client, runs[i].ID(), bide.KindSleep); err != nil && time.Until(until) > 0 {
			return err
		}
	}
	if time.Until(until) <= 0 || awake.count.Load() > 0 {
		return errLate
	}
	select {
	case <-time.After(time.Until(until)):
	case <-ctx.Done():
		return ctx.Err()
	}
	m := startMeter()
	if err := awake.until(ctx, n); err != nil {
		return err
	}
	for _, i := range awake.all() {
		if _, err := runs[i].Result(ctx); err != nil {
			return err
		}
	}
	wall := time.Since(until)
	return b.print(row{N: n, Inflight: callers, Value: float64(n) / wall.Seconds(), Unit: "runs/s", usage: m.used()}, d)
}
