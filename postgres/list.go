package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/internal/keyset"
)

// These find runs for lists: numbers from $1 on and below $2, at most $3, the highest
// first. What a page costs is to be no matter of what the planner believes: so that no
// other index serves, rows are sorted by the index's first column, too, and that is
// not said to be equal to one value.
const (
	newest = `SELECT k FROM bide.run WHERE k >= $1 AND k < $2 ORDER BY k DESC LIMIT $3`

	byPlace = `SELECT x.k FROM unnest($4::bigint[]) AS p (place), LATERAL (
			SELECT r.k FROM bide.run r WHERE r.state > 3 AND (r.route * 16 + r.state, r.k) < (p.place, $2) AND r.route * 16 + r.state >= p.place
			ORDER BY r.route * 16 + r.state DESC, r.k DESC LIMIT $3) AS x
		WHERE x.k >= $1 ORDER BY x.k DESC LIMIT $3`

	byParent = `SELECT x.k FROM (
			SELECT k FROM bide.run WHERE parent <> '' AND (parent, k) < ($4, $2) AND parent >= $4 ORDER BY parent DESC, k DESC LIMIT $3) AS x
		WHERE x.k >= $1 ORDER BY x.k DESC`

	byLabel = `SELECT run FROM bide.label WHERE mark = substr(sha256(convert_to($4 || '=' || $5, 'UTF8')), 1, 8) AND run >= $1 AND run < $2
		ORDER BY run DESC LIMIT $3`

	made = `SELECT k FROM bide.run WHERE k >= greatest($1::bigint, $4::bigint) AND k < least($2::bigint, $5::bigint) AND id IS NULL ORDER BY k DESC LIMIT $3`

	// openIn and idIn look at the rows of a window.
	openIn = `SELECT k FROM (SELECT k, route, state, wake, holder FROM bide.run WHERE k >= $1 AND k < $2 ORDER BY k DESC LIMIT $4) AS r
		WHERE state <= 3 AND route = ANY ($5) AND (holder IS NOT NULL OR CASE WHEN wake <= $6 THEN $7::boolean ELSE $8::boolean END) ORDER BY k DESC LIMIT $3`

	idIn = `SELECT k FROM (SELECT k, id FROM bide.run WHERE k >= $1 AND k < $2 ORDER BY k DESC LIMIT $4) AS r
		WHERE id >= $5 AND id < $6 ORDER BY k DESC LIMIT $3`

	floor = `SELECT k FROM bide.run WHERE k >= $1 AND k < $2 ORDER BY k DESC LIMIT $3 OFFSET $4::bigint - 1`
)

// These are in no order of k; where that is k + 0 its own index must not serve.
const (
	byWake = `SELECT x.k FROM unnest($4::bigint[]) AS t (route), LATERAL (
			SELECT r.k FROM bide.run r WHERE r.wake IS NOT NULL AND r.route = t.route AND r.wake > $5 AND r.wake <= $6 AND r.k >= $1 AND r.k < $2
			ORDER BY r.wake, r.k LIMIT $3) AS x
		LIMIT $3`

	mute = `SELECT x.k FROM unnest($4::bigint[]) AS t (route), LATERAL (
			SELECT r.k FROM bide.run r WHERE r.wake IS NULL AND r.holder IS NULL AND r.state <= 3
				AND (r.route, r.k) >= (t.route, $1) AND r.route <= t.route AND r.k < $2 ORDER BY r.route, r.k LIMIT $3) AS x
		LIMIT $3`

	inHand = `SELECT x.k FROM bide.worker w, LATERAL (
			SELECT r.k FROM bide.run r WHERE r.holder IS NOT NULL AND r.holder >= w.k AND r.holder <= w.k AND r.k + 0 >= $1 AND r.k + 0 < $2
			ORDER BY r.holder LIMIT $3) AS x
		LIMIT $3`

	byID = `SELECT k FROM bide.run WHERE id IS NOT NULL AND id >= $4 AND id < $5 AND k + 0 >= $1 AND k + 0 < $2 ORDER BY id LIMIT $3`
)

// readPage is readRun for a list, without what may be big.
const readPage = `SELECT r.k, coalesce(r.id, ''), t.queue, t.workflow, r.state, r.ver, coalesce(r.wake, 9223372036854775807), coalesce(r.holder, 0), r.warm,
		r.parent, r.gen, r.created, r.started, r.ended, r.deadline, r.waits, r.progress, r.labels::text, r.error, r.trace,
		greatest((SELECT max(k) FROM bide.rec WHERE run = r.k), (SELECT max(k) FROM bide.chunk WHERE run = r.k), 0),
		EXISTS (SELECT FROM bide.worker x JOIN bide.member m ON m.k = x.member WHERE x.k = r.holder AND NOT m.dead AND m.expires > clock_timestamp()),
		NULL::bytea AS vals, NULL::bytea AS result, NULL::bytea AS input
	FROM bide.run r JOIN bide.route t ON t.k = r.route WHERE r.k = ANY ($1) ORDER BY r.k DESC`

// lister reads one page, all at one moment.
type lister struct {
	ctx context.Context
	s   *Store
	tx  pgx.Tx
	q   *bide.Query
}

// Runs implements [bide.Store].
func (s *Store) Runs(ctx context.Context, q bide.Query) (runs []bide.Run, err error) {
	switch {
	case q.Limit == 0:
		q.Limit = 50
	case q.Limit < 0 || q.Limit > 1000:
		return nil, &bide.InvalidError{Field: "limit", Reason: fmt.Sprintf("is %d; it must be from 1 to 1000", q.Limit)}
	}
	if s.isClosed() {
		return nil, bide.ErrClosed
	}
	before := int64(never)
	if q.Before != "" {
		f, err := s.readRow(ctx, q.Before)
		if err != nil {
			return nil, err
		}
		before = f.k
	}
	if !keepable(&q) {
		return nil, nil
	}
	err = s.moment(ctx, func(tx pgx.Tx) error {
		l := &lister{ctx, s, tx, &q}
		runs, err = l.list(before)
		return err
	})
	return runs, err
}

// atOneMoment begins a transaction that reads. Plans are to go by an index in its
// order, and to compile one takes longer than the most that it may have to do.
const atOneMoment = `BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off`

// moment lets fn read all at one moment.
func (s *Store) moment(ctx context.Context, fn func(pgx.Tx) error) error {
	return s.again(ctx, func(ctx context.Context) error {
		tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: atOneMoment})
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
		return fn(tx)
	})
}

// keepable reports whether runs can have what the query asks for: Postgres keeps no
// text that is no UTF-8 or has a zero byte, nor compares with one.
func keepable(q *bide.Query) bool {
	texts := []string{q.Workflow, q.Queue, q.Parent, q.IDPrefix}
	for name, value := range q.Labels {
		texts = append(texts, name, value)
	}
	return !slices.ContainsFunc(texts, func(t string) bool { return !utf8.ValidString(t) || strings.ContainsRune(t, 0) })
}

func (l *lister) list(before int64) (runs []bide.Run, err error) {
	found, err := l.lookUp()
	if err != nil {
		return nil, err
	}
	for n := l.q.Limit; ; n = max(64, l.q.Limit-len(runs)) {
		keys, err := found(0, before, n)
		if err != nil || len(keys) == 0 {
			return runs, err
		}
		page, err := l.page(keys)
		if err != nil {
			return nil, err
		}
		for i := range page {
			if l.q.Match(&page[i]) && len(runs) < l.q.Limit {
				runs = append(runs, page[i])
			}
		}
		if len(keys) < n || len(runs) == l.q.Limit {
			return runs, nil
		}
		before = keys[len(keys)-1]
	}
}

// page reads runs as a list shows them.
func (l *lister) page(keys []int64) (runs []bide.Run, err error) {
	rows, err := l.tx.Query(l.ctx, l.s.sql(readPage), keys)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		f := &fullRow{}
		if err := f.scan(rows); err != nil {
			return nil, err
		}
		run, err := f.shown(l.s)
		if err != nil {
			return nil, err
		}
		runs = append(runs, run)
	}
	return runs, rows.Err()
}

// from is the source of what a statement finds.
func (l *lister) from(text string, args ...any) keyset.Source {
	return func(from, below int64, n int) ([]int64, error) {
		var keys []int64
		err := l.tx.QueryRow(l.ctx, l.s.sql("SELECT ARRAY ("+text+")"), append([]any{from, below, int64(n)}, args...)...).Scan(&keys)
		return keys, err
	}
}

// lookUp is where the runs that the query selects are among.
func (l *lister) lookUp() (keyset.Source, error) {
	var sources []keyset.Source
	q := l.q
	if q.Parent != "" {
		sources = append(sources, l.from(byParent, q.Parent))
	}
	for name, value := range q.Labels {
		sources = append(sources, l.from(byLabel, name, value))
	}
	if q.IDPrefix != "" {
		sources = append(sources, l.withPrefix(q.IDPrefix))
	}
	if len(q.States) > 0 || q.Workflow != "" || q.Queue != "" {
		rows, err := l.tx.Query(l.ctx, l.s.sql(`SELECT k FROM bide.route WHERE ($1 = '' OR workflow = $1) AND ($2 = '' OR queue = $2)`), q.Workflow, q.Queue)
		if err != nil {
			return nil, err
		}
		routes, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return nil, err
		}
		sources = append(sources, l.inPlaces(routes))
	}
	if len(sources) == 0 {
		sources = []keyset.Source{l.from(newest)}
	}
	return keyset.All(sources...), nil
}

// window is how many rows are looked at for what has an index in another order.
const window int64 = 1 << 16

// inWindow puts together a source from a statement that looks at a window, and
// those that have no order.
func (l *lister) inWindow(scan keyset.Source, indexes ...keyset.Source) keyset.Source {
	bottom := func(from, below int64) (int64, error) {
		keys, err := l.from(floor, window)(from, below, 1)
		if err != nil || len(keys) == 0 {
			return from, err
		}
		return keys[0], nil
	}
	return keyset.Window(scan, bottom, func(below int64, n int) (keys []int64, err error) {
		for _, index := range indexes {
			more, err := index(0, below, n-len(keys))
			if err != nil {
				return nil, err
			}
			keys = append(keys, more...)
		}
		return keys, nil
	})
}

// inPlaces finds runs by their states and routes.
func (l *lister) inPlaces(routes []int64) keyset.Source {
	wants := func(state bide.State) bool { return len(l.q.States) == 0 || slices.Contains(l.q.States, state) }
	var places []int64
	for s := bide.Paused; s <= bide.TimedOut; s++ {
		for _, k := range routes {
			if wants(s) {
				places = append(places, 16*k+int64(s))
			}
		}
	}
	var sources []keyset.Source
	if len(places) > 0 {
		sources = append(sources, l.from(byPlace, places))
	}
	due, waiting := wants(bide.Queued), wants(bide.Waiting)
	held := func(from, below int64, n int) ([]int64, error) {
		keys, err := l.from(inHand)(from, below, 1<<31)
		if err != nil {
			return nil, err
		}
		return keyset.Of(keys)(from, below, n)
	}
	switch {
	case due || waiting:
		now := l.s.now().UnixMicro()
		after, to := int64(-1), now
		if waiting {
			to = never
		}
		if !due {
			after = now
		}
		indexes := []keyset.Source{l.from(inHand), l.from(byWake, routes, after, to)}
		if waiting {
			indexes = append(indexes, l.from(mute, routes))
		}
		sources = append(sources, l.inWindow(l.from(openIn, window, routes, now, due, waiting), indexes...))
	case wants(bide.Running):
		sources = append(sources, held)
	}
	return keyset.Any(sources...)
}

// withPrefix finds runs by how their ids begin: those given by users, and those made of
// numbers.
func (l *lister) withPrefix(prefix string) keyset.Source {
	var sources []keyset.Source
	whole := madePrefix + l.s.tag() + "_"
	if strings.HasPrefix(whole, prefix) {
		sources = append(sources, l.from(made, int64(0), int64(never)))
	} else if digits, ok := strings.CutPrefix(prefix, whole); ok {
		for _, span := range keyset.Spans(digits) {
			sources = append(sources, l.from(made, span[0], span[1]))
		}
	}
	after := keyset.After(prefix)
	given := l.inWindow(l.from(idIn, window, prefix, after), l.from(byID, prefix, after))
	return keyset.Any(append(sources, given)...)
}
