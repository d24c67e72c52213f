package main

import (
	"slices"
	"strings"
	"time"
)

// loop: one iteration at a time, over all processes, none twice. That they do not
// overlap is a rule of every step.
func (c *checker) loop(name string) {
	var latest event
	for _, e := range c.jobs[name] {
		switch {
		case c.zombie(e): // it does not know yet
			continue
		case e.Due.Before(latest.Due):
			c.report("loop twice", name, e.Sent, []event{latest, e}, "the iteration of %v began on %s after that of %v on %s", clock(e.Due), e.Node, clock(latest.Due), latest.Node)
			continue
		case e.Due.Equal(latest.Due) && !c.troubled(latest, e):
			c.report("loop twice", name, e.Sent, []event{latest, e}, "the iteration of %v was begun on %s and on %s, and nothing was wrong", clock(e.Due), latest.Node, e.Node)
		case e.Due.Equal(latest.Due) != (e.Key == latest.Key):
			c.report("key", name, e.Sent, []event{latest, e}, "the iterations of %v and %v have the idempotency keys %s and %s", clock(latest.Due), clock(e.Due), latest.Key, e.Key)
		}
		latest = e
	}
}

// troubled reports whether a fault may have kept the end of a's work from being
// known when b's began.
func (c *checker) troubled(a, b event) bool {
	name, _, _ := strings.Cut(a.Node, "#")
	return slices.ContainsFunc(slices.Concat(c.Windows, c.LetGo), func(w window) bool {
		return w.Kind != "skew" && (w.Node == name || w.Node == "db" || w.Node == "s0") && !w.From.After(b.Sent) && !w.To.Before(a.Sent)
	})
}

// unseen reports whether the witness may not have seen the iteration that a trigger led
// to. It has failed then, and none comes in its place.
func (c *checker) unseen(trigger event) bool {
	return slices.ContainsFunc(c.Windows, func(w window) bool {
		return w.Far == "witness" && !w.From.After(trigger.At.Add(c.Late)) && !w.To.Before(trigger.Sent)
	})
}

// beats: the loop that goes by itself misses no time.
func (c *checker) beats() {
	beats := c.jobs[loopName]
	for i := 1; i < len(beats); i++ {
		a, b := beats[i-1], beats[i]
		if quiet := c.calm(a.Sent.Add(loopEvery), b.Sent); quiet > c.Late {
			c.report("late loop", loopName, b.Sent, beats[i-1:i+1], "there was no iteration for %v, of which %v without a fault", b.Sent.Sub(a.Sent), quiet)
		}
	}
}

// triggers: the loop that goes when it is told does so each time, soon, and at no
// other.
func (c *checker) triggers() {
	beats, notes := c.jobs[choreName], c.noted[choreName]
	times, asked := map[time.Time]bool{}, 0
	for _, e := range beats {
		times[e.Due] = true
	}
	var over time.Time
	if len(c.Events) > 0 {
		over = c.Events[len(c.Events)-1].Sent
	}
	for _, n := range notes {
		if n.What == triggers {
			asked++
			if strings.HasPrefix(n.Place, "failed") {
				continue // it may have arrived or not
			}
			if n.Place != "" {
				c.report("trigger", choreName, n.Sent, nil, "there was a trigger %s", n.Place)
			}
			came := slices.IndexFunc(beats, func(e event) bool { return e.Sent.After(n.Sent) })
			at := over
			if came >= 0 {
				at = beats[came].Sent
			}
			if quiet := c.calm(n.At, at); quiet > c.Late && !c.unseen(n) {
				c.report("late trigger", choreName, n.Sent, nil, "it was triggered, and no iteration came for %v, of which %v without a fault", at.Sub(n.At), quiet)
			}
		}
	}
	if len(times) > asked {
		c.report("trigger", choreName, over, beats, "it was triggered %d times, and iterated %d times", asked, len(times))
	}
}
