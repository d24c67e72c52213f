package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bide-dev/bide"
)

// fullRow is a run with all that its row has.
type fullRow struct {
	row
	queue, workflow                               string
	created                                       int64
	trace                                         string
	held                                          bool // by a process that lives
	waits, progress, failure, vals, result, input []byte
	labels                                        *string
	last                                          int64 // its newest record or chunk
}

// readRun reads one run.
const readRun = `SELECT r.k, coalesce(r.id, ''), t.queue, t.workflow, r.state, r.ver, coalesce(r.wake, 9223372036854775807), coalesce(r.holder, 0), r.warm,
		r.parent, r.gen, r.created, r.started, r.ended, r.deadline, r.waits, r.progress, r.labels::text, r.error, r.trace,
		greatest((SELECT max(k) FROM bide.rec WHERE run = r.k), (SELECT max(k) FROM bide.chunk WHERE run = r.k), 0),
		EXISTS (SELECT FROM bide.worker x JOIN bide.member m ON m.k = x.member WHERE x.k = r.holder AND NOT m.dead AND m.expires > clock_timestamp()),
		r.vals, r.result, r.input
	FROM bide.run r JOIN bide.route t ON t.k = r.route WHERE r.k = $1 OR r.id = $2`

func (f *fullRow) scan(rows pgx.Rows) error {
	return rows.Scan(&f.k, &f.id, &f.queue, &f.workflow, &f.state, &f.ver, &f.wake, &f.holder, &f.warm,
		&f.parent, &f.gen, &f.created, &f.started, &f.ended, &f.deadline, &f.waits, &f.progress, &f.labels, &f.failure, &f.trace,
		&f.last, &f.held, &f.vals, &f.result, &f.input)
}

// run is the row as a [bide.Run], its state as the row has it.
func (f *fullRow) run(s *Store) (run bide.Run, err error) {
	run = bide.Run{ID: f.id, Workflow: f.workflow, Queue: f.queue, State: f.state, Version: max(f.ver, f.last), Parent: f.parent,
		Input: f.input, Result: f.result, CreatedAt: clock(f.created), StartedAt: clock(f.started), EndedAt: clock(f.ended), Deadline: clock(f.deadline),
		Generation: int(f.gen), Trace: f.trace, Seed: s.seed(f.k, int(f.gen))}
	if run.ID == "" {
		run.ID = s.madeID(f.k)
	}
	if run.Waiting, err = bide.UnpackWaits(f.waits); err != nil {
		return run, err
	}
	var labels []byte
	if f.labels != nil {
		labels = []byte(*f.labels)
	}
	for _, x := range []struct {
		data []byte
		into any
	}{{f.progress, &run.Progress}, {labels, &run.Labels}, {f.failure, &run.Error}, {f.vals, &run.Values}} {
		if x.data == nil {
			continue
		}
		if err := json.Unmarshal(x.data, x.into); err != nil {
			return run, &bide.CodecError{Field: "run " + run.ID, Message: err.Error()}
		}
	}
	return run, nil
}

// shown is the run as a reader is to see it: in hand, due, or waiting.
func (f *fullRow) shown(s *Store) (bide.Run, error) {
	run, err := f.run(s)
	if err != nil || run.State != bide.Queued && run.State != bide.Waiting {
		if run.State == bide.Paused {
			run.Waiting = append([]bide.Wait{{Kind: bide.KindPause}}, run.Waiting...)
		}
		return run, err
	}
	due := f.wake <= s.now().UnixMicro()
	switch {
	case f.held && f.warm && len(run.Waiting) > 0:
		run.State = bide.Waiting
	case f.held:
		run.State = bide.Running
		run.Waiting = slices.DeleteFunc(run.Waiting, func(x bide.Wait) bool { return x.Loop == nil }) // that is its state, too
	case due, f.holder != 0: // or its holder has died
		run.State = bide.Queued
		since := run.CreatedAt
		if due && clock(f.wake).After(since) {
			since = clock(f.wake)
		}
		run.Waiting = append([]bide.Wait{{Kind: bide.KindQueue, Name: run.Queue, Since: since}}, run.Waiting...)
	case run.State == bide.Queued: // it was given a delay
		run.State = bide.Waiting
		run.Waiting = []bide.Wait{{Kind: bide.KindSleep, Name: "delay", Since: run.CreatedAt, Until: clock(f.wake)}}
	}
	return run, nil
}

func (s *Store) readFailure(err error) error {
	switch {
	case err == nil:
		return nil
	case s.isClosed():
		return bide.ErrClosed
	case isBide(err), errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return failure(err)
}

// readFor is how long the first try of a read waits for the database to answer: a
// connection may be lost without a word, and there is another to be had. Each further
// try waits for twice as long, for what is slow.
const readFor = 2 * time.Second

// again tries a read once more, and again, when its connection is lost.
func (s *Store) again(ctx context.Context, read func(context.Context) error) error {
	for tries := 0; ; tries++ {
		try, cancel := context.WithTimeout(ctx, readFor<<tries)
		err := read(try)
		cancel()
		if err == nil || s.isClosed() || ctx.Err() != nil || tries == 4 || !lost(err) {
			return s.readFailure(err)
		}
		select {
		case <-time.After(10 * time.Millisecond << (2 * tries)):
		case <-ctx.Done():
		case <-s.closed:
		}
	}
}

// find is how a run is looked for: by number, or by the id that a user gave.
func (s *Store) find(id string) (k int64, given *string) {
	if k, made := s.parseID(id); made {
		return k, nil
	}
	return 0, &id
}

func (s *Store) readRow(ctx context.Context, id string) (*fullRow, error) {
	if s.isClosed() {
		return nil, bide.ErrClosed
	}
	if strings.ContainsRune(id, 0) { // no text of Postgres has that
		return nil, bide.ErrNotFound
	}
	k, given := s.find(id)
	var f *fullRow
	err := s.again(ctx, func(ctx context.Context) error {
		f = nil
		rows, err := s.pool.Query(ctx, s.sql(readRun), k, given)
		if err != nil {
			return err
		}
		defer rows.Close()
		if rows.Next() {
			f = &fullRow{}
			return f.scan(rows)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, err
	}
	if f == nil || given == nil && f.id != "" { // its number makes no id
		return nil, bide.ErrNotFound
	}
	return f, nil
}

// Run implements [bide.Store].
func (s *Store) Run(ctx context.Context, id string) (bide.Run, error) {
	f, err := s.readRow(ctx, id)
	if err != nil {
		return bide.Run{}, err
	}
	return f.shown(s)
}

// historyOf reads records of a run; a limit of NULL is none.
const historyOf = `SELECT run, k, path, kind, name, data, error, attempt, at, took, by, poll FROM bide.rec
	WHERE run = $1 AND k > $2 ORDER BY k LIMIT $3`

// historiesOf reads all records of runs.
const historiesOf = `SELECT run, k, path, kind, name, data, error, attempt, at, took, by, poll FROM bide.rec
	WHERE run = ANY ($1) ORDER BY run, k`

const inboxesOf = `SELECT run, k, op, name, coalesce(key, ''), data, error, at FROM bide.inbox
	WHERE run = ANY ($1) AND NOT taken ORDER BY run, k`

// History implements [bide.Store].
func (s *Store) History(ctx context.Context, run string, after int64, limit int) ([]bide.Record, error) {
	f, err := s.readRow(ctx, run)
	if err != nil {
		return nil, err
	}
	var all map[int64][]bide.Record
	err = s.again(ctx, func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, s.sql(historyOf), f.k, after, limitOf(limit))
		if err == nil {
			all, err = collectHistory(rows)
		}
		return err
	})
	return all[f.k], err
}

// limitOf is a limit as SQL has it.
func limitOf(limit int) *int64 {
	if limit <= 0 {
		return nil
	}
	n := int64(limit)
	return &n
}

// collectHistory reads records by the run that they are of.
func collectHistory(rows pgx.Rows) (map[int64][]bide.Record, error) {
	defer rows.Close()
	all := map[int64][]bide.Record{}
	for rows.Next() {
		var run, at, took int64
		var r bide.Record
		var data, failed, poll []byte
		if err := rows.Scan(&run, &r.Seq, &r.Path, &r.Kind, &r.Name, &data, &failed, &r.Attempt, &at, &took, &r.By, &poll); err != nil {
			return nil, err
		}
		r.Data, r.At, r.Took = data, clock(at), time.Duration(took)*time.Microsecond
		var err error
		if r.Error, err = failureFrom(failed); err != nil {
			return nil, err
		}
		if poll != nil {
			if err := json.Unmarshal(poll, &r.Poll); err != nil {
				return nil, &bide.CodecError{Field: "poll log", Message: err.Error()}
			}
		}
		all[run] = append(all[run], r)
	}
	return all, rows.Err()
}

// load completes what the writer has put into the mailbox with the histories and
// inboxes of the runs.
func (s *Store) load(ctx context.Context, mail []delivery) ([]bide.Claimed, error) {
	claimed := make([]bide.Claimed, len(mail))
	var old, addressed []int64
	for i, d := range mail {
		claimed[i] = *d.c
		if d.full == nil {
			continue
		}
		d.full.queue, d.full.workflow = d.full.route.name.queue, d.full.route.name.workflow
		var err error
		if claimed[i].Run, err = d.full.run(s); err != nil {
			return nil, err
		}
		if d.full.started > 0 || d.full.gen > 0 || d.full.cut || d.full.ver > d.full.k {
			old = append(old, d.full.k)
		}
		if d.full.mail > 0 {
			addressed = append(addressed, d.full.k)
		}
	}
	var histories map[int64][]bide.Record
	var inboxes map[int64][]bide.Message
	err := s.again(ctx, func(ctx context.Context) error {
		if len(old) > 0 {
			rows, err := s.pool.Query(ctx, s.sql(historiesOf), old)
			if err != nil {
				return err
			}
			if histories, err = collectHistory(rows); err != nil {
				return err
			}
		}
		if len(addressed) > 0 {
			rows, err := s.pool.Query(ctx, s.sql(inboxesOf), addressed)
			if err != nil {
				return err
			}
			if inboxes, err = collectMail(rows); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, d := range mail {
		if d.full == nil {
			continue
		}
		claimed[i].History, claimed[i].Inbox = histories[d.full.k], inboxes[d.full.k]
		for _, r := range claimed[i].History {
			claimed[i].Run.Version = max(claimed[i].Run.Version, r.Seq)
		}
	}
	return claimed, nil
}

func failureFrom(data []byte) (f *bide.Failure, err error) {
	if data == nil {
		return nil, nil
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, &bide.CodecError{Field: "error", Message: err.Error()}
	}
	return f, nil
}
