package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/bide-dev/bide"
)

// StartTx starts a run that exists if and only if the caller's transaction, in the
// store's database, commits. Workers hear of it then. n is what [bide.Workflow.NewRun]
// made; [bide.Replace] is not for a transaction.
func (s *Store) StartTx(ctx context.Context, tx pgx.Tx, n bide.NewRun) (bide.Created, error) {
	switch {
	case s.isClosed():
		return bide.Created{}, bide.ErrClosed
	case n.Workflow == "":
		return bide.Created{}, &bide.InvalidError{Field: "workflow", Reason: "is empty"}
	case n.Queue == "":
		return bide.Created{}, &bide.InvalidError{Field: "queue", Reason: "is empty"}
	case n.Conflict == bide.Replace:
		return bide.Created{}, &bide.InvalidError{Field: "conflict", Reason: "is Replace, which cannot be done within a transaction; use bide.Existing or bide.Fail"}
	}
	route, err := s.routeOf(ctx, n.Queue, n.Workflow)
	if err != nil {
		return bide.Created{}, err
	}
	var k int64
	if err := tx.QueryRow(ctx, s.sql(`SELECT nextval('bide.number')`)).Scan(&k); err != nil {
		return bide.Created{}, failure(err)
	}
	now := s.now().UnixMicro()
	r := &row{k: k, ver: k, wake: max(micros(n.StartAt), now), state: bide.Queued, deadline: micros(n.Deadline), route: &route, id: n.ID}
	var p pending
	seen := map[string]bool{}
	for _, m := range n.Messages {
		if m.Key != "" && seen[m.Key] {
			continue
		}
		seen[m.Key] = true
		r.ver++
		m.Seq, m.At, r.mail = r.ver, clock(now), r.ver
		p.addMail(k, &m)
	}
	p.addRun(r, &n, now)
	taken, err := s.insertTx(ctx, tx, &p)
	if err != nil {
		return bide.Created{}, err
	}
	if taken {
		return s.whoHasTx(ctx, tx, &n)
	}
	if s.started.Add(1)%5000 == 0 { // in a transaction of its own: nobody is to wait for the caller's
		if _, err := s.pool.Exec(ctx, s.sql(foldTally)); err != nil {
			return bide.Created{}, s.readFailure(err)
		}
	}
	if !s.noNotify {
		text, _ := json.Marshal(hint{Routes: []int64{route.k}, Since: []int64{r.wake}}) // of numbers
		if _, err := tx.Exec(ctx, notifySQL, s.channel(), string(text)); err != nil {
			return bide.Created{}, failure(err)
		}
	}
	if n.ID == "" {
		n.ID = s.madeID(k)
	}
	return bide.Created{ID: n.ID, New: true}, nil
}

// insertTx inserts the run with its first messages, unless its id or key is taken.
func (s *Store) insertTx(ctx context.Context, tx pgx.Tx, p *pending) (taken bool, err error) {
	sub, err := tx.Begin(ctx) // a savepoint
	if err != nil {
		return false, failure(err)
	}
	defer func() { _ = sub.Rollback(context.WithoutCancel(ctx)) }()
	x, m := &p.runs, &p.mail
	_, err = sub.Exec(ctx, s.sql(addRuns), x.k, x.route, x.ver, x.wake, x.holder, x.mail, x.created, x.started, x.deadline, x.state, x.detached,
		x.id, x.parent, x.key, x.prints, x.trace, x.labels, x.input, x.onEnd)
	if code(err) == "23505" {
		return true, nil
	}
	if err == nil && p.labelled() {
		_, err = sub.Exec(ctx, s.sql(addLabels), x.k, x.labels)
	}
	if err == nil {
		_, err = sub.Exec(ctx, s.sql(addTally), x.route, x.state, []int64{1})
	}
	if err == nil && len(m.k) > 0 {
		_, err = sub.Exec(ctx, s.sql(addMail), m.run, m.k, m.at, m.op, m.name, m.key, m.data, m.failure)
	}
	if err == nil {
		err = sub.Commit(ctx)
	}
	return false, failure(err)
}

// whoHasTx answers a start whose id or key a run has.
func (s *Store) whoHasTx(ctx context.Context, tx pgx.Tx, n *bide.NewRun) (c bide.Created, err error) {
	var k int64
	var id, key, fingerprint, workflow string
	var gen int
	var input []byte
	err = tx.QueryRow(ctx, s.sql(`SELECT r.k, coalesce(r.id, ''), coalesce(r.key, ''), r.print, t.workflow, r.gen, r.input
		FROM bide.run r JOIN bide.route t ON t.k = r.route
		WHERE r.key = nullif($1, '') OR r.id = nullif($2, '') ORDER BY r.key = nullif($1, '') DESC NULLS LAST LIMIT 1`), n.Key, n.ID).
		Scan(&k, &id, &key, &fingerprint, &workflow, &gen, &input)
	if err != nil {
		return c, failure(err)
	}
	if c.ID = id; id == "" {
		c.ID = s.madeID(k)
	}
	switch {
	case n.Key != "" && key == n.Key:
		if fingerprint != n.Print {
			c.Err = &bide.ConflictError{ID: c.ID, Key: n.Key}
		}
	case n.Conflict != bide.Existing || workflow != n.Workflow || gen == 0 && !bytes.Equal(input, n.Input):
		c.Err = &bide.ConflictError{ID: c.ID}
	}
	return c, nil
}

// routeOf finds the route, or makes it, in a transaction of its own: nobody is to
// wait for the caller's with it.
func (s *Store) routeOf(ctx context.Context, queue, workflow string) (route, error) {
	r := route{name: routeName{queue, workflow}}
	for range 3 {
		err := s.pool.QueryRow(ctx, s.sql(`SELECT k FROM bide.route WHERE queue = $1 AND workflow = $2`), queue, workflow).Scan(&r.k)
		if !errors.Is(err, pgx.ErrNoRows) {
			return r, s.readFailure(err)
		}
		if _, err := s.pool.Exec(ctx, s.sql(`INSERT INTO bide.route (k, queue, workflow) VALUES (nextval('bide.number'), $1, $2)
			ON CONFLICT DO NOTHING`), queue, workflow); err != nil {
			return r, s.readFailure(err)
		}
	}
	return r, fmt.Errorf("postgres: route %q, %q is neither there nor can it be made", queue, workflow)
}

// TxStep is [bide.Step] for work in the store's own database: what fn writes in tx
// and the proof that it was done are committed together, so that it happens exactly
// once, whatever crashes when. fn must neither commit nor roll back. Its result is
// kept in the table "once", for 30 days beside the run's history: as long as a
// crashed run may be left alone. Each call takes one of the store's connections
// ("pool_max_conns" in the dsn; default 8).
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

// once has do work in a transaction, unless one of the key has: then recall gets
// what came of that. Of two at a time the second waits for the first.
func (s *Store) once(ctx context.Context, key string, do func(pgx.Tx) ([]byte, error), recall func([]byte) error) error {
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return s.readFailure(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	tag, err := tx.Exec(ctx, s.sql(`INSERT INTO bide.once (key) VALUES ($1) ON CONFLICT DO NOTHING`), key)
	if err != nil {
		return s.readFailure(err)
	}
	if tag.RowsAffected() == 0 {
		var data []byte
		if err := tx.QueryRow(ctx, s.sql(`SELECT value FROM bide.once WHERE key = $1`), key).Scan(&data); err != nil {
			return s.readFailure(err)
		}
		return recall(data)
	}
	data, err := do(tx)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, s.sql(oldOnce)); err != nil {
		return s.readFailure(err)
	}
	if _, err := tx.Exec(ctx, s.sql(`UPDATE bide.once SET value = $2 WHERE key = $1`), key, data); err != nil {
		return s.readFailure(err)
	}
	return s.readFailure(tx.Commit(ctx))
}
