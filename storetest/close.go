package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
)

// all reads every run, page by page.
func (k *kit) all() (runs []bide.Run) {
	k.Helper()
	for q := (bide.Query{Limit: 100}); ; {
		page, err := k.s.Runs(k.ctx(), q)
		k.ok(err)
		for _, r := range page {
			runs = append(runs, k.get(r.ID))
		}
		if len(page) < q.Limit {
			return runs
		}
		q.Before = page[len(page)-1].ID
	}
}

var closeCases = []testCase{
	{name: "close/later-calls", protects: "a closed store says that it is closed, whatever is asked",
		run: func(k *kit) {
			c := k.begin("a")
			k.ok(k.s.Close())
			_, err := k.s.Create(k.ctx(), []bide.NewRun{run("b")})
			k.is(err, bide.ErrClosed)
			_, err = k.claim(asks("w", "a"), time.Second)
			k.is(err, bide.ErrClosed)
			k.is(k.s.Commit(k.ctx(), c.Lease, bide.Batch{Records: []bide.Record{step("1", "s")}}), bide.ErrClosed)
			k.is(k.s.Commit(k.ctx(), bide.Lease{Worker: c.Worker}, bide.Batch{Next: bide.Parked{}}), bide.ErrClosed)
			_, err = k.s.Signal(k.ctx(), "a", message("m", `1`))
			k.is(err, bide.ErrClosed)
			k.is(k.s.Control(k.ctx(), "a", bide.Command{Op: bide.OpCancel}), bide.ErrClosed)
			_, err = k.s.Run(k.ctx(), "a")
			k.is(err, bide.ErrClosed)
			_, err = k.s.Runs(k.ctx(), bide.Query{})
			k.is(err, bide.ErrClosed)
			_, err = k.s.History(k.ctx(), "a", 0, 0)
			k.is(err, bide.ErrClosed)
			_, err = k.s.Facts(k.ctx(), "kind")
			k.is(err, bide.ErrClosed)
			k.is(k.s.Commit(k.ctx(), bide.Lease{}, bide.Batch{Facts: []bide.Fact{fact("a", 0, `1`)}}), bide.ErrClosed)
		}},
	{name: "close/twice", protects: "closing twice is no harm",
		run: func(k *kit) {
			k.ok(k.s.Close())
			k.anyOf(k.s.Close(), bide.ErrClosed)
		}},
	{name: "close/blocked-claim", protects: "a worker that waits in Claim learns that the store is closed, so that its process can end",
		run: func(k *kit) {
			failed := make(chan error, 1)
			go func() {
				_, err := k.claim(asks("w", "a"), time.Hour)
				failed <- err
			}()
			synctest.Wait()
			began := time.Now()
			k.ok(k.s.Close())
			k.is(<-failed, bide.ErrClosed)
			if d := time.Since(began); d > soon {
				k.Errorf("Claim returned %v after the close", d)
			}
		}},
	{name: "close/under-load", protects: "a commit that races with the close is either durable or refused", lasting: true,
		run: func(k *kit) {
			const runs = 30
			done := make([]int, runs)
			var leases []bide.Claimed
			for i := range runs {
				leases = append(leases, k.begin(fmt.Sprint(i)))
			}
			var wg sync.WaitGroup
			for i, c := range leases {
				wg.Go(func() {
					for {
						err := k.s.Commit(k.ctx(), c.Lease, bide.Batch{Records: []bide.Record{step(fmt.Sprint(done[i]+1), "s")}})
						if err != nil {
							k.is(err, bide.ErrClosed)
							return
						}
						if done[i]++; done[i] > 100_000 {
							k.Error("the store does not close")
							return
						}
					}
				})
			}
			k.ok(k.s.Close())
			wg.Wait()
			k.reopen()
			for i, n := range done {
				equal(k, fmt.Sprint("records of run ", i), len(k.history(fmt.Sprint(i))), n)
			}
		}},
	{name: "reopen/everything", protects: "what was acknowledged is there when the store is opened again, in every state and field", lasting: true,
		run: func(k *kit) {
			for _, s := range states {
				k.inState(s.String(), s)
			}
			n := run("full")
			n.Labels, n.Deadline = map[string]string{"a": "b"}, now().Add(24*time.Hour)
			k.create(n)
			k.commit(k.turn("full"), full("full"))
			k.commit(k.begin("asleep"), bide.Batch{Next: bide.Parked{WakeAt: now().Add(time.Hour)}})
			k.commit(k.begin("again"), bide.Batch{Next: bide.Continued{Input: json.RawMessage(`2`)}})
			k.inState("retried", bide.Failed)
			k.control("retried", bide.OpRetry)
			before := k.all()
			histories := map[string][]bide.Record{}
			for _, r := range before {
				histories[r.ID] = k.history(r.ID)
			}
			for range 2 {
				k.reopen()
				after := k.all()
				if len(after) != len(before) {
					k.Fatalf("%d runs after opening again, %d before", len(after), len(before))
				}
				for i, r := range after {
					old := before[i]
					if old.ID == "running" || old.ID == "full" { // were in hand
						equal(k, "state of "+r.ID, r.State, bide.Queued)
						r.State, r.Waiting, old.Waiting = old.State, nil, nil
					}
					if r.Version < old.Version {
						k.Errorf("version of %s went back from %d to %d", r.ID, old.Version, r.Version)
					}
					equal(k, "seed of "+r.ID, r.Seed, old.Seed)
					r.Version = old.Version
					sameJSON(k, r.ID, r, old)
					sameJSON(k, "history of "+r.ID, k.history(r.ID), histories[r.ID])
				}
			}
			equal(k, "by label", k.query(bide.Query{Labels: n.Labels}), []string{"full"})
			equal(k, "children", k.query(bide.Query{Parent: "full"}), []string{"full:child"})
		}},
	{name: "reopen/in-flight", protects: "runs that were in flight go on at once, by whoever comes, and know that steps may have begun", lasting: true,
		run: func(k *kit) {
			first := k.begin("first turn")
			k.commit(first, bide.Batch{Records: []bide.Record{step("1", "s")}})
			later := k.begin("later turn")
			k.commit(later, bide.Batch{Records: []bide.Record{step("1", "s")}, Next: bide.Parked{WakeAt: now()}})
			later = k.turn("later turn")
			k.commit(later, bide.Batch{Records: []bide.Record{step("2", "s")}})
			woken := k.begin("woken by a signal")
			k.commit(woken, bide.Batch{Records: []bide.Record{step("1", "s")}, Next: bide.Parked{WakeAt: now().Add(100 * time.Hour)}})
			k.signal("woken by a signal", message("m", `1`))
			woken = k.turn("woken by a signal")
			k.commit(woken, bide.Batch{Seen: lastSeq(woken.Inbox), Consumed: []int64{woken.Inbox[0].Seq}, Records: []bide.Record{step("2", "s")}})
			waits := k.begin("only waits")
			k.commit(waits, bide.Batch{Waiting: &[]bide.Wait{{Path: "1", Kind: bide.KindPoll, Name: "p"}}, Started: now()})
			untouched := k.begin("nothing committed")
			k.reopen()
			for _, c := range []bide.Claimed{first, later, woken, waits, untouched} {
				id := c.Run.ID
				k.refused(c.Lease)
				began := time.Now()
				next := k.turn(id)
				if d := time.Since(began); d > soon {
					k.Errorf("%q was handed out after %v", id, d)
				}
				if id != "nothing committed" { // there nothing can have begun
					equal(k, "interrupted, "+id, next.Interrupted, true)
				}
				if next.Epoch == c.Epoch {
					k.Errorf("%q has the epoch of before", id)
				}
				k.refused(c.Lease)
				k.commit(next, bide.Batch{Next: bide.Done{}})
			}
		}},
	{name: "reopen/at-rest", protects: "runs that were not in flight are as they were: asleep until their time, waiting, paused, queued, and not interrupted", lasting: true,
		run: func(k *kit) {
			k.commit(k.begin("asleep"), bide.Batch{Records: []bide.Record{step("1", "s")}, Next: bide.Parked{WakeAt: now().Add(2 * time.Hour)}})
			k.commit(k.begin("waiting"), bide.Batch{Records: []bide.Record{step("1", "s")}, Next: bide.Parked{}})
			c := k.begin("seen")
			k.signal("seen", message("old", `1`))
			k.commit(c, bide.Batch{Seen: lastSeq(k.news(c.Lease).Inbox), Next: bide.Parked{}})
			k.commit(k.begin("due"), bide.Batch{Records: []bide.Record{step("1", "s")}, Next: bide.Parked{WakeAt: now().Add(time.Second)}})
			time.Sleep(time.Second)
			k.inState("paused", bide.Paused)
			k.create(run("queued"))
			n := run("delayed")
			n.StartAt = now().Add(time.Hour)
			k.create(n)
			given := k.begin("given back")
			k.ok(k.s.Commit(k.ctx(), bide.Lease{Worker: given.Worker}, bide.Batch{Next: bide.Parked{}}))
			k.reopen()
			began := time.Now()
			not := func(id string) {
				equal(k, "interrupted, "+id, k.turn(id).Interrupted, false)
			}
			not("due")
			not("queued")
			k.turn("given back")
			k.idle(asks("w", "asleep", "waiting", "seen", "paused", "delayed"), 50*time.Minute)
			time.Sleep(10 * time.Minute)
			not("delayed")
			k.notDue("waiting")
			for time.Since(began) < 2*time.Hour-time.Second {
				k.idle(asks("w", "asleep"), time.Until(began.Add(2*time.Hour-time.Second)))
			}
			time.Sleep(time.Second)
			not("asleep")
			k.signal("waiting", message("m", `1`))
			not("waiting")
			k.signal("seen", message("new", `1`))
			equal(k, "inbox", names(k.turn("seen").Inbox), []string{"old", "new"})
			k.control("paused", bide.OpResume)
			k.signal("paused", message("m", `1`))
			not("paused")
		}},
	{name: "reopen/inbox", protects: "messages, their order, their keys and what has been taken up outlive the process", lasting: true,
		run: func(k *kit) {
			k.create(run("a"))
			for _, n := range []string{"m1", "m2", "m3"} {
				k.signal("a", bide.Message{Name: n, Key: n, Data: json.RawMessage(`"` + n + `"`)})
			}
			c := k.turn("a")
			k.commit(c, bide.Batch{Consumed: []int64{c.Inbox[1].Seq}, Seen: lastSeq(c.Inbox), Next: bide.Parked{}})
			k.reopen()
			for _, n := range []string{"m1", "m2", "m3"} {
				k.signal("a", bide.Message{Name: "dropped", Key: n})
			}
			k.notDue("a")
			k.signal("a", message("m4", `1`))
			next := k.turn("a")
			equal(k, "inbox", names(next.Inbox), []string{"m1", "m3", "m4"})
			if next.Inbox[2].Seq <= c.Inbox[2].Seq {
				k.Errorf("message number %d after %d", next.Inbox[2].Seq, c.Inbox[2].Seq)
			}
		}},
	{name: "reopen/children", protects: "a family outlives the process: results reach the parent, cancels the children", lasting: true,
		run: func(k *kit) {
			p := k.begin("p")
			k.commit(p, bide.Batch{Start: []bide.NewRun{child("p:1", false), child("p:2", false), child("p:3", true)}, Next: bide.Parked{}})
			k.reopen()
			k.commit(k.turn("p:1"), bide.Batch{Next: bide.Done{Result: json.RawMessage(`1`)}})
			k.reopen()
			p = k.turn("p")
			k.childEnded(p.Inbox, "p:1")
			k.commit(p, bide.Batch{Next: bide.Done{}})
			k.reopen()
			k.state("p:2", bide.Canceling)
			k.state("p:3", bide.Queued)
			equal(k, "asked", k.asked("p:2"), true)
		}},
	{name: "reopen/numbers", protects: "ids, record numbers, epochs and versions go on where they were, so that nothing old passes for new", lasting: true,
		run: func(k *kit) {
			epochs, ids, seq, version := map[int64]bool{}, map[string]bool{}, int64(0), int64(0)
			k.create(run("a"))
			for i := range 4 {
				c := k.turn("a")
				if epochs[c.Epoch] {
					k.Errorf("epoch %d came twice", c.Epoch)
				}
				epochs[c.Epoch] = true
				id := k.create(run(""))[0]
				if ids[id] {
					k.Errorf("id %s was made twice", id)
				}
				ids[id] = true
				k.commit(c, bide.Batch{Records: []bide.Record{step(fmt.Sprint(i), "s")}, Next: bide.Parked{WakeAt: now()}})
				h := k.history("a")
				if last := h[len(h)-1].Seq; last <= seq {
					k.Errorf("Seq %d after %d", last, seq)
				} else {
					seq = last
				}
				if v := k.get("a").Version; v <= version {
					k.Errorf("version %d after %d", v, version)
				} else {
					version = v
				}
				k.reopen()
			}
			equal(k, "history", paths(k.history("a")), []string{"0", "1", "2", "3"})
			created, err := k.s.Create(k.ctx(), []bide.NewRun{run("a")})
			k.ok(errors.Join(err, created[0].Err))
			equal(k, "new", created[0].New, false)
		}},
}
