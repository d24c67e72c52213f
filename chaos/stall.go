package main

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	tick   = 50 * time.Millisecond
	stalls = 400 * time.Millisecond // from when on a delay is one
)

// watchStalls looks for times in which this process itself did not get to run, and for
// those in which the database took long to commit a row that nobody else knows of:
// what is late then says nothing of bide.
func watchStalls(ctx context.Context, dsn string) func() []window {
	var mu sync.Mutex
	var all []window
	note := func(from time.Time, most time.Duration) {
		if now := time.Now(); now.Sub(from) > most {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, window{Fault: "stall", Kind: "stall", From: from, To: now})
		}
	}
	go func() {
		last := time.Now()
		for pause(ctx, tick) == nil {
			note(last, stalls)
			last = time.Now()
		}
	}()
	go func() {
		for ctx.Err() == nil {
			beatPulse(ctx, dsn, note)
			_ = pause(ctx, tick)
		}
	}()
	return func() []window {
		mu.Lock()
		defer mu.Unlock()
		return append([]window(nil), all...)
	}
}

// beatPulse commits to the database until that fails.
func beatPulse(ctx context.Context, dsn string, note func(time.Time, time.Duration)) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for pause(ctx, tick) == nil {
		began := time.Now()
		if _, err := conn.Exec(ctx, `UPDATE chaos.pulse SET n = n + 1`); err != nil {
			return
		}
		note(began, stalls)
	}
}
