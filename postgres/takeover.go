package postgres

import (
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bide-dev/bide"
)

// rival is another process's row, as it has been since some time on the writer's
// monotonic clock.
type rival struct {
	expires int64
	since   time.Duration
}

// watch finds those of the others who have given no sign of life for their lease by
// this process's own clock: the database's may have been set back. all is as [beatSQL]
// has it, asked for at the time.
func (w *writer) watch(all []int64, asked time.Time) {
	w.silent.k, w.silent.expires = []int64{}, []int64{}
	if w.s.alone {
		return
	}
	seen := make(map[int64]rival, len(all)/3)
	for ; len(all) >= 3; all = all[3:] {
		k, lease := all[0], time.Duration(all[2])*time.Microsecond
		r := rival{all[1], time.Since(w.start)}
		if old, ok := w.rivals[k]; ok && old.expires == r.expires {
			r.since = old.since
		}
		if lease > 0 && asked.Sub(w.start)-r.since > lease+lease/8 {
			w.silent.k, w.silent.expires = append(w.silent.k, k), append(w.silent.expires, r.expires)
		}
		seen[k] = r
	}
	w.rivals = seen
}

// bury marks the processes whose time has run out: from then on none of their
// transactions succeeds.
const bury = `UPDATE bide.member SET dead = true, news = news + 1
	WHERE k IN (SELECT m.k FROM bide.member AS m WHERE NOT m.dead AND m.k <> $1 AND (m.expires <= clock_timestamp()
		OR EXISTS (SELECT FROM unnest($2::bigint[], $3::bigint[]) AS u (k, expires) WHERE u.k = m.k AND u.expires = (extract(epoch FROM m.expires) * 1000000)::bigint))
		FOR UPDATE SKIP LOCKED)`

// freeRuns makes due what workers of the dead held.
const freeRuns = `UPDATE bide.run SET holder = NULL, warm = false, cut = true, ver = $1,
		wake = CASE WHEN state = $2 THEN NULL ELSE $3::bigint END
	WHERE holder IN (SELECT k FROM bide.worker WHERE member = ANY ($4)) RETURNING route`

const dropWorkers = `DELETE FROM bide.worker WHERE member IN (SELECT k FROM bide.member WHERE dead)
	AND NOT EXISTS (SELECT FROM bide.run WHERE holder = worker.k)`

// forget removes what is left of processes that ended long ago, but for what they
// have counted.
const forget = `WITH gone AS (DELETE FROM bide.member WHERE dead AND expires < clock_timestamp() - interval '1 day'
		AND NOT EXISTS (SELECT FROM bide.worker WHERE member = member.k) RETURNING tally)
	INSERT INTO bide.tally (route, state, runs) SELECT tally[i], tally[i + 1], tally[i + 2] FROM gone, generate_series(1, cardinality(tally), 3) AS i`

// takeOver frees the runs of processes that have died.
func (w *writer) takeOver() error {
	if _, err := w.conn.Exec(w.ctx, w.s.sql(bury), w.me, w.silent.k, w.silent.expires); err != nil {
		return err
	}
	rows, err := w.conn.Query(w.ctx, w.s.sql(`SELECT k FROM bide.member WHERE dead`))
	if err != nil {
		return err
	}
	dead, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	if err := w.block(); err != nil { // above all that these had
		return err
	}
	ver, err := w.next()
	if err != nil {
		return err
	}
	rows, err = w.conn.Query(w.ctx, w.s.sql(freeRuns), ver, int16(bide.Paused), w.s.now().UnixMicro(), dead)
	if err != nil {
		return err
	}
	routes, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	for _, k := range routes {
		if w.byKey[k] == nil {
			if err := w.loadRoutes(w.ctx); err != nil {
				return err
			}
		}
		w.dueAt(w.byKey[k], 0)
	}
	for _, text := range []string{dropWorkers, forget} {
		if _, err := w.conn.Exec(w.ctx, w.s.sql(text)); err != nil {
			return err
		}
	}
	return nil
}

// strayRuns frees what is held in the names of workers that do not know of it.
const strayRuns = `UPDATE bide.run SET holder = NULL, warm = false, wake = CASE WHEN state = $4 THEN NULL ELSE $3::bigint END
	WHERE holder = ANY ($1) AND NOT k = ANY ($2)`

// giveBackStrays frees the runs that were claimed by a transaction whose answer was
// lost with the connection.
func (w *writer) giveBackStrays() error {
	workers, known := []int64{}, []int64{}
	for _, x := range w.workers {
		workers = append(workers, x.k)
	}
	for k := range w.leases {
		known = append(known, k)
	}
	if _, err := w.conn.Exec(w.ctx, w.s.sql(strayRuns), workers, known, w.s.now().UnixMicro(), int16(bide.Paused)); err != nil {
		return err
	}
	w.strays, w.beatAt = false, 0 // they are due
	return nil
}
