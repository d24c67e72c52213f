package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/bide-dev/bide"
)

// tallies are the numbers of runs, as they are kept.
const tallies = `SELECT t.k, t.queue, t.workflow, c.state, c.runs FROM (
		SELECT route, state, sum(runs)::bigint AS runs FROM (
			SELECT route, state, runs FROM bide.tally
			UNION ALL
			SELECT m.tally[i], m.tally[i + 1], m.tally[i + 2] FROM bide.member m, generate_series(1, cardinality(m.tally), 3) AS i) AS x
		GROUP BY route, state) AS c
	JOIN bide.route t ON t.k = c.route WHERE c.runs > 0`

// openRuns tells apart, with $3 as the most that are counted, those of routes whose
// state says no more than that they have not ended: due, asleep until a time, and
// waiting for a message only. Of those that are due and asleep, some are canceling.
const openRuns = `SELECT t.k,
		(SELECT count(*) FROM (SELECT FROM bide.run r WHERE r.wake IS NOT NULL AND r.route = t.k AND r.wake <= $2
			ORDER BY r.wake LIMIT $3) AS x),
		(SELECT count(*) FROM (SELECT FROM bide.run r WHERE r.wake IS NOT NULL AND r.route = t.k AND r.wake > $2
			ORDER BY r.wake LIMIT $3) AS x),
		(SELECT count(*) FROM (SELECT FROM bide.run r WHERE r.wake IS NULL AND r.holder IS NULL AND r.state <= 3
			AND (r.route, r.k) >= (t.k, 0) AND r.route <= t.k ORDER BY r.route, r.k LIMIT $3) AS x),
		c.due, c.asleep,
		(SELECT r.wake FROM bide.run r WHERE r.wake IS NOT NULL AND r.state <= 3 AND r.route = t.k AND r.wake <= $2
			ORDER BY r.wake LIMIT 1)
	FROM unnest($1::bigint[]) AS t (k), LATERAL (
		SELECT count(*) FILTER (WHERE wake <= $2) AS due, count(*) FILTER (WHERE wake > $2) AS asleep FROM (
			SELECT r.wake FROM bide.run r WHERE r.state > 3 AND (r.route * 16 + r.state, r.k) >= (16 * t.k + 5, 0) AND r.route * 16 + r.state <= 16 * t.k + 5
			ORDER BY r.route * 16 + r.state, r.k) AS x) AS c`

// heldRuns are those that a worker has in hand, and those that have not been taken
// from a dead one yet.
const heldRuns = `SELECT r.route, count(*) FILTER (WHERE w.lives AND NOT (r.warm AND r.waits IS NOT NULL)),
		count(*) FILTER (WHERE w.lives AND r.warm AND r.waits IS NOT NULL), count(*) FILTER (WHERE NOT w.lives), min(r.created) FILTER (WHERE NOT w.lives)
	FROM (SELECT x.k, NOT m.dead AND m.expires > clock_timestamp() AS lives FROM bide.worker x JOIN bide.member m ON m.k = x.member) AS w,
		LATERAL (SELECT * FROM bide.run r WHERE r.holder IS NOT NULL AND r.holder >= w.k AND r.holder <= w.k ORDER BY r.holder) AS r
	WHERE r.state <= 3 GROUP BY r.route`

// openCount is how the open runs of a route divide.
type openCount struct {
	route                      bide.Count // its name
	open, due, asleep, mute    int64
	cancelingDue, cancelAsleep int64
	running, warm, dead        int64
	oldest, oldestDead         *int64
}

// counts are all runs, told apart as readers see them.
func (s *Store) counts(ctx context.Context) (list []bide.Count, err error) {
	err = s.moment(ctx, func(tx pgx.Tx) error {
		open := map[int64]*openCount{}
		list, err = s.tallied(ctx, tx, open)
		if err != nil || len(open) == 0 {
			return err
		}
		routes := make([]int64, 0, len(open))
		for k := range open {
			routes = append(routes, k)
		}
		if err := s.divide(ctx, tx, routes, open); err != nil {
			return err
		}
		for _, o := range open {
			list = append(list, o.list()...)
		}
		return nil
	})
	return list, err
}

// tallied reads what is kept, and puts the open ones aside.
func (s *Store) tallied(ctx context.Context, tx pgx.Tx, open map[int64]*openCount) (list []bide.Count, err error) {
	rows, err := tx.Query(ctx, s.sql(tallies))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var k int64
		var c bide.Count
		if err := rows.Scan(&k, &c.Queue, &c.Workflow, &c.State, &c.Runs); err != nil {
			return nil, err
		}
		if c.State == bide.Queued {
			open[k] = &openCount{route: bide.Count{Queue: c.Queue, Workflow: c.Workflow}, open: c.Runs}
		} else {
			list = append(list, c)
		}
	}
	return list, rows.Err()
}

// enough is how many of a kind are counted before another is counted in its place.
const enough = 50_000

func (s *Store) divide(ctx context.Context, tx pgx.Tx, routes []int64, open map[int64]*openCount) error {
	now := s.now().UnixMicro()
	rows, err := tx.Query(ctx, s.sql(heldRuns))
	if err != nil {
		return err
	}
	for rows.Next() {
		var k int64
		var x openCount
		if err := rows.Scan(&k, &x.running, &x.warm, &x.dead, &x.oldestDead); err != nil {
			return err
		}
		if o := open[k]; o != nil {
			o.running, o.warm, o.dead, o.oldestDead = x.running, x.warm, x.dead, x.oldestDead
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for most := int64(enough); len(routes) > 0; most = never {
		rows, err := tx.Query(ctx, s.sql(openRuns), routes, now, most)
		if err != nil {
			return err
		}
		routes = nil
		for rows.Next() {
			var k int64
			var x openCount
			if err := rows.Scan(&k, &x.due, &x.asleep, &x.mute, &x.cancelingDue, &x.cancelAsleep, &x.oldest); err != nil {
				return err
			}
			o := open[k]
			o.due, o.asleep, o.mute, o.cancelingDue, o.cancelAsleep, o.oldest = x.due, x.asleep, x.mute, x.cancelingDue, x.cancelAsleep, x.oldest
			if o.due == most && o.asleep+o.mute >= most {
				routes = append(routes, k)
			}
		}
		if err := rows.Err(); err != nil {
			return err
		}
	}
	return nil
}

// list is what readers are told. Whichever there are many of is what is left.
func (o *openCount) list() (list []bide.Count) {
	due := o.due - o.cancelingDue + o.dead
	if o.due == enough && o.asleep+o.mute < enough {
		due = o.open - o.running - o.warm - (o.asleep - o.cancelAsleep) - o.mute
	}
	for state, runs := range map[bide.State]int64{bide.Queued: due, bide.Running: o.running, bide.Waiting: o.open - due - o.running} {
		if runs <= 0 {
			continue
		}
		c := o.route
		if c.State, c.Runs = state, runs; state == bide.Queued {
			oldest := int64(never)
			for _, at := range []*int64{o.oldest, o.oldestDead} {
				if at != nil {
					oldest = min(oldest, max(*at, 1))
				}
			}
			if oldest != never {
				c.Oldest = clock(oldest)
			}
		}
		list = append(list, c)
	}
	return list
}
