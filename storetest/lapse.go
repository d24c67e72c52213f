package storetest

import (
	"sync"
	"time"

	"github.com/bide-dev/bide"
)

// lapseCases are of leases that end without a word.
var lapseCases = []testCase{
	{name: "claim/lapse", protects: "the runs of a worker that has died go to another, which is told that steps may have begun; the dead one cannot write any more",
		run: func(k *kit) {
			k.create(run("a"))
			c := asks("dies", "a")
			c.TTL = 30 * time.Second
			dead := k.take(c, 1)[0]
			began := time.Now()
			k.idle(asks("heir", "a"), 29*time.Second)
			heir := k.take(asks("heir", "a"), 1)[0]
			if time.Since(began) > time.Minute {
				k.Fatalf("the lease of 30s was handed on after %v", time.Since(began))
			}
			equal(k, "interrupted", heir.Interrupted, true)
			if heir.Epoch == dead.Epoch {
				k.Error("the heir has the epoch of the dead worker")
			}
			k.refused(dead.Lease)
			k.commit(heir, bide.Batch{Records: []bide.Record{step("1", "heir")}, Next: bide.Done{}})
			k.refused(dead.Lease)
			equal(k, "history", paths(k.history("a")), []string{"1"})
		}},
	{name: "claim/let-go", protects: "what a worker gives back that was cut off is due at once, and who takes it is told that steps may have begun",
		run: func(k *kit) {
			k.create(run("a"))
			let := k.take(asks("cut-off", "a"), 1)[0]
			k.ok(k.s.Commit(k.ctx(), bide.Lease{Worker: "cut-off"}, bide.Batch{Next: bide.Parked{Interrupted: true}}))
			k.refused(let.Lease)
			heir := k.take(asks("heir", "a"), 1)[0]
			equal(k, "interrupted", heir.Interrupted, true)
		}},
	{name: "claim/lapse-wakes", protects: "a worker that waits in Claim gets the runs of one that dies meanwhile",
		run: func(k *kit) {
			k.create(run("a"))
			c := asks("dies", "a")
			c.TTL = 30 * time.Second
			k.take(c, 1)
			got, took := k.whileBlocked(asks("heir", "a"), func() {})
			equal(k, "interrupted", got[0].Interrupted, true)
			if took > time.Minute {
				k.Errorf("the lease of 30s was handed on after %v", took)
			}
		}},
	{name: "claim/lapse-state", protects: "a run whose worker has died is not shown as running for ever",
		run: func(k *kit) {
			k.create(run("a"))
			c := asks("dies", "a")
			c.TTL = 30 * time.Second
			k.take(c, 1)
			k.state("a", bide.Running)
			time.Sleep(2 * time.Minute)
			k.state("a", bide.Queued)
			equal(k, "queued runs", k.query(bide.Query{States: []bide.State{bide.Queued}}), []string{"a"})
		}},
	{name: "claim/lapse-then-back", protects: "a worker that was away longer than its leases last gets its runs anew, with a new epoch",
		run: func(k *kit) {
			k.create(run("a"))
			c := asks("w", "a")
			c.TTL = 30 * time.Second
			before := k.take(c, 1)[0]
			time.Sleep(5 * time.Minute)
			k.idle(asks("only makes the store look", "nothing"), time.Second)
			again := k.take(c, 1)[0]
			if again.Epoch == before.Epoch {
				k.Error("the lapsed lease came back with the same epoch")
			}
			equal(k, "interrupted", again.Interrupted, true)
			k.refused(before.Lease)
		}},
	{name: "claim/wait-outlasts-lease", protects: "a worker that waits in Claim for longer than its leases last, as after its machine was suspended, is still there for the next run",
		run: func(k *kit) {
			c := asks("w", "a")
			c.TTL = 30 * time.Second
			claimed := make(chan []bide.Claimed, 1)
			go func() {
				got, _ := k.claim(c, time.Hour)
				claimed <- got
			}()
			time.Sleep(5 * time.Minute)
			k.create(run("a"))
			if got := <-claimed; len(got) != 1 || got[0].Run.ID != "a" {
				k.Errorf("the worker was given %q, want the run", brief(got))
			}
		}},
	{name: "claim/renew", protects: "an empty commit of the worker alone keeps all its leases alive, for as long as it comes",
		run: func(k *kit) {
			k.create(run("a"), run("b"))
			c := asks("lives", "a", "b")
			c.TTL = 30 * time.Second
			held := k.take(c, 2)
			stop := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				beat := time.NewTicker(10 * time.Second)
				defer beat.Stop()
				for {
					select {
					case <-beat.C:
						if err := k.s.Commit(k.ctx(), bide.Lease{Worker: "lives"}, bide.Batch{}); err != nil {
							k.Errorf("renewing: %v", err)
						}
					case <-stop:
						return
					}
				}
			})
			k.idle(asks("heir", "a", "b"), 10*time.Minute)
			close(stop)
			wg.Wait()
			for _, h := range held {
				k.commit(h, bide.Batch{Records: []bide.Record{step("1", "still mine")}})
			}
		}},
	{name: "claim/renewed-by-claim", protects: "each call of Claim renews the worker's leases too",
		run: func(k *kit) {
			k.create(run("a"))
			c := asks("lives", "a")
			c.TTL = 30 * time.Second
			held := k.take(c, 1)[0]
			for range 10 {
				k.silent(c, 20*time.Second)
			}
			k.idle(asks("heir", "a"), time.Second)
			k.commit(held, bide.Batch{Next: bide.Done{}})
		}},
	{name: "claim/give-back", protects: "a worker that stops gives all its runs back at once; nobody has to wait for its leases to lapse",
		run: func(k *kit) {
			k.create(run("a"), run("b"), run("c"))
			held := k.take(asks("stops", "a", "b", "c"), 3)
			k.commit(held[2], bide.Batch{Next: bide.Parked{WakeAt: now().Add(time.Hour)}})
			got := k.wakes(asks("heir", "a", "b", "c"), func() {
				k.ok(k.s.Commit(k.ctx(), bide.Lease{Worker: "stops"}, bide.Batch{Next: bide.Parked{}}))
			})
			if len(got) == 1 {
				got = append(got, k.take(asks("heir", "a", "b", "c"), 1)...)
			}
			equal(k, "runs handed on", len(got), 2)
			for _, h := range held {
				k.refused(h.Lease)
			}
			k.silent(asks("heir", "a", "b", "c"), 50*time.Minute) // c sleeps on
		}},
	{name: "claim/give-back-nothing", protects: "a worker that holds nothing, or is not known, may renew and give back all the same",
		run: func(k *kit) {
			for _, b := range []bide.Batch{{}, {Next: bide.Parked{}}} {
				k.anyOf(k.s.Commit(k.ctx(), bide.Lease{Worker: "unknown"}, b), bide.ErrLeaseLost)
			}
			k.silent(asks("idle", "q"), time.Second)
			for _, b := range []bide.Batch{{}, {Next: bide.Parked{}}} {
				k.ok(k.s.Commit(k.ctx(), bide.Lease{Worker: "idle"}, b))
			}
		}},
	{name: "claim/lost-while-away", protects: "a worker that asks only after its leases have lapsed hears of each that it has lost: its step must stop",
		run: func(k *kit) {
			k.create(run("a"))
			c := asks("away", "a")
			c.TTL = 5 * time.Second
			held := k.take(c, 1)[0]
			heir := asks("heir", "a")
			got := k.take(heir, 1) // after the time has run out
			equal(k, "interrupted", got[0].Interrupted, true)
			news, err := k.claim(c, time.Second)
			k.ok(err)
			if len(news) != 1 || !news[0].News || !news[0].Lost || news[0].Lease != held.Lease {
				k.Fatalf("got %s, want the loss of %+v", brief(news), held.Lease)
			}
		}},
}
