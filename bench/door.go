package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/bide-dev/bide"
)

// door is a store to be measured: where it is kept and what can be done with it
// that bide.Store does not say.
type door struct {
	// open opens the store, and again what an earlier open has left there.
	open func() (bide.Store, error)
	// size is the disk it takes.
	size func() (int64, error)
	// unfinished lists the runs that have not ended, while no process has the
	// store open, and leaves it as it is.
	unfinished func(context.Context) ([]string, error)
	// fill makes n runs like the newest, which has ended, where that can be done
	// faster than by running them; else nil.
	fill func(ctx context.Context, n int) error
}

// yardstick writes the rows of steps as fast as the driver and the disk can,
// with the durability of the store and nothing else of it.
type yardstick interface {
	sample(ctx context.Context, callers int, d time.Duration) (rowsPerSecond float64, err error)
	close() error
}

// backend makes doors, each on a directory of its own.
type backend struct {
	door  func(dir string) *door
	limit func(dir string) (yardstick, error)
}

var doors = map[string]*backend{
	"sqlite":   {door: sqliteDoor, limit: newSQLiteLimit},
	"postgres": {door: postgresDoor, limit: newPostgresLimit},
}

// door makes a new, empty one.
func (b *bench) door(name string) (*door, error) {
	dir := filepath.Join(b.dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return doors[b.store].door(dir), nil
}

// engine is an open store, a client of it, and a worker at work.
type engine struct {
	store  bide.Store
	client *bide.Client
	cancel context.CancelFunc
	done   chan error
}

// start opens the door with the defaults of a worker, but for what cfg says.
func (d *door) start(cfg bide.WorkerConfig, workflows ...bide.Definition) (*engine, error) {
	store, err := d.open()
	if err != nil {
		return nil, err
	}
	e := &engine{store: store, client: bide.NewClient(store)}
	e.work(cfg, workflows...)
	return e, nil
}

// work sets a worker to work.
func (e *engine) work(cfg bide.WorkerConfig, workflows ...bide.Definition) {
	w := bide.NewWorker(e.store, cfg)
	w.Register(workflows...)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	e.cancel, e.done = cancel, done
}

// rest stops the worker; the store stays open.
func (e *engine) rest() error {
	if e.cancel == nil {
		return nil
	}
	e.cancel()
	e.cancel = nil
	return <-e.done
}

func (e *engine) close() error { return errors.Join(e.rest(), e.store.Close()) }
