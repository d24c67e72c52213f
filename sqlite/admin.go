package sqlite

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bide-dev/bide"
)

// meter counts what the writer has done since the file was opened.
type meter struct{ commits, transactions, lost atomic.Int64 }

// Status implements [bide.Admin].
func (s *Store) Status(ctx context.Context) (status bide.Status, err error) {
	status.Commits, status.Transactions, status.LeasesLost = s.meter.commits.Load(), s.meter.transactions.Load(), s.meter.lost.Load()
	status.Workers = s.crewList()
	err = s.read(ctx, func(r *reader) error {
		byRoute := map[int64]map[bide.State]*bide.Count{}
		defer r.tally.Reset()
		for {
			more, err := step(r.tally)
			if err != nil {
				return err
			}
			if !more {
				break
			}
			k, state := r.tally.ColumnInt64(0), bide.State(r.tally.ColumnInt64(3))
			if byRoute[k] == nil {
				byRoute[k] = map[bide.State]*bide.Count{}
			}
			byRoute[k][state] = &bide.Count{Queue: r.tally.ColumnText(1), Workflow: r.tally.ColumnText(2), State: state, Runs: r.tally.ColumnInt64(4)}
		}
		for k, counts := range byRoute {
			if err := r.split(s, k, counts); err != nil {
				return err
			}
			for _, c := range counts {
				if c.Runs > 0 {
					status.Counts = append(status.Counts, *c)
				}
			}
		}
		return nil
	})
	slices.SortFunc(status.Counts, func(a, b bide.Count) int {
		if c := strings.Compare(a.Queue, b.Queue); c != 0 {
			return c
		}
		if c := strings.Compare(a.Workflow, b.Workflow); c != 0 {
			return c
		}
		return int(a.State) - int(b.State)
	})
	return status, err
}

// split tells apart what the rows of a route leave open: which of those that are
// queued or waiting there are in hand, and which are due.
func (r *reader) split(s *Store, k int64, counts map[bide.State]*bide.Count) error {
	var name bide.Count
	open := int64(0)
	for _, state := range []bide.State{bide.Queued, bide.Waiting} {
		if c := counts[state]; c != nil {
			name, open = *c, open+c.Runs
			delete(counts, state)
		}
	}
	if open == 0 {
		return nil
	}
	held, warm := map[int64]bool{}, int64(0)
	s.mu.Lock()
	for _, l := range s.live {
		if l.route.k == k && l.state <= bide.Waiting {
			held[l.k] = true
			if l.warm.Load() {
				warm++
			}
		}
	}
	s.mu.Unlock()
	due, oldest, err := r.waitingFor(k, s.line.Now().UnixMicro(), held)
	if err != nil {
		return err
	}
	due, running := min(due, open), int64(len(held))-warm
	set := func(state bide.State, n int64) {
		c := name
		c.State, c.Runs = state, n
		counts[state] = &c
	}
	running = min(running, open-due)
	set(bide.Queued, due)
	set(bide.Running, running)
	set(bide.Waiting, open-due-running)
	counts[bide.Queued].Oldest = clock(oldest)
	return nil
}

// waitingFor is how many runs of a route wait for a worker, and since when the
// first has. The rows of those that are held are due as well.
func (r *reader) waitingFor(route, now int64, held map[int64]bool) (due, oldest int64, err error) {
	for _, st := range []*sqlite.Stmt{r.dueCount, r.canceling, r.due} {
		defer st.Reset()
		st.BindInt64(1, route)
		st.BindInt64(2, now)
	}
	r.canceling.BindInt64(3, int64(bide.Canceling))
	for _, st := range []*sqlite.Stmt{r.dueCount, r.canceling} {
		if _, err := step(st); err != nil {
			return 0, 0, err
		}
	}
	due = max(r.dueCount.ColumnInt64(0)-r.canceling.ColumnInt64(0)-int64(len(held)), 0)
	for due > 0 && oldest == 0 {
		more, err := step(r.due)
		if err != nil || !more {
			return due, 0, err
		}
		if !held[r.due.ColumnInt64(0)] {
			oldest = r.due.ColumnInt64(1)
		}
	}
	return due, oldest, nil
}

func (s *Store) crewList() []bide.WorkerInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := map[*worker]int{}
	for _, l := range s.live {
		held[l.worker]++
	}
	list := make([]bide.WorkerInfo, 0, len(s.workers))
	for _, id := range slices.Sorted(maps.Keys(s.workers)) {
		x := s.workers[id]
		if x.gone {
			continue
		}
		left := time.Duration(x.expires.Load()) - time.Since(s.w.start)
		list = append(list, bide.WorkerInfo{ID: id, Queues: slices.Sorted(maps.Keys(x.queues)), Workflows: slices.Sorted(maps.Keys(x.workflows)),
			Max: int(x.max.Load()), Held: held[x], ExpiresAt: s.line.Now().Add(left).UTC()})
	}
	return list
}

// Purge implements [bide.Admin].
func (s *Store) Purge(ctx context.Context, run string) error {
	return s.do(ctx, &op{purge: true, run: run})
}

func (w *writer) purge(o *op) error {
	if err := w.begin(); err != nil {
		return err
	}
	k, err := w.resolve(o.run)
	if err != nil {
		return o.refused(err)
	}
	t, err := w.target(k)
	if err != nil {
		return o.refused(err)
	}
	if !t.state.Ended() {
		return o.refused(&bide.InvalidError{Field: "run", Reason: "is " + t.state.String() + "; cancel or terminate it before it is purged"})
	}
	for _, st := range []*sqlite.Stmt{w.st.purgeLabels, w.st.purge, w.st.purgeMail, w.st.clearRecs, w.st.clearChunks, w.st.dropPayload} {
		st.BindInt64(1, k)
		if err := w.exec(st); err != nil {
			return err
		}
	}
	w.tally[count{t.route.k, t.state}]--
	w.touched = append(w.touched, touch{id: t.id})
	return nil
}

// move notes that a run has gone from one state to another.
func (w *writer) move(r *route, from, to bide.State) {
	if from != to {
		w.tally[count{r.k, from}]--
		w.tally[count{r.k, to}]++
	}
}

// writeTally writes by how much the numbers have changed, one row for each.
func (w *writer) writeTally() error {
	for c, n := range w.tally {
		if n == 0 {
			continue
		}
		w.st.addTally.BindInt64(1, c.route)
		w.st.addTally.BindInt64(2, int64(c.state))
		w.st.addTally.BindInt64(3, n)
		if err := w.exec(w.st.addTally); err != nil {
			return err
		}
	}
	return nil
}

// count adds a committed transaction to the meter.
func (w *writer) count() {
	clear(w.tally)
	if w.inTx {
		w.s.meter.transactions.Add(1)
		w.s.meter.commits.Add(w.commits)
		w.s.meter.lost.Add(w.lost)
	}
	w.commits, w.lost = 0, 0
}
