package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/sqlite"
)

const sqliteFile = "bide.db"

func sqliteDoor(dir string) *door {
	path := filepath.Join(dir, sqliteFile)
	return &door{
		open:       func() (bide.Store, error) { return sqlite.Open(path) },
		size:       func() (int64, error) { return sqliteSize(path) },
		unfinished: func(ctx context.Context) ([]string, error) { return sqliteUnfinished(ctx, path) },
	}
}

// sqliteSize is that of the database and its WAL.
func sqliteSize(path string) (size int64, err error) {
	for _, p := range []string{path, path + "-wal"} {
		info, err := os.Stat(p)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return 0, err
		default:
			size += info.Size()
		}
	}
	return size, nil
}

// sqliteUnfinished looks into a copy: opening the file itself would do some of
// the recovery that is to be measured.
func sqliteUnfinished(ctx context.Context, path string) (ids []string, err error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), "copy-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	at := filepath.Join(dir, sqliteFile)
	for _, suffix := range []string{"", "-wal"} {
		if err := copyFile(at+suffix, path+suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	store, err := sqlite.Open(at)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	return unfinished(ctx, store)
}

// unfinished lists the runs that have not ended.
func unfinished(ctx context.Context, store bide.Store) (ids []string, err error) {
	q := bide.Query{Limit: 1000, States: []bide.State{bide.Queued, bide.Running, bide.Waiting, bide.Paused, bide.Canceling}}
	for {
		runs, err := store.Runs(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, r := range runs {
			ids = append(ids, r.ID)
		}
		if len(runs) < q.Limit {
			return ids, nil
		}
		q.Before = runs[len(runs)-1].ID
	}
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
