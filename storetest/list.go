package storetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/bide-dev/bide"
)

// crowd makes runs of two workflows in three queues, with labels and some with ids and
// parents, and does to them what a seeded player comes upon.
func (k *kit) crowd(rng *rand.Rand, n int) {
	k.Helper()
	for i := range n {
		x := bide.NewRun{Workflow: workflow, Queue: fmt.Sprintf("q%d", rng.IntN(3)), Input: []byte(`1`)}
		if rng.IntN(4) == 0 {
			x.Workflow = "other"
		}
		if rng.IntN(2) == 0 {
			x.ID = fmt.Sprintf("%c%03d", 'a'+rng.IntN(3), i)
		}
		for _, name := range []string{"team", "env", "a=b"} {
			if rng.IntN(3) == 0 {
				if x.Labels == nil {
					x.Labels = map[string]string{}
				}
				x.Labels[name] = string(rune('x' + rng.IntN(2)))
			}
		}
		if rng.IntN(5) == 0 {
			x.StartAt = now().Add(time.Hour)
		}
		k.create(x)
	}
	claim := asks("crowd", "q0", "q1", "q2")
	claim.Max = 100
	for _, c := range k.take(claim, 100) {
		b := bide.Batch{}
		switch rng.IntN(6) {
		case 0:
			b.Next = bide.Done{}
		case 1:
			b.Next = bide.Ended{State: []bide.State{bide.Failed, bide.Canceled, bide.TimedOut}[rng.IntN(3)], Error: &bide.Failure{Message: "no"}}
		case 2:
			b.Waiting, b.Next = &[]bide.Wait{{Path: "1", Kind: bide.KindReceive, Name: "s"}}, bide.Parked{}
		case 3:
			b.Waiting, b.Next = &[]bide.Wait{{Path: "1", Kind: bide.KindSleep}}, bide.Parked{WakeAt: now().Add(time.Hour)}
		case 4:
			b.Start = []bide.NewRun{{ID: "child of " + c.Run.ID, Workflow: workflow, Queue: "children", Input: []byte(`1`), Labels: map[string]string{"team": "x"}}}
		case 5:
			b.Waiting = &[]bide.Wait{{Path: "1", Kind: bide.KindSleep}} // in hand
		}
		k.commit(c, b)
	}
	for _, run := range k.all() {
		op := []bide.Op{0, 0, 0, 0, bide.OpPause, bide.OpResume, bide.OpCancel, bide.OpTerminate, bide.OpRetry}[rng.IntN(9)]
		if op != 0 {
			_ = k.s.Control(k.ctx(), run.ID, bide.Command{Op: op}) // some are in no state for it
		}
		if rng.IntN(10) == 0 {
			_ = k.admin().Purge(k.ctx(), run.ID)
		}
	}
}

var listCases = []testCase{
	{name: "list/any", protects: "whatever is asked for, a list has the runs that a look at each would select, in the same order, page by page; and the counts are theirs",
		run: func(k *kit) {
			k.admin()
			rng := rand.New(rand.NewPCG(1, 1))
			k.crowd(rng, 250)
			for range 2 {
				all := k.all()
				type place struct {
					queue, workflow string
					state           bide.State
				}
				want, got := map[place]int64{}, map[place]int64{}
				for _, run := range all {
					want[place{run.Queue, run.Workflow, run.State}]++
				}
				status, err := k.admin().Status(k.ctx())
				k.ok(err)
				for _, c := range status.Counts {
					got[place{c.Queue, c.Workflow, c.State}] += c.Runs
				}
				equal(k, "counts", got, want)
				for range 150 {
					q := anyQuery(rng, all)
					var ids, listed []string
					for i := range all {
						if q.Match(&all[i]) {
							ids = append(ids, all[i].ID)
						}
					}
					q.Limit = 1 + rng.IntN(60)
					for page := q; ; page.Before = listed[len(listed)-1] {
						some := k.query(page)
						listed = append(listed, some...)
						if len(some) < q.Limit {
							break
						}
					}
					equal(k, fmt.Sprintf("%+v", q), listed, ids)
				}
				k.leave("crowd")
				time.Sleep(2 * time.Hour) // who slept is due
			}
		}},
	{name: "list/many", protects: "what few of many thousands are is found as well",
		run: func(k *kit) {
			many := make([]bide.NewRun, 5000)
			for i := range many {
				many[i] = run("")
				many[i].Queue, many[i].StartAt = "q", now().Add(time.Hour)
			}
			k.create(run("old"))
			k.create(many[:2500]...)
			k.create(run("due"))
			k.create(many[2500:]...)
			equal(k, "queued", k.query(bide.Query{States: []bide.State{bide.Queued}}), []string{"due", "old"})
			equal(k, "waiting", len(k.query(bide.Query{States: []bide.State{bide.Waiting}, Limit: 1000})), 1000)
			equal(k, "waiting, before", len(k.query(bide.Query{States: []bide.State{bide.Waiting}, Before: "due", Limit: 1000})), 1000)
			equal(k, "waiting, at the end", k.query(bide.Query{States: []bide.State{bide.Waiting}, Before: "old"}), []string(nil))
			equal(k, "of a prefix", k.query(bide.Query{IDPrefix: "o"}), []string{"old"})
			equal(k, "counts", k.counts("q"), map[bide.State]int64{bide.Waiting: 5000})
			time.Sleep(time.Hour)
			equal(k, "counts, later", k.counts("q"), map[bide.State]int64{bide.Queued: 5000})
			equal(k, "waiting, later", k.query(bide.Query{States: []bide.State{bide.Waiting}}), []string(nil))
		}},
}

// anyQuery asks for what some of the runs have.
func anyQuery(rng *rand.Rand, all []bide.Run) (q bide.Query) {
	like := all[rng.IntN(len(all))]
	if rng.IntN(3) == 0 {
		q.Workflow = like.Workflow
	}
	if rng.IntN(3) == 0 {
		q.Queue = like.Queue
	}
	if rng.IntN(5) == 0 {
		q.Parent = like.Parent
	}
	if rng.IntN(3) == 0 {
		q.IDPrefix = like.ID[:rng.IntN(len(like.ID)+1)]
	}
	if rng.IntN(20) == 0 {
		q.IDPrefix = strings.ToUpper(like.ID)
	}
	if rng.IntN(3) == 0 {
		q.Labels = maps.Clone(like.Labels)
	}
	for rng.IntN(2) == 0 {
		q.States = append(q.States, bide.State(1+rng.IntN(10)))
	}
	return q
}
