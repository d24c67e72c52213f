package sqlite

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/internal/keyset"
)

// keyStatements find runs for lists: numbers from ?1 on and below ?2, at most ?3,
// the highest first. Each is bound to one index, so that what a page costs is no
// matter of luck.
type keyStatements struct {
	newest, byState, byParent, byLabel, made *sqlite.Stmt
	openIn, idIn, floor                      *sqlite.Stmt
	byWake, mute, byID                       *sqlite.Stmt
}

// query is a statement and its text.
type query struct {
	stmt **sqlite.Stmt
	sql  string
}

func (s *keyStatements) queries() []query {
	return []query{
		{&s.byState, `SELECT k FROM run INDEXED BY run_state WHERE route = ?4 AND state = ?5 AND state > 3 AND k >= ?1 AND k < ?2 ORDER BY k DESC LIMIT ?3`},
		{&s.byParent, `SELECT k FROM run INDEXED BY run_parent WHERE parent = ?4 AND k >= ?1 AND k < ?2 ORDER BY k DESC LIMIT ?3`},
		{&s.byLabel, `SELECT run FROM label WHERE name = ?4 AND value = ?5 AND run >= ?1 AND run < ?2 ORDER BY run DESC LIMIT ?3`},
		{&s.made, `SELECT k FROM run NOT INDEXED WHERE k >= max(?1, ?4) AND k < min(?2, ?5) AND id IS NULL ORDER BY k DESC LIMIT ?3`},

		{&s.openIn, `SELECT k FROM (SELECT k, route, state, wake FROM run NOT INDEXED WHERE k >= ?1 AND k < ?2 ORDER BY k DESC LIMIT ?4)
			WHERE state <= 3 AND iif(wake <= ?5, ?6, ?7) AND route IN (SELECT value FROM json_each(?8)) LIMIT ?3`},
		{&s.idIn, `SELECT k FROM (SELECT k, id FROM run NOT INDEXED WHERE k >= ?1 AND k < ?2 ORDER BY k DESC LIMIT ?4)
			WHERE id >= ?5 AND id < ?6 LIMIT ?3`},
		{&s.floor, `SELECT k FROM run NOT INDEXED WHERE k >= ?1 AND k < ?2 ORDER BY k DESC LIMIT ?3 OFFSET ?4 - 1`},

		// In no order of k: these are asked for all at once.
		{&s.byWake, `SELECT k FROM run INDEXED BY run_due WHERE wake IS NOT NULL AND route = ?4 AND wake > ?5 AND wake <= ?6 AND k >= ?1 AND k < ?2 LIMIT ?3`},
		{&s.mute, `SELECT k FROM run INDEXED BY run_mute WHERE wake IS NULL AND state <= 3 AND route = ?4 AND k >= ?1 AND k < ?2 LIMIT ?3`},
		{&s.byID, `SELECT k FROM run INDEXED BY run_id WHERE id >= ?4 AND id < ?5 AND k >= ?1 AND k < ?2 LIMIT ?3`},

		{&s.newest, `SELECT k FROM run NOT INDEXED WHERE k >= ?1 AND k < ?2 ORDER BY k DESC LIMIT ?3`},
	}
}

// from is the source of what a statement finds.
func from(st *sqlite.Stmt, args ...any) keyset.Source {
	return func(from, below int64, n int) (keys []int64, err error) {
		defer st.Reset()
		st.BindInt64(1, from)
		st.BindInt64(2, below)
		st.BindInt64(3, int64(n))
		for i, arg := range args {
			switch v := arg.(type) {
			case int64:
				st.BindInt64(i+4, v)
			case bool:
				st.BindBool(i+4, v)
			case string:
				st.BindText(i+4, v)
			}
		}
		for {
			more, err := step(st)
			if err != nil || !more {
				return keys, err
			}
			keys = append(keys, st.ColumnInt64(0))
		}
	}
}

// Runs implements [bide.Store].
func (s *Store) Runs(ctx context.Context, q bide.Query) (runs []bide.Run, err error) {
	switch {
	case q.Limit == 0:
		q.Limit = 50
	case q.Limit < 0 || q.Limit > 1000:
		return nil, &bide.InvalidError{Field: "limit", Reason: fmt.Sprintf("is %d; it must be from 1 to 1000", q.Limit)}
	}
	err = s.read(ctx, func(r *reader) error {
		_, err := step(r.begin) // what the indexes say is to be of one moment
		_ = r.begin.Reset()
		if err != nil {
			return err
		}
		defer func() {
			_, _ = r.end.Step()
			_ = r.end.Reset()
		}()
		runs, err = r.list(s, &q)
		return err
	})
	return runs, err
}

func (r *reader) list(s *Store, q *bide.Query) (runs []bide.Run, err error) {
	before := int64(never)
	if q.Before != "" {
		if before, err = r.resolve(s, q.Before); err != nil {
			return nil, err
		}
	}
	found, err := r.lookUp(s, q)
	if err != nil {
		return nil, err
	}
	for n := q.Limit; ; n = max(64, q.Limit-len(runs)) {
		keys, err := found(0, before, n)
		if err != nil {
			return nil, err
		}
		for _, k := range keys {
			run, err := r.listed(s, k)
			if err != nil {
				return nil, err
			}
			if q.Match(&run) {
				runs = append(runs, run)
			}
			if len(runs) == q.Limit {
				return runs, nil
			}
			before = k
		}
		if len(keys) < n {
			return runs, nil
		}
	}
}

// listed reads a run as a list shows it.
func (r *reader) listed(s *Store, k int64) (run bide.Run, err error) {
	defer r.page.Reset()
	r.page.BindInt64(1, k)
	if _, err := step(r.page); err != nil {
		return run, err
	}
	if run, err = s.scan(r.page); err == nil {
		err = r.version(&run, k)
	}
	return run, err
}

// lookUp is where the runs that the query selects are among.
func (r *reader) lookUp(s *Store, q *bide.Query) (keyset.Source, error) {
	var sources []keyset.Source
	if q.Parent != "" {
		sources = append(sources, from(r.keys.byParent, q.Parent))
	}
	for name, value := range q.Labels {
		sources = append(sources, from(r.keys.byLabel, name, value))
	}
	if q.IDPrefix != "" {
		sources = append(sources, r.byID(s, q.IDPrefix))
	}
	if len(q.States) > 0 || q.Workflow != "" || q.Queue != "" {
		source, err := r.byPlace(s, q)
		if err != nil {
			return nil, err
		}
		sources = append(sources, source)
	}
	if len(sources) == 0 {
		sources = []keyset.Source{from(r.keys.newest)}
	}
	return keyset.All(sources...), nil
}

// window is how many rows are looked at for what has an index in another order.
const window int64 = 1 << 16

// inWindow puts together a source from a statement that looks at a window, and
// those that have no order.
func (r *reader) inWindow(scan keyset.Source, indexes ...keyset.Source) keyset.Source {
	floor := func(least, below int64) (int64, error) {
		keys, err := from(r.keys.floor, window)(least, below, 1)
		if err != nil || len(keys) == 0 {
			return least, err
		}
		return keys[0], nil
	}
	return keyset.Window(scan, floor, func(below int64, n int) (keys []int64, err error) {
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

// byPlace finds runs by their states, workflow and queue.
func (r *reader) byPlace(s *Store, q *bide.Query) (keyset.Source, error) {
	wants := func(state bide.State) bool { return len(q.States) == 0 || slices.Contains(q.States, state) }
	due, waiting := wants(bide.Queued) || wants(bide.Running) && s.readOnly, wants(bide.Waiting)
	var sources []keyset.Source
	var routes []int64
	defer r.tally.Reset()
	for {
		more, err := step(r.tally)
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
		if q.Queue != "" && q.Queue != r.tally.ColumnText(1) || q.Workflow != "" && q.Workflow != r.tally.ColumnText(2) {
			continue
		}
		route, state := r.tally.ColumnInt64(0), bide.State(r.tally.ColumnInt64(3))
		switch {
		case state <= bide.Waiting:
			routes = append(routes, route)
		case wants(state):
			sources = append(sources, from(r.keys.byState, route, int64(state)))
		}
	}
	if wants(bide.Running) || waiting { // those that wait in hand are due in the file
		sources = append(sources, s.inHand())
	}
	if (due || waiting) && len(routes) > 0 {
		sources = append(sources, r.open(s, slices.Compact(routes), due, waiting))
	}
	return keyset.Any(sources...), nil
}

// inHand are the runs that workers hold.
func (s *Store) inHand() keyset.Source {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := make([]int64, 0, len(s.live))
	for _, l := range s.live {
		keys = append(keys, l.k)
	}
	return keyset.Of(keys)
}

// open finds runs that are due, or wait.
func (r *reader) open(s *Store, routes []int64, due, waiting bool) keyset.Source {
	now := s.line.Now().UnixMicro()
	after, to := int64(-1), now
	if waiting {
		to = never
	}
	if !due {
		after = now
	}
	var indexes []keyset.Source
	for _, k := range routes {
		indexes = append(indexes, from(r.keys.byWake, k, after, to))
		if waiting {
			indexes = append(indexes, from(r.keys.mute, k))
		}
	}
	return r.inWindow(from(r.keys.openIn, window, now, due, waiting, string(object(routes))), indexes...)
}

// byID finds runs by how their ids begin: those given by users, and those made of
// numbers.
func (r *reader) byID(s *Store, prefix string) keyset.Source {
	var sources []keyset.Source
	made := madePrefix + s.tag() + "_"
	if strings.HasPrefix(made, prefix) {
		sources = append(sources, from(r.keys.made, int64(0), int64(never)))
	} else if digits, ok := strings.CutPrefix(prefix, made); ok {
		for _, span := range keyset.Spans(digits) {
			sources = append(sources, from(r.keys.made, span[0], span[1]))
		}
	}
	after := keyset.After(prefix)
	given := r.inWindow(from(r.keys.idIn, window, prefix, after), from(r.keys.byID, prefix, after))
	return keyset.Any(append(sources, given)...)
}
