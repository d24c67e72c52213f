package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"

	"github.com/bide-dev/bide"
)

// pairChild is the workload of one of the processes that share a database.
const pairChild = "pair-child"

// runPair compares the steps a second of two processes, each with a worker and its part
// of the callers, with those of one that has all of them, turn about. p50 and p99 are
// of the slower process; the processor time is this one's, which only waits.
func runPair(ctx context.Context, b *bench) error {
	if b.store == "sqlite" {
		return errors.New("a file belongs to one process: give -store postgres")
	}
	d, err := b.door("pair")
	if err != nil {
		return err
	}
	n, callers := b.size(20_000), b.callers(200)[0]
	var all []sample
	var ratios []float64
	for range samples {
		one, err := b.crew(ctx, 1, n, callers)
		if err != nil {
			return err
		}
		two, err := b.crew(ctx, 2, n, callers)
		if err != nil {
			return err
		}
		all, ratios = append(all, two), append(ratios, two.rate/one.rate)
	}
	r := middle(all).row(n, callers)
	r.Ratio = median(ratios)
	return b.print(r, d)
}

// crew is the rate of so many processes at once.
func (b *bench) crew(ctx context.Context, processes, n, callers int) (sum sample, err error) {
	crew := make([]*mate, processes)
	for i := range crew {
		if crew[i], err = b.mate(ctx, n/processes, callers/processes); err != nil {
			return sum, err
		}
		defer crew[i].stop()
	}
	m := startMeter()
	for _, c := range crew {
		if _, err := fmt.Fprintln(c.in, "go"); err != nil {
			return sum, err
		}
	}
	for _, c := range crew {
		var s pairRate
		if !c.out.Scan() {
			return sum, errors.New("one of the processes has ended by itself")
		}
		if err := json.Unmarshal(c.out.Bytes(), &s); err != nil {
			return sum, err
		}
		sum.p50, sum.p99 = max(sum.p50, s.P50), max(sum.p99, s.P99)
	}
	sum.rate, sum.usage = float64(n/processes*processes*stepsARun)/m.wall().Seconds(), m.used()
	return sum, nil
}

// mate is one of the processes.
type mate struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// mate starts a process, and returns once it is ready.
func (b *bench) mate(ctx context.Context, n, callers int) (*mate, error) {
	c := &mate{cmd: b.self(ctx, "-workload", pairChild, "-dir", b.dir, "-n", strconv.Itoa(n), "-inflight", strconv.Itoa(callers))}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	c.out = bufio.NewScanner(out)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	if !c.out.Scan() {
		c.stop()
		return nil, errors.New("one of the processes has not begun")
	}
	return c, nil
}

func (c *mate) stop() {
	_ = c.in.Close()
	_ = c.cmd.Wait()
}

// pairRate is what a process says of its part.
type pairRate struct{ P50, P99 float64 }

// runPairChild warms up, says that it is ready, and runs its part when it is told.
func runPairChild(ctx context.Context, b *bench) (err error) {
	d, err := b.door("pair")
	if err != nil {
		return err
	}
	e, err := d.start(bide.WorkerConfig{}, chainOf)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	if _, err := e.rate(ctx, min(b.n, 500), b.inflight); err != nil {
		return err
	}
	fmt.Fprintln(b.out, "ready")
	if orders := bufio.NewScanner(os.Stdin); !orders.Scan() {
		return orders.Err()
	}
	s, err := e.rate(ctx, b.n, b.inflight)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(b.out).Encode(pairRate{s.p50, s.p99}); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin) // the other may need the worker still
	return err
}
