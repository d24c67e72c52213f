package storetest

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/bide-dev/bide"
)

func child(id string, detached bool) bide.NewRun {
	n := run(id)
	n.Detached = detached
	return n
}

// asked reports whether the run has been asked to cancel, by what its turn sees.
func (k *kit) asked(id string) bool {
	k.Helper()
	c := k.turn(id)
	defer k.commit(c, bide.Batch{Seen: lastSeq(c.Inbox), Next: bide.Parked{}})
	return slices.ContainsFunc(c.Inbox, func(m bide.Message) bool { return m.Op == bide.OpCancel })
}

// childEnded takes the only message out of the inbox, which must say that the
// child is over.
func (k *kit) childEnded(inbox []bide.Message, id string) bide.Message {
	k.Helper()
	if len(inbox) != 1 || inbox[0].Op != bide.OpChildEnded || inbox[0].Name != id {
		k.Fatalf("the parent's inbox has %v, want one OpChildEnded of %q", names(inbox), id)
	}
	return inbox[0]
}

var childCases = []testCase{
	{name: "child/start", protects: "children are started in the commit that records them, know their parent, and are found by it",
		run: func(k *kit) {
			c := k.begin("p")
			n := child("p:1", false)
			n.Labels = map[string]string{"l": "v"}
			k.commit(c, bide.Batch{Records: []bide.Record{{Path: "1", Kind: bide.KindChild, At: now()}}, Start: []bide.NewRun{n, child("p:2", true)}})
			r := k.turn("p:1").Run
			equal(k, "parent", r.Parent, "p")
			equal(k, "labels", r.Labels, n.Labels)
			equal(k, "input", string(r.Input), string(n.Input))
			equal(k, "children", k.query(bide.Query{Parent: "p"}), []string{"p:2", "p:1"})
		}},
	{name: "child/result", protects: "a child's result reaches its parked parent and wakes it",
		run: func(k *kit) {
			k.commit(k.begin("p"), bide.Batch{Start: []bide.NewRun{child("p:1", false)}, Next: bide.Parked{}})
			c := k.turn("p:1")
			got := k.wakes(asks("w", "p"), func() { k.commit(c, bide.Batch{Next: bide.Done{Result: json.RawMessage(`{ "n": 9007199254740993 }`)}}) })
			m := k.childEnded(got[0].Inbox, "p:1")
			equal(k, "data", string(m.Data), `{ "n": 9007199254740993 }`)
			if m.Error != nil {
				k.Errorf("a child that succeeded gives the error %v", m.Error.Err())
			}
			sameTime(k, "message time", m.At, now())
		}},
	{name: "child/result-as-news", protects: "a child's end reaches a parent that is held, as news",
		run: func(k *kit) {
			p := k.begin("p")
			k.commit(p, bide.Batch{Start: []bide.NewRun{child("p:1", true)}})
			k.commit(k.turn("p:1"), bide.Batch{Next: bide.Done{Result: json.RawMessage(`1`)}})
			equal(k, "data", string(k.childEnded(k.news(p.Lease).Inbox, "p:1").Data), `1`)
		}},
	{name: "child/failure", protects: "a child that did not succeed tells its parent how and why: a RunError with the state, and the workflow's error in it",
		run: func(k *kit) {
			for _, s := range []bide.State{bide.Failed, bide.Canceled, bide.TimedOut, bide.Terminated} {
				p, id := s.String(), s.String()+":1"
				k.commit(k.begin(p), bide.Batch{Start: []bide.NewRun{child(id, false)}, Next: bide.Parked{}})
				if s == bide.Terminated {
					k.control(id, bide.OpTerminate)
				} else {
					k.commit(k.turn(id), bide.Batch{Next: bide.Ended{State: s, Error: bide.NewFailure(&bide.CodecError{Field: "f", Message: "m"})}})
				}
				err := k.childEnded(k.turn(p).Inbox, id).Error.Err()
				isAs[*bide.RunError](k, err)
				if e, ok := err.(*bide.RunError); ok {
					equal(k, "state", e.State, s)
					equal(k, "id", e.ID, id)
				}
				if s != bide.Terminated {
					isAs[*bide.CodecError](k, err)
				}
			}
		}},
	{name: "child/taken-id", protects: "a child whose id is taken by something else is an answer to the parent, not a wait without end",
		run: func(k *kit) {
			other := run("taken")
			other.Input = json.RawMessage(`"other"`)
			k.create(other)
			k.commit(k.begin("p"), bide.Batch{Records: []bide.Record{step("1", "s")}, Start: []bide.NewRun{child("taken", false)}, Next: bide.Parked{}})
			isAs[*bide.ConflictError](k, k.childEnded(k.turn("p").Inbox, "taken").Error.Err())
			equal(k, "history", paths(k.history("p")), []string{"1"})
			equal(k, "parent of the run that has the id", k.get("taken").Parent, "")
		}},
	{name: "child/stranger", protects: "a child whose id is that of a run like it but not of this parent gives an answer, now or at that run's end; a parent never waits for ever",
		run: func(k *kit) {
			k.commit(k.begin("ended"), bide.Batch{Next: bide.Done{Result: json.RawMessage(`7`)}})
			live := k.begin("live")
			k.commit(k.begin("p"), bide.Batch{Start: []bide.NewRun{child("ended", false)}, Next: bide.Parked{}})
			k.childEnded(k.turn("p").Inbox, "ended")
			k.commit(k.begin("q"), bide.Batch{Start: []bide.NewRun{child("live", false)}, Next: bide.Parked{}})
			k.commit(live, bide.Batch{Next: bide.Done{Result: json.RawMessage(`7`)}})
			k.childEnded(k.turn("q").Inbox, "live")
		}},
	{name: "child/own-ended-again", protects: "a retried parent that starts a child again gets the outcome of the child that it has, not a conflict with itself",
		run: func(k *kit) {
			p := k.begin("p")
			k.commit(p, bide.Batch{Start: []bide.NewRun{child("p:1", true)}})
			k.commit(k.turn("p:1"), bide.Batch{Next: bide.Done{Result: json.RawMessage(`7`)}})
			got := k.news(p.Lease).Inbox
			k.commit(p, bide.Batch{Consumed: []int64{got[0].Seq}, Seen: lastSeq(got), Next: bide.Ended{State: bide.Failed, Error: failure("x")}})
			k.control("p", bide.OpRetry)
			p = k.turn("p")
			k.commit(p, bide.Batch{Start: []bide.NewRun{child("p:1", true)}, Seen: lastSeq(p.Inbox), Next: bide.Parked{}})
			m := k.childEnded(k.turn("p").Inbox, "p:1")
			if m.Error != nil {
				k.Errorf("the child that is there answers with the error %v", m.Error.Err())
			}
			equal(k, "data", string(m.Data), `7`)
		}},
	{name: "child/own-live-again", protects: "a child that lives and is started again by its parent goes on, and answers once, at its end",
		run: func(k *kit) {
			p := k.begin("p")
			k.commit(p, bide.Batch{Start: []bide.NewRun{child("p:1", true)}})
			k.commit(p, bide.Batch{Start: []bide.NewRun{child("p:1", true)}, Next: bide.Parked{}})
			equal(k, "children", k.query(bide.Query{Parent: "p"}), []string{"p:1"})
			k.notDue("p")
			k.commit(k.turn("p:1"), bide.Batch{Next: bide.Done{Result: json.RawMessage(`7`)}})
			equal(k, "data", string(k.childEnded(k.turn("p").Inbox, "p:1").Data), `7`)
		}},
	{name: "child/ended-before-retry", protects: "a child that ends while its parent is over answers when the parent is retried; else the parent would wait for ever",
		run: func(k *kit) {
			p := k.begin("p")
			k.commit(p, bide.Batch{Start: []bide.NewRun{child("p:1", true)}, Next: bide.Ended{State: bide.Failed, Error: failure("x")},
				Records: []bide.Record{{Path: "1", Kind: bide.KindChild, Name: "w", Data: json.RawMessage(`{"child":"p:1"}`)}}})
			k.commit(k.turn("p:1"), bide.Batch{Next: bide.Done{Result: json.RawMessage(`7`)}})
			k.control("p", bide.OpRetry)
			equal(k, "data", string(k.childEnded(k.turn("p").Inbox, "p:1").Data), `7`)
		}},
	{name: "child/canceled-with-parent", protects: "when a parent ends, in whatever way, its children are asked to end too, unless they are detached",
		run: func(k *kit) {
			for name, end := range map[string]func(p bide.Claimed){
				"done": func(p bide.Claimed) { k.commit(p, bide.Batch{Next: bide.Done{}}) },
				"failed": func(p bide.Claimed) {
					k.commit(p, bide.Batch{Next: bide.Ended{State: bide.Failed, Error: failure("x")}})
				},
				"continued":  func(p bide.Claimed) { k.commit(p, bide.Batch{Next: bide.Continued{Input: json.RawMessage(`1`)}}) },
				"terminated": func(p bide.Claimed) { k.control(p.Run.ID, bide.OpTerminate) },
				"replaced": func(p bide.Claimed) {
					n := run(p.Run.ID)
					n.Conflict = bide.Replace
					k.create(n)
				},
			} {
				p := k.begin(name)
				ids := []string{name + ":parked", name + ":queued", name + ":held", name + ":detached"}
				for _, id := range ids {
					k.commit(p, bide.Batch{Start: []bide.NewRun{child(id, id == ids[3])}})
				}
				k.commit(k.turn(ids[0]), bide.Batch{Next: bide.Parked{}})
				held := k.turn(ids[2])
				k.commit(k.turn(ids[3]), bide.Batch{Next: bide.Parked{}})
				end(p)
				for _, id := range ids[:3] {
					k.state(id, bide.Canceling)
				}
				k.state(ids[3], bide.Waiting)
				k.notDue(ids[3])
				equal(k, "parked child sees the cancel", k.asked(ids[0]), true)
				equal(k, "queued child sees the cancel", k.asked(ids[1]), true)
				equal(k, "held child is told", names(k.news(held.Lease).Inbox), []string{"op 3"})
				k.commit(held, bide.Batch{Next: bide.Ended{State: bide.Canceled}})
			}
		}},
	{name: "child/of-replaced-parent", protects: "the children of a run that was replaced do not answer to the new run with its id",
		run: func(k *kit) {
			k.commit(k.begin("p"), bide.Batch{Start: []bide.NewRun{child("p:1", false), child("p:2", true)}, Next: bide.Parked{}})
			n := run("p")
			n.Conflict = bide.Replace
			k.create(n)
			k.commit(k.turn("p"), bide.Batch{Next: bide.Parked{}})
			k.commit(k.turn("p:1"), bide.Batch{Next: bide.Ended{State: bide.Canceled}})
			k.commit(k.turn("p:2"), bide.Batch{Next: bide.Done{}})
			k.notDue("p")
		}},
	{name: "child/started-at-the-end", protects: "a child started in the very commit that ends its parent is treated as any other",
		run: func(k *kit) {
			k.commit(k.begin("p"), bide.Batch{Start: []bide.NewRun{child("p:1", false), child("p:2", true)}, Next: bide.Done{}})
			k.state("p:1", bide.Canceling)
			k.state("p:2", bide.Queued)
			k.commit(k.turn("p:2"), bide.Batch{Next: bide.Done{}}) // nobody to tell: no harm
			k.state("p:2", bide.Succeeded)
		}},
	{name: "child/cancel", protects: "a turn can cancel children that it no longer wants; those that are over or unknown are passed over",
		run: func(k *kit) {
			p := k.begin("p")
			k.commit(p, bide.Batch{Start: []bide.NewRun{child("p:1", false), child("p:2", false), child("p:3", false)}})
			k.commit(k.turn("p:3"), bide.Batch{Next: bide.Done{}})
			k.commit(p, bide.Batch{Cancel: []string{"p:1", "p:3", "p:4"}})
			k.state("p:1", bide.Canceling)
			k.state("p:2", bide.Queued)
			k.state("p:3", bide.Succeeded)
			equal(k, "asked", k.asked("p:1"), true)
		}},
	{name: "child/end-after-parent", protects: "a child that ends after its parent does not stumble over it",
		run: func(k *kit) {
			p := k.begin("p")
			k.commit(p, bide.Batch{Start: []bide.NewRun{child("p:1", true)}})
			k.commit(p, bide.Batch{Next: bide.Done{}})
			time.Sleep(time.Second)
			k.commit(k.turn("p:1"), bide.Batch{Next: bide.Done{}})
			k.state("p", bide.Succeeded)
			k.notDue("p")
		}},
}
