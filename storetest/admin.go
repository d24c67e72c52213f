package storetest

import (
	"time"

	"github.com/bide-dev/bide"
)

// admin skips stores that have nothing for those who look after them.
func (k *kit) admin() bide.Admin {
	a, ok := k.s.(bide.Admin)
	if !ok {
		k.Skip("the store is no bide.Admin")
	}
	return a
}

// counts tells the runs of a queue by state.
func (k *kit) counts(queue string) map[bide.State]int64 {
	k.Helper()
	status, err := k.admin().Status(k.ctx())
	k.ok(err)
	by := map[bide.State]int64{}
	for _, c := range status.Counts {
		if c.Queue == queue {
			equal(k, "workflow", c.Workflow, workflow)
			by[c.State] += c.Runs
		}
	}
	return by
}

var adminCases = []testCase{
	{name: "admin/counts", protects: "runs are counted by the state that a reader of each would see, also after the store was closed",
		run: func(k *kit) {
			for _, s := range states {
				k.inState(s.String(), s)
				equal(k, s.String(), k.counts(s.String()), map[bide.State]int64{s: 1})
			}
			if k.door.Reopen == nil {
				return
			}
			k.reopen()
			for _, s := range states {
				want := s
				if s == bide.Running { // its worker is gone
					want = bide.Queued
				}
				equal(k, s.String()+", reopened", k.counts(s.String()), map[bide.State]int64{want: 1})
			}
		}},
	{name: "admin/queue", protects: "a queue that nobody serves shows how many wait and since when",
		run: func(k *kit) {
			since := now()
			for _, id := range []string{"1", "2", "3"} {
				n := run(id)
				n.Queue = "q"
				k.create(n)
				time.Sleep(time.Minute)
			}
			later := run("4")
			later.Queue, later.StartAt = "q", now().Add(time.Hour)
			k.create(later)
			equal(k, "counts", k.counts("q"), map[bide.State]int64{bide.Queued: 3, bide.Waiting: 1})
			status, err := k.admin().Status(k.ctx())
			k.ok(err)
			for _, c := range status.Counts {
				if c.State == bide.Queued {
					sameTime(k, "oldest", c.Oldest, since)
				}
			}
		}},
	{name: "admin/workers", protects: "a worker is known with what it serves and holds, until it leaves",
		run: func(k *kit) {
			a := k.admin()
			k.create(run("a"))
			c := k.take(asks("w", "a", "b"), 1)[0]
			status, err := k.admin().Status(k.ctx())
			k.ok(err)
			equal(k, "workers", len(status.Workers), 1)
			x := status.Workers[0]
			equal(k, "id", x.ID, "w")
			equal(k, "queues", x.Queues, []string{"a", "b"})
			equal(k, "workflows", x.Workflows, []string{workflow})
			equal(k, "held", x.Held, 1)
			if left := x.ExpiresAt.Sub(now()); left <= 0 || left > lease {
				k.Errorf("its leases lapse in %v, want at most %v", left, lease)
			}
			if status.Commits < 0 || status.Transactions < 1 {
				k.Errorf("%d commits in %d transactions", status.Commits, status.Transactions)
			}
			k.commit(c, bide.Batch{Next: bide.Done{}})
			k.leave("w")
			status, err = a.Status(k.ctx())
			k.ok(err)
			equal(k, "workers", len(status.Workers), 0)
		}},
	{name: "admin/purge", protects: "a run that has ended can be removed whole, one that lives cannot, and its id is free again",
		run: func(k *kit) {
			a := k.admin()
			k.is(a.Purge(k.ctx(), "none"), bide.ErrNotFound)
			for _, s := range states {
				id := s.String()
				k.inState(id, s)
				err := a.Purge(k.ctx(), id)
				if !s.Ended() {
					isAs[*bide.InvalidError](k, err)
					k.state(id, s)
					continue
				}
				k.ok(err)
				_, err = k.s.Run(k.ctx(), id)
				k.is(err, bide.ErrNotFound)
				_, err = k.s.History(k.ctx(), id, 0, 0)
				k.is(err, bide.ErrNotFound)
				equal(k, "counts of "+id, k.counts(id), map[bide.State]int64{})
				k.create(run(id))
				equal(k, "inbox of its successor", len(k.take(asks("successor of "+id, id), 1)[0].Inbox), 0)
				equal(k, "history of its successor", len(k.history(id)), 0)
			}
		}},
}
