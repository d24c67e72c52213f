package postgres

import (
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bide-dev/bide"
)

// row is a run as the batch that is being applied has it. What is changed in it is
// written at the batch's end, in one statement for all.
type row struct {
	k, ver, wake, holder, epoch, mail int64
	started, ended, deadline          int64
	gen                               int32
	state                             bide.State
	was                               bide.State // when it was last counted
	kids, cut, warm, onEnd            bool
	route                             *route
	id, parent                        string

	foreign int64 // the member that holds it, if that is another
	dirty   bool
	big     changes
}

// changes are the new values of columns that a row does not know.
type changes struct {
	set                                           int16 // which
	waits, progress, failure, vals, result, input []byte
}

const (
	setWaits = 1 << iota
	setProgress
	setFailure
	setVals
	setResult
	setInput
)

const never = math.MaxInt64

// rowOf is the row of a run in hand, as far as this batch has come.
func (w *writer) rowOf(l *lease) *row {
	if r := w.rows[l.k]; r != nil {
		return r
	}
	r := l.row
	r.was = r.state
	w.rows[l.k] = &r
	return &r
}

// change gives the row its next version, and has it written.
func (w *writer) change(r *row) error {
	n, err := w.after(r)
	if err != nil {
		return err
	}
	r.ver, r.dirty = n, true
	if r.foreign != 0 {
		w.foreign[r.foreign] = append(w.foreign[r.foreign], r.k)
	}
	return nil
}

// after is the next number, above all that the run has: those of a process that
// holds it may be above its row's.
func (w *writer) after(r *row) (int64, error) {
	if r.foreign != 0 && !w.fresh || w.seq < r.ver {
		if err := w.block(); err != nil {
			return 0, err
		}
	}
	return w.next()
}

// lockRows reads rows, in the order of their numbers, and keeps others from changing
// them until the batch has ended.
const lockRows = `SELECT k, coalesce(id, ''), route, state, ver, coalesce(wake, 9223372036854775807), coalesce(holder, 0), epoch, mail,
		parent, kids, gen, cut, warm, started, ended, deadline, on_end IS NOT NULL
	FROM bide.run WHERE k = ANY ($1) OR id = ANY ($2) ORDER BY k FOR UPDATE`

// lock brings rows into the batch, by number or by the id that a user gave. An id
// that is not found is noted as such.
func (w *writer) lock(ks []int64, ids []string) error {
	if err := w.settle(); err != nil {
		return err
	}
	rows, err := w.conn.Query(w.ctx, w.s.sql(lockRows), ks, ids)
	if err != nil {
		return err
	}
	return w.locked(rows, ids)
}

// locked takes what lockRows has found.
func (w *writer) locked(rows pgx.Rows, ids []string) error {
	for _, id := range ids {
		if _, ok := w.ids[id]; !ok {
			w.ids[id] = 0
		}
	}
	var found []*row
	var routes []int64
	var holders []int64
	for rows.Next() {
		r, route := &row{}, int64(0)
		if err := rows.Scan(&r.k, &r.id, &route, &r.state, &r.ver, &r.wake, &r.holder, &r.epoch, &r.mail, &r.parent, &r.kids, &r.gen,
			&r.cut, &r.warm, &r.started, &r.ended, &r.deadline, &r.onEnd); err != nil {
			return err
		}
		found, routes, holders = append(found, r), append(routes, route), append(holders, r.holder)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for i, r := range found {
		if r.id == "" {
			r.id = w.s.madeID(r.k)
		} else {
			w.ids[r.id] = r.k
		}
		if w.rows[r.k] != nil || w.leases[r.k] != nil {
			continue
		}
		if r.route = w.byKey[routes[i]]; r.route == nil {
			if err := w.loadRoutes(w.ctx); err != nil {
				return err
			}
			r.route = w.byKey[routes[i]]
		}
		if holders[i] != 0 {
			m, err := w.memberOf(holders[i])
			if err != nil {
				return err
			}
			if m != w.me {
				r.foreign = m
			}
		}
		r.was = r.state
		w.rows[r.k] = r
	}
	return nil
}

// memberOf is the process that a worker is in.
func (w *writer) memberOf(worker int64) (m int64, err error) {
	if m, ok := w.members[worker]; ok {
		return m, nil
	}
	err = w.conn.QueryRow(w.ctx, w.s.sql(`SELECT coalesce((SELECT member FROM bide.worker WHERE k = $1), 0)`), worker).Scan(&m)
	if err == nil && m != 0 {
		w.members[worker] = m
	}
	if m == 0 {
		m = -1 // one that is gone
	}
	return m, err
}

// byKeyOf finds a row by its run's number, or returns [bide.ErrNotFound].
func (w *writer) rowByK(k int64) (*row, error) {
	if r := w.rows[k]; r != nil {
		return r, nil
	}
	if l := w.leases[k]; l != nil {
		return w.rowOf(l), nil
	}
	if err := w.lock([]int64{k}, nil); err != nil {
		return nil, err
	}
	if r := w.rows[k]; r != nil {
		return r, nil
	}
	return nil, bide.ErrNotFound
}

// rowByID finds a row by its run's id, or returns [bide.ErrNotFound].
func (w *writer) rowByID(id string) (*row, error) {
	if k, made := w.s.parseID(id); made {
		r, err := w.rowByK(k)
		if err == nil && r.id != id {
			return nil, bide.ErrNotFound // it had the id of a user
		}
		return r, err
	}
	if l := w.held[id]; l != nil && !l.freed && w.ids[id] == 0 {
		return w.rowOf(l), nil
	}
	if k := w.ids[id]; k != 0 {
		return w.rowByK(k)
	}
	// Also if it was not found before: who held the lock may have given the id to
	// another run meanwhile.
	if err := w.lock(nil, []string{id}); err != nil {
		return nil, err
	}
	if k := w.ids[id]; k != 0 {
		return w.rowByK(k)
	}
	return nil, bide.ErrNotFound
}

// open begins an explicit transaction, for a batch that has to read.
func (w *writer) open() error {
	if w.tx {
		return nil
	}
	w.tx = true
	// A process that is stopped in the middle must not keep the others from its rows.
	return w.conn.PgConn().Exec(w.ctx, fmt.Sprintf("BEGIN; SET LOCAL idle_in_transaction_session_timeout = %d",
		max(w.ttl()/3, time.Second).Milliseconds())).Close()
}
