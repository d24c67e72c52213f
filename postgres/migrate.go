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

// Migrations is the SQL that makes the schema "bide", for those who would rather
// run it themselves: [Open] finds it done.
func Migrations() string {
	var all strings.Builder
	all.WriteString(begin)
	for i, script := range migrations() {
		fmt.Fprintf(&all, "\n%s\nINSERT INTO bide.migration (version) VALUES (%d);\n", script, i+1)
	}
	return all.String()
}

// begin makes what the migrations are noted in.
const begin = `CREATE SCHEMA IF NOT EXISTS bide;
CREATE TABLE IF NOT EXISTS bide.migration (
	version int PRIMARY KEY,
	at      timestamptz NOT NULL DEFAULT now()
);
`

// migrate brings the schema up to date, one process at a time. A role that may
// not change the schema can open one that is up to date.
func (s *Store) migrate(ctx context.Context, conn *pgx.Conn) error {
	all := migrations()
	has, err := s.version(ctx, conn)
	if err != nil || has == len(all) {
		return err
	}
	if has > len(all) {
		return &SchemaError{Schema: s.schema, Has: has, Newest: len(all)}
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		return failure(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('bide ' || $1, 0))`, s.schema); err != nil {
		return failure(err)
	}
	if has, err = s.version(ctx, tx.Conn()); err != nil {
		return err
	}
	script := begin
	for i := has; i < len(all); i++ {
		script += fmt.Sprintf("%s\nINSERT INTO bide.migration (version) VALUES (%d);\n", all[i], i+1)
	}
	if _, err := conn.PgConn().Exec(ctx, s.sql(strings.ReplaceAll(script, "SCHEMA IF NOT EXISTS bide;",
		"SCHEMA IF NOT EXISTS "+pgx.Identifier{s.schema}.Sanitize()+";"))).ReadAll(); err != nil {
		return fmt.Errorf("postgres: making schema %s: %w", s.schema, failure(err))
	}
	return failure(tx.Commit(ctx))
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
