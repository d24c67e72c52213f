package sqlite

import (
	"fmt"

	"zombiezen.com/go/sqlite"
)

// statements are the writer's, prepared once. Each is a whole text: what the
// database is asked can be read here.
type statements struct {
	begin, commit, rollback *sqlite.Stmt

	meta, setMeta, routes, addRoute, mark *sqlite.Stmt

	find, findKey, addRun, addPayload, addRec, addChunk, addMail, addLabel *sqlite.Stmt

	due, nextDue *sqlite.Stmt

	setWaits, setProgress, setStarted, setKids, getVals, setVals     *sqlite.Stmt
	park, parkWaits, end, again, clearRecs, clearChunks, dropPayload *sqlite.Stmt
	onEnd, addTally                                                  *sqlite.Stmt
	purge, purgeMail, purgeLabels                                    *sqlite.Stmt

	mailKey, post, takeMail, dropMail, dropCancel *sqlite.Stmt

	factVer, setFact, dropFact, oldFacts *sqlite.Stmt

	target, setState, giveID, moveKids, kids, reopen, history, payload *sqlite.Stmt
}

func (st *statements) prepare(conn *sqlite.Conn) error {
	for _, q := range []struct {
		stmt **sqlite.Stmt
		sql  string
	}{
		{&st.begin, `BEGIN IMMEDIATE`},
		{&st.commit, `COMMIT`},
		{&st.rollback, `ROLLBACK`},

		{&st.meta, `SELECT name, value FROM meta`},
		{&st.setMeta, `INSERT INTO meta (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2`},
		{&st.routes, `SELECT k, queue, workflow, mark_wake, mark_k, mark_put,
			(SELECT min(wake) FROM run WHERE run.route = route.k AND wake IS NOT NULL) FROM route`},
		{&st.addRoute, `INSERT INTO route (k, queue, workflow) VALUES (?1, ?2, ?3)`},
		{&st.mark, `UPDATE route SET mark_wake = ?2, mark_k = ?3, mark_put = ?4 WHERE k = ?1`},

		{&st.find, `SELECT k FROM run WHERE id = ?1`},
		{&st.findKey, `SELECT k, id, print FROM run WHERE key = ?1`},
		{&st.addRun, `INSERT INTO run (k, route, state, ver, put, wake, mail, id, parent, detached, created, started, deadline, labels, input,
			key, print, on_end, trace) VALUES (?1, ?2, ?3, ?1, ?1, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)`},
		{&st.addPayload, `INSERT OR REPLACE INTO payload (run, input) VALUES (?1, ?2)`},
		{&st.dropPayload, `DELETE FROM payload WHERE run = ?1`},
		{&st.addRec, `INSERT INTO rec (k, run, path, kind, name, data, error, attempt, at, took, by, poll)
			VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)`},
		{&st.addChunk, `INSERT INTO chunk (k, run, path, name, attempt, data, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)`},
		{&st.addMail, `INSERT INTO inbox (k, run, op, name, key, data, error, at, print) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)`},

		{&st.addLabel, `INSERT INTO label (name, value, run) VALUES (?1, ?2, ?3)`},

		{&st.due, `SELECT k, wake, mail, state, id, parent, kids, put, on_end IS NOT NULL FROM run
			WHERE route = ?1 AND wake IS NOT NULL AND wake <= ?2 AND (wake, k) > (?3, ?4) ORDER BY wake, k LIMIT ?5`},
		{&st.nextDue, `SELECT wake FROM run WHERE route = ?1 AND wake IS NOT NULL AND (wake, k) > (?2, ?3) ORDER BY wake, k LIMIT 1`},

		{&st.setWaits, `UPDATE run SET ver = ?2, waits = ?3 WHERE k = ?1`},
		{&st.setProgress, `UPDATE run SET ver = ?2, progress = ?3 WHERE k = ?1`},
		{&st.setStarted, `UPDATE run SET ver = ?2, started = coalesce(started, ?3) WHERE k = ?1`},
		{&st.setKids, `UPDATE run SET kids = 1 WHERE k = ?1`},
		{&st.getVals, `SELECT vals FROM run WHERE k = ?1`},
		{&st.setVals, `UPDATE run SET ver = ?2, vals = ?3 WHERE k = ?1`},
		{&st.park, `UPDATE run SET ver = ?2, put = ?2, state = ?3, wake = ?4 WHERE k = ?1`},
		{&st.parkWaits, `UPDATE run SET ver = ?2, put = ?2, state = ?3, wake = ?4, waits = ?5 WHERE k = ?1`},
		{&st.end, `UPDATE run SET ver = ?2, state = ?3, wake = NULL, waits = NULL, result = ?4, error = ?5, ended = ?6,
			started = coalesce(started, ?7) WHERE k = ?1`},
		{&st.again, `UPDATE run SET ver = ?2, put = ?2, state = ?3, wake = ?4, waits = NULL, progress = NULL, gen = gen + 1, input = ?5 WHERE k = ?1`},
		{&st.clearRecs, `DELETE FROM rec WHERE run = ?1`},
		{&st.clearChunks, `DELETE FROM chunk WHERE run = ?1`},
		{&st.onEnd, `SELECT on_end FROM run WHERE k = ?1`},
		{&st.addTally, `INSERT INTO tally (route, state, runs) VALUES (?1, ?2, ?3) ON CONFLICT (route, state) DO UPDATE SET runs = runs + ?3`},
		{&st.purge, `DELETE FROM run WHERE k = ?1`},
		{&st.purgeLabels, `DELETE FROM label WHERE (name, value, run) IN (SELECT x.key, x.value, run.k FROM run, json_each(run.labels) AS x WHERE run.k = ?1)`},
		{&st.purgeMail, `DELETE FROM inbox WHERE run = ?1`},

		{&st.mailKey, `SELECT print FROM inbox WHERE run = ?1 AND key = ?2`},
		{&st.post, `UPDATE run SET ver = ?2, mail = ?3, wake = ?4, put = iif(wake IS ?4, put, ?2) WHERE k = ?1`},
		{&st.takeMail, `UPDATE inbox SET taken = 1, data = NULL, error = NULL WHERE k = ?1 AND run = ?2 AND key IS NOT NULL`},
		{&st.dropMail, `DELETE FROM inbox WHERE k = ?1 AND run = ?2 AND key IS NULL`},
		{&st.dropCancel, `DELETE FROM inbox WHERE run = ?1 AND op = ?2`},

		{&st.factVer, `SELECT ver FROM fact WHERE kind = ?1 AND key = ?2 AND (expires IS NULL OR expires > ?3)`},
		{&st.setFact, `INSERT INTO fact (kind, key, ver, value, expires) VALUES (?1, ?2, ?3, ?4, ?5)
			ON CONFLICT (kind, key) DO UPDATE SET ver = ?3, value = ?4, expires = ?5`},
		{&st.dropFact, `DELETE FROM fact WHERE kind = ?1 AND key = ?2`},
		{&st.oldFacts, `DELETE FROM fact WHERE (kind, key) IN (SELECT kind, key FROM fact WHERE expires <= ?1 ORDER BY expires LIMIT ?2)`},

		{&st.target, `SELECT route, state, wake, mail, id, parent, kids, waits, error, deadline, result, input, gen, put, on_end IS NOT NULL FROM run WHERE k = ?1`},
		{&st.setState, `UPDATE run SET ver = ?2, state = ?3, wake = ?4, put = iif(?5, ?2, put) WHERE k = ?1`},
		{&st.giveID, `UPDATE run SET ver = ?2, id = NULL WHERE k = ?1`},
		{&st.moveKids, `UPDATE run SET parent = ?2 WHERE parent = ?1`},
		{&st.kids, `SELECT k FROM run WHERE parent = ?1 AND detached = 0 AND state < ?2`},
		{&st.reopen, `UPDATE run SET ver = ?2, put = ?2, state = ?3, wake = ?4, error = NULL, result = NULL, ended = NULL, deadline = ?5 WHERE k = ?1`},
		{&st.payload, `SELECT input FROM payload WHERE run = ?1`},
		{&st.history, `SELECT k, path, kind, name, data, error, attempt, at, took, by, poll FROM rec WHERE run = ?1 ORDER BY k`},
	} {
		stmt, err := conn.Prepare(q.sql)
		if err != nil {
			return fmt.Errorf("sqlite: %s: %w", q.sql, err)
		}
		*q.stmt = stmt
	}
	return nil
}
