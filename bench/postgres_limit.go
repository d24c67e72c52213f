package main

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bide-dev/bide/internal/group"
	"github.com/bide-dev/bide/postgres"
)

// postgresLimit inserts rows of the table rec, in a schema of the store's own:
// one connection, gathered batches, a slice a column, synchronous_commit on.
type postgresLimit struct {
	conn    *pgx.Conn
	group   *group.Group[*limitRow]
	k, runs int64
}

func newPostgresLimit(dir string) (yardstick, error) {
	ctx := context.Background()
	dsn, err := postgresDSN(dir)
	if err != nil {
		return nil, err
	}
	store, err := postgres.Open(ctx, dsn, postgres.Schema("bench_limit")) // for its tables
	if err != nil {
		return nil, err
	}
	if err := store.Close(); err != nil {
		return nil, err
	}
	l := &postgresLimit{}
	if l.conn, err = pgx.Connect(ctx, dsn); err != nil {
		return nil, err
	}
	if _, err := l.conn.Exec(ctx, "TRUNCATE bench_limit.rec"); err != nil {
		return nil, errors.Join(err, l.conn.Close(ctx))
	}
	l.group = group.New(l.flush)
	return l, nil
}

// sample has every caller write the records of runs of ten steps, as steps does.
func (l *postgresLimit) sample(ctx context.Context, callers int, d time.Duration) (float64, error) {
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
					r.at, r.data, r.took = time.Now(), data, time.Microsecond
					if err := errors.Join(l.group.Do(&r), r.err); err != nil {
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
	return float64(rows.Load()) / took.Seconds(), nil
}

const limitInsert = `INSERT INTO bench_limit.rec (run, k, at, took, attempt, kind, path, name, by, data)
	SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::int[], $6::smallint[], $7::text[], $8::text[], $9::text[], $10::bytea[])`

func (l *postgresLimit) flush(batch []*limitRow) {
	n := len(batch)
	run, k, at, took := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	attempt, kind := make([]int32, n), make([]int16, n)
	path, name, by, data := make([]string, n), make([]string, n), make([]string, n), make([][]byte, n)
	for i, r := range batch {
		l.k++
		run[i], k[i], at[i], took[i] = r.run, l.k, r.at.UnixMicro(), r.took.Microseconds()
		attempt[i], kind[i], path[i], name[i], data[i] = 1, 1, r.path, stepName, r.data
	}
	_, err := l.conn.Exec(context.Background(), limitInsert, run, k, at, took, attempt, kind, path, name, by, data)
	for _, r := range batch {
		r.err = err
	}
}

func (l *postgresLimit) close() error {
	l.group.Close()
	return l.conn.Close(context.Background())
}
