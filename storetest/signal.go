package storetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bide-dev/bide"
)

var signalCases = []testCase{
	{name: "signal/not-found", protects: "a signal to a run that does not exist says so, and leaves nothing for a run to come",
		run: func(k *kit) {
			isNew, err := k.s.Signal(k.ctx(), "a", message("m", `1`))
			k.is(err, bide.ErrNotFound)
			equal(k, "new", isNew, false)
			equal(k, "inbox", len(k.begin("a").Inbox), 0)
		}},
	{name: "signal/ended", protects: "a signal to a run that is over says so: it would never be received",
		run: func(k *kit) {
			for _, s := range states {
				k.inState(s.String(), s)
				isNew, err := k.s.Signal(k.ctx(), s.String(), message("m", `1`))
				if s.Ended() {
					k.is(err, bide.ErrRunEnded)
				} else if err != nil {
					k.Errorf("signal to a run that is %v: %v", s, err)
				}
				equal(k, "new, to a run that is "+s.String(), isNew, !s.Ended())
			}
		}},
	{name: "signal/kept-whole", protects: "a message comes as it was sent, with a number and the time of its arrival",
		run: func(k *kit) {
			k.create(run("a"))
			time.Sleep(time.Minute)
			at := now()
			m := bide.Message{Op: bide.OpSignal, Name: "n <ü>", Key: "k'", Data: []byte(`{ "n": 9007199254740993 }`)}
			k.signal("a", m)
			k.signal("a", bide.Message{Name: "no data"})
			time.Sleep(time.Minute)
			got := k.turn("a").Inbox
			equal(k, "messages", len(got), 2)
			equal(k, "op", got[0].Op, m.Op)
			equal(k, "name", got[0].Name, m.Name)
			equal(k, "data", string(got[0].Data), string(m.Data))
			equal(k, "no data", string(got[1].Data), "")
			sameTime(k, "time", got[0].At, at)
			if got[0].Seq <= 0 || got[1].Seq <= got[0].Seq {
				k.Errorf("message numbers %d, %d; they must be above 0 and ascend", got[0].Seq, got[1].Seq)
			}
		}},
	{name: "signal/order", protects: "messages are received in the order in which they were sent",
		run: func(k *kit) {
			k.create(run("a"))
			var want []string
			for i := range 25 {
				want = append(want, fmt.Sprint("m", i))
				k.signal("a", message(want[i], `1`))
			}
			c := k.turn("a")
			equal(k, "inbox", names(c.Inbox), want)
			var last int64
			for _, m := range c.Inbox {
				if m.Seq <= last {
					k.Fatalf("message %s has number %d after %d", m.Name, m.Seq, last)
				}
				last = m.Seq
			}
		}},
	{name: "signal/key", protects: "a signal sent again with its key counts once, whether the first is waiting, was received, or came with the start",
		run: func(k *kit) {
			n := run("a")
			n.Messages = []bide.Message{{Op: bide.OpSignal, Name: "first", Key: "k0"}}
			k.create(n, run("b"))
			k.signal("a", bide.Message{Name: "dropped", Key: "k0"})
			k.signal("a", bide.Message{Name: "m", Key: "k1"})
			k.signal("a", bide.Message{Name: "dropped", Key: "k1"})
			k.signal("b", bide.Message{Name: "m of b", Key: "k1"}) // keys are per run
			k.signal("a", bide.Message{Name: "no key"})
			k.signal("a", bide.Message{Name: "no key"})
			c := k.turn("a")
			equal(k, "inbox", names(c.Inbox), []string{"first", "m", "no key", "no key"})
			equal(k, "inbox of b", names(k.turn("b").Inbox), []string{"m of b"})
			var all []int64
			for _, m := range c.Inbox {
				all = append(all, m.Seq)
			}
			k.commit(c, bide.Batch{Consumed: all, Seen: lastSeq(c.Inbox), Next: bide.Parked{}})
			k.signal("a", bide.Message{Name: "dropped", Key: "k1"})
			k.signal("a", bide.Message{Name: "dropped", Key: "k0"})
			k.notDue("a")
			k.signal("a", bide.Message{Name: "new", Key: "k2"})
			equal(k, "inbox", names(k.turn("a").Inbox), []string{"new"})
		}},
	{name: "signal/key-of-another", protects: "a key that comes again for something else is refused, before and after the first was received; nothing is dropped in silence",
		run: func(k *kit) {
			k.create(run("a"))
			send := func(what string) error {
				_, err := k.s.Signal(k.ctx(), "a", bide.Message{Name: "m", Key: "k", Print: what})
				return err
			}
			refused := func(err error) {
				k.Helper()
				if conflict, ok := errors.AsType[*bide.ConflictError](err); !ok || conflict.ID != "a" || conflict.Key != "k" {
					k.Errorf("got %v, want a ConflictError of the key", err)
				}
			}
			k.ok(send("one"))
			k.ok(send("one"))
			refused(send("two"))
			c := k.turn("a")
			equal(k, "inbox", names(c.Inbox), []string{"m"})
			k.commit(c, bide.Batch{Consumed: []int64{c.Inbox[0].Seq}, Seen: lastSeq(c.Inbox), Next: bide.Parked{}})
			k.ok(send("one"))
			refused(send("two"))
		}},
	{name: "signal/key-of-first", protects: "of two first messages with one key one counts, and the start does not fail for it",
		run: func(k *kit) {
			n := run("a")
			n.Messages = []bide.Message{{Op: bide.OpSignal, Name: "m", Key: "k"}, {Op: bide.OpSignal, Name: "dropped", Key: "k"}, message("n", `1`)}
			k.create(n)
			equal(k, "inbox", names(k.turn("a").Inbox), []string{"m", "n"})
		}},
	{name: "signal/key-at-once", protects: "of many deliveries of one signal at the same moment one counts",
		run: func(k *kit) {
			k.create(run("a"))
			var wg sync.WaitGroup
			var told atomic.Int64
			for i := range 20 {
				wg.Go(func() {
					isNew, err := k.s.Signal(k.ctx(), "a", bide.Message{Op: bide.OpSignal, Name: "m", Key: fmt.Sprint(i % 2)})
					if err != nil {
						k.Errorf("signal: %v", err)
					}
					if isNew {
						told.Add(1)
					}
				})
			}
			wg.Wait()
			equal(k, "messages", len(k.turn("a").Inbox), 2)
			equal(k, "senders told that theirs is new", told.Load(), 2)
		}},
	{name: "signal/new", protects: "a sender is told whether its message is new: not if one with its key came before, be it waiting, taken up, or with the start",
		run: func(k *kit) {
			n := run("a")
			n.Messages = []bide.Message{{Op: bide.OpSignal, Name: "first", Key: "k0"}}
			k.create(n, run("b"))
			send := func(id, key string, want bool) {
				k.Helper()
				// What a sender has put into Seq is not what tells.
				isNew, err := k.s.Signal(k.ctx(), id, bide.Message{Op: bide.OpSignal, Name: "m", Key: key, Seq: 7})
				k.ok(err)
				equal(k, fmt.Sprintf("new, key %q to %s", key, id), isNew, want)
			}
			send("a", "k0", false)
			send("a", "k1", true)
			send("a", "k1", false)
			send("b", "k1", true)
			send("a", "", true)
			send("a", "", true)
			c := k.turn("a")
			send("a", "k1", false) // also to a run in hand
			send("a", "k2", true)
			var all []int64
			for _, m := range append(c.Inbox, k.news(c.Lease).Inbox...) {
				all = append(all, m.Seq)
			}
			k.commit(c, bide.Batch{Consumed: all, Seen: all[len(all)-1], Next: bide.Parked{}})
			send("a", "k1", false)
			send("a", "k2", false)
			send("a", "k3", true)
		}},
	{name: "signal/paused", protects: "a signal to a paused run waits until it is resumed",
		run: func(k *kit) {
			k.inState("a", bide.Paused)
			k.signal("a", message("m", `1`))
			k.state("a", bide.Paused)
			k.notDue("a")
			k.control("a", bide.OpResume)
			equal(k, "inbox", names(k.turn("a").Inbox), []string{"m"})
		}},
	{name: "signal/delayed-run", protects: "a signal to a run whose start time has not come is not lost",
		run: func(k *kit) {
			n := run("a")
			n.StartAt = now().Add(time.Minute)
			k.create(n)
			k.signal("a", message("m", `1`))
			c, err := k.claim(asks("w", "a"), time.Minute+soon)
			k.ok(err)
			equal(k, "inbox", names(c[0].Inbox), []string{"m"})
		}},
}
