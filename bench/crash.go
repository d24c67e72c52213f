package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bide-dev/bide"
)

// crashChild is the workload of the process that is killed.
const crashChild = "crash-child"

// selfEnv tells the test binary that it stands in for the command.
const selfEnv = "BIDE_BENCH_SELF"

// self is this program again, with other arguments.
func (b *bench) self(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], append([]string{"-store", b.store}, args...)...)
	cmd.Env = append(os.Environ(), selfEnv+"=1")
	cmd.Stderr = b.errOut
	return cmd
}

// runCrash kills a process under load and measures from just before the store is
// opened again until every run that the process left is complete. n is then how
// many these were.
func runCrash(ctx context.Context, b *bench) (err error) {
	d, err := b.door("crash")
	if err != nil {
		return err
	}
	callers := b.callers(b.size(1000))[0]
	if err := b.killOne(ctx, callers); err != nil {
		return err
	}
	left, err := d.unfinished(ctx)
	if err != nil {
		return err
	}
	if len(left) == 0 {
		return errors.New("the killed process left no run unfinished")
	}
	m := startMeter()
	e, err := d.start(bide.WorkerConfig{}, chainOf)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	_, err = load(ctx, len(left), len(left), func(ctx context.Context, i int) error {
		_, err := chainOf.Handle(e.client, left[i]).Result(ctx)
		return err
	})
	if err != nil {
		return err
	}
	wall, cpu := m.wall(), m.used()
	return b.print(row{N: len(left), Inflight: callers, Value: ms(wall), Unit: "ms", usage: cpu}, d)
}

// killOne starts the child and kills it when it has been under load for a while.
func (b *bench) killOne(ctx context.Context, callers int) error {
	cmd := b.self(ctx, "-workload", crashChild, "-dir", b.dir, "-inflight", strconv.Itoa(callers))
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	loaded := bufio.NewScanner(out).Scan()
	_ = cmd.Process.Kill() // SIGKILL
	err = cmd.Wait()
	if !loaded {
		return errors.Join(errors.New("the process to be killed ended by itself"), err)
	}
	return ctx.Err()
}

// runCrashChild runs until it is killed. It says so when every caller has had
// several runs.
func runCrashChild(ctx context.Context, b *bench) error {
	d, err := b.door("crash")
	if err != nil {
		return err
	}
	e, err := d.start(bide.WorkerConfig{}, chainOf)
	if err != nil {
		return err
	}
	var done atomic.Int64
	var wg sync.WaitGroup
	for range b.inflight {
		wg.Go(func() {
			for startAndWait(ctx, e, chainOf, stepsARun) == nil {
				if done.Add(1) == int64(10*b.inflight) {
					time.AfterFunc(50*time.Millisecond, func() { fmt.Fprintln(b.out, "loaded") })
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errors.New("no longer under load"), e.close())
}
