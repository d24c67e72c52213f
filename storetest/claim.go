package storetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
)

// whileBlocked lets a worker wait in Claim, does what should wake it, and
// returns what it was given and how long that took from then.
func (k *kit) whileBlocked(c bide.Claim, cause func()) ([]bide.Claimed, time.Duration) {
	k.Helper()
	type answer struct {
		got []bide.Claimed
		err error
	}
	ctx, cancel := context.WithTimeout(k.ctx(), time.Hour)
	defer cancel()
	answers := make(chan answer, 1)
	go func() {
		got, err := k.s.Claim(ctx, c)
		answers <- answer{got, err}
	}()
	time.Sleep(time.Second)
	select {
	case a := <-answers:
		k.Fatalf("Claim did not wait: %s, %v", brief(a.got), a.err)
	default:
	}
	began := time.Now()
	cause()
	a := <-answers
	if a.err != nil {
		k.Fatalf("the waiting Claim was not woken: %v", a.err)
	}
	return a.got, time.Since(began)
}

func (k *kit) wakes(c bide.Claim, cause func()) []bide.Claimed {
	k.Helper()
	got, took := k.whileBlocked(c, cause)
	if took > soon {
		k.Errorf("Claim was woken after %v, want within %v", took, soon)
	}
	return got
}

var claimCases = []testCase{
	{name: "claim/woken-by-create", protects: "a worker that waits is woken by a new run of its queues, not by its next look",
		run: func(k *kit) {
			got := k.wakes(asks("w", "a"), func() { k.create(run("a")) })
			equal(k, "run", got[0].Run.ID, "a")
		}},
	{name: "claim/woken-by-signal", protects: "a parked run is handed out as soon as its signal is there",
		run: func(k *kit) {
			k.inState("a", bide.Waiting)
			got := k.wakes(asks("w", "a"), func() { k.signal("a", message("go", `1`)) })
			equal(k, "inbox", names(got[0].Inbox), []string{"go"})
			equal(k, "news", got[0].News, false)
		}},
	{name: "claim/woken-by-time", protects: "a sleeping run is handed out when its time has come, not before and not much later",
		run: func(k *kit) {
			c := k.begin("a")
			k.commit(c, bide.Batch{Next: bide.Parked{WakeAt: now().Add(10 * time.Minute)}})
			got, took := k.whileBlocked(asks("w", "a"), func() {})
			equal(k, "run", got[0].Run.ID, "a")
			if took += time.Second; took < 10*time.Minute || took > 10*time.Minute+soon {
				k.Errorf("handed out after %v, want 10m", took)
			}
		}},
	{name: "claim/woken-by-park", protects: "a run that one worker gives back at once goes to another that waits, and one that sleeps earlier than the next known moves the alarm forward",
		run: func(k *kit) {
			n := run("far")
			n.StartAt, n.Queue = now().Add(30*time.Minute), "a"
			k.create(n)
			c := k.begin("a")
			got, took := k.whileBlocked(asks("w", "a"), func() {
				k.commit(c, bide.Batch{Next: bide.Parked{WakeAt: now().Add(time.Minute)}})
			})
			equal(k, "run", got[0].Run.ID, "a")
			if took < time.Minute || took > time.Minute+soon {
				k.Errorf("handed out after %v, want 1m", took)
			}
		}},
	{name: "claim/only-what-is-asked", protects: "a worker gets runs of its queues and of the workflows that it knows, no others",
		run: func(k *kit) {
			for _, q := range []string{"q1", "q2"} {
				for _, w := range []string{"w1", "w2"} {
					n := run(q + w)
					n.Queue, n.Workflow = q, w
					k.create(n)
				}
			}
			ask := func(worker string, queues, workflows []string, want ...string) {
				c := asks(worker, queues...)
				c.Workflows = workflows
				var got []string
				for _, r := range k.take(c, len(want)) {
					got = append(got, r.Run.ID)
				}
				slices.Sort(got)
				equal(k, worker, got, want)
				k.silent(c, time.Minute)
			}
			ask("one of each", []string{"q1"}, []string{"w1"}, "q1w1")
			ask("both queues", []string{"q1", "q2"}, []string{"w2"}, "q1w2", "q2w2")
			ask("a queue without runs", []string{"q3"}, []string{"w1", "w2"})
			ask("all", []string{"q1", "q2"}, []string{"w1", "w2"}, "q2w1")
		}},
	{name: "claim/max", protects: "Max bounds what a worker holds in all, so that a slow one does not hoard",
		run: func(k *kit) {
			for i := range 5 {
				n := run(fmt.Sprint(i))
				n.Queue = "q"
				k.create(n)
			}
			c := asks("w", "q")
			c.Max = 2
			held := k.take(c, 2)
			k.silent(c, time.Minute)
			got := k.wakes(c, func() { k.commit(held[0], bide.Batch{Next: bide.Done{}}) })
			equal(k, "runs after one was finished", len(got), 1)
			k.signal(held[1].Run.ID, message("m", `1`)) // news do not count
			equal(k, "news", k.newsFor(c, held[1].Run.ID).News, true)
			c.Max = 3
			k.take(c, 1)
			k.take(asks("another", "q"), 1)
		}},
	{name: "claim/order", protects: "of a queue's runs what has waited longest goes first",
		run: func(k *kit) {
			base := now().Add(time.Hour)
			for _, offset := range []int{3, 1, 4, 2, 5} {
				n := run(fmt.Sprint(offset))
				n.Queue = "q"
				n.StartAt = base.Add(time.Duration(offset) * time.Minute)
				k.create(n)
			}
			time.Sleep(2 * time.Hour)
			for i, w := range []string{"1", "2", "3"} {
				c := asks("w"+w, "q")
				c.Max = 1
				equal(k, fmt.Sprintf("run %d", i), k.take(c, 1)[0].Run.ID, w)
			}
			var rest []string
			for _, r := range k.take(asks("w", "q"), 2) {
				rest = append(rest, r.Run.ID)
			}
			equal(k, "the rest", rest, []string{"4", "5"})
		}},
	{name: "claim/no-starving", protects: "a queue that is never empty does not keep a worker from its other queues, also if another worker serves one of them and has its hands full",
		run: func(k *kit) {
			const each = 40
			for i := range 2 * each {
				n := run("")
				n.Queue = []string{"q0", "q1"}[i/each]
				k.create(n)
			}
			for _, full := range []string{"", "q0", "q1"} {
				if full != "" {
					c := asks("full of "+full, full)
					c.Max = 1
					k.take(c, 1)
				}
				served := map[string]int{}
				c := asks("w", "q0", "q1")
				c.Max = 1
				for range each / 2 {
					r := k.take(c, 1)[0]
					served[r.Run.Queue]++
					k.commit(r, bide.Batch{Next: bide.Parked{WakeAt: now()}})
				}
				equal(k, fmt.Sprintf("queues served: %v", served), len(served), 2)
			}
		}},
	{name: "claim/one-holder", protects: "however many workers ask at once, a run has one holder",
		run: func(k *kit) {
			const runs, workers = 60, 6
			var mu sync.Mutex
			holders := map[string][]string{}
			var wg sync.WaitGroup
			for w := range workers {
				wg.Go(func() {
					for {
						got, err := k.claim(asks(fmt.Sprint("w", w), "q"), time.Minute)
						if err != nil {
							return
						}
						mu.Lock()
						for _, c := range got {
							holders[c.Run.ID] = append(holders[c.Run.ID], c.Worker)
						}
						mu.Unlock()
					}
				})
			}
			for i := range runs {
				n := run(fmt.Sprint(i))
				n.Queue = "q"
				k.create(n)
			}
			wg.Wait()
			equal(k, "runs handed out", len(holders), runs)
			for id, by := range holders {
				if len(by) != 1 {
					k.Errorf("run %s was given to %v", id, by)
				}
			}
		}},
	{name: "claim/cancel", protects: "a worker that stops gets out of Claim at once; what it was given meanwhile goes on when it gives back",
		run: func(k *kit) {
			ctx, cancel := context.WithCancel(k.ctx())
			failed := make(chan error)
			go func() {
				_, err := k.s.Claim(ctx, asks("w", "a"))
				failed <- err
			}()
			synctest.Wait()
			cancel()
			k.is(<-failed, context.Canceled)
			k.create(run("a"))
			k.leave("w")
			k.take(asks("another", "a"), 1)
		}},
	{name: "claim/complete", protects: "a turn sees all that was committed and all that has come, in order, without asking again",
		run: func(k *kit) {
			c := k.begin("a")
			k.signal("a", message("m1", `1`))
			for i := range 30 {
				k.commit(c, bide.Batch{Records: []bide.Record{step(fmt.Sprint(2*i+1), "s"), step(fmt.Sprint(2*i+2), "s")}})
			}
			k.signal("a", message("m2", `2`))
			waits := []bide.Wait{{Path: "61", Kind: bide.KindReceive, Name: "m3", Since: now()}}
			k.commit(c, bide.Batch{Waiting: &waits, Next: bide.Parked{}})
			k.signal("a", message("m3", `3`))
			c = k.turn("a")
			sameJSON(k, "history", c.History, k.history("a"))
			equal(k, "records", len(c.History), 60)
			equal(k, "inbox", names(c.Inbox), []string{"m1", "m2", "m3"})
			sameJSON(k, "waiting", c.Run.Waiting, waits)
			k.state("a", bide.Running)
		}},
	{name: "claim/epoch", protects: "each claim has an epoch of its own, so that a turn that was thought dead cannot write into the next",
		run: func(k *kit) {
			seen := map[int64]bool{}
			c := k.begin("a")
			for range 5 {
				if seen[c.Epoch] {
					k.Fatalf("epoch %d was given twice", c.Epoch)
				}
				seen[c.Epoch] = true
				old := c.Lease
				k.commit(c, bide.Batch{Next: bide.Parked{WakeAt: now()}})
				k.refused(old)
				c = k.turn("a")
				equal(k, "interrupted after a park", c.Interrupted, false)
				k.refused(old)
			}
		}},
	{name: "claim/due-after-away", protects: "a run is handed out at its time also if nobody waited in Claim, or had a hand free, when that was set",
		run: func(k *kit) {
			c := asks("w", "a", "b")
			c.Max = 1
			await := func(id string) bide.Claimed {
				k.Helper()
				began := time.Now()
				got, err := k.claim(c, time.Hour)
				k.ok(err)
				equal(k, "run", got[0].Run.ID, id)
				if d := time.Since(began); d < time.Minute || d > time.Minute+soon {
					k.Errorf("run %s was handed out after %v, want a minute", id, d)
				}
				return got[0]
			}
			later := func(id string) {
				n := run(id)
				n.StartAt = now().Add(time.Minute)
				k.create(n)
			}
			k.silent(c, time.Second)
			later("a")
			held := await("a")
			later("b")
			k.commit(held, bide.Batch{Next: bide.Parked{WakeAt: now().Add(time.Hour)}})
			await("b")
		}},
	{name: "claim/delayed", protects: "a message does not begin a run before the time that it was to start at",
		run: func(k *kit) {
			n := run("a")
			n.StartAt = now().Add(time.Minute)
			k.create(n)
			k.signal("a", message("m", `1`))
			k.idle(asks("w", "a"), 59*time.Second)
			equal(k, "inbox", names(k.take(asks("w", "a"), 1)[0].Inbox), []string{"m"})
		}},
	{name: "claim/news", protects: "a signal for a run that a worker holds reaches it at once, and once, as news for that lease",
		run: func(k *kit) {
			c := k.begin("a")
			got := k.wakes(asks(c.Worker, "a"), func() { k.signal("a", message("m", `"x"`)) })
			if len(got) != 1 || !got[0].News || got[0].Lost || got[0].Lease != c.Lease {
				k.Fatalf("got %s, want news for %+v", brief(got), c.Lease)
			}
			equal(k, "inbox", names(got[0].Inbox), []string{"m"})
			equal(k, "data", string(got[0].Inbox[0].Data), `"x"`)
			k.silent(asks(c.Worker, "a"), time.Minute) // told once
			k.idle(asks("another", "a"), time.Minute)  // and only the holder
			k.signal("a", message("n", `1`))           // then only what is new
			equal(k, "second news", names(k.news(c.Lease).Inbox), []string{"n"})
		}},
	{name: "claim/news-before-asking", protects: "a signal that comes while the holder is not in Claim waits for its next call",
		run: func(k *kit) {
			c := k.begin("a")
			k.signal("a", message("m", `1`))
			k.signal("a", message("n", `2`))
			time.Sleep(time.Minute)
			var got []string
			for len(got) < 2 {
				got = append(got, names(k.news(c.Lease).Inbox)...)
			}
			equal(k, "news", got, []string{"m", "n"})
		}},
}

// newsFor claims until there is news of the run.
func (k *kit) newsFor(c bide.Claim, id string) bide.Claimed {
	k.Helper()
	for {
		got, err := k.claim(c, 10*time.Second)
		if err != nil {
			k.Fatalf("no news of run %q: %v", id, err)
		}
		for _, n := range got {
			if n.News && n.Lease.Run == id {
				return n
			}
		}
	}
}
