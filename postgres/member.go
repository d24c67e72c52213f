package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bide-dev/bide"
)

// idleFor is how long a process without workers counts as there after its last
// sign of life. It holds no runs: nobody waits for that.
const idleFor = time.Hour

// How often a process looks at what others may have done: while it holds runs,
// while it does not, and where no notifications come.
const (
	lookBusy = 5 * time.Second
	lookIdle = 12 * time.Second // more than from one sign of life of a worker to the next
	lookPoll = 500 * time.Millisecond
	lookSlow = 5 * time.Second // when nothing has moved for ten times as long
)

// ready sees to the connection and the process's row.
func (w *writer) ready() error {
	if w.conn != nil && w.conn.IsClosed() {
		w.hangUp()
	}
	if w.conn == nil {
		conn, err := pgx.ConnectConfig(w.ctx, w.s.dsn)
		if err != nil {
			return err
		}
		w.conn = conn
	}
	if w.me == 0 {
		return w.register()
	}
	return nil
}

// hangUp gives the connection up.
func (w *writer) hangUp() {
	if w.conn != nil {
		_ = w.conn.Close(w.ctx)
		w.conn = nil
	}
}

// pause waits before the next try, and reports whether there should be one.
func (w *writer) pause(tries int) bool {
	if tries > 12 {
		return false
	}
	wait := time.NewTimer(jittered(min(10*time.Millisecond<<tries, time.Second)))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-w.s.closed:
	}
	return true
}

// ttl is how long what this process holds outlives its last sign of life: as the
// least patient of its workers wants it.
func (w *writer) ttl() time.Duration {
	ttl := idleFor
	for i, x := range w.workers {
		if t := time.Duration(x.ttl.Load()); i == 0 || t < ttl {
			ttl = t
		}
	}
	return ttl
}

const register = `INSERT INTO bide.member (k, expires, lease, process) VALUES ($1, clock_timestamp() + $2 * interval '1 microsecond', $2, $3)
	RETURNING EXISTS (SELECT FROM bide.member WHERE k <> $1 AND NOT dead AND expires > clock_timestamp())`

func (w *writer) register() error {
	if err := w.block(); err != nil {
		return err
	}
	k, err := w.next()
	if err != nil {
		return err
	}
	host, _ := os.Hostname()
	sent := time.Now()
	process := fmt.Sprintf("%s, process %d on %s", filepath.Base(os.Args[0]), os.Getpid(), host)
	if err := w.conn.QueryRow(w.ctx, w.s.sql(register), k, w.ttl().Microseconds(), process).Scan(&w.others); err != nil {
		return err
	}
	w.me, w.news, w.batch, w.kept = k, 0, 0, 0
	w.s.me.Store(k)
	w.seen(sent)
	w.nextBeat()
	w.s.ear.start(w.s)
	return w.hello()
}

// nextBeat sets when the process has to give a sign of life, and to look around.
func (w *writer) nextBeat() {
	if wait := w.beatAfter(); wait == never {
		w.beatAt = never
	} else {
		w.beatAt = time.Since(w.start) + wait
	}
}

// lookSooner moves that forward, if there is more reason to look than before.
func (w *writer) lookSooner() {
	if wait := w.beatAfter(); wait != never {
		w.beatAt = min(w.beatAt, time.Since(w.start)+wait)
	}
}

func (w *writer) beatAfter() time.Duration {
	wait := w.ttl() * 2 / 5 // workers mostly do it themselves, after a third
	switch {
	case w.s.alone && (len(w.workers) == 0 || !w.others): // nobody is there to see it
		return never
	case w.s.alone:
		return wait
	case w.s.noNotify && (len(w.workers) > 0 || w.s.watched()):
		return min(wait, min(max(w.s.still()/10, lookPoll), lookSlow))
	case w.s.noNotify:
		return never
	case w.others && len(w.leases) > 0:
		return min(wait, lookBusy)
	case w.others && (len(w.workers) > 0 || w.s.watched()):
		return min(wait, lookIdle)
	}
	return wait
}

// block takes a new block of numbers, all above those that anyone has had before.
func (w *writer) block() error {
	var from int64
	if err := w.conn.QueryRow(w.ctx, w.s.sql(`SELECT nextval('bide.number')`)).Scan(&from); err != nil {
		return err
	}
	w.seq, w.reserved, w.blockAt, w.fresh = from-1, from-1+blockSize, time.Since(w.start), true
	return nil
}

const blockSize = 65536

// next returns the next number.
func (w *writer) next() (int64, error) {
	if w.seq >= w.reserved {
		if err := w.block(); err != nil {
			return 0, err
		}
	}
	w.seq++
	return w.seq, nil
}

// beatSQL is a sign of life and a look around: at the process's row, at what others
// there are, at those who have given none for too long, at when the routes that are
// served have something due, at routes that are new, and at the others' rows: three
// numbers each.
const beatSQL = `UPDATE bide.member AS m SET expires = clock_timestamp() + $2 * interval '1 microsecond', lease = $2
	WHERE k = $1 AND NOT dead
	RETURNING m.news, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
		EXISTS (SELECT FROM bide.member o WHERE o.k <> $1 AND NOT o.dead AND o.expires > clock_timestamp()),
		EXISTS (SELECT FROM bide.member o WHERE o.k <> $1 AND NOT o.dead AND o.expires <= clock_timestamp())
			OR EXISTS (SELECT FROM bide.worker x JOIN bide.member o ON o.k = x.member WHERE o.dead),
		ARRAY (SELECT coalesce((SELECT wake FROM bide.run WHERE route = t.k AND wake IS NOT NULL ORDER BY wake LIMIT 1), 9223372036854775807)
			FROM unnest($3::bigint[]) WITH ORDINALITY AS t (k, n) ORDER BY t.n),
		(SELECT count(*) FROM bide.route),
		ARRAY (SELECT unnest(ARRAY[o.k, (extract(epoch FROM o.expires) * 1000000)::bigint, o.lease]) FROM bide.member o WHERE o.k <> $1 AND NOT o.dead)`

func (w *writer) beat() error {
	var served []*route
	ks := []int64{}
	for _, r := range w.byKey {
		if r.crew != nil {
			served, ks = append(served, r), append(ks, r.k)
		}
	}
	var news, now, routes int64
	var lapsed bool
	var due, rivals []int64
	sent := time.Now()
	err := w.conn.QueryRow(w.ctx, w.s.sql(beatSQL), w.me, w.ttl().Microseconds(), ks).Scan(&news, &now, &w.others, &lapsed, &due, &routes, &rivals)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && news != w.news {
		return errFenced
	}
	if err != nil {
		return err
	}
	w.seen(sent)
	w.s.setClock(now)
	for i, r := range served {
		w.dueAt(r, due[i])
	}
	if routes != int64(len(w.byKey)) {
		if err := w.loadRoutes(w.ctx); err != nil {
			return err
		}
	}
	w.watch(rivals, sent)
	lapsed = lapsed || len(w.silent.k) > 0
	if lapsed && len(w.workers) > 0 {
		if err := w.takeOver(); err != nil {
			return err
		}
	}
	if lapsed || slices.ContainsFunc(due, func(at int64) bool { return at <= now }) {
		w.s.stir()
	}
	w.nextBeat()
	if w.others && !w.s.alone {
		return w.lookAtWatched()
	}
	return nil
}

// outcome finds out, after the connection was lost, whether the last transaction
// was committed. To raise news waits for it if it is under way, and keeps it from
// succeeding if it has yet to begin.
func (w *writer) outcome() (committed bool, err error) {
	for tries := 0; ; tries++ {
		w.hangUp()
		if w.s.isClosed() && tries > 10 {
			return false, fmt.Errorf("postgres: whether the last writes were kept is not known: %w", bide.ErrClosed)
		}
		_ = w.pause(min(tries, 10))
		var batch int64
		err := w.within(func() error {
			conn, err := pgx.ConnectConfig(w.ctx, w.s.dsn)
			if err != nil {
				return err
			}
			w.conn = conn
			return conn.QueryRow(w.ctx, w.s.sql(`UPDATE bide.member SET news = news + 1 WHERE k = $1 RETURNING batch`), w.me).Scan(&batch)
		})
		switch {
		case err == nil:
			return batch == w.batch, nil
		case errors.Is(err, pgx.ErrNoRows):
			return false, errors.New("postgres: whether the last writes were kept is not known: the process's row is gone")
		}
	}
}

// catchUp learns what others have done to the runs that this process holds.
func (w *writer) catchUp() error {
	var news, batch int64
	var changed []int64
	var dead bool
	err := w.conn.QueryRow(w.ctx, w.s.sql(`SELECT news, changed, dead, batch FROM bide.member WHERE k = $1`), w.me).Scan(&news, &changed, &dead, &batch)
	if err == nil && !dead && batch != w.kept {
		// The database has lost what it had promised, in a failover: what is known here is not true.
		_, err = w.conn.Exec(w.ctx, w.s.sql(`UPDATE bide.member SET dead = true, news = news + 1 WHERE k = $1`), w.me)
		dead = true
	}
	if errors.Is(err, pgx.ErrNoRows) || err == nil && dead {
		return w.died()
	}
	if err != nil {
		return err
	}
	w.s.stir()
	if err := w.reread(changed); err != nil {
		return err
	}
	w.news = news
	return nil
}

// died starts anew after others took this process for dead: it holds nothing.
func (w *writer) died() error {
	for _, l := range w.leases {
		w.release(l)
		w.lose(l)
	}
	w.left = append(w.left, w.workers...) // their next Claim makes them known again
	w.workers = nil
	w.regroup()
	w.me, w.strays = 0, false
	w.finish()
	return nil
}

// rereadRows reads what may have changed of runs in hand.
const rereadRows = `SELECT k, coalesce(id, ''), state, ver, coalesce(holder, 0), epoch, mail, kids, deadline FROM bide.run WHERE k = ANY ($1)`

// rereadMail reads the messages that have come for them.
const rereadMail = `SELECT i.run, i.k, i.op, i.name, coalesce(i.key, ''), i.data, i.error, i.at
	FROM unnest($1::bigint[], $2::bigint[]) AS u (run, k) JOIN bide.inbox i ON i.run = u.run AND i.k > u.k
	WHERE NOT i.taken ORDER BY i.run, i.k`

// reread brings the leases up to what others have made of their runs.
func (w *writer) reread(ks []int64) error {
	rows, err := w.conn.Query(w.ctx, w.s.sql(rereadRows), ks)
	if err != nil {
		return err
	}
	seen := map[int64]row{}
	for rows.Next() {
		var r row
		if err := rows.Scan(&r.k, &r.id, &r.state, &r.ver, &r.holder, &r.epoch, &r.mail, &r.kids, &r.deadline); err != nil {
			return err
		}
		seen[r.k] = r
	}
	if err := rows.Err(); err != nil {
		return err
	}
	var of, after []int64
	for _, k := range ks {
		l := w.leases[k]
		if l == nil || l.freed {
			continue
		}
		r, there := seen[k]
		if !there || r.holder != l.holder || r.epoch != l.epoch {
			w.release(l)
			w.lose(l)
			w.touched = append(w.touched, touch{id: l.id, over: true}) // it may have ended
			continue
		}
		if r.mail > l.mail {
			of, after = append(of, k), append(after, l.mail)
		}
		if r.state == bide.Paused && l.state != bide.Paused {
			w.out = append(w.out, l.news(bide.Message{Op: bide.OpPause, At: clock(w.now)}))
		}
		l.state, l.ver, l.mail, l.kids, l.deadline = r.state, r.ver, r.mail, l.kids || r.kids, r.deadline
		w.touched = append(w.touched, touch{id: l.id})
	}
	if len(of) > 0 {
		if rows, err = w.conn.Query(w.ctx, w.s.sql(rereadMail), of, after); err != nil {
			return err
		}
		mail, err := collectMail(rows)
		if err != nil {
			return err
		}
		for _, k := range of {
			if l := w.leases[k]; len(mail[k]) > 0 {
				w.out = append(w.out, l.news(mail[k]...))
			}
		}
	}
	w.finish()
	return nil
}

// release takes a run that is lost out of the worker's hand.
func (w *writer) release(l *lease) {
	l.freed = true
	l.worker.held--
	w.freed = append(w.freed, l)
	w.touched = append(w.touched, touch{id: l.id, freed: l})
}

// stop ends the timer, and leaves what the process holds to the others; the group
// has ended before.
func (w *writer) stop() {
	w.s.mu.Lock()
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.s.lapse.timer != nil {
		w.s.lapse.timer.Stop()
	}
	w.s.mu.Unlock()
	if w.dead.Load() || w.me == 0 || w.conn == nil || w.conn.IsClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
	defer cancel()
	_, _ = w.conn.Exec(ctx, w.s.sql(`UPDATE bide.member SET dead = true, news = news + 1 WHERE k = $1`), w.me)
	if !w.s.noNotify { // one may have come a moment ago
		_ = w.say(ctx, hint{From: w.me, Gone: true})
	}
}
