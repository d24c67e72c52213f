package sqlite

import (
	"os"
	"sync"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

const (
	walAhead    = 16 << 20 // bytes to which the log is extended, once there have been
	walUsed     = 64       // commits: a store that is opened for a moment need not wait for that
	walRows     = 20_000   // statements, or
	walCommits  = 1_000    // commits, after which it is copied into the file
	checkpoints = "PRAGMA wal_checkpoint(PASSIVE)"
)

// wal keeps the write-ahead log short without ever truncating it: a commit that
// overwrites is much cheaper than one that makes the file grow. A connection of
// its own copies the log into the database while commits go on; then the writer
// copies the few pages that came meanwhile, and the next commit begins the log
// anew.
type wal struct {
	path     string
	conn     *sqlite.Conn
	rows     int
	commits  int
	extended bool

	mu   sync.Mutex
	busy bool // the other connection copies
	done bool // it has; the rest is the writer's
	wait sync.WaitGroup
}

func (w *wal) init(path string, conn *sqlite.Conn) {
	w.path, w.conn = path+"-wal", conn
}

// extend makes the log large before it is written, by the writer, between two
// commits. It is a matter of speed only: frames beyond the valid ones carry no
// valid checksum, whatever they hold.
func extend(path string) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return
	}
	zeros := make([]byte, 1<<20)
	for at := info.Size(); at < walAhead; at += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), walAhead-at)], at); err != nil {
			_ = f.Truncate(info.Size()) // no room: leave the log as it was
			return
		}
	}
	_ = f.Sync()
}

// written is called by the writer after each commit.
func (w *wal) written(writer *sqlite.Conn, rows int) {
	w.rows += rows
	w.commits++
	if !w.extended && w.commits >= walUsed {
		w.extended = true
		extend(w.path)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.done:
		w.done, w.rows, w.commits = false, 0, 0
		_ = sqlitex.Execute(writer, checkpoints, nil) // if it fails, the next one comes soon
	case !w.busy && (w.rows >= walRows || w.commits >= walCommits):
		w.busy = true
		w.wait.Go(func() {
			_ = sqlitex.Execute(w.conn, checkpoints, nil)
			w.mu.Lock()
			w.busy, w.done = false, true
			w.mu.Unlock()
		})
	}
}

// close waits for a copy that is under way.
func (w *wal) close() { w.wait.Wait() }
