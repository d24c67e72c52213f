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

// counts tells runs apart as readers see them.
const counts = `SELECT t.queue, t.workflow, c.state, sum(c.runs)::bigint, min(c.oldest) FROM (
		SELECT route, state, count(*) AS runs, NULL::bigint AS oldest FROM bide.run WHERE state NOT IN (1, 3) GROUP BY route, state
		UNION ALL
		SELECT route, state, count(*), min(since) FILTER (WHERE state = 1) FROM (
			SELECT r.route, coalesce(r.wake, r.created) AS since, CASE
				WHEN x.lives AND r.warm AND r.waits IS NOT NULL THEN 3
				WHEN x.lives THEN 2
				WHEN r.holder IS NOT NULL OR r.wake <= $1 THEN 1
				ELSE 3 END AS state
			FROM bide.run r LEFT JOIN (SELECT x.k, NOT m.dead AND m.expires > clock_timestamp() AS lives FROM bide.worker x JOIN bide.member m ON m.k = x.member) x
				ON x.k = r.holder
			WHERE r.state IN (1, 3)) AS open GROUP BY route, state) AS c
	JOIN bide.route t ON t.k = c.route GROUP BY 1, 2, 3`

const listWorkers = `SELECT x.id, x.queues, x.workflows, x.max, (SELECT count(*) FROM bide.run WHERE holder = x.k),
		(extract(epoch FROM m.expires - clock_timestamp()) * 1000000)::bigint
	FROM bide.worker x JOIN bide.member m ON m.k = x.member WHERE NOT m.dead AND m.expires > clock_timestamp() ORDER BY x.id`

// Status implements [bide.Admin].
func (s *Store) Status(ctx context.Context) (status bide.Status, err error) {
	if s.isClosed() {
		return status, bide.ErrClosed
	}
	status.Commits, status.Transactions, status.LeasesLost = s.meter.commits.Load(), s.meter.transactions.Load(), s.meter.lost.Load()
	rows, err := s.pool.Query(ctx, s.sql(counts), s.now().UnixMicro())
	if err != nil {
		return status, s.readFailure(err)
	}
	for rows.Next() {
		var c bide.Count
		var oldest *int64
		if err := rows.Scan(&c.Queue, &c.Workflow, &c.State, &c.Runs, &oldest); err != nil {
			return status, s.readFailure(err)
		}
		if oldest != nil {
			c.Oldest = clock(max(*oldest, 1))
		}
		status.Counts = append(status.Counts, c)
	}
	if err := rows.Err(); err != nil {
		return status, s.readFailure(err)
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
	if rows, err = s.pool.Query(ctx, s.sql(listWorkers)); err != nil {
		return status, s.readFailure(err)
	}
	now := s.now()
	for rows.Next() {
		var x bide.WorkerInfo
		var left int64
		if err := rows.Scan(&x.ID, &x.Queues, &x.Workflows, &x.Max, &x.Held, &left); err != nil {
			return status, s.readFailure(err)
		}
		slices.Sort(x.Queues)
		slices.Sort(x.Workflows)
		x.ExpiresAt = now.Add(time.Duration(left) * time.Microsecond)
		status.Workers = append(status.Workers, x)
	}
	return status, s.readFailure(rows.Err())
}

// Purge implements [bide.Admin].
func (s *Store) Purge(ctx context.Context, run string) error {
	return s.do(ctx, &op{purge: true, run: run})
}

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
	for _, text := range []string{`DELETE FROM bide.inbox WHERE run = $1`, `DELETE FROM bide.run WHERE k = $1`} {
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
	if w.sent {
		w.s.meter.transactions.Add(1)
		w.s.meter.commits.Add(w.commits)
		w.s.meter.lost.Add(w.lost)
	}
}
