package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/bide-dev/bide"
)

// How long a worker is given to plan its loops, but for tests.
var settle = 6 * time.Second

// runIdleLoops measures what a loop holds in memory between two iterations: the
// live heap and stacks of a worker with n loops an hour apart, less that with n/5,
// by the loops that are more. What was there before, the loops' definitions
// among it, does not count.
func runIdleLoops(ctx context.Context, b *bench) error {
	n := b.size(10_000)
	few, err := b.idleLoops(ctx, max(n/5, 1))
	if err != nil {
		return err
	}
	all, err := b.idleLoops(ctx, n)
	if err != nil {
		return err
	}
	d, err := b.door("idleloops")
	if err != nil {
		return err
	}
	return b.print(row{N: n, Inflight: n, Value: float64(all-few) / float64(n-max(n/5, 1)), Unit: "B/loop"}, d)
}

// idleLoops is the memory that a store and a worker take for so many.
func (b *bench) idleLoops(ctx context.Context, n int) (held int64, err error) {
	d, err := b.door(fmt.Sprint("idleloops-", n))
	if err != nil {
		return 0, err
	}
	loops := make([]bide.Definition, n)
	for i := range loops {
		loops[i] = bide.Loop(fmt.Sprintf("loop-%06d", i), func(context.Context) {}, bide.Every(time.Hour))
	}
	before := inUse()
	e, err := d.start(bide.WorkerConfig{}, loops...)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	err = pauseFor(ctx, settle)
	held = inUse() - before
	runtime.KeepAlive(loops)
	return held, err
}

// inUse is the memory that Go holds and cannot free.
func inUse() int64 {
	runtime.GC()
	runtime.GC() // what the first has finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
