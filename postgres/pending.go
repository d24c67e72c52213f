package postgres

import (
	"cmp"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bide-dev/bide"
)

// pending is what a batch has yet to write: a slice a column, for one statement a
// table.
type pending struct {
	runs struct {
		k, route, ver, wake, holder, mail, created, started, deadline []int64
		state                                                         []int16
		detached                                                      []bool
		id, parent, key, prints, trace, labels                        []string
		input, onEnd                                                  [][]byte
	}
	recs struct {
		run, k, at, took       []int64
		attempt                []int32
		kind                   []int16
		path, name, by         []string
		data, failure, pollLog [][]byte
	}
	chunks struct {
		run, k, at []int64
		attempt    []int32
		path, name []string
		data       [][]byte
	}
	mail struct {
		run, k, at    []int64
		op            []int16
		name, key     []string
		prints        []string
		data, failure [][]byte
	}
	used   struct{ run, k []int64 } // messages taken up
	routes struct {
		k               []int64
		queue, workflow []string
	}
	workers struct {
		all []*worker
	}
	gone  []int64 // workers that leave
	any   bool
	tally map[count]int64 // by how much the numbers of runs change; of the batch as a whole
}

func (p *pending) clear() {
	if !p.any && p.tally == nil {
		return
	}
	*p = pending{}
}

const addRuns = `INSERT INTO bide.run (k, route, ver, wake, holder, epoch, mail, created, started, deadline, state, detached,
		id, parent, key, print, trace, labels, input, on_end)
	SELECT k, route, ver, nullif(wake, 9223372036854775807), nullif(holder, 0), k, mail, created, started, deadline, state, detached,
		nullif(id, ''), parent, nullif(key, ''), print, trace, nullif(labels, '')::jsonb, input, on_end
	FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[],
		$10::smallint[], $11::boolean[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[], $17::text[], $18::bytea[], $19::bytea[])
		AS n (k, route, ver, wake, holder, mail, created, started, deadline, state, detached, id, parent, key, print, trace, labels, input, on_end)`

func (p *pending) addRun(r *row, n *bide.NewRun, now int64) {
	p.any = true
	p.add(r.route.k, r.state, 1)
	r.was = r.state
	x := &p.runs
	x.k, x.route, x.ver = append(x.k, r.k), append(x.route, r.route.k), append(x.ver, r.ver)
	x.wake, x.holder, x.mail = append(x.wake, r.wake), append(x.holder, r.holder), append(x.mail, r.mail)
	x.created, x.started, x.deadline = append(x.created, now), append(x.started, r.started), append(x.deadline, r.deadline)
	x.state, x.detached = append(x.state, int16(r.state)), append(x.detached, n.Detached)
	x.id, x.parent, x.key = append(x.id, n.ID), append(x.parent, n.Parent), append(x.key, n.Key)
	x.prints, x.trace, x.labels = append(x.prints, n.Print), append(x.trace, n.Trace), append(x.labels, string(object(n.Labels)))
	x.input = append(x.input, some(n.Input))
	var onEnd []byte
	if n.OnEnd != nil {
		onEnd = object(n.OnEnd)
	}
	x.onEnd = append(x.onEnd, onEnd)
}

// keyOf finds a new run of this batch by its start's key.
func (p *pending) keyOf(key string) (k int64, fingerprint string) {
	if i := slices.Index(p.runs.key, key); i >= 0 {
		return p.runs.k[i], p.runs.prints[i]
	}
	return 0, ""
}

// addLabels enters runs under their labels.
const addLabels = `INSERT INTO bide.label (mark, run) SELECT substr(sha256(convert_to(x.key || '=' || x.value, 'UTF8')), 1, 8), n.k
	FROM unnest($1::bigint[], $2::text[]) AS n (k, labels), jsonb_each_text(nullif(n.labels, '')::jsonb) AS x ON CONFLICT DO NOTHING`

// labelled reports whether a new run has labels.
func (p *pending) labelled() bool {
	return slices.ContainsFunc(p.runs.labels, func(labels string) bool { return labels != "" })
}

const addRecs = `INSERT INTO bide.rec (run, k, at, took, attempt, kind, path, name, by, data, error, poll)
	SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::int[], $6::smallint[], $7::text[], $8::text[], $9::text[],
		$10::bytea[], $11::bytea[], $12::bytea[])`

func (p *pending) addRec(run, k int64, r *bide.Record) {
	p.any = true
	x := &p.recs
	x.run, x.k = append(x.run, run), append(x.k, k)
	x.at, x.took, x.attempt = append(x.at, r.At.UnixMicro()), append(x.took, r.Took.Microseconds()), append(x.attempt, int32(r.Attempt))
	x.kind, x.path, x.name, x.by = append(x.kind, int16(r.Kind)), append(x.path, r.Path), append(x.name, r.Name), append(x.by, r.By)
	var failure, poll []byte
	if r.Error != nil {
		failure = object(r.Error)
	}
	if r.Poll != nil {
		poll = object(r.Poll)
	}
	x.data, x.failure, x.pollLog = append(x.data, some(r.Data)), append(x.failure, failure), append(x.pollLog, poll)
}

const addChunks = `INSERT INTO bide.chunk (run, k, at, attempt, path, name, data)
	SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::int[], $5::text[], $6::text[], $7::bytea[])`

func (p *pending) addChunk(run, k int64, c *bide.Chunk) {
	p.any = true
	x := &p.chunks
	x.run, x.k, x.at, x.attempt = append(x.run, run), append(x.k, k), append(x.at, c.At.UnixMicro()), append(x.attempt, int32(c.Attempt))
	x.path, x.name, x.data = append(x.path, c.Path), append(x.name, c.Name), append(x.data, some(c.Data))
}

const addMail = `INSERT INTO bide.inbox (run, k, at, op, name, key, print, data, error)
	SELECT run, k, at, op, name, nullif(key, ''), print, data, error
	FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::smallint[], $5::text[], $6::text[], $7::text[], $8::bytea[], $9::bytea[])
		AS n (run, k, at, op, name, key, print, data, error)`

func (p *pending) addMail(run int64, m *bide.Message) {
	p.any = true
	x := &p.mail
	x.run, x.k, x.at = append(x.run, run), append(x.k, m.Seq), append(x.at, m.At.UnixMicro())
	x.op, x.name, x.key, x.prints = append(x.op, int16(m.Op)), append(x.name, m.Name), append(x.key, m.Key), append(x.prints, m.Print)
	var failure []byte
	if m.Error != nil {
		failure = object(m.Error)
	}
	x.data, x.failure = append(x.data, some(m.Data)), append(x.failure, failure)
}

// A message with a key stays as a proof that it came.
const keepMail = `UPDATE bide.inbox AS i SET taken = true, data = NULL, error = NULL
	FROM unnest($1::bigint[], $2::bigint[]) AS u (run, k) WHERE i.run = u.run AND i.k = u.k AND i.key IS NOT NULL`

const dropMail = `DELETE FROM bide.inbox AS i USING unnest($1::bigint[], $2::bigint[]) AS u (run, k)
	WHERE i.run = u.run AND i.k = u.k AND i.key IS NULL`

const addRoutes = `INSERT INTO bide.route (k, queue, workflow) SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[])`

const addWorker = `INSERT INTO bide.worker (k, member, id, queues, workflows, max) VALUES ($1, $2, $3, $4, $5, $6)`

const dropWorker = `DELETE FROM bide.worker WHERE k = ANY ($1)`

const changeRuns = `UPDATE bide.run AS r SET ver = n.ver, wake = nullif(n.wake, 9223372036854775807), holder = nullif(n.holder, 0), mail = n.mail,
		started = n.started, ended = n.ended, deadline = n.deadline, gen = n.gen, state = n.state, kids = n.kids, cut = n.cut, warm = n.warm,
		waits = CASE WHEN n.big & 1 > 0 THEN n.waits ELSE r.waits END,
		progress = CASE WHEN n.big & 2 > 0 THEN n.progress ELSE r.progress END,
		error = CASE WHEN n.big & 4 > 0 THEN n.error ELSE r.error END,
		vals = CASE WHEN n.big & 8 > 0 THEN n.vals ELSE r.vals END,
		result = CASE WHEN n.big & 16 > 0 THEN n.result ELSE r.result END,
		input = CASE WHEN n.big & 32 > 0 THEN n.input ELSE r.input END
	FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::int[],
		$10::smallint[], $11::boolean[], $12::boolean[], $13::boolean[], $14::smallint[],
		$15::bytea[], $16::bytea[], $17::bytea[], $18::bytea[], $19::bytea[], $20::bytea[])
		AS n (k, ver, wake, holder, mail, started, ended, deadline, gen, state, kids, cut, warm, big, waits, progress, error, vals, result, input)
	WHERE r.k = n.k`

// changed queues what becomes of the rows, in the order of their numbers.
func (w *writer) changed(b *pgx.Batch) {
	var rows []*row
	for _, r := range w.rows {
		if r.dirty {
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		return
	}
	slices.SortFunc(rows, func(a, b *row) int { return cmp.Compare(a.k, b.k) })
	n := len(rows)
	ints := func() []int64 { return make([]int64, n) }
	bytes := func() [][]byte { return make([][]byte, n) }
	k, ver, wake, holder, mail := ints(), ints(), ints(), ints(), ints()
	started, ended, deadline := ints(), ints(), ints()
	gen, state, big := make([]int32, n), make([]int16, n), make([]int16, n)
	kids, cut, warm := make([]bool, n), make([]bool, n), make([]bool, n)
	waits, progress, failure, vals, result, input := bytes(), bytes(), bytes(), bytes(), bytes(), bytes()
	for i, r := range rows {
		k[i], ver[i], wake[i], holder[i], mail[i] = r.k, r.ver, r.wake, r.holder, r.mail
		w.p.moved(r)
		started[i], ended[i], deadline[i] = r.started, r.ended, r.deadline
		gen[i], state[i], big[i] = r.gen, int16(r.state), r.big.set
		kids[i], cut[i], warm[i] = r.kids, r.cut, r.warm
		x := &r.big
		waits[i], progress[i], failure[i], vals[i], result[i], input[i] = x.waits, x.progress, x.failure, x.vals, x.result, x.input
		r.dirty, r.big = false, changes{}
	}
	b.Queue(w.s.sql(changeRuns), k, ver, wake, holder, mail, started, ended, deadline, gen, state, kids, cut, warm, big,
		waits, progress, failure, vals, result, input)
}

// queue puts all that is to be written into a batch of statements.
func (w *writer) queue(b *pgx.Batch) {
	p := &w.p
	if x := &p.routes; len(x.k) > 0 {
		b.Queue(w.s.sql(addRoutes), x.k, x.queue, x.workflow)
	}
	for _, x := range p.workers.all {
		b.Queue(w.s.sql(addWorker), x.k, w.me, x.id, keys(x.queues), keys(x.workflows), int32(x.max.Load()))
	}
	if x := &p.runs; len(x.k) > 0 {
		b.Queue(w.s.sql(addRuns), x.k, x.route, x.ver, x.wake, x.holder, x.mail, x.created, x.started, x.deadline, x.state, x.detached,
			x.id, x.parent, x.key, x.prints, x.trace, x.labels, x.input, x.onEnd)
		if p.labelled() {
			b.Queue(w.s.sql(addLabels), x.k, x.labels)
		}
	}
	if x := &p.recs; len(x.k) > 0 {
		b.Queue(w.s.sql(addRecs), x.run, x.k, x.at, x.took, x.attempt, x.kind, x.path, x.name, x.by, x.data, x.failure, x.pollLog)
	}
	if x := &p.chunks; len(x.k) > 0 {
		b.Queue(w.s.sql(addChunks), x.run, x.k, x.at, x.attempt, x.path, x.name, x.data)
	}
	if x := &p.mail; len(x.k) > 0 {
		b.Queue(w.s.sql(addMail), x.run, x.k, x.at, x.op, x.name, x.key, x.prints, x.data, x.failure)
	}
	if x := &p.used; len(x.k) > 0 {
		b.Queue(w.s.sql(keepMail), x.run, x.k)
		b.Queue(w.s.sql(dropMail), x.run, x.k)
	}
	w.changed(b)
	w.factsChanged(b)
	if len(p.gone) > 0 {
		b.Queue(w.s.sql(dropWorker), p.gone)
	}
	*p = pending{tally: p.tally}
}

// settle writes what is pending, so that the batch can read it back.
func (w *writer) settle() error {
	if err := w.open(); err != nil {
		return err
	}
	b := &pgx.Batch{}
	w.queue(b)
	if b.Len() == 0 {
		return nil
	}
	w.wrote = true
	return w.conn.SendBatch(w.ctx, b).Close()
}

// fence ends a transaction: it fails unless all that others have done to this
// process's runs is known, and keeps the transaction's number. It tells whether
// others have the store open.
const fence = `WITH mine AS (
		UPDATE bide.member SET batch = $2, changed = '{}', tally = $5, expires = clock_timestamp() + $4 * interval '1 microsecond', lease = $4
		WHERE k = $1 AND news = $3 AND batch = $6 AND NOT dead RETURNING k)
	SELECT 1 / count(*) > 0 AND EXISTS (SELECT FROM bide.member WHERE k <> $1 AND NOT dead AND expires > clock_timestamp()) FROM mine`

const lockMembers = `SELECT k FROM bide.member WHERE k = ANY ($1) ORDER BY k FOR UPDATE`

const tell = `UPDATE bide.member SET news = news + 1, changed = changed || $2::bigint[] WHERE k = $1`

// send ends the batch: what is pending, what is claimed, and the fence.
func (w *writer) send() error {
	b := &pgx.Batch{}
	explicit := w.tx
	if explicit && !w.wrote && !w.p.any && !w.dirty() && len(w.asks) == 0 {
		w.tx = false
		_, err := w.conn.Exec(w.ctx, "COMMIT") // it has only read
		return err
	}
	w.queue(b)
	for _, a := range w.asks {
		a.queue(w, b)
	}
	if b.Len() == 0 && !explicit {
		return nil
	}
	w.queueHint(b)
	if len(w.foreign) > 0 {
		ms := []int64{w.me}
		for m := range w.foreign {
			ms = append(ms, m)
		}
		b.Queue(w.s.sql(lockMembers), ms)
		for m, ks := range w.foreign {
			b.Queue(w.s.sql(tell), m, ks)
		}
	}
	w.batch++
	others := w.others
	counted := w.tally.queue(w, b)
	b.Queue(w.s.sql(fence), w.me, w.batch, w.news, w.ttl().Microseconds(), counted, w.kept).QueryRow(func(row pgx.Row) error { return row.Scan(&others) })
	if explicit {
		b.Queue("COMMIT")
	}
	w.sent = true
	sent := time.Now()
	err := w.conn.SendBatch(w.ctx, b).Close()
	if err != nil {
		return err
	}
	w.kept = w.batch
	w.seen(sent)
	if w.tx = false; others != w.others {
		w.others = others
		w.nextBeat()
	}
	return nil
}

// dirty reports whether rows or facts have changed.
func (w *writer) dirty() bool {
	for _, r := range w.rows {
		if r.dirty {
			return true
		}
	}
	return len(w.facts) > 0 || len(w.foreign) > 0
}
