package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// evidence is all that the checker judges by.
type evidence struct {
	Seed     uint64
	Lease    time.Duration
	Events   []event // what the witness saw
	Windows  []window
	Stalls   []window // when the machine had no time for the orchestrator itself
	Outcomes []outcome
}

// violation is a promise that was not kept.
type violation struct {
	Rule   string
	Job    string
	At     time.Time
	What   string
	Events []event // that show it
}

const (
	slack    = 2 * time.Second        // how late a timer may be when nothing is wrong
	early    = 50 * time.Millisecond  // how much the clocks of database and machine may differ
	awakened = 500 * time.Millisecond // how long one that was stopped may take to notice what it has missed
)

// checker is evidence, sorted.
type checker struct {
	evidence
	kept   map[string]call      // calls that are results in the end, by call
	began  map[string]event     // by call
	ended  map[string]event     // by call
	acked  map[string]time.Time // when the first consequence of a call was seen
	places map[string][]event   // begins, by job and place
	jobs   map[string][]event   // begins, by job
	whole  map[string]bool      // jobs whose story is known
	found  []violation
}

// check returns what the evidence shows to have been broken, the earliest first.
func check(ev evidence) []violation {
	c := &checker{evidence: ev, kept: map[string]call{}, began: map[string]event{}, ended: map[string]event{},
		acked: map[string]time.Time{}, places: map[string][]event{}, jobs: map[string][]event{}, whole: map[string]bool{}}
	slices.SortFunc(c.Events, func(a, b event) int { return a.Sent.Compare(b.Sent) })
	for _, e := range c.Events {
		switch e.What {
		case begin, beat:
			c.began[e.Call] = e
			c.places[e.Job+" "+e.Place] = append(c.places[e.Job+" "+e.Place], e)
			c.jobs[e.Job] = append(c.jobs[e.Job], e)
		case end, ebb:
			c.ended[e.Call] = e
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
	c.overlaps()
	c.timers()
	c.loop()
	slices.SortStableFunc(c.found, func(a, b violation) int { return a.At.Compare(b.At) })
	return c.found
}

func (c *checker) report(rule, job string, at time.Time, events []event, format string, args ...any) {
	c.found = append(c.found, violation{rule, job, at, fmt.Sprintf(format, args...), events})
}

// outcome judges how a run ended: none is lost, each tells the whole story, with
// every signal once.
func (c *checker) outcome(o *outcome) {
	switch {
	case o.Run == "":
		c.report("start", o.Job.ID, o.Started, nil, "no start was ever acknowledged")
		return
	case o.State != "succeeded" || o.Error != "":
		c.report("lost run", o.Job.ID, o.Started, c.jobs[o.Job.ID], "run %s is %s, %s\n%s", o.Run, o.State, o.Error, o.History)
		return
	}
	if o.Unheard {
		c.report("result", o.Job.ID, o.Started, c.jobs[o.Job.ID], "run %s has ended, and who waits for its result is not told", o.Run)
	}
	c.whole[o.Job.ID] = true
	for _, k := range o.Story.Calls {
		if k.Call != "" {
			c.kept[k.Call] = k
		}
	}
	var want, got []string
	for r, round := range o.Job.Rounds {
		for i, verb := range round {
			want = append(want, steps(o.Job.ID, place(r, i, verb), verb)...)
		}
	}
	for _, k := range o.Story.Calls {
		got = append(got, k.Place)
		if k.Call == "" && !strings.HasSuffix(k.Place, ".once") && !strings.HasSuffix(k.Place, ".drop") {
			c.report("story", o.Job.ID, o.Started, c.jobs[o.Job.ID], "step %s has no result", k.Place)
		}
	}
	if !slices.Equal(got, want) {
		c.report("story", o.Job.ID, o.Started, c.jobs[o.Job.ID], "the run has taken %v, not %v", got, want)
	}
	heard, sent := slices.Sorted(slices.Values(o.Story.Got)), slices.Sorted(slices.Values(sends(o.Job)))
	if !slices.Equal(heard, sent) {
		c.report("signal", o.Job.ID, o.Started, c.jobs[o.Job.ID], "it was sent %v, each once, and has received %v", sent, heard)
	}
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
				if e.Call != k.Call && e.Sent.After(at) && !c.stopped(e.Node, e.Sent, e.Sent) {
					c.report("rerun", e.Job, e.Sent, calls, "%s was called again on %s, %v after what came of its kept result was seen", key, e.Node, e.Sent.Sub(at))
				}
			}
		}
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
				if !branches && !c.stopped(a.Node, a.Sent, over.Sent) && !c.stopped(b.Node, b.Sent, b.Sent) {
					c.report("overlap", a.Job, b.Sent, []event{a, b, over}, "%s on %s began while %s was under way on %s", b.Place, b.Node, a.Place, a.Node)
				}
			}
		}
	}
}

// timers: none is early, none is late but for a fault.
func (c *checker) timers() {
	for key, calls := range c.places {
		e := calls[0]
		if e.Due.IsZero() || e.What == beat {
			continue
		}
		if e.Sent.Before(e.Due.Add(-early)) {
			c.report("early timer", e.Job, e.Sent, calls, "%s was due at %v and came %v early", key, e.Due, e.Due.Sub(e.Sent))
		}
		if quiet := c.calm(e.Due, e.Sent); quiet > slack {
			c.report("late timer", e.Job, e.Sent, c.jobs[e.Job], "%s was due at %v and came %v late, of which %v without a fault", key, clock(e.Due), e.Sent.Sub(e.Due), quiet)
		}
	}
}

// loop: one iteration at a time, over all processes, none twice, none missed.
func (c *checker) loop() {
	beats := c.jobs[loopName]
	var latest event
	for i, e := range beats {
		if i > 0 {
			if quiet := c.calm(beats[i-1].Sent.Add(loopEvery), e.Sent); quiet > slack {
				c.report("late loop", loopName, e.Sent, beats[i-1:i+1], "there was no iteration for %v, of which %v without a fault", e.Sent.Sub(beats[i-1].Sent), quiet)
			}
		}
		switch {
		case c.stopped(e.Node, e.Sent, e.Sent): // it does not know yet
			continue
		case e.Due.Before(latest.Due):
			c.report("loop twice", loopName, e.Sent, []event{latest, e}, "the iteration of %v began on %s after that of %v on %s", clock(e.Due), e.Node, clock(latest.Due), latest.Node)
			continue
		case e.Due.Equal(latest.Due) && !c.troubled(latest, e):
			c.report("loop twice", loopName, e.Sent, []event{latest, e}, "the iteration of %v was begun on %s and on %s, and nothing was wrong", clock(e.Due), latest.Node, e.Node)
		}
		latest = e
	}
}

// stopped reports whether the process was stopped in that time, or until so lately
// that it need not know yet what it has missed: a zombie. Nothing that it does
// then is kept, and nothing could keep it from beginning what it was about to do.
func (c *checker) stopped(node string, from, to time.Time) bool {
	name, _, _ := strings.Cut(node, "#")
	return slices.ContainsFunc(c.Windows, func(w window) bool {
		return w.Kind == "stop" && w.Node == name && !w.From.After(to) && !w.To.Add(awakened).Before(from)
	})
}

// troubled reports whether a fault may have kept the end of a's work from being
// known when b's began.
func (c *checker) troubled(a, b event) bool {
	name, _, _ := strings.Cut(a.Node, "#")
	return slices.ContainsFunc(c.Windows, func(w window) bool {
		return w.Kind != "skew" && (w.Node == name || w.Node == "db" || w.Node == "s0") && !w.From.After(b.Sent) && !w.To.Before(a.Sent)
	})
}

// calm is the longest time between the two in which nothing was wrong, nor a lease
// of a process that was hit could still have been held.
func (c *checker) calm(from, to time.Time) time.Duration {
	var bad []window
	for _, w := range slices.Concat(c.Windows, c.Stalls) {
		if w.Kind == "skew" {
			continue
		}
		if lapses := w.From.Add(c.Lease); w.Kind != "stall" && lapses.After(w.To) {
			w.To = lapses
		}
		bad = append(bad, w)
	}
	slices.SortFunc(bad, func(a, b window) int { return cmp.Compare(a.From.UnixNano(), b.From.UnixNano()) })
	longest := time.Duration(0)
	for _, w := range bad {
		if w.To.Before(from) {
			continue
		}
		if w.From.After(to) {
			break
		}
		longest = max(longest, w.From.Sub(from))
		if w.To.After(from) {
			from = w.To
		}
	}
	return max(longest, to.Sub(from))
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }
