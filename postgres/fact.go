package postgres

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bide-dev/bide"
)

// factsOf reads facts; without keys, all of the kind.
const factsOf = `SELECT key, ver, value, expires FROM bide.fact
	WHERE kind = $1 AND (expires IS NULL OR expires > $2) AND ($3::bytea[] IS NULL OR key = ANY ($3))`

// Facts implements [bide.Store].
func (s *Store) Facts(ctx context.Context, kind string, keys ...string) (facts []bide.Fact, err error) {
	if err := bide.CheckFactNames(kind, keys...); err != nil {
		return nil, err
	}
	if s.isClosed() {
		return nil, bide.ErrClosed
	}
	var want [][]byte
	for _, k := range keys {
		want = append(want, []byte(k))
	}
	err = s.again(ctx, func(ctx context.Context) error {
		facts = nil
		rows, err := s.pool.Query(ctx, s.sql(factsOf), []byte(kind), s.now().UnixMicro(), want)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			f := bide.Fact{Kind: kind}
			var key, value []byte
			var expires *int64
			if err := rows.Scan(&key, &f.Version, &value, &expires); err != nil {
				return err
			}
			f.Key, f.Value = string(key), value
			if expires != nil {
				f.ExpiresAt = time.UnixMicro(*expires).UTC()
			}
			facts = append(facts, f)
		}
		return rows.Err()
	})
	return facts, err
}

type factName struct{ kind, key string }

// factRow is a fact as the batch that is being applied has it.
type factRow struct {
	there   bool // there is a row in the table
	ver     int64
	value   []byte // nil: removed
	expires int64  // never: none
	dirty   bool
}

// changeFacts changes the facts of an op, or has it refused: all versions are
// compared before anything is changed, so that a refusal leaves nothing to undo.
func (w *writer) changeFacts(o *op) error {
	facts := o.batch.Facts
	if err := w.lockFacts(facts); err != nil {
		return err
	}
	for _, f := range facts {
		x, has := w.facts[factName{f.Kind, f.Key}], int64(0)
		if x.value != nil && x.expires > w.now {
			has = x.ver
		}
		if f.Version != bide.AnyVersion && f.Version != has {
			o.err = bide.ErrFactChanged
			return nil
		}
	}
	for _, f := range facts {
		x := w.facts[factName{f.Kind, f.Key}]
		if w.others && !w.fresh || w.seq < x.ver { // above those that were removed, too
			if err := w.block(); err != nil {
				return err
			}
		}
		ver, err := w.next()
		if err != nil {
			return err
		}
		x.ver, x.value, x.expires, x.dirty = ver, some(f.Value), never, true
		if !f.ExpiresAt.IsZero() {
			x.expires = f.ExpiresAt.UnixMicro()
		}
	}
	return nil
}

const lockFacts = `SELECT f.kind, f.key, f.ver, coalesce(f.expires, 9223372036854775807)
	FROM unnest($1::bytea[], $2::bytea[]) AS u (kind, key) JOIN bide.fact f ON f.kind = u.kind AND f.key = u.key
	ORDER BY f.kind, f.key FOR UPDATE OF f`

// lockFacts brings facts into the batch, in the order of their names.
func (w *writer) lockFacts(facts []bide.Fact) error {
	var kinds, keys [][]byte
	for _, f := range facts {
		if w.facts[factName{f.Kind, f.Key}] == nil {
			kinds, keys = append(kinds, []byte(f.Kind)), append(keys, []byte(f.Key))
			w.facts[factName{f.Kind, f.Key}] = &factRow{expires: never}
		}
	}
	if len(kinds) == 0 {
		return nil
	}
	if err := w.open(); err != nil {
		return err
	}
	rows, err := w.conn.Query(w.ctx, w.s.sql(lockFacts), kinds, keys)
	if err != nil {
		return err
	}
	for rows.Next() {
		var kind, key []byte
		x := &factRow{there: true, value: present}
		if err := rows.Scan(&kind, &key, &x.ver, &x.expires); err != nil {
			return err
		}
		w.facts[factName{string(kind), string(key)}] = x
	}
	return rows.Err()
}

// present is the value of a fact that is there and has not been read.
var present = []byte{0}

const addFacts = `INSERT INTO bide.fact (kind, key, ver, value, expires) SELECT kind, key, ver, value, nullif(expires, 9223372036854775807)
	FROM unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bytea[], $5::bigint[]) AS n (kind, key, ver, value, expires)`

const changeFacts = `UPDATE bide.fact AS f SET ver = n.ver, value = n.value, expires = nullif(n.expires, 9223372036854775807)
	FROM unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bytea[], $5::bigint[]) AS n (kind, key, ver, value, expires)
	WHERE f.kind = n.kind AND f.key = n.key`

const dropFacts = `DELETE FROM bide.fact AS f USING unnest($1::bytea[], $2::bytea[]) AS n (kind, key) WHERE f.kind = n.kind AND f.key = n.key`

// oldFacts removes some that have expired, and that nobody is about to change.
const oldFacts = `DELETE FROM bide.fact WHERE (kind, key) IN (
	SELECT kind, key FROM bide.fact WHERE expires <= $1 ORDER BY expires LIMIT $2 FOR UPDATE SKIP LOCKED)`

// factsChanged queues what becomes of the facts.
func (w *writer) factsChanged(b *pgx.Batch) {
	var names []factName
	for n, x := range w.facts {
		if x.dirty {
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		return
	}
	slices.SortFunc(names, func(a, b factName) int {
		return cmp.Or(bytes.Compare([]byte(a.kind), []byte(b.kind)), bytes.Compare([]byte(a.key), []byte(b.key)))
	})
	type columns struct {
		kind, key, value [][]byte
		ver, expires     []int64
	}
	var add, change, drop columns
	for _, n := range names {
		x := w.facts[n]
		x.dirty = false
		into := &change
		switch {
		case x.value == nil && !x.there:
			continue
		case x.value == nil:
			into, x.there = &drop, false
		case !x.there:
			into, x.there = &add, true
		}
		into.kind, into.key, into.value = append(into.kind, []byte(n.kind)), append(into.key, []byte(n.key)), append(into.value, x.value)
		into.ver, into.expires = append(into.ver, x.ver), append(into.expires, x.expires)
	}
	if len(drop.kind) > 0 {
		b.Queue(w.s.sql(dropFacts), drop.kind, drop.key)
	}
	if len(add.kind) > 0 {
		b.Queue(w.s.sql(addFacts), add.kind, add.key, add.ver, add.value, add.expires)
	}
	if len(change.kind) > 0 {
		b.Queue(w.s.sql(changeFacts), change.kind, change.key, change.ver, change.value, change.expires)
	}
	// Twice as many as came: the table does not grow with what nobody reads again.
	b.Queue(w.s.sql(oldFacts), w.now, 2*len(names))
}
