package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/postgres"
)

// TestParameters gives options in the dsn.
func TestParameters(t *testing.T) {
	conn, schema := connect(t), newSchema()
	for notify, want := range map[string]int{"on": 1, "off": 0} {
		s, err := postgres.Open(t.Context(), dsn+"&bide_schema="+schema+"&bide_notify="+notify)
		if err != nil {
			t.Fatal(err)
		}
		create(t, s, newRun("r"+notify))
		var runs, listen int
		err = conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM `+schema+`.run WHERE id = $1),
			(SELECT count(*) FROM pg_stat_activity WHERE query = 'LISTEN "bide_`+schema+`"')`, "r"+notify).Scan(&runs, &listen)
		if err != nil || runs != 1 || listen != want {
			t.Errorf("%s: %d runs, %d listen: %v", notify, runs, listen, err)
		}
		_ = s.Close()
	}
	for _, wrong := range []string{"bide_notify=maybe", "bide_schemas=x", "bide_schema="} {
		var invalid *bide.InvalidError
		if s, err := postgres.Open(t.Context(), dsn+"&"+wrong); !errors.As(err, &invalid) {
			t.Errorf("%s: %v", wrong, err)
			if err == nil {
				_ = s.Close()
			}
		}
	}
}

// TestOpenReadOnly opens where nothing can be written.
func TestOpenReadOnly(t *testing.T) {
	_, err := postgres.Open(t.Context(), dsn+"&default_transaction_read_only=on", postgres.Schema(newSchema()))
	if !errors.Is(err, pgconn.ErrReadOnlyConnection) {
		t.Errorf("got %v", err)
	}
}

// TestMigrations runs the SQL by hand: anew, from the version before, and again.
func TestMigrations(t *testing.T) {
	all := postgres.Migrations()
	before := all[:strings.LastIndex(all, "DO $bide$")] + "COMMIT;"
	exec(t, `CREATE DATABASE migrations`)
	there := strings.Replace(dsn, "/postgres?", "/migrations?", 1)
	conn, err := pgx.Connect(t.Context(), there)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	for _, scripts := range [][]string{{all, all}, {before, all, before}} {
		if _, err := conn.Exec(t.Context(), `DROP SCHEMA IF EXISTS bide CASCADE`); err != nil {
			t.Fatal(err)
		}
		for _, script := range scripts {
			if _, err := conn.Exec(t.Context(), script); err != nil {
				t.Fatal(err)
			}
		}
		var has, columns int
		err := conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM bide.migration),
			(SELECT count(*) FROM information_schema.columns WHERE table_schema = 'bide' AND table_name = 'member' AND column_name = 'lease')`).Scan(&has, &columns)
		if err != nil || has != strings.Count(all, "DO $bide$") || columns != 1 {
			t.Errorf("%d versions, %d columns: %v", has, columns, err)
		}
		s, err := postgres.Open(t.Context(), there)
		if err != nil {
			t.Fatal(err)
		}
		create(t, s, newRun("r"))
		_ = s.Close()
	}
}
