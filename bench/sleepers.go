package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/bide-dev/bide"
)

// runSleepers puts runs to sleep and sees what a sleeping one costs.
func runSleepers(ctx context.Context, b *bench) (err error) {
	d, err := b.door("sleepers")
	if err != nil {
		return err
	}
	var asleep recent
	sleeper := bide.Define("sleeper", func(ctx bide.Context, i int64) (string, error) {
		asleep.add(i)
		return "", bide.Sleep(ctx, time.Hour)
	})
	e, err := d.start(bide.WorkerConfig{}, sleeper)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()

	n, callers := b.size(1_000_000), b.callers(1000)[0]
	// The ids of the runs that were started last: a map of all would be most of
	// the memory that is to be measured.
	var last [1 << 15]atomic.Pointer[started]
	m := startMeter()
	took, err := load(ctx, n, callers, func(ctx context.Context, i int) error {
		var opts []bide.StartOption
		if b.ids == "random" {
			var id [16]byte
			_, _ = rand.Read(id[:]) // never fails
			opts = []bide.StartOption{bide.ID(hex.EncodeToString(id[:]))}
		}
		run, err := sleeper.Start(ctx, e.client, int64(i), opts...)
		if err == nil {
			last[i%len(last)].Store(&started{int64(i), run.ID()})
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := asleep.until(ctx, n); err != nil {
		return err
	}
	// A sample: to read them all would leave the caches of the readers full, and
	// these would count as the sleepers' memory.
	all := asleep.all()
	for at := 0; at < len(all); at += max(len(all)/100, 1) {
		i := all[at]
		if s := last[i%int64(len(last))].Load(); s != nil && s.i == i {
			if err := parked(ctx, e.client, s.id, bide.KindSleep); err != nil {
				return err
			}
		}
	}
	wall, cpu := m.wall(), m.used()
	p50, p99 := ms(quantile(took, 0.5)), ms(quantile(took, 0.99))
	for i := range last {
		last[i].Store(nil)
	}
	size, err := d.size()
	if err != nil {
		return err
	}
	return b.print(row{N: n, Inflight: callers, Value: float64(n) / wall.Seconds(), Unit: "runs/s",
		P50: p50, P99: p99, usage: cpu, PerRun: float64(size) / float64(n)}, d)
}

type started struct {
	i  int64
	id string
}

// parked waits until the run waits in the store, for what it should.
func parked(ctx context.Context, c *bide.Client, id string, kind bide.Kind) error {
	for run, err := range c.Watch(ctx, id) {
		if err != nil {
			return err
		}
		if run.State == bide.Waiting {
			if len(run.Waiting) != 1 || run.Waiting[0].Kind != kind {
				return fmt.Errorf("run %s waits for %v, not for a %v", id, run.Waiting, kind)
			}
			return nil
		}
		if run.State.Ended() {
			return fmt.Errorf("run %s is %v, not parked", id, run.State)
		}
	}
	return ctx.Err()
}
