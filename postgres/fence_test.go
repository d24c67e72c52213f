package postgres_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/postgres"
)

// TestFenceAfterReading parks a run in a transaction whose last op only reads,
// while the other process sends the run a message: the park must not pass by it.
func TestFenceAfterReading(t *testing.T) {
	schema := newSchema()
	a, b := open(t, schema, postgres.NoNotify()), open(t, schema, postgres.NoNotify())
	t.Cleanup(func() { _ = a.Close(); _ = b.Close() })
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for i := range 10 {
		id := fmt.Sprint("r", i)
		known(t, a, asks("w", time.Hour))
		create(t, a, newRun(id), newRun("busy"+id))
		held := map[string]bide.Lease{}
		for len(held) < 2 {
			for _, c := range claims(t, a, asks("w", time.Hour)) {
				if !c.News {
					held[c.Lease.Run] = c.Lease
				}
			}
		}
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "SELECT FROM "+schema+".member FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() { commit(t, a, held["busy"+id], bide.Batch{Next: bide.Done{}}) })
		blocked(t, conn, 1) // by its fence: what comes now shares the next transaction
		wg.Go(func() { commit(t, a, held[id], bide.Batch{Next: bide.Parked{}}) })
		wg.Go(func() { _ = a.Purge(context.Background(), "none") })
		wg.Go(func() {
			if _, err := b.Signal(context.Background(), id, bide.Message{Name: "m", Data: json.RawMessage(`7`)}); err != nil {
				t.Error(err)
			}
		})
		blocked(t, conn, 2)
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		var c bide.Claimed
		for c.Lease.Run == "" {
			for _, got := range claims(t, a, asks("w", time.Hour)) {
				if !got.News { // that may have come before the park
					c = got
				}
			}
		}
		if c.Lease.Run != id || len(c.Inbox) != 1 {
			t.Fatalf("got %+v, want run %s with its message", c, id)
		}
		commit(t, a, c.Lease, bide.Batch{Next: bide.Done{}})
	}
}

// blocked waits until so many connections wait for a lock.
func blocked(t *testing.T, conn *pgx.Conn, want int) {
	t.Helper()
	for began, got := time.Now(), 0; got < want; {
		err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&got)
		if err != nil || time.Since(began) > patience {
			t.Fatalf("%d connections wait for a lock, want %d: %v", got, want, err)
		}
	}
}

// claims waits for what comes to the worker.
func claims(t *testing.T, s bide.Store, c bide.Claim) []bide.Claimed {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got, err := s.Claim(ctx, c)
	if err != nil {
		t.Fatalf("worker %s: %v", c.Worker, err)
	}
	return got
}
