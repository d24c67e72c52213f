package wait_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/bide-dev/bide/wait"
)

// simulated is what a strategy costs and gives: the mean number of checks of a
// job, and how many seconds after its end that is found out.
type simulated struct{ polls, delay float64 }

// simulate lets 400 jobs of the given duration, give or take a fifth, be waited
// for. eta returns when a job says that it will be done, in seconds from its
// start, each time that it is asked; nil: it does not say.
func simulate(strategy wait.Strategy, mean time.Duration, eta func(took, now, r float64) float64) simulated {
	const jobs = 400
	rnd := rand.New(rand.NewPCG(11, 12))
	plan := wait.Plan{Strategy: strategy, Min: time.Second}
	start := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	after := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	var sum simulated
	for range jobs {
		took := mean.Seconds() * (0.8 + 0.4*rnd.Float64())
		done := after(took)
		state := wait.State{Start: start}
		now := start
		for now.Before(done) {
			if eta != nil {
				state.ETA = after(eta(took, now.Sub(start).Seconds(), rnd.Float64()))
			}
			state.Saw(0, 0)
			now = plan.Next(&state, wait.Hint{}, now, time.Time{}, rnd.Float64).At
			sum.polls++
		}
		sum.delay += now.Sub(done).Seconds()
	}
	return simulated{sum.polls / jobs, sum.delay / jobs}
}

// The table by which the defaults were chosen: an estimate that is off by a fifth
// of what is left finds the end within a second of it and with fewer checks than
// any row of pauses, and one that is off by half is no worse than [wait.Elapsed].
func TestStrategiesOverManyJobs(t *testing.T) {
	off := func(took, now, r float64) float64 { return now + (took-now)*(0.8+0.4*r) }
	half := func(took, _, _ float64) float64 { return took / 2 }
	strategies := []struct {
		name     string
		strategy wait.Strategy
		eta      func(took, now, r float64) float64
	}{
		{"fixed 2 s", wait.Fixed(2 * time.Second), nil},
		{"exponential", wait.Exponential{}, nil},
		{"elapsed", wait.Elapsed{}, nil},
		{"eta", wait.ETA{}, off},
		{"eta, took twice as long", wait.ETA{}, half},
	}
	for _, c := range []struct {
		mean time.Duration
		want []simulated // in the order of the strategies
	}{
		{10 * time.Second, []simulated{{5.5, 1.0}, {5.5, 2.8}, {10, 0.5}, {2.6, 0.6}, {7.4, 0.6}}},
		{time.Minute, []simulated{{30, 1.0}, {9.7, 12}, {29, 2.9}, {3.5, 0.8}, {17, 3.6}}},
		{10 * time.Minute, []simulated{{299, 1.0}, {34, 12}, {53, 29}, {12.5, 0.7}, {31, 30}}},
		{time.Hour, []simulated{{1789, 1.0}, {166, 12}, {103, 31}, {62, 0.7}, {81, 29}}},
	} {
		var got []simulated
		for i, s := range strategies {
			got = append(got, simulate(s.strategy, c.mean, s.eta))
			t.Logf("%v, %s: %.1f checks, found after %.2f s", c.mean, s.name, got[i].polls, got[i].delay)
			near := func(a, b float64) bool { return a > 0.8*b-0.2 && a < 1.2*b+0.2 }
			if !near(got[i].polls, c.want[i].polls) || !near(got[i].delay, c.want[i].delay) {
				t.Errorf("%v, %s: %.1f checks and found after %.2f s, want about %v and %v",
					c.mean, s.name, got[i].polls, got[i].delay, c.want[i].polls, c.want[i].delay)
			}
		}
		eta := got[3]
		for i, other := range got[:3] {
			if eta.polls >= other.polls {
				t.Errorf("%v: eta took %.1f checks, %s only %.1f", c.mean, eta.polls, strategies[i].name, other.polls)
			}
		}
		if eta.delay > 1 {
			t.Errorf("%v: eta found out after %.2f s, over a second", c.mean, eta.delay)
		}
	}
}
