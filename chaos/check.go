package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// evidence is all that the checker judges by.
type evidence struct {
	Seed     uint64
	Lease    time.Duration
	Late     time.Duration // how late a timer may be when nothing is wrong
	Events   []event       // what the witness saw
	Windows  []window
	Stalls   []window // when the machine had no time for the orchestrator itself
	LetGo    []window // when a worker could not tell in time that it lives, and let its runs go
	Outcomes []outcome
	Ledger   []entry  // what is in the database's own table
	Listed   []string // the ids of all runs
}

// violation is a promise that was not kept.
type violation struct {
	Rule   string
	Job    string
	At     time.Time
	What   string
	Events []event // that show it
}

// checker is evidence, sorted.
type checker struct {
	evidence
	kept   map[string]call      // calls that are results in the end, by call
	began  map[string]event     // by call
	ended  map[string]event     // by call
	acked  map[string]time.Time // when the first consequence of a call was seen
	places map[string][]event   // begins, by job and place
	jobs   map[string][]event   // begins, by job
	noted  map[string][]event   // what patrons did, by job
	looks  map[string][]event   // checks, by what they asked for
	whole  map[string]bool      // jobs whose story is known
	found  []violation
}

// check returns what the evidence shows to have been broken, the earliest first.
func check(ev evidence) []violation {
	c := &checker{evidence: ev, kept: map[string]call{}, began: map[string]event{}, ended: map[string]event{},
		acked: map[string]time.Time{}, places: map[string][]event{}, jobs: map[string][]event{}, noted: map[string][]event{},
		looks: map[string][]event{}, whole: map[string]bool{}}
	slices.SortFunc(c.Events, func(a, b event) int { return a.Sent.Compare(b.Sent) })
	for _, e := range c.Events {
		switch e.What {
		case begin, beat:
			c.began[e.Call] = e
			c.places[e.Job+" "+e.Place] = append(c.places[e.Job+" "+e.Place], e)
			c.jobs[e.Job] = append(c.jobs[e.Job], e)
		case end, ebb:
			c.ended[e.Call] = e
		case pauses, resumes, triggers:
			c.noted[e.Job] = append(c.noted[e.Job], e)
		case look:
			c.looks[e.URL] = append(c.looks[e.URL], e)
		}
		if _, known := c.acked[e.Prev]; e.Prev != "" && !known {
			c.acked[e.Prev] = e.Sent
		}
	}
	for i := range c.Outcomes {
		c.outcome(&c.Outcomes[i])
	}
	c.chain()
	c.reruns()
	c.replays()
	c.overlaps()
	c.timers()
	c.idles()
	c.pauses()
	c.shares()
	c.ledger()
	c.lists()
	c.loop(loopName)
	c.loop(choreName)
	c.beats()
	c.triggers()
	slices.SortStableFunc(c.found, func(a, b violation) int { return a.At.Compare(b.At) })
	return c.found
}

func (c *checker) report(rule, job string, at time.Time, events []event, format string, args ...any) {
	c.found = append(c.found, violation{rule, job, at, fmt.Sprintf(format, args...), events})
}

// chain: what a workflow has acted on is what is kept in the end, and was done.
func (c *checker) chain() {
	for _, e := range c.Events {
		root, _, _ := strings.Cut(e.Job, "/")
		if e.Prev == "" || !c.whole[root] {
			continue
		}
		if _, ok := c.kept[e.Prev]; !ok {
			c.report("kept", e.Job, e.Sent, c.jobs[root], "%s was reached with call %s behind it, which is not kept", e.Place, e.Prev)
		} else if p, ok := c.ended[e.Prev]; ok && p.Sent.After(e.Sent) {
			c.report("overlap", e.Job, e.Sent, c.jobs[root], "%s began before call %s, on which it builds, had ended", e.Place, e.Prev)
		}
	}
	for id, k := range c.kept {
		if _, ok := c.ended[id]; !ok {
			c.report("kept", "", time.Time{}, nil, "call %s of %s is kept as a result, and nobody has seen its end", id, k.Place)
		}
	}
}

// reruns: a step that is known to have been kept is not called again, one that is
// called at most once is not called twice.
func (c *checker) reruns() {
	for key, calls := range c.places {
		if strings.HasSuffix(key, ".once") && len(calls) > 1 {
			c.report("at most once", calls[1].Job, calls[1].Sent, calls, "%s was called %d times", key, len(calls))
		}
		for _, k := range calls {
			at, known := c.acked[k.Call]
			if _, kept := c.kept[k.Call]; !kept || !known {
				continue
			}
			for _, e := range calls {
				if e.Call != k.Call && e.Sent.After(at) && !c.zombie(e) {
					c.report("rerun", e.Job, e.Sent, calls, "%s was called again on %s, %v after what came of its kept result was seen", key, e.Node, e.Sent.Sub(at))
				}
			}
		}
	}
}

// replays: what a workflow draws is drawn once, and each step has one idempotency key,
// which no other has.
func (c *checker) replays() {
	whose := map[string]string{}
	for key, calls := range c.places {
		first := calls[0]
		if key = strings.TrimSpace(key); first.What == beat {
			continue
		}
		for _, e := range calls[1:] {
			if e.Drawn != first.Drawn {
				c.report("replay", e.Job, e.Sent, []event{first, e}, "%s has drawn %q and, on replay, %q", key, first.Drawn, e.Drawn)
			}
			if e.Key != first.Key {
				c.report("key", e.Job, e.Sent, []event{first, e}, "%s has the idempotency keys %s and %s", key, first.Key, e.Key)
			}
		}
		if other, taken := whose[first.Key]; taken && first.Key != "" {
			c.report("key", first.Job, first.Sent, calls, "%s has the idempotency key of %s", key, other)
		}
		whose[first.Key] = key
	}
}

// overlaps: no two calls of a run are under way at once, unless in branches of it.
func (c *checker) overlaps() {
	for _, calls := range c.jobs {
		for i, a := range calls {
			over, ok := c.ended[a.Call]
			if !ok {
				continue // who was killed, or not heard, has done nothing any more
			}
			for _, b := range calls[i+1:] {
				if !b.Sent.Before(over.Sent) {
					break
				}
				branches := a.Lane != "" && b.Lane != "" && a.Lane != b.Lane
				if !branches && !c.frozen(a.Node, a.Sent, over.Sent) && !c.zombie(b) {
					c.report("overlap", a.Job, b.Sent, []event{a, b, over}, "%s on %s began while %s was under way on %s", b.Place, b.Node, a.Place, a.Node)
				}
			}
		}
	}
}

// pauses: of what is paused no more is begun, once who has it in hand can have heard of
// it: in a quarter of what a timer may be late, or with the next commit.
func (c *checker) pauses() {
	for job, notes := range c.noted {
		for i, n := range notes {
			if n.What != pauses {
				continue
			}
			begun := map[string]bool{}
			seen := []event{n}
			for _, e := range c.jobs[job] {
				if e.Sent.After(n.At) && (i+1 == len(notes) || e.Sent.Before(notes[i+1].Sent)) && c.calm(n.At, e.Sent) > c.Late/4 {
					begun[e.Place], seen = true, append(seen, e)
				}
			}
			if len(begun) > 1 {
				c.report("pause", job, n.At, seen, "%d steps were begun after it was paused", len(begun))
			}
		}
	}
}

// ledger: what is done in a transaction of the store is there exactly once.
func (c *checker) ledger() {
	rows := map[entry]int{}
	for _, e := range c.Ledger {
		rows[e]++
	}
	for _, o := range c.Outcomes {
		for _, k := range o.Story.Calls {
			if e := (entry{o.Job.ID + "/" + k.Place, k.Call}); verbOf(k.Place) == "txstep" {
				if rows[e] != 1 {
					c.report("ledger", o.Job.ID, o.Started, c.jobs[e.Job], "%s, call %s, has %d rows", k.Place, k.Call, rows[e])
				}
				delete(rows, e)
			}
		}
	}
	for e, n := range rows {
		if root, _, _ := strings.Cut(e.Job, "/"); c.whole[root] {
			c.report("ledger", e.Job, time.Time{}, c.jobs[e.Job], "call %s has %d rows, and is no result", e.Call, n)
		}
	}
}

// lists: in a list of all runs each is there once.
func (c *checker) lists() {
	times := map[string]int{}
	for _, id := range c.Listed {
		times[id]++
	}
	for _, o := range c.Outcomes {
		if o.Run != "" && times[o.Run] != 1 {
			c.report("list", o.Job.ID, o.Started, nil, "run %s is in the list of all %d times", o.Run, times[o.Run])
		}
	}
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }
