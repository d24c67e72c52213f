package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
)

// What the database has, for a person who wants to know why something does not go on.

// watchRows writes down each second which runs are in hand or overdue, and who is there.
func (c *cluster) watchRows(ctx context.Context) error {
	file, err := os.Create(filepath.Join(c.dir, "rows.log"))
	if err != nil {
		return err
	}
	go func() {
		defer func() { _ = file.Close() }()
		for pause(ctx, time.Second) == nil {
			lines, err := c.ask(ctx, heldSQL)
			_, _ = fmt.Fprintln(file, clock(time.Now()), err) // it is not needed
			for _, line := range lines {
				_, _ = fmt.Fprintln(file, "  ", line)
			}
		}
	}()
	return nil
}

const heldSQL = `SELECT concat_ws(' ', 'run', r.k, coalesce(r.id, ''), 'state', r.state, 'holder', r.holder, 'wake', to_timestamp(r.wake / 1e6)::time,
		'warm', r.warm, 'worker', x.id, 'member', m.k, m.dead, m.expires::time)
	FROM bide.run r LEFT JOIN bide.worker x ON x.k = r.holder LEFT JOIN bide.member m ON m.k = x.member
	WHERE r.holder IS NOT NULL OR r.wake < extract(epoch FROM clock_timestamp() - interval '500 ms') * 1000000
	UNION ALL SELECT concat_ws(' ', 'member', k, process, dead, expires::time) FROM bide.member WHERE NOT dead
	UNION ALL SELECT concat_ws(' ', 'worker', k, member, id) FROM bide.worker
	UNION ALL SELECT concat_ws(' ', 'at work', pid, client_port, state, wait_event, 'behind', pg_blocking_pids(pid), regexp_replace(left(query, 100), '\s+', ' ', 'g'))
		FROM pg_stat_activity WHERE state <> 'idle' AND pid <> pg_backend_pid()
	UNION ALL SELECT concat_ws(' ', 'committed', xact_commit, 'rolled back', xact_rollback, 'deadlocks', deadlocks)
		FROM pg_stat_database WHERE datname = current_database()`

// ask is the texts that a query finds.
func (c *cluster) ask(ctx context.Context, query string, args ...any) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.db.DSN)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	rows, err := conn.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// rows is all that there is of a run, and of who is there.
func (c *cluster) rows(ctx context.Context, ver int64) (all []string) {
	for _, query := range []string{
		`SELECT row_to_json(r)::text FROM bide.run r WHERE ver = $1`,
		`SELECT row_to_json(i)::text FROM bide.inbox i WHERE run = (SELECT k FROM bide.run WHERE ver = $1)`,
		`SELECT row_to_json(m)::text FROM bide.member m WHERE $1::bigint > 0`,
		`SELECT row_to_json(w)::text FROM bide.worker w WHERE $1::bigint > 0`,
		`SELECT clock_timestamp()::text WHERE $1::bigint > 0`,
	} {
		texts, err := c.ask(ctx, query, ver)
		if all = append(all, texts...); err != nil {
			all = append(all, err.Error())
		}
	}
	return all
}
