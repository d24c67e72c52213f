package main

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// The promises of BENCHMARKS.md, on the very waits of its table: no later on
// average than a check every 10 s, with this share of its checks.
func TestCadenceTargets(t *testing.T) {
	share := map[string]float64{"log-normal, median 5 min, σ 0.3, clipped to 3–10 min": 0.5, "uniform, 3–10 min": 0.6}
	for i, tr := range traces {
		t.Run(tr.name, func(t *testing.T) {
			t.Parallel()
			r := tr.measure(uint64(1+i), 10_000)
			fixed, learned, same, late := r[0], r[len(paces)], r[len(paces)+1], r[len(paces)+2]
			if most, ok := share[tr.name]; ok && (learned.Checks > most*fixed.Checks || learned.Mean > fixed.Mean) {
				t.Errorf("%.2f checks, %v late; fixed has %.2f and %v", learned.Checks, learned.Mean, fixed.Checks, fixed.Mean)
			}
			if learned.Checks > fixed.Checks || learned.Mean > fixed.Mean*112/100 {
				t.Errorf("%.2f checks, %v late; fixed has %.2f and %v", learned.Checks, learned.Mean, fixed.Checks, fixed.Mean)
			}
			if math.Abs(same.Checks-learned.Checks) > 0.01 || math.Abs((late.Mean-learned.Mean).Seconds()) > 0.01 {
				t.Errorf("the best is %+v and %+v, which compares with nothing: %+v", same, late, learned)
			}
			// One row of checks for all waits is no match for what follows drift.
			if drifts := strings.HasPrefix(tr.name, "drifting"); !drifts && (same.Mean > learned.Mean || late.Checks > learned.Checks) {
				t.Errorf("the best is not: %+v and %+v, learned %+v", same, late, learned)
			}
		})
	}
}

// The best row of checks costs what trying all rows finds.
func TestCheapestAgainstAll(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		w := make([]float64, 1+rnd.IntN(9))
		for i := range w {
			w[i] = float64(1 + rnd.IntN(30))
		}
		slices.Sort(w)
		n := len(w)
		price := math.Exp(6*rnd.Float64() - 3)
		least := math.Inf(1)
		for set := range 1 << (n - 1) { // waits at whose end there is a check; the last always
			cost, from := price, 0
			for j := range n {
				if j < n-1 && set>>j&1 == 0 {
					continue
				}
				cost += price * float64(n-from) / float64(n)
				for ; from <= j; from++ {
					cost += (w[j] - w[from]) / float64(n)
				}
			}
			least = min(least, cost)
		}
		checks, mean := cheapest(w, price)
		if got := price*checks + mean; math.Abs(got-least) > 1e-9 {
			t.Fatalf("cost %v, the least is %v: %v at %v", got, least, w, price)
		}
	}
}

// The best for waits spread evenly over a second is known: half a second late with
// one check more than the one at once, a quarter with one more in the middle.
func TestBestPlan(t *testing.T) {
	waits := make([]time.Duration, 1000)
	for i := range waits {
		waits[i] = time.Duration(i+1) * time.Millisecond
	}
	checks, mean := bestPlan(waits, func(_ float64, mean time.Duration) int { return cmp.Compare(500*time.Millisecond, mean) })
	if math.Abs(checks-2) > 0.01 || mean > 501*time.Millisecond {
		t.Errorf("half a second late with %v checks, %v", checks, mean)
	}
	fewer, later := bestPlan(waits, func(checks float64, _ time.Duration) int { return cmp.Compare(checks, 2.5) })
	if math.Abs(fewer-2.5) > 0.01 || later > 260*time.Millisecond {
		t.Errorf("%v checks, %v late", fewer, later)
	}
}

// Without -json there is a table.
func TestCadenceTable(t *testing.T) {
	var out, errOut strings.Builder
	if err := run(t.Context(), []string{"-workload", "cadence", "-n", "10", "-dir", t.TempDir()}, &out, &errOut); err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "|") {
			rows++
			if strings.Count(line, "|") != 9 {
				t.Errorf("a line of the table: %q", line)
			}
		}
	}
	if rows != 2+len(traces) {
		t.Errorf("%d lines of a table:\n%s", rows, out.String())
	}
}
