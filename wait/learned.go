package wait

import (
	"math"
	"sort"
	"time"
)

const (
	learnedLeast = 8   // waits, with fewer nothing is planned
	learnedSteps = 512 // checks, beyond which a plan is not tried out
)

// Pause returns the pause after a check, elapsed since the wait began, that found
// it pending. Checks go where the end is likely: there are as few as possible
// while, over waits like those known, the mean time from the end to the check
// that sees it is that of a check every interval, interval/2. least is the shortest
// pause, a millisecond if it is shorter.
//
// That mean is an estimate: over many waits it came out some per cent below where
// their durations have sharp edges, and up to a tenth above where these are smooth
// or have a long tail.
//
// The less is known, the more careful it is: with fewer than 8 waits known the
// pause is a tenth of elapsed, from a tenth of interval to all of it; with n it is
// at most n/8 intervals, and at most 32. After the longest wait known the pauses
// grow with the square root of elapsed. There is no jitter in it: the caller puts
// it on, and counts elapsed to when the check was in fact made.
//
// The first call after Add or decoding makes the plan, which as a rule takes
// some tens of microseconds; the others take about one.
func (s *Sketch) Pause(elapsed, interval, least time.Duration) time.Duration {
	elapsed, least = max(elapsed, 0), max(least, time.Millisecond)
	interval = max(interval, least)
	if s.waits < learnedLeast {
		return min(max(elapsed/10, interval/10, least), interval)
	}
	if s.plan == nil || s.plan.interval != interval || s.plan.least != least {
		s.plan = s.newPlan(interval, least)
	}
	e := elapsed.Seconds()
	return max(least, time.Duration(1e9*min(s.plan.pause(e), 9e9)))
}

// sketchPlan says where to check. It knows a density f of the end over time; let
// S(t) be the share of waits that are still pending at t, and c the price of a
// check in seconds of delay. Where f changes little from one check to the next,
// checks cost the least at a distance of sqrt(2c·S/f), and from t on they cost
// k·∫ sqrt(S·f) with k = sqrt(2c). So the next check after one at e is put where
//
//	∫ from e to t of (t-u)·f(u) du + k·∫ from t on of sqrt(S·f)
//
// is least: the delay until t, and what comes after it. That looks over
// gaps, edges and peaks, to which the distance alone is blind. k is the one for
// which the mean delay is right. Times are in seconds.
type sketchPlan struct {
	interval, least time.Duration
	pieces          []sketchPiece
	end             float64 // of the last piece
	tail            float64 // the share of waits that is thought to take longer
	k               float64
	longest         float64 // pause
}

// sketchPiece is a span of time in which the density is the same.
type sketchPiece struct {
	from, to float64
	f        float64
	pending  float64 // S at from
	root     float64 // ∫ sqrt(S·f) over it
	peak     float64 // the most that sqrt(S·f) is from here on
}

func (s *Sketch) newPlan(interval, least time.Duration) *sketchPlan {
	smooth := s.smooth()
	// As if half a wait had been longer than all, so that S is never 0.
	all := float64(s.total) + sketchUnits/2
	p := &sketchPlan{interval: interval, least: least, tail: sketchUnits / 2 / all}
	p.longest = interval.Seconds() * float64(s.known()) / learnedLeast
	pending, n := 1.0, 0
	for i, w := range smooth {
		if w == 0 && len(p.pieces) == 0 {
			continue
		}
		g := sketchPiece{from: sketchEdge(i).Seconds(), to: sketchEdge(i + 1).Seconds(), pending: pending}
		g.f = w / all / (g.to - g.from)
		g.root = sketchRoot(g.f, g.pending, g.to-g.from)
		pending = max(pending-w/all, p.tail)
		p.pieces = append(p.pieces, g)
		if w > 0 {
			p.end, n = g.to, len(p.pieces)
		}
	}
	p.pieces = p.pieces[:n]
	// In the tail the density is thought to fall as 1/t².
	root, peak := 2*p.tail*math.Sqrt(p.end), 0.0
	for i := len(p.pieces) - 1; i >= 0; i-- {
		g := &p.pieces[i]
		root += g.root
		peak = max(peak, math.Sqrt(g.f*g.pending))
		g.peak = peak
	}
	// The k of checks that are close together, and then by trial.
	want := interval.Seconds() / 2
	p.k = 2 * want / root
	for range 8 {
		got, ok := p.delay()
		if !ok {
			break
		}
		p.k *= want / got
		if math.Abs(want-got) < want/200 {
			break
		}
	}
	return p
}

// delay returns the mean delay of the plan, unless that takes too many checks to
// find out.
func (p *sketchPlan) delay() (mean float64, ok bool) {
	mean = p.k * p.tail * math.Sqrt(p.end)
	i := 0
	for e, n := 0.0, 0; e < p.end; n++ {
		if n == learnedSteps {
			return 0, false
		}
		t := e + max(p.pause(e), p.least.Seconds())
		for ; i < len(p.pieces) && p.pieces[i].from < t; i++ {
			g := &p.pieces[i]
			a, b := max(g.from, e), min(g.to, t)
			if a < b {
				mean += g.f * (b - a) * (t - (a+b)/2)
			}
			if g.to > t {
				break
			}
		}
		e = t
	}
	return mean, true
}

// pause returns the pause after a check at e.
func (p *sketchPlan) pause(e float64) float64 {
	if e >= p.end {
		return min(p.k*math.Sqrt(e), e/10, p.longest)
	}
	at, lowest := p.end, math.Inf(1)
	try := func(t, cost float64) {
		if cost < lowest {
			at, lowest = t, cost
		}
	}
	var cost, missed float64 // the sum above, less what it is at e; the share that ended since e
	first := sort.Search(len(p.pieces), func(i int) bool { return p.pieces[i].to > e })
	for i := first; i < len(p.pieces); i++ {
		g := p.pieces[i]
		if missed > 0 && missed >= p.k*g.peak {
			break // the cost only rises from here on
		}
		if e > g.from {
			g.pending -= g.f * (e - g.from)
			g.from = e
			g.root = sketchRoot(g.f, g.pending, g.to-g.from)
		}
		w := g.to - g.from
		if g.f > 0 {
			// Inside, the cost is least where missed + f·x = k·sqrt(f)·r, with
			// r² = S = pending - f·x.
			q := p.k * math.Sqrt(g.f)
			r := (math.Sqrt(q*q+4*(missed+g.pending)) - q) / 2
			if x := (q*r - missed) / g.f; x > 0 && x < w {
				try(g.from+x, cost+missed*x+g.f*x*x/2-p.k*sketchRoot(g.f, g.pending, x))
			}
		}
		cost += missed*w + g.f*w*w/2 - p.k*g.root
		missed += g.f * w
		try(g.to, cost)
	}
	return min(at-e, p.longest)
}

// sketchRoot is ∫ sqrt(f·(s-f·x)) dx from 0 to w.
func sketchRoot(f, s, w float64) float64 {
	if f == 0 {
		return 0
	}
	rest := max(s-f*w, 0)
	return (s*math.Sqrt(s) - rest*math.Sqrt(rest)) / math.Sqrt(f) * 2 / 3
}
