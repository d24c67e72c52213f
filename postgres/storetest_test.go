package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/internal/pgtest"
	"github.com/bide-dev/bide/postgres"
	"github.com/bide-dev/bide/storetest"
)

var dsn string

func TestMain(m *testing.M) {
	server, err := pgtest.Start("", "fsync=off", "synchronous_commit=off", "full_page_writes=off")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		if errors.Is(err, pgtest.ErrMissing) && os.Getenv("CI") == "" {
			fmt.Fprintln(os.Stderr, "no Postgres: the tests of bide/postgres are skipped")
			os.Exit(0)
		}
		os.Exit(1)
	}
	dsn = server.DSN
	code := m.Run()
	server.Stop()
	os.Exit(code)
}

var schemas atomic.Int64

// newSchema is a name that no test has had.
func newSchema() string { return fmt.Sprintf("t%d", schemas.Add(1)) }

func open(t *testing.T, schema string, opts ...postgres.Option) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(context.Background(), dsn, append(opts, postgres.Schema(schema))...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(context.Background(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// TestStore takes turns: every other store works without prepared statements, and
// every other one that is opened again has been left as by a crash.
func TestStore(t *testing.T) {
	schema, opened, reopened := "", 0, 0
	next := func(t *testing.T) bide.Store {
		opts := []postgres.Option{postgres.Alone()}
		if opened++; opened%2 == 0 {
			opts = append(opts, postgres.NoNotify())
		}
		return open(t, schema, opts...)
	}
	storetest.Run(t, storetest.Door{
		Open: func(t *testing.T) bide.Store {
			schema = newSchema()
			return next(t)
		},
		Reopen: func(t *testing.T, old bide.Store) bide.Store {
			if reopened++; reopened%2 == 0 {
				old.(*postgres.Store).Die()
				exec(t, `UPDATE `+schema+`.member SET expires = clock_timestamp()`) // its time runs out
			} else if err := old.Close(); err != nil {
				t.Fatal(err)
			}
			return next(t)
		},
	})
}
