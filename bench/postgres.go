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
	}
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
