package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bide-dev/bide"
)

// reader is one of the connections that only read. Each read sees one moment of
// the file and hinders nobody.
type reader struct {
	conn                                        *sqlite.Conn
	find, run, payload, last, recs, inbox, page *sqlite.Stmt
	facts, factsOf, chunks, tally               *sqlite.Stmt
	due, dueCount, canceling, begin, end        *sqlite.Stmt
	keys                                        keyStatements
}

const runColumns = `run.k, route.queue, route.workflow, run.state, run.ver, run.wake, run.id, run.parent, run.gen, run.created,
	run.started, run.ended, run.deadline, run.waits, run.progress, run.labels, run.error,
	run.wake <= route.mark_wake AND (run.wake < route.mark_wake OR run.k <= route.mark_k) AND run.put <= max(route.mark_put, run.k)`

func newReader(conn *sqlite.Conn) *reader { return &reader{conn: conn} }

// prepare prepares the statements, at the first use: the file may have no schema
// when the reader is made.
func (r *reader) prepare() error {
	if r.keys.newest != nil {
		return nil
	}
	for _, q := range r.queries() {
		stmt, err := r.conn.Prepare(q.sql)
		if err != nil {
			return failure(fmt.Errorf("%s: %w", q.sql, err))
		}
		*q.stmt = stmt
	}
	return nil
}

func (r *reader) queries() []query {
	return append([]query{
		{&r.find, `SELECT k FROM run WHERE id = ?1`},
		{&r.run, `SELECT ` + runColumns + `, run.vals, run.result, run.input, run.trace FROM run JOIN route ON route.k = run.route WHERE run.k = ?1`},
		{&r.payload, `SELECT input FROM payload WHERE run = ?1`},
		{&r.last, `SELECT k FROM rec WHERE run = ?1 ORDER BY k DESC LIMIT 1`},
		{&r.recs, `SELECT k, path, kind, name, data, error, attempt, at, took, by, poll FROM rec WHERE run = ?1 AND k > ?2 ORDER BY k LIMIT ?3`},
		{&r.chunks, `SELECT k, path, name, attempt, data, at FROM chunk WHERE run = ?1 AND k > ?2 ORDER BY k LIMIT ?3`},
		{&r.tally, `SELECT route.k, route.queue, route.workflow, tally.state, tally.runs FROM tally JOIN route ON route.k = tally.route
			WHERE tally.runs > 0 ORDER BY route.queue, route.workflow, tally.state`},
		{&r.due, `SELECT k, iif(wake > 0, wake, created) FROM run INDEXED BY run_due WHERE route = ?1 AND wake IS NOT NULL AND wake <= ?2 AND state <= 3 ORDER BY wake, k`},
		{&r.dueCount, `SELECT count(*) FROM run INDEXED BY run_due WHERE route = ?1 AND wake IS NOT NULL AND wake <= ?2`},
		{&r.canceling, `SELECT count(*) FROM run INDEXED BY run_state WHERE route = ?1 AND state = ?3 AND state > 3 AND wake <= ?2`},
		{&r.inbox, `SELECT k, op, name, key, data, error, at FROM inbox WHERE run = ?1 AND taken = 0 ORDER BY k`},
		{&r.facts, `SELECT key, ver, value, expires FROM fact WHERE kind = ?1 AND (expires IS NULL OR expires > ?2)`},
		{&r.factsOf, `SELECT key, ver, value, expires FROM fact WHERE kind = ?1 AND (expires IS NULL OR expires > ?2)
			AND key IN (SELECT value FROM json_each(?3))`},
		{&r.page, `SELECT ` + runColumns + ` FROM run JOIN route ON route.k = run.route WHERE run.k = ?1`},
		{&r.begin, `BEGIN`},
		{&r.end, `COMMIT`},
	}, r.keys.queries()...)
}

// read lends a reader to fn.
func (s *Store) read(ctx context.Context, fn func(*reader) error) error {
	if s.isClosed() {
		return bide.ErrClosed
	}
	select {
	case r := <-s.readers:
		defer func() { s.readers <- r }()
		if err := r.prepare(); err != nil {
			return err
		}
		return fn(r)
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closed:
		return bide.ErrClosed
	}
}

func step(st *sqlite.Stmt) (bool, error) {
	more, err := st.Step()
	return more, failure(err)
}

func (r *reader) resolve(s *Store, id string) (int64, error) {
	if k, made := s.parseID(id); made {
		return k, nil
	}
	defer r.find.Reset()
	r.find.BindText(1, id)
	found, err := step(r.find)
	if err == nil && !found {
		err = bide.ErrNotFound
	}
	return r.find.ColumnInt64(0), err
}

// Run implements [bide.Store].
func (s *Store) Run(ctx context.Context, id string) (run bide.Run, err error) {
	for {
		held := s.holder(id)
		err = s.read(ctx, func(r *reader) error {
			k, err := r.resolve(s, id)
			if err == nil {
				run, err = r.one(s, k)
			}
			return err
		})
		// The row says nothing of who holds the run: both must be of one moment, or
		// a run that has just parked is shown to wait for nothing.
		if err != nil || s.holder(id) == held {
			return run, err
		}
	}
}

// holder is the run's live lease, nil for none.
func (s *Store) holder(id string) *lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live[id]
}

func (r *reader) one(s *Store, k int64) (bide.Run, error) { return r.read(s, k, s.scan) }

func (r *reader) read(s *Store, k int64, scan func(*sqlite.Stmt) (bide.Run, error)) (run bide.Run, err error) {
	defer r.run.Reset()
	r.run.BindInt64(1, k)
	found, err := step(r.run)
	if err != nil {
		return run, err
	}
	if !found {
		return run, bide.ErrNotFound
	}
	if run, err = scan(r.run); err != nil {
		return run, err
	}
	if vals := bytesOf(r.run, 18); vals != nil {
		if err := json.Unmarshal(vals, &run.Values); err != nil {
			return run, &bide.CodecError{Field: "values", Message: err.Error()}
		}
	}
	run.Result, run.Input, run.Trace = bytesOf(r.run, 19), bytesOf(r.run, 20), r.run.ColumnText(21)
	if run.Input == nil {
		defer r.payload.Reset()
		r.payload.BindInt64(1, k)
		if _, err := step(r.payload); err != nil {
			return run, err
		}
		run.Input = bytesOf(r.payload, 0)
	}
	err = r.version(&run, k)
	return run, err
}

// version raises the run's version to that of its newest record.
func (r *reader) version(run *bide.Run, k int64) error {
	defer r.last.Reset()
	r.last.BindInt64(1, k)
	found, err := step(r.last)
	if found {
		run.Version = max(run.Version, r.last.ColumnInt64(0))
	}
	return err
}

// scan reads a run from a row of runColumns, and says where it stands now.
func (s *Store) scan(st *sqlite.Stmt) (bide.Run, error) {
	run, err := s.scanRow(st)
	if err == nil {
		s.derive(&run, st)
	}
	return run, err
}

func (s *Store) scanRow(st *sqlite.Stmt) (run bide.Run, err error) {
	k := st.ColumnInt64(0)
	run = bide.Run{Queue: st.ColumnText(1), Workflow: st.ColumnText(2), State: bide.State(st.ColumnInt64(3)), Version: st.ColumnInt64(4),
		ID: st.ColumnText(6), Parent: st.ColumnText(7), Generation: st.ColumnInt(8), CreatedAt: clock(st.ColumnInt64(9)),
		StartedAt: clock(st.ColumnInt64(10)), EndedAt: clock(st.ColumnInt64(11)), Deadline: clock(st.ColumnInt64(12))}
	if run.ID == "" {
		run.ID = s.madeID(k)
	}
	run.Seed = s.seed(k, run.Generation)
	if run.Waiting, err = bide.UnpackWaits(bytesOf(st, 13)); err != nil {
		return run, err
	}
	for i, into := range map[int]any{14: &run.Progress, 15: &run.Labels, 16: &run.Error} {
		if data := bytesOf(st, i); data != nil {
			if err := json.Unmarshal(data, into); err != nil {
				return run, &bide.CodecError{Field: "run " + run.ID, Message: err.Error()}
			}
		}
	}
	return run, nil
}

// derive says what the row leaves open: whether a run that has not ended is in
// hand, due, or waits.
func (s *Store) derive(run *bide.Run, st *sqlite.Stmt) {
	if run.State != bide.Queued && run.State != bide.Waiting {
		if run.State == bide.Paused {
			run.Waiting = append([]bide.Wait{{Kind: bide.KindPause}}, run.Waiting...)
		}
		return
	}
	s.mu.Lock()
	l := s.live[run.ID]
	warm := l != nil && l.warm.Load()
	s.mu.Unlock()
	due := !st.ColumnIsNull(5) && st.ColumnInt64(5) <= s.line.Now().UnixMicro()
	switch {
	case warm && len(run.Waiting) > 0: // else its row is older
		run.State = bide.Waiting
	case l != nil, s.readOnly && due && st.ColumnBool(17):
		run.State = bide.Running
		run.Waiting = slices.DeleteFunc(run.Waiting, func(x bide.Wait) bool { return x.Loop == nil }) // that is its state, too
	case due:
		run.State = bide.Queued
		since := later(clock(st.ColumnInt64(5)), run.CreatedAt)
		run.Waiting = append([]bide.Wait{{Kind: bide.KindQueue, Name: run.Queue, Since: since}}, run.Waiting...)
	case run.State == bide.Queued: // it was given a delay
		run.State = bide.Waiting
		run.Waiting = []bide.Wait{{Kind: bide.KindSleep, Name: "delay", Since: run.CreatedAt, Until: clock(st.ColumnInt64(5))}}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// History implements [bide.Store].
func (s *Store) History(ctx context.Context, run string, after int64, limit int) (records []bide.Record, err error) {
	if limit <= 0 {
		limit = -1 // SQLite: no limit
	}
	err = s.read(ctx, func(r *reader) error {
		k, err := r.resolve(s, run)
		if err != nil {
			return err
		}
		if _, err := r.one(s, k); err != nil {
			return err
		}
		records, err = r.history(k, after, limit)
		return err
	})
	return records, err
}

func (r *reader) history(k, after int64, limit int) ([]bide.Record, error) {
	r.recs.BindInt64(2, after)
	r.recs.BindInt64(3, int64(limit))
	return readHistory(r.recs, k)
}

// readHistory runs a statement that selects a run's records.
func readHistory(st *sqlite.Stmt, k int64) (records []bide.Record, err error) {
	defer st.Reset()
	st.BindInt64(1, k)
	for {
		more, err := step(st)
		if err != nil || !more {
			return records, err
		}
		r := bide.Record{Seq: st.ColumnInt64(0), Path: st.ColumnText(1), Kind: bide.Kind(st.ColumnInt64(2)), Name: st.ColumnText(3),
			Data: bytesOf(st, 4), Attempt: st.ColumnInt(6), At: clock(st.ColumnInt64(7)),
			Took: time.Duration(st.ColumnInt64(8)) * time.Microsecond, By: st.ColumnText(9)}
		if r.Error, err = failureOf(st, 5); err != nil {
			return records, err
		}
		if log := bytesOf(st, 10); log != nil {
			if err := json.Unmarshal(log, &r.Poll); err != nil {
				return records, &bide.CodecError{Field: "poll log", Message: err.Error()}
			}
		}
		records = append(records, r)
	}
}

// load reads what the writer has not put into the mailbox.
func (s *Store) load(ctx context.Context, mail []delivery) ([]bide.Claimed, error) {
	claimed := make([]bide.Claimed, len(mail))
	for i := range mail {
		claimed[i] = *mail[i].c
	}
	if !slices.ContainsFunc(mail, func(d delivery) bool { return d.lease != nil && !d.full }) {
		return claimed, nil
	}
	err := s.read(ctx, func(r *reader) error {
		for i := range mail {
			if mail[i].lease == nil || mail[i].full {
				continue
			}
			if err := r.fill(s, &claimed[i], mail[i].mail); err != nil && !errors.Is(err, bide.ErrNotFound) {
				return err
			}
		}
		return nil
	})
	return claimed, err
}

// fill reads a claimed run with its history and inbox.
func (r *reader) fill(s *Store, c *bide.Claimed, mail int64) (err error) {
	// The turn wants the waits as the row has them, not what a reader is told.
	if c.Run, err = r.read(s, c.Key, s.scanRow); err != nil {
		return err
	}
	if c.History, err = r.history(c.Key, 0, -1); err != nil || mail == 0 {
		return err
	}
	defer r.inbox.Reset()
	r.inbox.BindInt64(1, c.Key)
	for {
		more, err := step(r.inbox)
		if err != nil || !more {
			return err
		}
		m := bide.Message{Seq: r.inbox.ColumnInt64(0), Op: bide.Op(r.inbox.ColumnInt64(1)), Name: r.inbox.ColumnText(2),
			Key: r.inbox.ColumnText(3), Data: bytesOf(r.inbox, 4), At: clock(r.inbox.ColumnInt64(6))}
		if m.Error, err = failureOf(r.inbox, 5); err != nil {
			return err
		}
		c.Inbox = append(c.Inbox, m)
	}
}

func failureOf(st *sqlite.Stmt, col int) (*bide.Failure, error) { return failureFrom(bytesOf(st, col)) }

func failureFrom(data []byte) (f *bide.Failure, err error) {
	if data == nil {
		return nil, nil
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, &bide.CodecError{Field: "error", Message: err.Error()}
	}
	return f, nil
}

func bytesOf(st *sqlite.Stmt, col int) []byte {
	n := st.ColumnLen(col)
	if n == 0 {
		return nil
	}
	b := make([]byte, n)
	st.ColumnBytes(col, b)
	return b
}
