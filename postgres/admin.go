package postgres

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bide-dev/bide"
)

// meter counts what this process has done since it opened the store.
type meter struct{ commits, transactions, lost atomic.Int64 }

const listWorkers = `SELECT x.id, x.queues, x.workflows, x.max, (SELECT count(*) FROM bide.run WHERE holder = x.k),
		(extract(epoch FROM m.expires - clock_timestamp()) * 1000000)::bigint
	FROM bide.worker x JOIN bide.member m ON m.k = x.member WHERE NOT m.dead AND m.expires > clock_timestamp() ORDER BY x.id`

// Status implements [bide.Admin].
func (s *Store) Status(ctx context.Context) (status bide.Status, err error) {
	if s.isClosed() {
		return status, bide.ErrClosed
	}
	status.Commits, status.Transactions, status.LeasesLost = s.meter.commits.Load(), s.meter.transactions.Load(), s.meter.lost.Load()
	if status.Counts, err = s.counts(ctx); err != nil {
		return status, err
	}
	slices.SortFunc(status.Counts, func(a, b bide.Count) int {
		if c := strings.Compare(a.Queue, b.Queue); c != 0 {
			return c
		}
		if c := strings.Compare(a.Workflow, b.Workflow); c != 0 {
			return c
		}
		return int(a.State) - int(b.State)
	})
	err = s.again(ctx, func(ctx context.Context) error {
		status.Workers = nil
		rows, err := s.pool.Query(ctx, s.sql(listWorkers))
		if err != nil {
			return err
		}
		defer rows.Close()
		now := s.now()
		for rows.Next() {
			var x bide.WorkerInfo
			var left int64
			if err := rows.Scan(&x.ID, &x.Queues, &x.Workflows, &x.Max, &x.Held, &left); err != nil {
				return err
			}
			slices.Sort(x.Queues)
			slices.Sort(x.Workflows)
			x.ExpiresAt = now.Add(time.Duration(left) * time.Microsecond)
			status.Workers = append(status.Workers, x)
		}
		return rows.Err()
	})
	return status, err
}

// Purge implements [bide.Admin].
func (s *Store) Purge(ctx context.Context, run string) error {
	return s.do(ctx, &op{purge: true, run: run})
}

const dropLabels = `DELETE FROM bide.label AS l USING bide.run AS r, jsonb_each_text(r.labels) AS x
	WHERE r.k = $1 AND l.run = r.k AND l.mark = substr(sha256(convert_to(x.key || '=' || x.value, 'UTF8')), 1, 8)`

func (w *writer) purge(o *op) error {
	r, err := w.rowByID(o.run)
	if err != nil {
		return o.refused(err)
	}
	if !r.state.Ended() {
		return o.refused(&bide.InvalidError{Field: "run", Reason: "is " + r.state.String() + "; cancel or terminate it before it is purged"})
	}
	if err := w.settle(); err != nil {
		return err
	}
	w.p.add(r.route.k, r.state, -1)
	for _, text := range []string{dropLabels, `DELETE FROM bide.inbox WHERE run = $1`, `DELETE FROM bide.run WHERE k = $1`} {
		if _, err := w.conn.Exec(w.ctx, w.s.sql(text), r.k); err != nil {
			return err
		}
	}
	if err := w.clearHistory(r.k); err != nil {
		return err
	}
	delete(w.rows, r.k)
	w.ids[r.id] = 0
	w.p.any = true
	w.touched = append(w.touched, touch{id: r.id})
	return nil
}

// count adds a committed transaction to the meter.
func (w *writer) count() {
	w.tally.kept(&w.p)
	if w.sent {
		w.s.meter.transactions.Add(1)
		w.s.meter.commits.Add(w.commits)
		w.s.meter.lost.Add(w.lost)
	}
}
