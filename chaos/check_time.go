package main

import (
	"slices"
	"strings"
	"time"
)

// early is how much the clocks of database and machine may differ.
const early = 50 * time.Millisecond

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
		if quiet := c.calm(e.Due, e.Sent); quiet > c.Late {
			c.report("late timer", e.Job, e.Sent, c.jobs[e.Job], "%s was due at %v and came %v late, of which %v without a fault", key, clock(e.Due), e.Sent.Sub(e.Due), quiet)
		}
	}
}

// deafAfter is when a worker elsewhere notices that its server does not hear it.
const deafAfter = 15 * time.Second

// idles: a worker that nothing is wrong with any more has its part of the work again.
func (c *checker) idles() {
	var all []event
	of := map[string][]time.Time{}
	for _, e := range c.Events {
		if name, _, _ := strings.Cut(e.Node, "#"); e.What == begin {
			all, of[name] = append(all, e), append(of[name], e.Sent)
		}
	}
	for name, times := range of {
		times = append(times, all[len(all)-1].Sent)
		for i, to := range times[1:] {
			from := times[i]
			judge := func(to time.Time) {
				if to.Sub(from) < 3*c.Late {
					return
				}
				others := slices.DeleteFunc(slices.Clone(all), func(e event) bool { return e.Sent.Before(from.Add(3*c.Late)) || !e.Sent.Before(to) })
				if len(others) > idle {
					c.report("idle", name, from, nil, "it has worked last at %v; nothing was wrong with it from %v on, and others have begun %d things until %v", clock(times[i]), clock(from), len(others), clock(to))
				}
			}
			for _, w := range c.wrongs() {
				if hits := w.Node == name || w.Node == "db" || w.Node == "s0" && name == distant || w.Kind == "stall"; !hits || w.To.Before(from) || w.From.After(to) {
					continue
				}
				judge(w.From)
				if from = w.To; name == distant && strings.Contains(w.Fault, " lose ") { // its connection has gone, without a word
					from = from.Add(deafAfter)
				}
			}
			judge(to)
		}
	}
}

// idle is how many things others may begin before a worker begins one.
const idle = 200

// frozen reports whether the process was stopped in that time.
func (c *checker) frozen(node string, from, to time.Time) bool {
	name, _, _ := strings.Cut(node, "#")
	return slices.ContainsFunc(c.Windows, func(w window) bool {
		return w.Kind == "stop" && w.Node == name && !w.From.After(to) && !w.To.Before(from)
	})
}

// zombie reports whether a call began on a process that was stopped just before it,
// and is the one that was about to begin then: nothing could keep it from that, and
// nothing of it is kept. The first call of the run there after the stop is that one,
// if it comes at once, within a quarter of what a timer may be late: the time that the
// machine itself was stalled does not count.
func (c *checker) zombie(e event) bool {
	name, _, _ := strings.Cut(e.Node, "#")
	return slices.ContainsFunc(c.Windows, func(w window) bool {
		if w.Kind != "stop" || w.Node != name || w.From.After(e.Sent) {
			return false
		}
		if !w.To.Before(e.Sent) {
			return true
		}
		for _, x := range c.jobs[e.Job] {
			if x.Node == e.Node && x.Lane == e.Lane && x.Sent.After(w.To) && x.Sent.Before(e.Sent) {
				return false
			}
		}
		return c.calm(w.To, e.Sent, "stall") <= c.Late/4
	})
}

// lapse is how long after a process was hit its runs may be in nobody's hand: its
// leases have to lapse first, and the others look for that once in half a lease.
func (c *checker) lapse() time.Duration { return c.Lease + c.Lease/2 }

// wrongs are the times of which nothing can be said, the earliest first: those in
// which a fault was there, and those in which what it left behind may still be. Of
// skewed clocks and of the ways of the patrons runs know nothing, so these are none.
func (c *checker) wrongs() (all []window) {
	for _, w := range slices.Concat(c.Windows, c.Stalls) {
		over := w.To
		switch {
		case w.Kind == "skew", w.Node == "patron":
			continue
		case w.Kind == "stall":
		case w.Far == "witness": // a call that was under way waits for an answer that is lost
			over = w.To.Add(callTimeout)
		default:
			over = w.From.Add(c.lapse())
		}
		if over.After(w.To) {
			w.To = over
		}
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b window) int { return a.From.Compare(b.From) })
	return all
}

// wrong reports whether anything was, in that time.
func (c *checker) wrong(from, to time.Time) bool {
	return slices.ContainsFunc(c.wrongs(), func(w window) bool { return !w.From.After(to) && !w.To.Before(from) })
}

// calm is the longest time between the two in which nothing was wrong; if kinds are
// given, nothing of those.
func (c *checker) calm(from, to time.Time, kinds ...string) time.Duration {
	longest := time.Duration(0)
	for _, w := range c.wrongs() {
		if w.To.Before(from) || kinds != nil && !slices.Contains(kinds, w.Kind) {
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
