package storetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/bide-dev/bide"
)

var readCases = []testCase{
	{name: "read/not-found", protects: "reading a run that does not exist says so",
		run: func(k *kit) {
			k.create(run("a"))
			for _, id := range []string{"b", "", "A", "a "} {
				_, err := k.s.Run(k.ctx(), id)
				k.is(err, bide.ErrNotFound)
				_, err = k.s.History(k.ctx(), id, 0, 0)
				k.is(err, bide.ErrNotFound)
			}
		}},
	{name: "read/state", protects: "a run's state follows from what has happened to it, the same in Run, in Runs and in the filter",
		run: func(k *kit) {
			for _, s := range states {
				k.inState(s.String(), s)
			}
			for _, s := range states {
				page, err := k.s.Runs(k.ctx(), bide.Query{States: []bide.State{s}})
				k.ok(err)
				if len(page) != 1 || page[0].ID != s.String() || page[0].State != s {
					k.Errorf("runs that are %s: %s", s, short(page))
				}
			}
			equal(k, "two states", k.query(bide.Query{States: []bide.State{bide.Failed, bide.Queued}}), []string{"failed", "queued"})
			equal(k, "all", len(k.query(bide.Query{})), len(states))
		}},
	{name: "read/state-moves", protects: "a run goes from waiting to queued by time alone, for every reader",
		run: func(k *kit) {
			k.commit(k.begin("a"), bide.Batch{Next: bide.Parked{WakeAt: now().Add(time.Minute)}})
			k.state("a", bide.Waiting)
			equal(k, "waiting", k.query(bide.Query{States: []bide.State{bide.Waiting}}), []string{"a"})
			time.Sleep(time.Minute)
			k.state("a", bide.Queued)
			equal(k, "waiting, later", len(k.query(bide.Query{States: []bide.State{bide.Waiting}})), 0)
			equal(k, "queued, later", k.query(bide.Query{States: []bide.State{bide.Queued}}), []string{"a"})
		}},
	{name: "read/version", protects: "each commit to a run moves its version, by which watchers and caches notice",
		run: func(k *kit) {
			c := k.begin("a")
			version := k.get("a").Version
			for i, b := range []bide.Batch{
				{Records: []bide.Record{step("1", "s")}},
				{Progress: &bide.ProgressState{Percent: 1, UpdatedAt: now()}},
				{Values: map[string]json.RawMessage{"a": json.RawMessage(`1`)}},
				{Waiting: &[]bide.Wait{{Path: "2", Kind: bide.KindPoll}}},
				{Records: []bide.Record{step("2", "s")}, Next: bide.Parked{WakeAt: now()}},
				{Next: bide.Continued{Input: json.RawMessage(`2`)}},
				{Next: bide.Done{}},
			} {
				if i > 4 {
					c = k.turn("a")
				}
				k.commit(c, b)
				v := k.get("a").Version
				if v <= version {
					k.Errorf("version %d after commit %d, %d before", v, i, version)
				}
				version = v
				k.get("a")
				equal(k, "version read twice", k.get("a").Version, version)
			}
		}},
	{name: "read/fresh", protects: "what has been acknowledged is seen by the next read, whoever reads",
		run: func(k *kit) {
			c := k.begin("a")
			for i := range 50 {
				k.commit(c, bide.Batch{Records: []bide.Record{step(fmt.Sprint(i), "s")}, Progress: &bide.ProgressState{Percent: float64(i), UpdatedAt: now()}})
				equal(k, "records", len(k.history("a")), i+1)
				equal(k, "percent", k.get("a").Progress.Percent, float64(i))
			}
		}},
	{name: "runs/filters", protects: "each field of a query selects by itself and together with the others",
		run: func(k *kit) {
			parent := k.begin("parent")
			add := func(id, workflow, queue string, labels map[string]string) {
				k.create(bide.NewRun{ID: id, Workflow: workflow, Queue: queue, Input: json.RawMessage(`1`), Labels: labels})
			}
			add("r1", "wf1", "q1", map[string]string{"team": "a", "env": "prod"})
			add("r2", "wf2", "q1", map[string]string{"team": "b", "env": "prod"})
			add("r_3", "wf1", "q2", map[string]string{"team": "a"})
			add("R1", "wf2", "q2", map[string]string{`te.am"'%`: `a"'`, "other": "team"})
			k.commit(parent, bide.Batch{Start: []bide.NewRun{{ID: "child", Workflow: "wf1", Queue: "q1", Input: json.RawMessage(`1`)}}})
			for _, c := range []struct {
				q    bide.Query
				want []string
			}{
				{bide.Query{Workflow: "wf1"}, []string{"child", "r_3", "r1"}},
				{bide.Query{Queue: "q1"}, []string{"child", "r2", "r1"}},
				{bide.Query{Parent: "parent"}, []string{"child"}},
				{bide.Query{Parent: "r1"}, nil},
				{bide.Query{IDPrefix: "r"}, []string{"r_3", "r2", "r1"}},
				{bide.Query{IDPrefix: "r_"}, []string{"r_3"}},
				{bide.Query{IDPrefix: "%"}, nil},
				{bide.Query{IDPrefix: "r1"}, []string{"r1"}},
				{bide.Query{Labels: map[string]string{"team": "a"}}, []string{"r_3", "r1"}},
				{bide.Query{Labels: map[string]string{"team": "a", "env": "prod"}}, []string{"r1"}},
				{bide.Query{Labels: map[string]string{`te.am"'%`: `a"'`}}, []string{"R1"}},
				{bide.Query{Labels: map[string]string{"team": ""}}, nil},
				{bide.Query{Labels: map[string]string{"te": "a"}}, nil},
				{bide.Query{Workflow: "wf1", Queue: "q1"}, []string{"child", "r1"}},
				{bide.Query{Workflow: "wf1", Queue: "q1", Labels: map[string]string{"team": "a"}, IDPrefix: "r", States: []bide.State{bide.Queued}}, []string{"r1"}},
				{bide.Query{States: []bide.State{bide.Running}}, []string{"parent"}},
				{bide.Query{Workflow: "none"}, nil},
				{bide.Query{Queue: "q1", Before: "r2"}, []string{"r1"}},
				{bide.Query{Queue: "q1", Limit: 2}, []string{"child", "r2"}},
			} {
				equal(k, fmt.Sprintf("%+v", c.q), k.query(c.q), c.want)
			}
		}},
	{name: "runs/lean", protects: "a page of runs has what a list shows, and not megabytes of inputs and results",
		run: func(k *kit) {
			c := k.begin("a")
			b := full("a")
			b.Start = nil
			k.commit(c, b)
			k.commit(c, bide.Batch{Next: bide.Done{Result: json.RawMessage(`1`)}})
			page, err := k.s.Runs(k.ctx(), bide.Query{})
			k.ok(err)
			if len(page) != 1 || page[0].Input != nil || page[0].Result != nil || page[0].Values != nil {
				k.Fatalf("got %s, want one run without input, result and values", short(page))
			}
			want := k.get("a")
			want.Input, want.Result, want.Values = nil, nil, nil
			sameJSON(k, "the run in the page", page[0], want)
		}},
	{name: "runs/pages", protects: "paging visits each run once, newest first, while others are created",
		run: func(k *kit) {
			want := []string{}
			for i := range 35 {
				want = append(want, k.create(run(fmt.Sprint("old", i)))...)
				if i%3 == 0 {
					time.Sleep(time.Millisecond) // some share their time, some do not
				}
			}
			slices.Reverse(want)
			var got []string
			q := bide.Query{Limit: 10}
			for page := 0; ; page++ {
				ids := k.query(q)
				got = append(got, ids...)
				if len(ids) < q.Limit {
					break
				}
				if page > 10 {
					k.Fatalf("paging does not end: %v", got)
				}
				q.Before = ids[len(ids)-1]
				k.create(run(fmt.Sprint("new", page)), run(""))
			}
			equal(k, "all pages", got, want)
		}},
	{name: "runs/limit", protects: "a page has 50 runs unless asked otherwise, and never more than 1,000",
		run: func(k *kit) {
			runs := make([]bide.NewRun, 1005)
			for i := range runs {
				runs[i] = run("")
				runs[i].Queue = "q"
			}
			k.create(runs...)
			equal(k, "default", len(k.query(bide.Query{})), 50)
			equal(k, "one", len(k.query(bide.Query{Limit: 1})), 1)
			equal(k, "most", len(k.query(bide.Query{Limit: 1000})), 1000)
			page, err := k.s.Runs(k.ctx(), bide.Query{Limit: 5000})
			k.anyOf(err)
			if len(page) > 1000 {
				k.Errorf("a page of %d runs", len(page))
			}
		}},
	{name: "history/after", protects: "a history can be read on from any record, and in pieces",
		run: func(k *kit) {
			c, other := k.begin("a"), k.begin("b")
			for i := range 10 {
				k.commit(c, bide.Batch{Records: []bide.Record{step(fmt.Sprint(i), "s")}})
				k.commit(other, bide.Batch{Records: []bide.Record{step("x", "s")}})
			}
			all := k.history("a")
			var got []bide.Record
			for after := int64(0); ; {
				h, err := k.s.History(k.ctx(), "a", after, 3)
				k.ok(err)
				if len(h) == 0 {
					break
				}
				if len(h) > 3 {
					k.Fatalf("%d records with a limit of 3", len(h))
				}
				got = append(got, h...)
				after = h[len(h)-1].Seq
			}
			sameJSON(k, "in pieces", got, all)
			h, err := k.s.History(k.ctx(), "a", all[6].Seq, 0)
			k.ok(err)
			equal(k, "after the 7th", paths(h), []string{"7", "8", "9"})
			h, err = k.s.History(k.ctx(), "a", all[9].Seq, 0)
			k.ok(err)
			equal(k, "after the last", len(h), 0)
		}},
	{name: "history/long", protects: "a long history comes whole, to readers and to the next turn",
		run: func(k *kit) {
			c := k.begin("a")
			for i := range 3 {
				b := bide.Batch{Records: make([]bide.Record, 1000)}
				for j := range b.Records {
					b.Records[j] = step(fmt.Sprint(1000*i+j+1), "s")
				}
				k.commit(c, b)
			}
			k.commit(c, bide.Batch{Next: bide.Parked{WakeAt: now()}})
			equal(k, "history", len(k.history("a")), 3000)
			equal(k, "history at claim", len(k.turn("a").History), 3000)
		}},
}
