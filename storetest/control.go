package storetest

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/bide-dev/bide"
)

// every is all operations of [bide.Store.Control].
var every = []bide.Op{bide.OpCancel, bide.OpTerminate, bide.OpPause, bide.OpResume, bide.OpRetry,
	bide.OpCheckWait, bide.OpExtendWait, bide.OpCompleteWait, bide.OpFailWait}

// waitsFor parks a new run that waits for a signal, a poll and a step's next
// attempt; none is due.
func (k *kit) waitsFor(id string) {
	k.Helper()
	at := now()
	k.commit(k.begin(id), bide.Batch{Next: bide.Parked{}, Waiting: &[]bide.Wait{
		{Path: "1.1", Kind: bide.KindReceive, Name: "approval", Since: at, Until: at.Add(72 * time.Hour)},
		{Path: "1.2", Kind: bide.KindPoll, Name: "job", Since: at, NextAt: at.Add(24 * time.Hour)},
		{Path: "1.3", Kind: bide.KindRetry, Name: "send", Since: at, NextAt: at.Add(24 * time.Hour)}}})
}

func (k *kit) lostNews(l bide.Lease) {
	k.Helper()
	if n := k.news(l); !n.Lost {
		k.Errorf("the holder of %q was given %v, want to be told that the lease is lost", l.Run, names(n.Inbox))
	}
	k.refused(l)
	k.leave(l.Worker)
}

func (k *kit) ended(id string, s bide.State) {
	k.Helper()
	r := k.get(id)
	equal(k, "state of "+id, r.State, s)
	if r.EndedAt.IsZero() {
		k.Errorf("%s has ended and has no time of it", id)
	}
	k.notDue(id)
}

var controlCases = []testCase{
	{name: "control/not-found", protects: "a command to a run that does not exist says so",
		run: func(k *kit) {
			for _, op := range every {
				k.is(k.s.Control(k.ctx(), "a", bide.Command{Op: op, Wait: "w", Data: json.RawMessage(`1`)}), bide.ErrNotFound)
			}
		}},
	{name: "control/ended", protects: "a command to a run that is over changes nothing and says so; only a retry of one that did not succeed goes on",
		run: func(k *kit) {
			for _, s := range states[slices.Index(states, bide.Succeeded):] {
				id := s.String()
				k.inState(id, s)
				before := k.get(id)
				for _, op := range every {
					if op == bide.OpRetry {
						continue
					}
					err := k.s.Control(k.ctx(), id, bide.Command{Op: op, Wait: "w", Data: json.RawMessage(`1`)})
					if !errors.Is(err, bide.ErrRunEnded) {
						k.Errorf("operation %d on a run that %s: got %v, want ErrRunEnded", op, s, err)
					}
				}
				sameJSON(k, id, k.get(id), before)
				k.notDue(id)
			}
		}},
	{name: "control/cancel", protects: "a run in any live state can be asked to end: its turn gets the message, and it is shown as canceling until it has ended",
		run: func(k *kit) {
			for _, s := range []bide.State{bide.Queued, bide.Running, bide.Waiting, bide.Canceling} {
				id := s.String()
				c := k.inState(id, s)
				k.control(id, bide.OpCancel)
				k.state(id, bide.Canceling)
				if s == bide.Running {
					n := k.news(c.Lease)
					equal(k, "news", names(n.Inbox), []string{"op 3"})
					k.commit(c, bide.Batch{Seen: lastSeq(n.Inbox), Next: bide.Parked{WakeAt: now()}})
				}
				c = k.turn(id)
				if !slices.Contains(names(c.Inbox), "op 3") {
					k.Errorf("the turn of a run canceled when %s does not see it: inbox %v", s, names(c.Inbox))
				}
				k.state(id, bide.Canceling)
				k.control(id, bide.OpCancel) // twice is no error
				// Clean-up may take further turns; each has to know.
				k.commit(c, bide.Batch{Records: []bide.Record{step("2", "clean")}, Seen: 1 << 60, Next: bide.Parked{WakeAt: now().Add(time.Minute)}})
				k.state(id, bide.Canceling)
				time.Sleep(time.Minute)
				c = k.turn(id)
				if !slices.Contains(names(c.Inbox), "op 3") {
					k.Errorf("a later turn of a run canceled when %s does not see it: inbox %v", s, names(c.Inbox))
				}
				k.commit(c, bide.Batch{Next: bide.Ended{State: bide.Canceled, Error: bide.NewFailure(bide.ErrCanceled)}})
				k.ended(id, bide.Canceled)
			}
		}},
	{name: "control/cancel-delayed", protects: "a run whose start time has not come, or that sleeps, hears of its cancel now and not then",
		run: func(k *kit) {
			n := run("delayed")
			n.StartAt = now().Add(24 * time.Hour)
			k.create(n)
			k.commit(k.begin("asleep"), bide.Batch{Next: bide.Parked{WakeAt: now().Add(24 * time.Hour)}})
			for _, id := range []string{"delayed", "asleep"} {
				k.control(id, bide.OpCancel)
				equal(k, id+" sees the cancel", k.asked(id), true)
			}
		}},
	{name: "control/cancel-lapse", protects: "a cancel is not lost with the worker that was told of it",
		run: func(k *kit) {
			k.create(run("a"))
			c := asks("dies", "a")
			c.TTL = 30 * time.Second
			held := k.take(c, 1)[0]
			k.control("a", bide.OpCancel)
			k.newsFor(c, held.Run.ID)
			time.Sleep(2 * time.Minute)
			k.state("a", bide.Canceling)
			equal(k, "asked", k.asked("a"), true)
		}},
	{name: "control/cancel-paused", protects: "a cancel of a paused run is not lost: it is seen when the run goes on, if not before",
		run: func(k *kit) {
			k.inState("a", bide.Paused)
			k.control("a", bide.OpCancel)
			k.anyOf(k.s.Control(k.ctx(), "a", bide.Command{Op: bide.OpResume}))
			equal(k, "asked", k.asked("a"), true)
		}},
	{name: "control/terminate", protects: "terminate ends a run in any live state at once; a turn under way loses its lease and is told",
		run: func(k *kit) {
			for _, s := range states[:slices.Index(states, bide.Succeeded)] {
				id := s.String()
				c := k.inState(id, s)
				time.Sleep(time.Second)
				k.control(id, bide.OpTerminate)
				k.state(id, bide.Terminated)
				sameTime(k, "ended", k.get(id).EndedAt, now())
				if s == bide.Running {
					k.lostNews(c.Lease)
				}
				k.ended(id, bide.Terminated)
				if h := paths(k.history(id)); s != bide.Queued && !slices.Equal(h, []string{"1"}) {
					k.Errorf("history of a run terminated when %s: %v, want it kept as it was", s, h)
				}
			}
		}},
	{name: "control/terminate-wakes", protects: "a worker that waits in Claim hears at once that a run of its own was terminated",
		run: func(k *kit) {
			c := k.begin("a")
			got := k.wakes(asks(c.Worker, "a"), func() { k.control("a", bide.OpTerminate) })
			if len(got) != 1 || !got[0].News || !got[0].Lost || got[0].Lease != c.Lease {
				k.Fatalf("got %s, want that the lease %+v is lost", brief(got), c.Lease)
			}
			k.silent(asks(c.Worker, "a"), time.Minute) // told once
		}},
	{name: "control/pause", protects: "a paused run is not handed out, however due it is, until it is resumed; then it goes on where it was",
		run: func(k *kit) {
			for _, s := range []bide.State{bide.Queued, bide.Waiting} {
				id := s.String()
				k.inState(id, s)
				k.control(id, bide.OpPause)
				k.state(id, bide.Paused)
				k.notDue(id)
				k.anyOf(k.s.Control(k.ctx(), id, bide.Command{Op: bide.OpPause}))
				k.state(id, bide.Paused)
				k.control(id, bide.OpResume)
				k.anyOf(k.s.Control(k.ctx(), id, bide.Command{Op: bide.OpResume}))
				if s == bide.Waiting {
					k.signal(id, message("m", `1`))
				}
				c := k.turn(id)
				equal(k, "operations in the inbox", slices.ContainsFunc(c.Inbox, func(m bide.Message) bool { return m.Op != bide.OpSignal }), false)
				equal(k, "interrupted", c.Interrupted, false)
				k.commit(c, bide.Batch{Next: bide.Done{}})
			}
		}},
	{name: "control/resume-wakes", protects: "a resumed run that is due goes to the worker that waits for one",
		run: func(k *kit) {
			k.create(run("a"))
			k.control("a", bide.OpPause)
			got := k.wakes(asks("w", "a"), func() { k.control("a", bide.OpResume) })
			equal(k, "run", got[0].Run.ID, "a")
		}},
	{name: "control/pause-held", protects: "a pause lets the turn under way finish what is in flight: it is told, keeps its lease, and then nobody gets the run",
		run: func(k *kit) {
			c := k.begin("a")
			k.control("a", bide.OpPause)
			n := k.news(c.Lease)
			equal(k, "lost", n.Lost, false)
			equal(k, "news", names(n.Inbox), []string{"op 5"})
			k.commit(c, bide.Batch{Records: []bide.Record{step("1", "in flight")}})
			k.commit(c, bide.Batch{Seen: lastSeq(n.Inbox), Next: bide.Parked{WakeAt: now()}})
			k.state("a", bide.Paused)
			k.notDue("a")
			k.control("a", bide.OpResume)
			c = k.turn("a")
			equal(k, "inbox after the pause", len(c.Inbox), 0)
			equal(k, "history", paths(c.History), []string{"1"})
		}},
	{name: "control/park-paused", protects: "a turn can end with its run paused, whatever has come for it meanwhile; a cancel goes before",
		run: func(k *kit) {
			l := k.begin("a")
			k.signal("a", message("m", `1`))
			k.commit(l, bide.Batch{Next: bide.Parked{WakeAt: now(), Paused: true}})
			k.state("a", bide.Paused)
			k.notDue("a")
			k.control("a", bide.OpResume)
			c := k.turn("a")
			equal(k, "inbox after the resume", len(c.Inbox), 1)
			k.control("a", bide.OpCancel)
			k.commit(c, bide.Batch{Next: bide.Parked{Paused: true}})
			k.state("a", bide.Canceling)
			k.turn("a")
		}},
	{name: "control/pause-held-end", protects: "a run that is paused in its last turn may end",
		run: func(k *kit) {
			c := k.begin("a")
			k.control("a", bide.OpPause)
			k.commit(c, bide.Batch{Next: bide.Done{Result: json.RawMessage(`1`)}})
			k.ended("a", bide.Succeeded)
		}},
	{name: "control/pause-held-continued", protects: "a run that is paused in a turn that continues it as new stays paused",
		run: func(k *kit) {
			c := k.begin("a")
			k.control("a", bide.OpPause)
			k.commit(c, bide.Batch{Next: bide.Continued{Input: json.RawMessage(`1`)}})
			k.state("a", bide.Paused)
			k.notDue("a")
			k.control("a", bide.OpResume)
			equal(k, "generation", k.turn("a").Run.Generation, 1)
		}},
	{name: "control/pause-held-resume", protects: "a pause taken back before the turn has parked leaves nothing behind",
		run: func(k *kit) {
			c := k.begin("a")
			k.control("a", bide.OpPause)
			k.control("a", bide.OpResume)
			k.commit(c, bide.Batch{Seen: 1 << 60, Next: bide.Parked{WakeAt: now()}})
			equal(k, "inbox", len(k.turn("a").Inbox), 0)
			k.state("a", bide.Running)
		}},
	{name: "control/pause-lapse", protects: "a paused run whose worker dies stays paused",
		run: func(k *kit) {
			k.create(run("a"))
			c := asks("dies", "a")
			c.TTL = 30 * time.Second
			k.take(c, 1)
			k.control("a", bide.OpPause)
			k.idle(asks("heir", "a"), never)
			k.state("a", bide.Paused)
			k.control("a", bide.OpResume)
			equal(k, "interrupted", k.turn("a").Interrupted, true)
		}},
	{name: "control/pause-asleep", protects: "a pause does not move the time at which a sleeping run wakes: resumed before, it is handed out by then; after, at once",
		run: func(k *kit) {
			for _, id := range []string{"before", "after"} {
				k.commit(k.begin(id), bide.Batch{Next: bide.Parked{WakeAt: now().Add(2 * time.Hour)}})
				k.control(id, bide.OpPause)
			}
			time.Sleep(time.Hour)
			k.control("before", bide.OpResume) // it may get a turn now, which would put it to sleep again
			c, err := k.claim(asks("w", "before"), time.Hour+soon)
			k.ok(err)
			equal(k, "run", c[0].Run.ID, "before")
			time.Sleep(2 * time.Hour)
			k.state("after", bide.Paused)
			k.notDue("after")
			k.control("after", bide.OpResume)
			k.state("after", bide.Queued)
			k.turn("after")
		}},
	{name: "control/retry", protects: "a run that did not succeed goes on from what it has, its end forgotten and the retry kept in its history",
		run: func(k *kit) {
			for _, s := range []bide.State{bide.Failed, bide.Canceled, bide.TimedOut} {
				id := s.String()
				n := run(id)
				n.Deadline = now().Add(time.Hour)
				k.create(n)
				c := k.turn(id)
				failed := step("2", "fails")
				failed.Data, failed.Error = nil, failure("no")
				k.commit(c, bide.Batch{Records: []bide.Record{step("1", "good"), failed}, Started: now()})
				if s == bide.Canceled {
					k.control(id, bide.OpCancel)
				}
				k.commit(c, bide.Batch{Next: bide.Ended{State: s, Error: failure("no")}})
				old := k.history(id)
				if s == bide.TimedOut {
					time.Sleep(2 * time.Hour)
				}
				k.control(id, bide.OpRetry)
				r := k.get(id)
				equal(k, "state", r.State, bide.Queued)
				if r.Error != nil || !r.EndedAt.IsZero() {
					k.Errorf("a retried run still shows its end: error %v at %v", r.Error, r.EndedAt)
				}
				equal(k, "deadline is still set", !r.Deadline.IsZero(), s != bide.TimedOut) // one that has passed is lifted
				c = k.turn(id)
				equal(k, "inbox", len(c.Inbox), 0) // above all no cancel from before
				equal(k, "interrupted", c.Interrupted, false)
				h := k.history(id)
				sameJSON(k, "history at claim", c.History, h)
				if len(h) != len(old)+1 || h[len(old)].Kind != bide.KindRetried {
					k.Fatalf("history after the retry of a run that %s: %s; want that of before and one record %q", s, short(h), bide.KindRetried)
				}
				sameJSON(k, "history of before", h[:len(old)], old)
				k.commit(c, bide.Batch{Records: []bide.Record{step("2", "works")}, Next: bide.Done{Result: json.RawMessage(`1`)}})
				k.ended(id, bide.Succeeded)
			}
		}},
	{name: "control/retry-wakes", protects: "a retried run goes to the worker that waits for one",
		run: func(k *kit) {
			k.inState("a", bide.Failed)
			got := k.wakes(asks("w", "a"), func() { k.control("a", bide.OpRetry) })
			equal(k, "run", got[0].Run.ID, "a")
		}},
	{name: "control/retry-refused", protects: "a run that lives, or has nothing to mend, cannot be retried",
		run: func(k *kit) {
			for _, s := range []bide.State{bide.Queued, bide.Running, bide.Waiting, bide.Paused, bide.Canceling, bide.Succeeded} {
				id := s.String()
				k.inState(id, s)
				before, h := k.get(id), k.history(id)
				err := k.s.Control(k.ctx(), id, bide.Command{Op: bide.OpRetry})
				if err == nil {
					k.Errorf("a run that is %s was retried", s)
				}
				k.anyOf(err, bide.ErrRunEnded)
				sameJSON(k, id, k.get(id), before)
				sameJSON(k, "history of "+id, k.history(id), h)
			}
		}},
	{name: "control/waits", protects: "what a person does to a live wait reaches the turn as a message, and wakes the run",
		run: func(k *kit) {
			for i, c := range []bide.Command{
				{Op: bide.OpCheckWait, Wait: "job"},
				{Op: bide.OpExtendWait, Wait: "approval", Data: json.RawMessage(`3600000000000`)},
				{Op: bide.OpExtendWait, Wait: "1.1", Data: json.RawMessage(`-1`)},
				{Op: bide.OpCompleteWait, Wait: "1.1", Data: json.RawMessage(`{ "n": 9007199254740993 }`)},
				{Op: bide.OpCompleteWait, Wait: "send", Data: json.RawMessage(`null`)},
				{Op: bide.OpFailWait, Wait: "1.2", Reason: "will not come"},
			} {
				id := string(rune('a' + i))
				k.waitsFor(id)
				k.ok(k.s.Control(k.ctx(), id, c))
				k.state(id, bide.Queued)
				inbox := k.turn(id).Inbox
				if len(inbox) != 1 {
					k.Fatalf("operation %d: inbox %v, want one message", c.Op, names(inbox))
				}
				m := inbox[0]
				equal(k, "op", m.Op, c.Op)
				equal(k, "wait", m.Name, c.Wait)
				equal(k, "data", string(m.Data), string(c.Data))
				sameTime(k, "time", m.At, now())
				if c.Op == bide.OpFailWait && (m.Error == nil || !strings.Contains(m.Error.Message, c.Reason)) {
					k.Errorf("the wait is failed with %s, want an error that says %q: without one it would seem to succeed", short(m.Error), c.Reason)
				}
			}
		}},
	{name: "control/waits-held", protects: "what a person does to a live wait reaches a turn that is under way as news",
		run: func(k *kit) {
			c := k.begin("a")
			k.commit(c, bide.Batch{Waiting: &[]bide.Wait{{Path: "1", Kind: bide.KindPoll, Name: "job"}}})
			k.ok(k.s.Control(k.ctx(), "a", bide.Command{Op: bide.OpCheckWait, Wait: "job"}))
			equal(k, "news", names(k.news(c.Lease).Inbox), []string{"op 8"})
		}},
	{name: "control/waits-not-live", protects: "settling or extending a wait that the parked run does not have is refused, not kept for one to come",
		run: func(k *kit) {
			k.waitsFor("a")
			for _, op := range []bide.Op{bide.OpExtendWait, bide.OpCompleteWait, bide.OpFailWait} {
				for _, wait := range []string{"other", "1", "1.4", ""} {
					err := k.s.Control(k.ctx(), "a", bide.Command{Op: op, Wait: wait, Data: json.RawMessage(`1`)})
					if e := new(bide.InvalidError); !errors.As(err, &e) {
						k.Errorf("operation %d on the wait %q: got %v, want an InvalidError", op, wait, err)
					}
				}
			}
			k.notDue("a")
		}},
	{name: "control/check-not-live", protects: "a check of a wait that is not there is refused or passed over; it does no harm",
		run: func(k *kit) {
			k.waitsFor("a")
			k.anyOf(k.s.Control(k.ctx(), "a", bide.Command{Op: bide.OpCheckWait, Wait: "other"}))
		}},
	{name: "control/extend-by-nonsense", protects: "an extension that is no duration is refused before it reaches the workflow",
		run: func(k *kit) {
			k.waitsFor("a")
			for _, data := range []string{`"1h"`, `{}`, `1.5`, ``} {
				err := k.s.Control(k.ctx(), "a", bide.Command{Op: bide.OpExtendWait, Wait: "approval", Data: json.RawMessage(data)})
				if e := new(bide.InvalidError); !errors.As(err, &e) {
					k.Errorf("extending by %q: got %v, want an InvalidError", data, err)
				}
			}
			k.notDue("a")
		}},
	{name: "control/version", protects: "everything that a command changes moves the version, by which watchers notice",
		run: func(k *kit) {
			k.create(run("a"))
			version := k.get("a").Version
			for _, op := range []bide.Op{bide.OpPause, bide.OpResume, bide.OpCancel, bide.OpTerminate} {
				k.control("a", op)
				if v := k.get("a").Version; v <= version {
					k.Errorf("version %d after operation %d, %d before", v, op, version)
				} else {
					version = v
				}
			}
			k.inState("b", bide.Failed)
			version = k.get("b").Version
			k.control("b", bide.OpRetry)
			if v := k.get("b").Version; v <= version {
				k.Errorf("version %d after a retry, %d before", v, version)
			}
		}},
}
