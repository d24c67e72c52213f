package bide_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/postgres"
	"github.com/bide-dev/bide/sqlite"
)

// onPostgres is the URL of the database in which the tests of this process keep
// their stores; "" for SQLite. TestOnPostgres sets it for a process of its own.
var onPostgres = os.Getenv("BIDE_TEST_POSTGRES")

// place is where the store of a test is kept. It can be opened there again, unless
// it is in memory.
type place struct {
	path   string // of SQLite's file
	schema string // of Postgres
	role   string // by which a store is to be cut off, if it is
}

var places atomic.Int64

// short reports whether what is long should be cut short. The race detector makes it
// ten times as long: make crash runs the whole without.
func short() bool { return testing.Short() || slowed() }

func inMemory() *place {
	return &place{path: ":memory:", schema: fmt.Sprintf("t%d_%d", os.Getpid(), places.Add(1))}
}

// onDisk is a place in a directory of a test, which other processes find too.
func onDisk(dir string) *place {
	name := fnv.New64a()
	_, _ = name.Write([]byte(dir))
	return &place{path: filepath.Join(dir, "bide.db"), schema: fmt.Sprintf("d%x", name.Sum64())}
}

// forKill is where the store of the nth kill of a test is kept: now and then where
// it lasts, and another process is to open it. On Postgres a life takes long, and
// most are left out: nil.
func forKill(t testing.TB, n int) *place {
	each, lasting := 1, 9
	switch {
	case onPostgres != "":
		each, lasting = 15, 45
	case short():
		each = 3
	}
	switch {
	case n%each != 0:
		return nil
	case n%lasting == 0:
		return onDisk(t.TempDir())
	}
	return inMemory()
}

func (p *place) lasts() bool { return p.path != ":memory:" }

// open opens the store in a bubble of virtual time.
func (p *place) open(t testing.TB) bide.Store {
	t.Helper()
	var store bide.Store
	var err error
	switch {
	case onPostgres == "":
		store, err = sqlite.Open(p.path)
	case !p.lasts():
		store, err = postgres.Open(context.Background(), onPostgres, postgres.Schema(p.schema), postgres.Alone())
	default:
		p.role = fmt.Sprintf("r%d_%d", os.Getpid(), places.Add(1))
		p.sql(t, `CREATE ROLE `+p.role+` SUPERUSER LOGIN`)
		store, err = postgres.Open(context.Background(), as(t, p.role), postgres.Schema(p.schema), postgres.Alone())
	}
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// reopen opens the store again after the crash of the process of the old one, which
// may take no leave of a database that others have open too.
func (p *place) reopen(t testing.TB, old bide.Store) bide.Store {
	t.Helper()
	if onPostgres == "" {
		if err := old.Close(); err != nil {
			t.Fatal(err)
		}
		return p.open(t)
	}
	p.sql(t, `ALTER ROLE `+p.role+` NOLOGIN`)
	p.sql(t, `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = '`+p.role+`'`)
	_ = old.Close()
	p.sql(t, `UPDATE `+pgx.Identifier{p.schema, "member"}.Sanitize()+` SET expires = clock_timestamp() WHERE NOT dead`) // its time runs out
	return p.open(t)
}

func (p *place) sql(t testing.TB, text string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), onPostgres)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(context.Background(), text); err != nil {
		t.Fatal(err)
	}
}

func as(t testing.TB, role string) string {
	t.Helper()
	u, err := url.Parse(onPostgres)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("user", role)
	u.RawQuery = q.Encode()
	return u.String()
}

// openReal opens the store in a real process, beside others.
func (p *place) openReal() (bide.Store, error) {
	if onPostgres == "" {
		return sqlite.Open(p.path)
	}
	return postgres.Open(context.Background(), onPostgres, postgres.Schema(p.schema))
}

// look opens the store as a process left it, and changes nothing.
func (p *place) look() (bide.Store, error) {
	if onPostgres == "" {
		return sqlite.Open(p.path, sqlite.ReadOnly())
	}
	return p.openReal() // which takes nothing over without a worker
}
