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
		if err := s.exec(ctx, foldTally); err != nil {
			return bide.Created{}, err
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
		_, err = sub.Exec(ctx, s.sql(addMail), m.run, m.k, m.at, m.op, m.name, m.key, m.prints, m.data, m.failure)
	}
	if err == nil {
		err = sub.Commit(ctx)
	}
	return false, failure(err)
}

// whoHas finds a run by its key or else by its id.
const whoHas = `SELECT r.k, coalesce(r.id, ''), coalesce(r.key, ''), r.print, t.workflow, r.gen, r.input
	FROM bide.run r JOIN bide.route t ON t.k = r.route
	WHERE r.key = nullif($1, '') OR r.id = nullif($2, '') ORDER BY r.key = nullif($1, '') DESC NULLS LAST LIMIT 1`

// whoHasTx answers a start whose id or key a run has.
func (s *Store) whoHasTx(ctx context.Context, tx pgx.Tx, n *bide.NewRun) (c bide.Created, err error) {
	var k int64
	var id, key, fingerprint, workflow string
	var gen int
	var input []byte
	scan := func(row pgx.Row) error { return row.Scan(&k, &id, &key, &fingerprint, &workflow, &gen, &input) }
	err = scan(tx.QueryRow(ctx, s.sql(whoHas), n.Key, n.ID))
	if errors.Is(err, pgx.ErrNoRows) { // it has come since the snapshot that the transaction sees
		err = s.again(ctx, func(ctx context.Context) error { return scan(s.pool.QueryRow(ctx, s.sql(whoHas), n.Key, n.ID)) })
	}
	if errors.Is(err, pgx.ErrNoRows) { // and has gone again
		c.ID, c.Err = n.ID, &bide.ConflictError{ID: n.ID, Key: n.Key}
		return c, nil
	}
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
		err := s.again(ctx, func(ctx context.Context) error {
			err := s.pool.QueryRow(ctx, s.sql(`SELECT k FROM bide.route WHERE queue = $1 AND workflow = $2`), queue, workflow).Scan(&r.k)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			return err
		})
		if err != nil || r.k != 0 {
			return r, err
		}
		if err := s.exec(ctx, `INSERT INTO bide.route (k, queue, workflow) VALUES (nextval('bide.number'), $1, $2)
			ON CONFLICT DO NOTHING`, queue, workflow); err != nil {
			return r, err
		}
	}
	return r, fmt.Errorf("postgres: route %q, %q is neither there nor can it be made", queue, workflow)
}

// exec carries out, beside the writer, what may be done twice.
func (s *Store) exec(ctx context.Context, text string, args ...any) error {
	return s.again(ctx, func(ctx context.Context) error {
		_, err := s.pool.Exec(ctx, s.sql(text), args...)
		return err
	})
}
