package postgres

import (
	"maps"

	"github.com/jackc/pgx/v5"

	"github.com/bide-dev/bide"
)

// tally is by how much this process has changed the numbers of runs, as its row
// among the members has it.
type tally struct {
	member int64 // whose row
	runs   map[count]int64
	spill  bool // the batch empties it into the table
}

// count names a number of runs that is kept.
type count struct {
	route int64
	state bide.State
}

// class is the state as it is counted: those that have neither ended, nor are paused
// or canceling, are told apart by when they are due.
func class(s bide.State) bide.State {
	if s <= bide.Waiting {
		return bide.Queued
	}
	return s
}

// add counts runs of a state; it is put back when the batch fails.
func (p *pending) add(route int64, s bide.State, runs int64) {
	if p.tally == nil {
		p.tally = map[count]int64{}
	}
	p.tally[count{route, class(s)}] += runs
}

// moved counts what has become of a row since that was last done.
func (p *pending) moved(r *row) {
	if from, to := class(r.was), class(r.state); from != to {
		p.add(r.route.k, from, -1)
		p.add(r.route.k, to, 1)
	}
	r.was = r.state
}

// mostTallied is how many numbers a member's row has before they go to the table: the
// row is written with every transaction.
const mostTallied = 32

// addTally also makes one row of many, from time to time.
const (
	addTally = `INSERT INTO bide.tally (route, state, runs) SELECT * FROM unnest($1::bigint[], $2::smallint[], $3::bigint[])`

	foldTally = `WITH old AS (DELETE FROM bide.tally WHERE (SELECT count(*) FROM bide.tally) > 10000 RETURNING route, state, runs)
		INSERT INTO bide.tally (route, state, runs) SELECT route, state, sum(runs) FROM old GROUP BY 1, 2`
)

// queue is what the member's row is to have, with what the batch changes. If that
// is much it goes to the table.
func (t *tally) queue(w *writer, b *pgx.Batch) []int64 {
	if t.member != w.me {
		*t = tally{member: w.me, runs: map[count]int64{}}
	}
	all := maps.Clone(t.runs)
	for c, n := range w.p.tally {
		all[c] += n
	}
	row := make([]int64, 0, 3*len(all))
	var routes, runs []int64
	var states []int16
	for c, n := range all {
		if n != 0 {
			row = append(row, c.route, int64(c.state), n)
			routes, states, runs = append(routes, c.route), append(states, int16(c.state)), append(runs, n)
		}
	}
	if t.spill = len(runs) > mostTallied; t.spill {
		b.Queue(w.s.sql(addTally), routes, states, runs)
		b.Queue(w.s.sql(foldTally))
		return []int64{}
	}
	return row
}

// kept takes over what a batch that has succeeded has changed.
func (t *tally) kept(p *pending) {
	if t.spill {
		clear(t.runs)
		t.spill = false
		return
	}
	for c, n := range p.tally {
		t.runs[c] += n
	}
}
