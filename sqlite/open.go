// Package sqlite keeps runs in one SQLite file, written by one process.
//
// Every commit is synced to the disk (journal mode WAL, synchronous FULL); the
// commits of many goroutines share a transaction, so that this costs little.
package sqlite

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/internal/group"
	"github.com/bide-dev/bide/internal/timeline"
)

// Store is a bide.Store in one file. It belongs to one process at a time; see
// [ReadOnly] for the others.
type Store struct {
	path     string
	owner    *flock.Flock // nil: in memory or read-only
	readOnly bool
	salt     uint64
	line     *timeline.Line // the store's time
	group    *group.Group[*op]
	readers  chan *reader
	lent     int // how many there are
	conns    []*sqlite.Conn
	closed   chan struct{}
	closing  sync.Once

	w writer // used by the group's goroutine only

	mu       sync.Mutex
	live     map[string]*lease // by run id
	watchers map[string][]*watcher
	workers  map[string]*worker
	watching atomic.Int64 // len of watchers, read without the lock
	meter    meter
}

// Option is an option of [Open].
type Option func(*config)

type config struct{ readOnly bool }

// ReadOnly opens a file beside the process that owns it, to look only: every
// method that writes returns [bide.ErrReadOnly].
func ReadOnly() Option { return func(c *config) { c.readOnly = true } }

// InUseError says that another process owns the file.
type InUseError struct {
	Path  string
	Owner Owner
}

// Owner is the process that has a file open.
type Owner struct {
	PID     int       `json:"pid"`
	Host    string    `json:"host"`
	Program string    `json:"program"`
	Since   time.Time `json:"since"`
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("sqlite: %s is in use by process %d (%s on %s, since %s): stop that process, "+
		"or look into the file beside it with sqlite.ReadOnly()", e.Path, e.Owner.PID, e.Owner.Program, e.Owner.Host, e.Owner.Since.Format(time.DateTime))
}

// SchemaError says that a file was written by a newer bide.
type SchemaError struct {
	Path        string
	Has, Newest int
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("sqlite: %s has schema version %d, this program knows up to %d: use a newer bide", e.Path, e.Has, e.Newest)
}

//go:embed schema/*.sql
var schema embed.FS

const memory = ":memory:"

// Open opens the file, and creates it if there is none; ":memory:" is a store
// that ends with Close. Runs that a crashed process held are due at once. It
// returns an [InUseError] when another process owns the file, a [SchemaError]
// when a newer bide wrote it.
func Open(path string, opts ...Option) (*Store, error) {
	var c config
	for _, o := range opts {
		o(&c)
	}
	s := &Store{path: path, readOnly: c.readOnly, line: timeline.Start(time.Now(), 0), closed: make(chan struct{}),
		live: map[string]*lease{}, watchers: map[string][]*watcher{}, workers: map[string]*worker{}}
	if err := s.open(); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

const readConns = 4

func (s *Store) open() error {
	if s.path == memory {
		// One connection for all, handed from reader to writer.
		conn, err := s.connect()
		if err != nil {
			return err
		}
		s.readers = make(chan *reader, 1)
		s.lend(conn)
		return s.start(conn)
	}
	if abs, err := filepath.Abs(s.path); err == nil {
		s.path = abs
	}
	if s.readOnly {
		if _, err := os.Stat(s.path); err != nil {
			return fmt.Errorf("sqlite: %w", err)
		}
	} else {
		if err := s.lock(); err != nil {
			return err
		}
		conn, err := s.connect()
		if err != nil {
			return err
		}
		if err := s.start(conn); err != nil {
			return err
		}
	}
	s.readers = make(chan *reader, readConns)
	for range readConns {
		conn, err := s.connect()
		if err != nil {
			return err
		}
		s.lend(conn)
	}
	if s.readOnly {
		return s.check(s.conns[0])
	}
	return nil
}

// lend makes a reader of a connection.
func (s *Store) lend(conn *sqlite.Conn) {
	s.readers <- newReader(conn)
	s.lent++
}

// connect opens one more connection to the file.
func (s *Store) connect() (*sqlite.Conn, error) {
	flags := sqlite.OpenReadWrite | sqlite.OpenCreate | sqlite.OpenWAL
	switch {
	case s.path == memory:
		flags = sqlite.OpenReadWrite | sqlite.OpenCreate | sqlite.OpenMemory
	case s.readOnly:
		flags = sqlite.OpenReadOnly
	}
	conn, err := sqlite.OpenConn(s.path, flags)
	if err != nil {
		return nil, failure(err)
	}
	s.conns = append(s.conns, conn)
	conn.SetBusyTimeout(10 * time.Second)
	for _, pragma := range []string{"PRAGMA synchronous = FULL", "PRAGMA wal_autocheckpoint = 0", "PRAGMA cache_size = -8192"} {
		if err := sqlitex.ExecuteTransient(conn, pragma, nil); err != nil {
			return nil, failure(err)
		}
	}
	return conn, nil
}

// start brings the schema up to date and the writer to work.
func (s *Store) start(conn *sqlite.Conn) error {
	if err := s.migrate(conn); err != nil {
		return err
	}
	if err := s.check(conn); err != nil {
		return err
	}
	s.w.init(s, conn)
	if err := s.w.recover(); err != nil {
		return err
	}
	if s.path != memory {
		checkpoints, err := s.connect()
		if err != nil {
			return err
		}
		s.w.wal.init(s.path, checkpoints)
	}
	s.group = group.New(s.w.flush)
	return nil
}

// lock makes this process the file's owner.
func (s *Store) lock() error {
	l := flock.New(s.path + ".owner")
	ok, err := l.TryLock()
	if err != nil {
		return fmt.Errorf("sqlite: cannot lock %s: %w", l.Path(), err)
	}
	if !ok {
		e := &InUseError{Path: s.path}
		if data, err := os.ReadFile(l.Path()); err == nil {
			_ = json.Unmarshal(data, &e.Owner) // half written: it shows as process 0
		}
		return e
	}
	s.owner = l
	host, _ := os.Hostname()
	data, _ := json.Marshal(Owner{PID: os.Getpid(), Host: host, Program: filepath.Base(os.Args[0]), Since: time.Now().Truncate(time.Second)})
	if err := os.WriteFile(l.Path(), data, 0o644); err != nil {
		return fmt.Errorf("sqlite: %w", err)
	}
	return nil
}

// migrations are the files of schema/, in the order of their numbers.
func migrations() []string {
	names, _ := fs.Glob(schema, "schema/*.sql") // sorted
	return names
}

func (s *Store) migrate(conn *sqlite.Conn) error {
	has, err := version(conn)
	if err != nil {
		return err
	}
	all := migrations()
	if has > len(all) {
		return &SchemaError{Path: s.path, Has: has, Newest: len(all)}
	}
	for i := has; i < len(all); i++ {
		script, err := schema.ReadFile(all[i])
		if err != nil {
			return err
		}
		sql := fmt.Sprintf("%s\nPRAGMA user_version = %d;", script, i+1)
		if err := sqlitex.ExecuteScript(conn, sql, nil); err != nil {
			return fmt.Errorf("sqlite: migration %s: %w", all[i], failure(err))
		}
	}
	return nil
}

// check reads what every door to the file needs to know of it.
func (s *Store) check(conn *sqlite.Conn) error {
	if has, err := version(conn); err != nil {
		return err
	} else if newest := len(migrations()); has != newest {
		if has < newest {
			return fmt.Errorf("sqlite: %s has no schema, or an old one (version %d of %d): open it once for writing", s.path, has, newest)
		}
		return &SchemaError{Path: s.path, Has: has, Newest: newest}
	}
	var found bool
	err := sqlitex.Execute(conn, "SELECT value FROM meta WHERE name = 'salt'", &sqlitex.ExecOptions{
		ResultFunc: func(stmt *sqlite.Stmt) error { s.salt, found = uint64(stmt.ColumnInt64(0)), true; return nil }})
	if err != nil || found || s.readOnly {
		return failure(err)
	}
	var b [8]byte
	_, _ = rand.Read(b[:])
	s.salt = binary.LittleEndian.Uint64(b[:])
	return failure(sqlitex.Execute(conn, "INSERT INTO meta (name, value) VALUES ('salt', ?)", &sqlitex.ExecOptions{Args: []any{int64(s.salt)}}))
}

func version(conn *sqlite.Conn) (v int, err error) {
	err = sqlitex.ExecuteTransient(conn, "PRAGMA user_version", &sqlitex.ExecOptions{
		ResultFunc: func(stmt *sqlite.Stmt) error { v = stmt.ColumnInt(0); return nil }})
	return v, failure(err)
}

// Close waits for queued writes, wakes everyone who waits with
// [bide.ErrClosed], and gives the file free.
func (s *Store) Close() error {
	s.closing.Do(func() {
		close(s.closed)
		if s.group != nil {
			s.group.Close()
			s.w.wal.close()
			s.w.stop()
		}
		s.dismiss()
		s.release()
	})
	return nil
}

// release closes the connections, once nobody reads any more, and the lock.
func (s *Store) release() {
	for range s.lent {
		<-s.readers
	}
	for _, c := range s.conns {
		_ = c.Close()
	}
	if s.owner != nil {
		_ = s.owner.Close()
	}
}

// isClosed reports whether Close has begun.
func (s *Store) isClosed() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

// do hands a write to the writer and returns when it is durable or refused.
func (s *Store) do(ctx context.Context, o *op) error {
	if s.readOnly {
		return s.refuse()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.isClosed() {
		return bide.ErrClosed
	}
	if err := s.group.Do(o); err != nil {
		return bide.ErrClosed
	}
	return o.err
}

func (s *Store) refuse() error {
	e := InUseError{Path: s.path}
	if data, err := os.ReadFile(s.path + ".owner"); err == nil && json.Unmarshal(data, &e.Owner) == nil {
		return fmt.Errorf("%w: writing is for its owner, process %d (%s on %s)", bide.ErrReadOnly, e.Owner.PID, e.Owner.Program, e.Owner.Host)
	}
	return bide.ErrReadOnly
}

// failure gives SQLite's errors the identity that callers look for.
func failure(err error) error {
	if err == nil {
		return nil
	}
	switch sqlite.ErrCode(err) {
	case sqlite.ResultFull, sqlite.ResultIOErrWrite, sqlite.ResultIOErrSHMSize: // the disk, a quota, a limit on files
		return fmt.Errorf("%w: %w", bide.ErrStoreFull, err)
	}
	return fmt.Errorf("sqlite: %w", err)
}
