package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/bide-dev/bide/wait"
)

const (
	cadenceInterval = 10 * time.Second
	cadenceLearn    = 1000 // waits, before those that count
)

// trace is a row of waits, each drawn from what the ones before do not tell.
type trace struct {
	name string
	draw func(r *rand.Rand, i int) time.Duration // within 10 s and an hour
}

var traces = []trace{
	{"exponential, mean 5 min", func(r *rand.Rand, _ int) time.Duration { return minutes(5 * r.ExpFloat64()) }},
	{"log-normal, median 5 min, σ 0.3, clipped to 3–10 min", func(r *rand.Rand, _ int) time.Duration {
		return min(max(minutes(5*math.Exp(0.3*r.NormFloat64())), 3*time.Minute), 10*time.Minute)
	}},
	{"log-normal, median 5 min, σ 1", func(r *rand.Rand, _ int) time.Duration { return minutes(5 * math.Exp(r.NormFloat64())) }},
	{"two peaks: 70 % about 1 min, 30 % about 20 min", func(r *rand.Rand, _ int) time.Duration {
		if r.Float64() < 0.7 {
			return minutes(math.Exp(0.2 * r.NormFloat64()))
		}
		return minutes(20 * math.Exp(0.1*r.NormFloat64()))
	}},
	{"uniform, 3–10 min", func(r *rand.Rand, _ int) time.Duration { return minutes(3 + 7*r.Float64()) }},
	{"drifting: log-normal, σ 0.3, median from 2 to 10 min in 3,000 waits, then at once back", func(r *rand.Rand, i int) time.Duration {
		return minutes(2 * math.Pow(5, float64(i%3000)/3000) * math.Exp(0.3*r.NormFloat64()))
	}},
	// The constants of wait.Sketch were chosen with other waits of the traces above,
	// and without this one.
	{"Weibull, shape 3, scale 6 min", func(r *rand.Rand, _ int) time.Duration { return minutes(6 * math.Cbrt(r.ExpFloat64())) }},
}

func minutes(m float64) time.Duration {
	return min(max(time.Duration(m*float64(time.Minute)), 10*time.Second), time.Hour)
}

// paces are what Learned is held against: the pause after the n-th check.
var paces = []struct {
	name  string
	pause func(elapsed time.Duration, n int) time.Duration
}{
	{"fixed 10 s", func(time.Duration, int) time.Duration { return cadenceInterval }},
	{"exponential 1 s × 1.5, at most 30 s", func(_ time.Duration, n int) time.Duration {
		return time.Duration(min(float64(time.Second)*math.Pow(1.5, float64(n-1)), float64(30*time.Second)))
	}},
	{"elapsed 0.1, 1–60 s", func(elapsed time.Duration, _ int) time.Duration {
		return min(max(elapsed/10, time.Second), time.Minute)
	}},
}

// paced is what one pace took on one trace.
type paced struct {
	Pace      string
	Checks    float64       // a wait, with the one that comes at once
	Mean, P95 time.Duration // from the end of a wait to the check that sees it
}

// poll plays a wait that takes d. It returns how many checks it takes, when the
// last of them but one was, and when the last.
func poll(d time.Duration, pause func(elapsed time.Duration, n int) time.Duration) (n int, pending, done time.Duration) {
	for n = 1; done < d; n++ {
		pending, done = done, done+pause(done, n)
	}
	return n, pending, done
}

// measure plays a trace at every pace. The learned one learns from all waits,
// also from those that count, as a poll does that is in use; it knows of each
// only what its own checks saw. Beside it are the best plan with as many checks,
// and the best that is as late: one row of checks for all the waits that count,
// made by who knows them.
func (tr trace) measure(seed uint64, n int) []paced {
	rnd := rand.New(rand.NewPCG(seed, 0))
	var s wait.Sketch
	learned := func(elapsed time.Duration, _ int) time.Duration {
		return s.Pause(elapsed, cadenceInterval, time.Second)
	}
	waits := make([]time.Duration, n)
	delays := make([][]time.Duration, len(paces)+1)
	result := make([]paced, len(paces)+1)
	play := func(i int, d time.Duration, pause func(time.Duration, int) time.Duration) (pending, done time.Duration) {
		checks, pending, done := poll(d, pause)
		result[i].Checks += float64(checks) / float64(n)
		delays[i] = append(delays[i], done-d)
		return pending, done
	}
	for i := range cadenceLearn {
		_, pending, done := poll(tr.draw(rnd, i), learned)
		s.AddBetween(pending, done)
	}
	last := len(paces)
	for i := range waits {
		waits[i] = tr.draw(rnd, cadenceLearn+i)
		s.AddBetween(play(last, waits[i], learned))
		for p := range paces {
			play(p, waits[i], paces[p].pause)
		}
	}
	for i := range result {
		var sum time.Duration
		for _, d := range delays[i] {
			sum += d
		}
		result[i].Mean, result[i].P95 = sum/time.Duration(n), quantile(delays[i], 0.95)
		if i < last {
			result[i].Pace = paces[i].name
		}
	}
	l := &result[last]
	l.Pace = "learned 10 s"
	checks, mean := bestPlan(waits, func(checks float64, _ time.Duration) int { return cmp.Compare(checks, l.Checks) })
	result = append(result, paced{Pace: "best with as many checks", Checks: checks, Mean: mean})
	checks, mean = bestPlan(waits, func(_ float64, mean time.Duration) int { return cmp.Compare(l.Mean, mean) })
	return append(result, paced{Pace: "best that is as late", Checks: checks, Mean: mean})
}

// runCadence says of each trace how many checks a wait takes and how late it is
// seen to be over. It uses no store and no clock, and prints the same everywhere.
func runCadence(_ context.Context, b *bench) error {
	n := b.size(10_000)
	if !b.json {
		fmt.Fprint(b.out, cadenceHead)
	}
	for i, tr := range traces {
		result := tr.measure(uint64(1+i), n)
		if !b.json {
			fmt.Fprintln(b.out, cadenceLine(tr, result))
			continue
		}
		for _, p := range result {
			line, err := json.Marshal(struct {
				row
				Trace string  `json:"trace"`
				Pace  string  `json:"pace"`
				Mean  float64 `json:"mean_delay_ms"`
				P95   float64 `json:"p95_delay_ms,omitempty"`
			}{row{Workload: b.workload, Store: b.store, N: n, Inflight: 1, Value: p.Checks, Unit: "checks/wait"},
				tr.name, p.Pace, ms(p.Mean), ms(p.P95)})
			if err != nil {
				return err
			}
			fmt.Fprintf(b.out, "%s\n", line)
		}
	}
	return nil
}
