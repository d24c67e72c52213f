package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/internal/pgtest"
	"github.com/bide-dev/bide/postgres"
)

// postgresEnv names a database to measure in, instead of a server of the
// bench's own; children of the bench find that one here.
const postgresEnv = "BIDE_BENCH_POSTGRES"

// server is the bench's own, with every commit synced.
var server struct {
	sync.Mutex
	*pgtest.Server
}

func postgresDSN(dir string) (string, error) {
	if dsn := os.Getenv(postgresEnv); dsn != "" {
		return dsn, nil
	}
	server.Lock()
	defer server.Unlock()
	if server.Server == nil {
		home, err := filepath.Abs(filepath.Dir(dir)) // the server works in another directory
		if err != nil {
			return "", err
		}
		if err := os.Chmod(home, 0o755); err != nil { // and is another user
			return "", err
		}
		s, err := pgtest.Start(home, "shared_buffers=1GB", "max_wal_size=8GB", "checkpoint_timeout=15min")
		if err != nil {
			return "", err
		}
		server.Server = s
	}
	return server.DSN, os.Setenv(postgresEnv, server.DSN) // for the children
}

// stopPostgres ends the bench's own server, if it runs.
func stopPostgres() {
	server.Lock()
	defer server.Unlock()
	if server.Server != nil {
		server.Stop()
		server.Server = nil
		_ = os.Unsetenv(postgresEnv)
	}
}

// postgresDoor is a schema named after the directory.
func postgresDoor(dir string) *door {
	schema := "bench_" + strings.ReplaceAll(filepath.Base(dir), "-", "_")
	open := func() (bide.Store, error) {
		dsn, err := postgresDSN(dir)
		if err != nil {
			return nil, err
		}
		return postgres.Open(context.Background(), dsn, postgres.Schema(schema))
	}
	return &door{
		open: open,
		size: func() (int64, error) { return postgresSize(dir, schema) },
		unfinished: func(ctx context.Context) ([]string, error) {
			store, err := open() // which takes nothing over until it has a worker
			if err != nil {
				return nil, err
			}
			defer store.Close()
			return unfinished(ctx, store)
		},
		fill: func(ctx context.Context, n int) error { return postgresFill(ctx, dir, schema, n) },
	}
}

// postgresFill copies the rows of the newest run, with numbers of their own, and
// leaves the tables as the server's own cleaning would.
func postgresFill(ctx context.Context, dir, schema string, n int) error {
	dsn, err := postgresDSN(dir)
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "SET search_path = "+schema); err != nil {
		return err
	}
	var like, base, last int64
	var recs int
	err = conn.QueryRow(ctx, `SELECT k, (SELECT count(*) FROM rec WHERE run = k), nextval('number') FROM run ORDER BY k DESC LIMIT 1`).Scan(&like, &recs, &base)
	if err != nil {
		return err
	}
	step := int64(recs + 1)
	if err := conn.QueryRow(ctx, `SELECT setval('number', $1 + ($2::bigint / 65536 + 1) * 65536)`, base, step*int64(n)).Scan(&last); err != nil {
		return err
	}
	const atOnce = 500_000
	for from := int64(0); from < int64(n); from += atOnce {
		to := min(from+atOnce, int64(n)) - 1
		for _, text := range []string{
			`INSERT INTO run (k, route, ver, wake, holder, epoch, mail, created, started, ended, deadline, gen, state, detached, kids, cut, warm,
					id, parent, key, print, trace, labels, waits, progress, error, vals, result, input, on_end)
				SELECT $2 + $3 * i, route, $2 + $3 * i, wake, holder, $2 + $3 * i, mail, created, started, ended, deadline, gen, state, detached, kids, cut, warm,
					id, parent, key, print, trace, labels, waits, progress, error, vals, result, input, on_end
				FROM run, generate_series($4::bigint, $5::bigint) AS i WHERE k = $1 ORDER BY i`,
			`INSERT INTO rec (run, k, at, took, attempt, kind, path, name, by, data, error, poll)
				SELECT $2 + $3 * i, $2 + $3 * i + n, at, took, attempt, kind, path, name, by, data, error, poll
				FROM (SELECT *, row_number() OVER (ORDER BY k) AS n FROM rec WHERE run = $1) AS r, generate_series($4::bigint, $5::bigint) AS i ORDER BY i, n`,
		} {
			if _, err := conn.Exec(ctx, text, like, base, step, from, to); err != nil {
				return err
			}
		}
	}
	for _, text := range []string{fmt.Sprintf(`INSERT INTO tally SELECT route, state, %d FROM run WHERE k = %d`, n, like), "VACUUM (ANALYZE) run, rec", "CHECKPOINT"} {
		if _, err := conn.Exec(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// postgresSize is that of the schema's tables and indexes.
func postgresSize(dir, schema string) (size int64, err error) {
	dsn, err := postgresDSN(dir)
	if err != nil {
		return 0, err
	}
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return 0, err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, `SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
		JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'`, schema).Scan(&size)
	if err != nil {
		return 0, fmt.Errorf("size of schema %s: %w", schema, err)
	}
	return size, nil
}
