package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	driver "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/bide-dev/bide/internal/group"
	"github.com/bide-dev/bide/sqlite"
)

// walCap is where the WAL is begun anew. It is as long from the start, so that
// a commit overwrites and never extends it.
const walCap = 64 << 20

const walFrame = 4096 + 24 // a page and its header

// sqliteLimit inserts rows of the table rec, in a file with the store's own
// schema: one writer, gathered batches, prepared statements, synchronous FULL.
type sqliteLimit struct {
	conn                  *driver.Conn
	begin, commit, insert *driver.Stmt
	group                 *group.Group[*limitRow]
	k, runs               int64

	checkpoints *driver.Conn
	ask         chan struct{}
	done        sync.WaitGroup
	rows        atomic.Int64 // since the WAL was begun anew
	askAt       atomic.Int64 // rows; 0: asked already
	restart     atomic.Bool  // all but a little of the WAL is in the database
}

type limitRow struct {
	run  int64
	path string
	data []byte
	at   time.Time
	took time.Duration
	err  error
}

func newSQLiteLimit(dir string) (yardstick, error) {
	path := filepath.Join(dir, "limit.db")
	store, err := sqlite.Open(path) // for its schema
	if err != nil {
		return nil, err
	}
	if err := store.Close(); err != nil {
		return nil, err
	}
	l := &sqliteLimit{ask: make(chan struct{}, 1)}
	l.askAt.Store(50_000)
	if err := l.open(path); err != nil {
		return nil, errors.Join(err, l.release())
	}
	l.group = group.New(l.flush)
	l.done.Go(l.checkpoint)
	return l, nil
}

func (l *sqliteLimit) open(path string) (err error) {
	if l.conn, err = connectLimit(path); err != nil {
		return err
	}
	if l.checkpoints, err = connectLimit(path); err != nil {
		return err
	}
	for _, q := range []struct {
		stmt **driver.Stmt
		sql  string
	}{
		{&l.begin, "BEGIN IMMEDIATE"},
		{&l.commit, "COMMIT"},
		{&l.insert, `INSERT INTO rec (k, run, path, kind, name, data, error, attempt, at, took, by)
			VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)`},
	} {
		if *q.stmt, _, err = l.conn.PrepareTransient(q.sql); err != nil {
			return err
		}
	}
	// A first write makes the WAL.
	if err := sqlitex.ExecuteTransient(l.conn, "INSERT INTO meta (name, value) VALUES ('limit', 1)", nil); err != nil {
		return err
	}
	return extend(path+"-wal", walCap)
}

func connectLimit(path string) (*driver.Conn, error) {
	conn, err := driver.OpenConn(path, driver.OpenReadWrite|driver.OpenWAL)
	if err != nil {
		return nil, err
	}
	for _, pragma := range []string{"PRAGMA synchronous = FULL", "PRAGMA wal_autocheckpoint = 0", "PRAGMA cache_size = -32768"} {
		if err := sqlitex.ExecuteTransient(conn, pragma, nil); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return conn, nil
}

// extend fills a file with zeros up to size: real ones, since a hole would have
// to be allocated at the commit that first writes there.
func extend(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	at, err := f.Seek(0, 2)
	for zeros := make([]byte, 1<<20); err == nil && at < size; at += int64(len(zeros)) {
		_, err = f.WriteAt(zeros, at)
	}
	return errors.Join(err, f.Sync())
}

// sample has every caller write the records of runs of ten steps, as steps does.
func (l *sqliteLimit) sample(ctx context.Context, callers int, d time.Duration) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	data := []byte(strconv.Quote(payload))
	paths := make([]string, stepsARun)
	for i := range paths {
		paths[i] = strconv.Itoa(i + 1)
	}
	var rows, run atomic.Int64
	run.Store(l.runs)
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	began := time.Now()
	for range callers {
		wg.Go(func() {
			var r limitRow
			for ctx.Err() == nil {
				r.run = run.Add(1)
				for _, r.path = range paths {
					r.at = time.Now()
					r.data, r.took = data, time.Microsecond
					err := l.group.Do(&r)
					if err = errors.Join(err, r.err); err != nil {
						failed.Store(&err)
						return
					}
					rows.Add(1)
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	l.runs = run.Load()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return 0, err
	}
	return float64(rows.Load()) / took.Seconds(), nil
}

func (l *sqliteLimit) flush(batch []*limitRow) {
	err := step(l.begin)
	for _, r := range batch {
		if err != nil {
			break
		}
		l.k++
		s := l.insert
		s.BindInt64(1, l.k)
		s.BindInt64(2, r.run)
		s.BindText(3, r.path)
		s.BindInt64(4, 1)
		s.BindText(5, stepName)
		s.BindBytes(6, r.data)
		s.BindNull(7)
		s.BindInt64(8, 1)
		s.BindInt64(9, r.at.UnixMicro())
		s.BindInt64(10, r.took.Microseconds())
		s.BindNull(11)
		err = step(s)
	}
	if err == nil {
		err = step(l.commit)
	}
	if err == nil {
		err = l.written(len(batch))
	}
	for _, r := range batch {
		r.err = err
	}
}

func step(s *driver.Stmt) error {
	_, err := s.Step()
	if rerr := s.Reset(); err == nil {
		err = rerr
	}
	return err
}

// written has the WAL brought home in the background when it is full, and begins
// it anew when only what was written meanwhile is left to do.
func (l *sqliteLimit) written(n int) error {
	if at := l.askAt.Load(); l.rows.Add(int64(n)) >= at && at > 0 {
		l.askAt.Store(0)
		l.ask <- struct{}{}
	}
	if !l.restart.Load() {
		return nil
	}
	l.restart.Store(false)
	_, err := passive(l.conn)
	return err
}

// checkpoint learns how many rows fill the WAL, and empties it twice each time:
// the second pass leaves very little to the writer.
func (l *sqliteLimit) checkpoint() {
	for range l.ask {
		rows := l.rows.Load()
		frames, err := passive(l.checkpoints)
		if err != nil || frames == 0 {
			frames = 1
		}
		full := rows * (walCap / walFrame) / frames
		if frames*walFrame < walCap*8/10 {
			l.askAt.Store(full * 9 / 10)
			continue
		}
		_, _ = passive(l.checkpoints)
		l.rows.Store(0)
		l.restart.Store(true)
		l.askAt.Store(full * 9 / 10)
	}
}

// passive returns how many frames the WAL has.
func passive(conn *driver.Conn) (frames int64, err error) {
	err = sqlitex.Execute(conn, "PRAGMA wal_checkpoint(PASSIVE)", &sqlitex.ExecOptions{
		ResultFunc: func(s *driver.Stmt) error { frames = s.ColumnInt64(1); return nil }})
	return frames, err
}

func (l *sqliteLimit) close() error {
	l.group.Close()
	close(l.ask)
	l.done.Wait()
	return l.release()
}

func (l *sqliteLimit) release() (err error) {
	for _, s := range []*driver.Stmt{l.begin, l.commit, l.insert} {
		if s != nil {
			err = errors.Join(err, s.Finalize())
		}
	}
	for _, c := range []*driver.Conn{l.conn, l.checkpoints} {
		if c != nil {
			err = errors.Join(err, c.Close())
		}
	}
	return err
}
