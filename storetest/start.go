package storetest

import (
	"fmt"

	"github.com/bide-dev/bide"
)

var followCases = []testCase{
	{name: "follow/every-end", protects: "the run that follows an end is there as soon as the end is, however the first has ended",
		run: func(k *kit) {
			for _, s := range states {
				n := run("")
				n.Queue = "after " + s.String()
				k.onEnd = &n
				k.inState(s.String(), s)
				k.onEnd = nil
				got := k.query(bide.Query{Queue: n.Queue})
				if !s.Ended() {
					equal(k, "runs after "+s.String(), len(got), 0)
					continue
				}
				equal(k, "runs after "+s.String(), len(got), 1)
				r := k.get(got[0])
				equal(k, "parent", r.Parent, s.String())
				equal(k, "input", string(r.Input), string(n.Input))
			}
		}},
	{name: "follow/no-children", protects: "the run that follows is no child that the end cancels",
		run: func(k *kit) {
			n, next := run("a"), run("next")
			n.OnEnd = &next
			k.create(n)
			k.commit(k.turn("a"), bide.Batch{Start: []bide.NewRun{run("child")}, Next: bide.Done{}})
			k.state("child", bide.Canceling)
			k.state("next", bide.Queued)
			k.commit(k.turn("next"), bide.Batch{Next: bide.Done{}})
		}},
}

var keyCases = []testCase{
	{name: "key/once", protects: "of many starts with one key, at the same moment or later, one run comes, and each sender is told which",
		run: func(k *kit) {
			type answer struct {
				bide.Created
				err error
			}
			answers := make(chan answer)
			for range 20 {
				go func() {
					n := run("")
					n.Key, n.Print = "k", "p"
					c, err := k.s.Create(k.ctx(), []bide.NewRun{n})
					if err != nil {
						answers <- answer{err: err}
						return
					}
					answers <- answer{c[0], c[0].Err}
				}()
			}
			id, made := "", 0
			for range 20 {
				a := <-answers
				k.ok(a.err)
				if id != "" && a.ID != id {
					k.Errorf("one key gave the runs %s and %s", id, a.ID)
				}
				if id = a.ID; a.New {
					made++
				}
			}
			equal(k, "runs told to be new", made, 1)
			equal(k, "runs", k.query(bide.Query{}), []string{id})
			k.commit(k.take(asks("w", "unnamed"), 1)[0], bide.Batch{Next: bide.Done{}})
			n := run("")
			n.Key, n.Print = "k", "p"
			equal(k, "after its end", k.create(n), []string{id})
		}},
	{name: "key/other-print", protects: "a key that is used for something else is refused, and says whose it is",
		run: func(k *kit) {
			n := run("a")
			n.Key, n.Print = "k", "p"
			k.create(n)
			n.Print = "q"
			created, err := k.s.Create(k.ctx(), []bide.NewRun{n})
			k.ok(err)
			isAs[*bide.ConflictError](k, created[0].Err)
			equal(k, "id", created[0].ID, "a")
			equal(k, "runs", k.query(bide.Query{}), []string{"a"})
		}},
	{name: "key/many", protects: "keys are told apart, also in one call",
		run: func(k *kit) {
			var runs []bide.NewRun
			for i := range 6 {
				n := run("")
				n.Key, n.Print = fmt.Sprint("k", i%3), "p"
				runs = append(runs, n)
			}
			ids := k.create(runs...)
			for i := range 3 {
				equal(k, "second of its key", ids[i+3], ids[i])
			}
			equal(k, "runs", len(k.query(bide.Query{})), 3)
		}},
	{name: "key/trace", protects: "who started a run can be told from it",
		run: func(k *kit) {
			n := run("a")
			n.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
			k.create(n)
			equal(k, "trace handed out", k.turn("a").Run.Trace, n.Trace)
			equal(k, "trace", k.get("a").Trace, n.Trace)
		}},
	{name: "wake/all", protects: "who watches the whole store hears of every change: a new run, a commit, a message, an end",
		run: func(k *kit) {
			ch, stop := k.waker().Wake("", false)
			defer stop()
			k.quiet(ch, "nothing")
			k.create(run("a"))
			k.woken(ch, "", "a new run")
			c := k.turn("a")
			drain(ch)
			k.commit(c, bide.Batch{Progress: &bide.ProgressState{Percent: 1, UpdatedAt: now()}})
			k.woken(ch, "", "a commit")
			k.signal("a", message("m", `1`))
			k.woken(ch, "", "a message")
			k.commit(c, bide.Batch{Next: bide.Done{}})
			k.woken(ch, "", "an end")
			drain(ch)
			stop()
			k.create(run("b"))
			k.quiet(ch, "a store that it watches no more")
		}},
}
