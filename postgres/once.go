package postgres

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bide-dev/bide"
)

// TxStep is [bide.Step] for work in the store's own database: what fn writes in tx
// and the proof that it was done are committed together, so that it happens exactly
// once, whatever crashes when. fn must neither commit nor roll back. Its result is
// kept in the table "once", for 30 days beside the run's history: as long as a
// crashed run may be left alone.
//
// fn is called again when the database has it give way to another transaction (a
// deadlock, a serialization failure), so all that it does should be in tx. It may
// leave tx alone for a minute, unless the dsn sets another
// idle_in_transaction_session_timeout; a process that is stopped in the middle
// would keep others from what it has locked. Steps of this kind have connections of
// their own, at most "pool_max_conns" (default 8); more of them wait.
func TxStep[T any](ctx bide.Context, s *Store, name string, fn func(context.Context, pgx.Tx) (T, error), opts ...bide.StepOption) (T, error) {
	return bide.Step(ctx, name, func(ctx context.Context) (v T, err error) {
		err = s.once(ctx, bide.IdempotencyKey(ctx), func(tx pgx.Tx) ([]byte, error) {
			if v, err = fn(ctx, tx); err != nil {
				return nil, err
			}
			return json.Marshal(v)
		}, func(data []byte) error { return json.Unmarshal(data, &v) })
		return v, err
	}, opts...)
}

const oldOnce = `DELETE FROM bide.once WHERE key IN (
	SELECT key FROM bide.once WHERE at < now() - interval '30 days' ORDER BY at LIMIT 2 FOR UPDATE SKIP LOCKED)`

// beginOnce begins such a transaction, and bounds how long it may do nothing.
const beginOnce = `BEGIN; SELECT set_config('idle_in_transaction_session_timeout', '60000', true)
	WHERE current_setting('idle_in_transaction_session_timeout') = '0'`

// once has do work in a transaction, unless one of the key has: then recall gets
// what came of that. Of two at a time the second waits for the first.
func (s *Store) once(ctx context.Context, key string, do func(pgx.Tx) ([]byte, error), recall func([]byte) error) error {
	for tries := 0; ; tries++ {
		again, err := s.tryOnce(ctx, key, do, recall)
		if err == nil || !again || tries == 6 || s.isClosed() || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(jittered(10 * time.Millisecond << tries)):
		case <-ctx.Done():
		case <-s.closed:
		}
	}
}

// tryOnce is an attempt. again: it gave way to another, or its connection was lost; if
// that was at the commit, the next finds out what has become of it.
func (s *Store) tryOnce(ctx context.Context, key string, do func(pgx.Tx) ([]byte, error), recall func([]byte) error) (again bool, err error) {
	working := false // an error is do's
	defer func() {
		again = code(err) == "40001" || code(err) == "40P01" || !working && lost(err)
		if !working {
			err = s.readFailure(err)
		}
	}()
	beginning, cancel := context.WithTimeout(ctx, writeFor)
	tx, err := s.steps.BeginTx(beginning, pgx.TxOptions{BeginQuery: beginOnce})
	cancel()
	if err != nil {
		return false, err
	}
	ending, cancel := context.WithCancel(context.WithoutCancel(ctx)) // what is done is not thrown away
	defer cancel()
	defer func() { _ = tx.Rollback(ending) }()
	tag, err := tx.Exec(ctx, s.sql(`INSERT INTO bide.once (key) VALUES ($1) ON CONFLICT DO NOTHING`), key)
	if err != nil {
		return false, err
	}
	if tag.RowsAffected() == 0 {
		var data []byte
		if err := tx.QueryRow(ctx, s.sql(`SELECT value FROM bide.once WHERE key = $1`), key).Scan(&data); err != nil {
			return false, err
		}
		working = true
		return false, recall(data)
	}
	working = true
	data, err := do(tx)
	if err != nil {
		return false, err
	}
	working = false
	late := time.AfterFunc(writeFor, cancel)
	defer late.Stop()
	if _, err := tx.Exec(ending, s.sql(oldOnce)); err != nil {
		return false, err
	}
	if _, err := tx.Exec(ending, s.sql(`UPDATE bide.once SET value = $2 WHERE key = $1`), key, data); err != nil {
		return false, err
	}
	return false, tx.Commit(ending)
}

// jittered is about d: those who lost the same connection are not to come back at once.
func jittered(d time.Duration) time.Duration { return d/2 + rand.N(d) }
