package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/wait"
)

// full is a batch with something in every field but Next.
func full(id string) bide.Batch {
	at := now()
	fail := bide.NewFailure(fmt.Errorf("outer: %w", errors.Join(&bide.TimeoutError{What: "x", After: 3}, bide.ErrInterrupted)))
	return bide.Batch{
		Records: []bide.Record{
			{Path: "1", Kind: bide.KindStep, Name: "step <ü>", Data: json.RawMessage(`{ "n": 9007199254740993 }`), Attempt: 3,
				At: at.Add(-time.Second), Took: 1234567 * time.Microsecond},
			{Path: "2.1", Kind: bide.KindPoll, Name: "poll", Error: fail, Attempt: 1000000, At: at, By: "fail",
				Poll: &bide.PollLog{Counts: map[string]int{"pending": 999999, "failed": 1}, Checks: []bide.CheckLine{{At: at, Outcome: wait.Failed, Error: "<x>"}}}},
			{Path: "2.2", Kind: bide.KindReceive, At: at},
		},
		Waiting: &[]bide.Wait{
			{Path: "3", Kind: bide.KindPoll, Name: "poll", Since: at, Until: at.Add(time.Hour), NextAt: at.Add(time.Minute), Attempt: 4, Streak: 2,
				LastValue: json.RawMessage(`{"n":9007199254740993}`), LastError: fail, LastErrAt: at,
				Poll: &bide.PollState{State: wait.State{Start: at, Pending: 3, Sticky: 7 * time.Second}, Seen: bide.Observation{ETag: `W/"1"`}, NotBefore: at}},
			{Path: "4.1", Kind: bide.KindRetry, Details: json.RawMessage(`[1,2]`)},
		},
		Progress: &bide.ProgressState{Percent: 33.3, Message: "one <third>", Step: &bide.StepPosition{Index: 1, Count: 3, Name: "s"}, UpdatedAt: at},
		Values:   map[string]json.RawMessage{"k.e'y": json.RawMessage(`9007199254740993`), "null": json.RawMessage(`null`)},
		Start:    []bide.NewRun{{ID: id + ":child", Workflow: workflow, Queue: id + ":child", Input: json.RawMessage(`1`), Labels: map[string]string{"l": "v"}}},
		Started:  at,
	}
}

// live drops the waits that a store says of itself: queue and pause.
func live(waits []bide.Wait) (list []bide.Wait) {
	for _, w := range waits {
		if w.Kind != bide.KindQueue && w.Kind != bide.KindPause {
			list = append(list, w)
		}
	}
	return list
}

// holds checks that everything in the batch can be read back. What a run waits
// for is shown while it waits; a run that is queued or running may show its
// queue, or nothing.
func (k *kit) holds(id string, b bide.Batch) {
	k.Helper()
	r, h := k.get(id), k.history(id)
	for i := range h {
		h[i].Seq = 0
	}
	sameJSON(k, "history", h, b.Records)
	if r.State == bide.Waiting {
		sameJSON(k, "waiting", live(r.Waiting), *b.Waiting)
	}
	sameJSON(k, "progress", r.Progress, b.Progress)
	sameJSON(k, "values", r.Values, b.Values)
	sameTime(k, "started", r.StartedAt, b.Started)
	for _, n := range b.Start {
		equal(k, "parent of the child", k.get(n.ID).Parent, id)
	}
}

var commitCases = []testCase{
	{name: "commit/whole", protects: "one commit writes everything in the batch, field by field as it was given",
		run: func(k *kit) {
			c := k.begin("a")
			b := full("a")
			k.commit(c, b)
			k.holds("a", b)
			if h := k.history("a"); len(h) == 3 {
				equal(k, "record data, byte by byte", string(h[0].Data), string(b.Records[0].Data))
				equal(k, "an error keeps its identity", errors.Is(h[1].Error.Err(), bide.ErrInterrupted), true)
			}
			k.commit(c, bide.Batch{Next: bide.Parked{WakeAt: now().Add(time.Minute)}})
			k.state("a", bide.Waiting)
			k.holds("a", b)
			time.Sleep(time.Minute)
			k.holds("a", b)
			sameJSON(k, "waits at the next claim", k.turn("a").Run.Waiting, *b.Waiting)
		}},
	{name: "commit/nothing-without-the-lease", protects: "a commit with an old epoch or of another worker is refused whole: no record, child, value or signal of it is left",
		run: func(k *kit) {
			c := k.begin("a")
			k.signal("a", message("m", `1`))
			m := k.news(c.Lease).Inbox[0]
			for what, change := range map[string]func(*bide.Lease){
				"epoch":    func(l *bide.Lease) { l.Epoch++ },
				"no epoch": func(l *bide.Lease) { l.Epoch = 0 },
				"worker":   func(l *bide.Lease) { l.Worker = "someone else" },
				"run":      func(l *bide.Lease) { l.Run, l.Key = "no such run", l.Key+1000 },
			} {
				for _, next := range []bide.Next{nil, bide.Parked{}, bide.Done{}, bide.Continued{Input: json.RawMessage(`1`)}} {
					l := c.Lease
					change(&l)
					b := full("a")
					b.Consumed, b.Seen, b.Next = []int64{m.Seq}, m.Seq, next
					if err := k.s.Commit(k.ctx(), l, b); !errors.Is(err, bide.ErrLeaseLost) {
						k.Errorf("commit with another %s and next %T: got %v, want ErrLeaseLost", what, next, err)
					}
				}
			}
			r := k.get("a")
			if len(k.history("a")) != 0 || len(live(r.Waiting)) != 0 || r.Progress != nil || len(r.Values) != 0 {
				k.Errorf("refused commits left something behind: %+v", r)
			}
			_, err := k.s.Run(k.ctx(), "a:child")
			k.is(err, bide.ErrNotFound)
			k.commit(c, bide.Batch{Next: bide.Parked{}}) // and the right lease is still good
			equal(k, "inbox", names(k.turn("a").Inbox), []string{"m"})
		}},
	{name: "commit/seq", protects: "records get ascending numbers in the order of the batch and of the commits",
		run: func(k *kit) {
			a, b := k.begin("a"), k.begin("b")
			var want []string
			for i := range 20 {
				p := fmt.Sprint(i)
				want = append(want, p, p+".1", p+".2")
				k.commit(a, bide.Batch{Records: []bide.Record{step(p, "s"), step(p+".1", "s"), step(p+".2", "s")}})
				k.commit(b, bide.Batch{Records: []bide.Record{step(p, "s")}})
			}
			equal(k, "order", paths(k.history("a")), want)
			equal(k, "records of b", len(k.history("b")), 20)
			seen := map[int64]bool{}
			for _, r := range append(k.history("a"), k.history("b")...) {
				if seen[r.Seq] {
					k.Errorf("two records of the store have Seq %d", r.Seq)
				}
				seen[r.Seq] = true
			}
		}},
	{name: "commit/empty", protects: "a commit with nothing in it is fine, and keeps the lease",
		run: func(k *kit) {
			c := k.begin("a")
			k.commit(c, bide.Batch{})
			k.commit(c, bide.Batch{Records: []bide.Record{step("1", "s")}})
			k.state("a", bide.Running)
		}},
	{name: "commit/merge", protects: "values are merged by key, progress and waits replaced; what a batch does not mention stays",
		run: func(k *kit) {
			c := k.begin("a")
			b := full("a")
			k.commit(c, b)
			k.commit(c, bide.Batch{Values: map[string]json.RawMessage{"two": json.RawMessage(`2`)}})
			b.Values["two"] = json.RawMessage(`2`)
			k.holds("a", b)
			k.commit(c, bide.Batch{Values: map[string]json.RawMessage{"two": json.RawMessage(`{"n":3}`)},
				Progress: &bide.ProgressState{Percent: 50, UpdatedAt: now()}})
			b.Values["two"], b.Progress = json.RawMessage(`{"n":3}`), &bide.ProgressState{Percent: 50, UpdatedAt: now()}
			k.holds("a", b)
			k.commit(c, bide.Batch{Waiting: &[]bide.Wait{}})
			equal(k, "waits after an empty list", len(live(k.get("a").Waiting)), 0)
			equal(k, "values", len(k.get("a").Values), 3)
			k.commit(c, bide.Batch{Next: bide.Done{}})
			r := k.get("a")
			sameJSON(k, "values after the end", r.Values, b.Values)
			sameJSON(k, "progress after the end", r.Progress, b.Progress)
		}},
	{name: "commit/started-once", protects: "the start time is that of the first turn, on which Now in the workflow depends, and never moves",
		run: func(k *kit) {
			c := k.begin("a")
			first := now()
			k.commit(c, bide.Batch{Started: first})
			time.Sleep(time.Minute)
			k.commit(c, bide.Batch{Started: now(), Next: bide.Parked{WakeAt: now()}})
			c = k.turn("a")
			sameTime(k, "started", c.Run.StartedAt, first)
			k.commit(c, bide.Batch{Started: now(), Next: bide.Done{}})
			sameTime(k, "started", k.get("a").StartedAt, first)
		}},
	{name: "commit/parked", protects: "a parked run is due when it said: never by itself, at a time, or at once if that has passed",
		run: func(k *kit) {
			for name, wake := range map[string]time.Time{"message": {}, "year-2400": time.Date(2400, 1, 1, 0, 0, 0, 0, time.UTC)} {
				c := k.begin(name)
				k.commit(c, bide.Batch{Next: bide.Parked{WakeAt: wake}})
				k.state(name, bide.Waiting)
				k.notDue(name)
				k.refused(c.Lease)
				k.signal(name, message("m", `1`))
				k.state(name, bide.Queued)
				k.turn(name)
			}
			for name, wake := range map[string]time.Time{"now": now(), "past": now().Add(-time.Hour), "year-1970": time.Unix(0, 1), "year-1": time.Time{}.Add(time.Second)} {
				k.commit(k.begin(name), bide.Batch{Next: bide.Parked{WakeAt: wake}})
				k.state(name, bide.Queued)
				k.turn(name)
			}
			k.commit(k.begin("minute"), bide.Batch{Next: bide.Parked{WakeAt: now().Add(time.Minute)}})
			k.state("minute", bide.Waiting)
			time.Sleep(time.Minute)
			k.state("minute", bide.Queued)
			k.turn("minute")
		}},
	{name: "commit/parked-unseen", protects: "a message that comes while a turn is about to park is never slept on",
		run: func(k *kit) {
			c := k.begin("a")
			k.signal("a", message("m", `1`))
			k.commit(c, bide.Batch{Next: bide.Parked{WakeAt: now().Add(24 * time.Hour)}})
			c = k.turn("a")
			equal(k, "inbox", names(c.Inbox), []string{"m"})
			k.signal("a", message("n", `2`))
			k.commit(c, bide.Batch{Seen: lastSeq(c.Inbox), Next: bide.Parked{}}) // m was seen, n was not
			equal(k, "inbox", names(k.turn("a").Inbox), []string{"m", "n"})
		}},
	{name: "commit/parked-seen", protects: "a message that nobody waits for yet does not wake the run again and again, but is there when another does",
		run: func(k *kit) {
			c := k.begin("a")
			k.signal("a", message("m", `1`))
			m := k.news(c.Lease)
			k.commit(c, bide.Batch{Seen: lastSeq(m.Inbox), Next: bide.Parked{}})
			k.state("a", bide.Waiting)
			k.notDue("a")
			k.signal("a", message("n", `2`))
			c = k.turn("a")
			equal(k, "inbox", names(c.Inbox), []string{"m", "n"})
			wake := now().Add(time.Minute)
			k.commit(c, bide.Batch{Seen: lastSeq(c.Inbox), Next: bide.Parked{WakeAt: wake}})
			k.idle(asks("w", "a"), 59*time.Second)
			equal(k, "inbox", names(k.turn("a").Inbox), []string{"m", "n"})
			sameTime(k, "woken", now(), wake)
		}},
	{name: "commit/parked-after-consumed", protects: "a message that an earlier turn took up does not make later ones, which know nothing of it, due again and again",
		run: func(k *kit) {
			k.create(run("a"))
			k.signal("a", message("m", `1`))
			c := k.turn("a")
			k.commit(c, bide.Batch{Consumed: []int64{c.Inbox[0].Seq}, Seen: c.Inbox[0].Seq, Next: bide.Parked{WakeAt: now().Add(time.Minute)}})
			time.Sleep(time.Minute)
			c = k.turn("a")
			equal(k, "inbox", len(c.Inbox), 0)
			k.commit(c, bide.Batch{Next: bide.Parked{WakeAt: now().Add(2 * never)}})
			k.state("a", bide.Waiting)
			k.notDue("a")
			k.signal("a", message("n", `2`))
			equal(k, "inbox", names(k.turn("a").Inbox), []string{"n"})
		}},
	{name: "commit/consumed", protects: "a message that a record has taken up is gone, in the same commit; the others stay",
		run: func(k *kit) {
			k.create(run("a"))
			for _, n := range []string{"m1", "m2", "m3"} {
				k.signal("a", message(n, `1`))
			}
			c := k.turn("a")
			k.commit(c, bide.Batch{Records: []bide.Record{{Path: "1", Kind: bide.KindReceive, Name: "m2", At: now()}}, Consumed: []int64{c.Inbox[1].Seq}})
			k.commit(c, bide.Batch{Consumed: []int64{c.Inbox[1].Seq}}) // again: no harm
			k.commit(c, bide.Batch{Seen: lastSeq(c.Inbox), Next: bide.Parked{WakeAt: now()}})
			c = k.turn("a")
			equal(k, "inbox", names(c.Inbox), []string{"m1", "m3"})
			k.commit(c, bide.Batch{Seen: lastSeq(c.Inbox), Consumed: []int64{c.Inbox[0].Seq, c.Inbox[1].Seq}, Next: bide.Parked{}})
			k.notDue("a")
			k.signal("a", message("m4", `1`))
			equal(k, "inbox", names(k.turn("a").Inbox), []string{"m4"})
		}},
	{name: "commit/consumed-of-others", protects: "a run can take up only what is in its own inbox",
		run: func(k *kit) {
			k.create(run("a"), run("b"))
			k.signal("a", message("m", `1`))
			k.signal("b", message("m", `1`))
			a, b := k.turn("a"), k.turn("b")
			k.commit(a, bide.Batch{Consumed: []int64{a.Inbox[0].Seq, b.Inbox[0].Seq}})
			k.commit(b, bide.Batch{Next: bide.Parked{WakeAt: now()}})
			if a.Inbox[0].Seq != b.Inbox[0].Seq { // numbers of one inbox only: nothing to tell apart
				equal(k, "inbox of b", names(k.turn("b").Inbox), []string{"m"})
			}
		}},
	{name: "commit/done", protects: "a run that succeeded keeps its result, is over, and is never handed out again",
		run: func(k *kit) {
			c := k.begin("a")
			time.Sleep(time.Minute)
			k.commit(c, bide.Batch{Records: []bide.Record{step("1", "last")}, Next: bide.Done{Result: json.RawMessage(`{ "n": 9007199254740993 }`)}})
			r := k.get("a")
			equal(k, "state", r.State, bide.Succeeded)
			equal(k, "result", string(r.Result), `{ "n": 9007199254740993 }`)
			sameTime(k, "ended", r.EndedAt, now())
			equal(k, "history", paths(k.history("a")), []string{"1"})
			k.refused(c.Lease)
			k.notDue("a")
		}},
	{name: "commit/ended", protects: "a run that did not succeed keeps how and why, with the error's identity",
		run: func(k *kit) {
			for _, s := range []bide.State{bide.Failed, bide.Canceled, bide.TimedOut} {
				id := s.String()
				c := k.begin(id)
				f := bide.NewFailure(fmt.Errorf("it broke: %w", &bide.TimeoutError{What: id, After: time.Second}))
				k.commit(c, bide.Batch{Next: bide.Ended{State: s, Error: f}})
				r := k.get(id)
				equal(k, "state", r.State, s)
				sameJSON(k, "error", r.Error, f)
				isAs[*bide.TimeoutError](k, r.Error.Err())
				sameTime(k, "ended", r.EndedAt, now())
				if r.Result != nil {
					k.Errorf("a run that %s has the result %s", id, r.Result)
				}
				k.refused(c.Lease)
				k.notDue(id)
			}
		}},
	{name: "commit/ended-with-messages", protects: "messages that a run has left unread do not make it due after its end",
		run: func(k *kit) {
			k.create(run("a"))
			k.signal("a", message("m", `1`))
			k.commit(k.turn("a"), bide.Batch{Next: bide.Done{}})
			k.notDue("a")
		}},
	{name: "commit/continued", protects: "a run continued as new has the same id and unread messages, another input and seed, and no history",
		run: func(k *kit) {
			n := run("a")
			n.Labels = map[string]string{"l": "v"}
			k.create(n)
			for _, name := range []string{"m1", "m2"} {
				k.signal("a", bide.Message{Name: name, Key: name})
			}
			c := k.turn("a")
			b := full("a")
			b.Consumed, b.Seen = []int64{c.Inbox[0].Seq}, lastSeq(c.Inbox)
			k.commit(c, b)
			time.Sleep(time.Minute)
			k.commit(c, bide.Batch{Waiting: &[]bide.Wait{}, Seen: lastSeq(c.Inbox), Next: bide.Continued{Input: json.RawMessage(`{"second":true}`)}})
			k.state("a", bide.Queued)
			k.refused(c.Lease)
			next := k.turn("a")
			for what, h := range map[string][]bide.Record{"history": k.history("a"), "history at claim": next.History} {
				for _, r := range h {
					if r.Kind != bide.KindContinued { // a store may leave this mark
						k.Errorf("%s still has the record %s %s", what, r.Path, r.Kind)
					}
				}
			}
			r := next.Run
			equal(k, "id", r.ID, "a")
			equal(k, "input", string(r.Input), `{"second":true}`)
			equal(k, "generation", r.Generation, 1)
			equal(k, "labels", r.Labels, n.Labels)
			equal(k, "inbox", names(next.Inbox), []string{"m2"})
			equal(k, "interrupted", next.Interrupted, false)
			equal(k, "waits", len(live(r.Waiting)), 0)
			if r.Seed == c.Run.Seed {
				k.Error("both generations have the same seed")
			}
			if r.Version <= c.Run.Version {
				k.Errorf("version %d after %d", r.Version, c.Run.Version)
			}
			k.signal("a", bide.Message{Name: "again", Key: "m1"}) // keys last as long as the run
			k.commit(next, bide.Batch{Records: []bide.Record{step("1", "s")}, Seen: lastSeq(next.Inbox), Next: bide.Parked{WakeAt: now()}})
			next = k.turn("a")
			equal(k, "records of the second generation", len(next.History) >= 1, true)
			equal(k, "inbox", names(next.Inbox), []string{"m2"})
			k.commit(next, bide.Batch{Next: bide.Done{}})
			k.state("a", bide.Succeeded)
		}},
	{name: "commit/interrupted", protects: "a turn knows whether the one before it ended in order; only a lapse makes it doubt",
		run: func(k *kit) {
			c := k.begin("a")
			equal(k, "interrupted, first turn", c.Interrupted, false)
			k.commit(c, bide.Batch{Next: bide.Parked{WakeAt: now().Add(time.Second)}})
			ask := asks("dies", "a")
			ask.TTL = 10 * time.Second
			c = k.take(ask, 1)[0]
			equal(k, "interrupted after a park", c.Interrupted, false)
			time.Sleep(time.Minute)
			c = k.turn("a")
			equal(k, "interrupted after a lapse", c.Interrupted, true)
			k.commit(c, bide.Batch{Next: bide.Parked{WakeAt: now()}})
			equal(k, "interrupted after a park again", k.turn("a").Interrupted, false)
		}},
	{name: "commit/ctx-ended", protects: "a commit whose ctx is over either did nothing or tells that it was done: its outcome is known",
		run: func(k *kit) {
			c := k.begin("a")
			ctx, cancel := context.WithCancel(k.ctx())
			cancel()
			err := k.s.Commit(ctx, c.Lease, bide.Batch{Records: []bide.Record{step("1", "s")}})
			want := 1
			if err != nil {
				want = 0
			}
			time.Sleep(time.Minute)
			equal(k, fmt.Sprintf("records after a commit that returned %v", err), len(k.history("a")), want)
		}},
}
