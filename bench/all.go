package main

import (
	"context"
	"fmt"
)

// runAll runs every workload for a short while, each in a process of its own, so
// that what one leaves in memory does not count for the next.
func runAll(ctx context.Context, b *bench) error {
	all := [][]string{
		{"-workload", "steps"},
		{"-workload", "latency"},
		{"-workload", "chain"},
		{"-workload", "sleepers"},
		{"-workload", "sleepers", "-ids", "random", "-n", "200000"},
		{"-workload", "wake"},
		{"-workload", "polls"},
		{"-workload", "crash"},
		{"-workload", "finished"},
		{"-workload", "resume"},
		{"-workload", "cadence"},
	}
	if b.store != "sqlite" { // a file belongs to one process
		all = append(all, []string{"-workload", "pair"})
	}
	for _, args := range all {
		args = append(args, "-dir", b.dir, fmt.Sprintf("-json=%t", b.json))
		if b.n > 0 {
			args = append(args, "-n", fmt.Sprint(b.n))
		}
		cmd := b.self(ctx, args...)
		cmd.Stdout = b.out
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%v: %w", args, err)
		}
	}
	return nil
}
