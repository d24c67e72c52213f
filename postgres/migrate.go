package postgres

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed schema/*.sql
var schema embed.FS

// SchemaError says that a schema was made by a newer bide.
type SchemaError struct {
	Schema      string
	Has, Newest int
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("postgres: schema %s has version %d, this program knows up to %d: use a newer bide", e.Schema, e.Has, e.Newest)
}

// migrations are the files of schema/, in the order of their numbers.
func migrations() (scripts []string) {
	names, _ := fs.Glob(schema, "schema/*.sql") // sorted
	for _, name := range names {
		data, err := schema.ReadFile(name)
		if err != nil {
			panic(err) // it is in the program
		}
		scripts = append(scripts, string(data))
	}
	return scripts
}

// Migrations is the SQL that makes the schema "bide", or brings it up to date, for
// those who would rather run it themselves: [Open] finds it done. It is one
// transaction; to run it again does no harm.
func Migrations() string { return script(home) }

// script brings a schema up to date, one process at a time.
func script(name string) string {
	var b strings.Builder
	b.WriteString(noted)
	for i, text := range migrations() {
		fmt.Fprintf(&b, "\nDO $bide$ BEGIN IF NOT EXISTS (SELECT FROM bide.migration WHERE version = %d) THEN\n%s\nINSERT INTO bide.migration (version) VALUES (%d);\nEND IF; END $bide$;\n",
			i+1, strings.TrimSpace(text), i+1)
	}
	quoted, body := home, b.String()
	if name != home {
		quoted = pgx.Identifier{name}.Sanitize()
		body = strings.ReplaceAll(body, home+".", quoted+".")
	}
	return fmt.Sprintf(begin, strings.ReplaceAll("bide "+name, "'", "''"), quoted) + body + "\nCOMMIT;\n"
}

// begin locks the others out.
const begin = `BEGIN;
SET LOCAL client_min_messages = warning;
SELECT pg_advisory_xact_lock(hashtextextended('%s', 0));
CREATE SCHEMA IF NOT EXISTS %s;
`

// noted is what the migrations are noted in.
const noted = `CREATE TABLE IF NOT EXISTS bide.migration (
	version int PRIMARY KEY,
	at      timestamptz NOT NULL DEFAULT now()
);
`

// migrate brings the schema up to date. A role that may not change the schema can open
// one that is up to date.
func (s *Store) migrate(ctx context.Context, conn *pgx.Conn) error {
	newest := len(migrations())
	for {
		has, err := s.version(ctx, conn)
		if err != nil || has == newest {
			return err
		}
		if has > newest {
			return &SchemaError{Schema: s.schema, Has: has, Newest: newest}
		}
		if _, err := conn.PgConn().Exec(ctx, script(s.schema)).ReadAll(); err != nil {
			_, _ = conn.Exec(context.WithoutCancel(ctx), "ROLLBACK")
			return fmt.Errorf("postgres: making schema %s: %w", s.schema, failure(err))
		}
	}
}

// version is how many migrations the schema has had.
func (s *Store) version(ctx context.Context, conn *pgx.Conn) (v int, err error) {
	var there bool
	// Not to_regclass: it may answer from the session's cache, as it was before the lock.
	if err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relname = 'migration')`, s.schema).Scan(&there); err != nil || !there {
		return 0, failure(err)
	}
	err = conn.QueryRow(ctx, s.sql(`SELECT coalesce(max(version), 0) FROM bide.migration`)).Scan(&v)
	return v, failure(err)
}

func newSalt() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return int64(binary.LittleEndian.Uint64(b[:]))
}

// code is the SQLSTATE of an error of the database, "" for any other.
func code(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}
