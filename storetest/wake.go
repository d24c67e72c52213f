package storetest

import (
	"encoding/json"
	"fmt"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
)

// waker skips stores that wake nobody.
func (k *kit) waker() bide.Waker {
	w, ok := k.s.(bide.Waker)
	if !ok {
		k.Skip("the store is no bide.Waker")
	}
	return w
}

// drain empties the channel: there may be a first value at once.
func drain(ch <-chan *bide.Run) {
	for {
		synctest.Wait()
		select {
		case <-ch:
		default:
			return
		}
	}
}

// woken waits for a value; if that is a run it must be the one, ended.
func (k *kit) woken(ch <-chan *bide.Run, id, by string) {
	k.Helper()
	select {
	case r := <-ch:
		if r != nil && (r.ID != id || !r.State.Ended()) {
			k.Errorf("%s woke with %s, want the ended run %q or nil", by, short(*r), id)
		}
		if r != nil {
			sameJSON(k, "the ended run", *r, k.get(id))
		}
	case <-time.After(time.Minute):
		k.Errorf("nobody was woken by %s", by)
	}
}

func (k *kit) quiet(ch <-chan *bide.Run, by string) {
	k.Helper()
	select {
	case <-ch:
		k.Errorf("woken by %s", by)
	case <-time.After(time.Minute):
	}
}

var wakeCases = []testCase{
	{name: "wake/commits", protects: "who watches a run is woken by every commit to it, and not by those to others",
		run: func(k *kit) {
			w := k.waker()
			c, other := k.begin("a"), k.begin("b")
			ch, stop := w.Wake("a", false)
			defer stop()
			for i, b := range []bide.Batch{
				{Records: []bide.Record{step("1", "s")}},
				{Progress: &bide.ProgressState{Percent: 1, UpdatedAt: now()}},
				{Next: bide.Parked{WakeAt: now()}},
				{Next: bide.Done{Result: json.RawMessage(`1`)}},
			} {
				if i == 3 {
					c = k.turn("a")
				}
				drain(ch)
				k.commit(c, b)
				k.woken(ch, "a", fmt.Sprint("commit ", i))
			}
			drain(ch)
			k.commit(other, bide.Batch{Records: []bide.Record{step("1", "s")}})
			k.quiet(ch, "a commit to another run")
		}},
	{name: "wake/ends", protects: "who waits for a run's result is woken by its end, however it comes, and by nothing else",
		run: func(k *kit) {
			w := k.waker()
			for name, end := range map[string]func(c bide.Claimed){
				"done": func(c bide.Claimed) { k.commit(c, bide.Batch{Next: bide.Done{Result: json.RawMessage(`[1]`)}}) },
				"failed": func(c bide.Claimed) {
					k.commit(c, bide.Batch{Next: bide.Ended{State: bide.Failed, Error: failure("x")}})
				},
				"terminate": func(c bide.Claimed) { k.control(c.Run.ID, bide.OpTerminate) },
			} {
				c := k.begin(name)
				ch, stop := w.Wake(name, true)
				drain(ch)
				k.commit(c, bide.Batch{Records: []bide.Record{step("1", "s")}})
				k.quiet(ch, "a commit that does not end the run")
				end(c)
				k.woken(ch, name, name)
				stop()
			}
		}},
	{name: "wake/whole", protects: "the ended run that a watcher is handed is the run as a read would give it, with all that its turns have said",
		run: func(k *kit) {
			w := k.waker()
			c := k.begin("a")
			ch, stop := w.Wake("a", true)
			defer stop()
			drain(ch)
			b := full("a")
			b.Start = nil
			k.commit(c, b)
			k.commit(c, bide.Batch{Next: bide.Done{Result: json.RawMessage(`1`)}})
			k.woken(ch, "a", "the end")
		}},
	{name: "wake/late", protects: "who asks after the end is woken too",
		run: func(k *kit) {
			w := k.waker()
			for _, ends := range []bool{true, false} {
				id := fmt.Sprint("a", ends)
				k.commit(k.begin(id), bide.Batch{Next: bide.Done{}})
				ch, stop := w.Wake(id, ends)
				k.woken(ch, id, "an end before the call")
				stop()
			}
		}},
	{name: "wake/nobody-reads", protects: "a watcher that does not read, or has gone, holds up no writer",
		run: func(k *kit) {
			w := k.waker()
			c := k.begin("a")
			_, stop := w.Wake("a", false)
			_, gone := w.Wake("a", true)
			gone()
			gone() // twice is no harm
			ch, last := w.Wake("a", true)
			defer last()
			drain(ch)
			for i := range 200 {
				k.commit(c, bide.Batch{Records: []bide.Record{step(fmt.Sprint(i), "s")}})
			}
			stop()
			k.commit(c, bide.Batch{Next: bide.Done{}})
			k.woken(ch, "a", "the end")
		}},
	{name: "wake/many", protects: "all who wait for one run are woken",
		run: func(k *kit) {
			w := k.waker()
			c := k.begin("a")
			var all []<-chan *bide.Run
			for range 20 {
				ch, stop := w.Wake("a", true)
				defer stop()
				drain(ch)
				all = append(all, ch)
			}
			k.commit(c, bide.Batch{Next: bide.Done{}})
			for _, ch := range all {
				k.woken(ch, "a", "the end")
			}
		}},
	{name: "wake/unknown", protects: "a subscription to a run that does not exist does no harm",
		run: func(k *kit) {
			_, stop := k.waker().Wake("nobody", false)
			stop()
			k.begin("a")
		}},
	{name: "wake/retried", protects: "who waits for a retried run is woken by its second end",
		run: func(k *kit) {
			w := k.waker()
			k.inState("a", bide.Failed)
			k.control("a", bide.OpRetry)
			ch, stop := w.Wake("a", true)
			defer stop()
			drain(ch)
			k.commit(k.turn("a"), bide.Batch{Next: bide.Done{Result: json.RawMessage(`2`)}})
			k.woken(ch, "a", "the second end")
		}},
}
