package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// bestPlan looks for the row of checks, the first at once, that is best for these
// very waits: none other has as few checks at its mean delay. Of all such rows it
// takes the one with the right number of checks, or the right delay: compare says
// whether what it is shown has too many (above 0) or too few (below 0). Between
// two neighbours it interpolates, as if one were used for a share of the waits.
func bestPlan(waits []time.Duration, compare func(checks float64, mean time.Duration) int) (checks float64, mean time.Duration) {
	w := make([]float64, len(waits)) // s
	for i, d := range waits {
		w[i] = d.Seconds()
	}
	slices.Sort(w)
	at := func(price float64) (float64, time.Duration) {
		checks, mean := cheapest(w, price)
		return checks, time.Duration(mean * float64(time.Second))
	}
	low, high := 1e-6, 1e7 // seconds of delay that a check is worth: too many checks, too few
	for range 60 {
		if middle := math.Sqrt(low * high); compare(at(middle)) > 0 {
			low = middle
		} else {
			high = middle
		}
	}
	manyChecks, manyMean := at(low)
	checks, mean = at(high)
	// Halve the way between the two, as often as it takes.
	for range 40 {
		c, m := (checks+manyChecks)/2, (mean+manyMean)/2
		if compare(c, m) > 0 {
			manyChecks, manyMean = c, m
		} else {
			checks, mean = c, m
		}
	}
	return checks, mean
}

// cheapest returns the checks and the delay of the row of checks for which the sum
// of delays, and of the price of each check, is least. A check of it is at the end
// of a wait: earlier it would not see it, later it would be late. So with cost[j]
// for the least that all takes up to a check at the end of the j-th wait,
//
//	cost[j] = min over i < j of cost[i] + price·(n-i) + Σ from i to j of (w[j]-w[k])
//
// which for each i is a line in w[j] with the slope -i, but for what does not
// depend on i: the least of them is on the lower hull of the lines, which is kept.
func cheapest(w []float64, price float64) (checks, mean float64) {
	n := len(w)
	sum := make([]float64, n+1)  // of the first waits
	line := make([]float64, n+1) // at w[j] = 0
	before := make([]int, n+1)   // the check before
	hull, head := make([]int, 0, n+1), 0
	line[0] = price * float64(n)
	hull = append(hull, 0)
	for j := 1; j <= n; j++ {
		x := w[j-1]
		sum[j] = sum[j-1] + x
		value := func(i int) float64 { return line[i] - float64(i)*x }
		for head+1 < len(hull) && value(hull[head+1]) <= value(hull[head]) {
			head++
		}
		i := hull[head]
		before[j] = i
		cost := float64(j)*x - sum[j] + value(i)
		line[j] = cost + price*float64(n-j) + sum[j]
		for len(hull) > head+1 {
			a, b := hull[len(hull)-2], hull[len(hull)-1]
			if (line[j]-line[a])*float64(b-a) > (line[b]-line[a])*float64(j-a) {
				break
			}
			hull = hull[:len(hull)-1] // b is never the least
		}
		hull = append(hull, j)
	}
	checks = 1
	for j := n; j > 0; j = before[j] {
		i := before[j]
		checks += float64(n-i) / float64(n)
		mean += (float64(j-i)*w[j-1] - (sum[j] - sum[i])) / float64(n)
	}
	return checks, mean
}

const cadenceHead = `A cell has the checks a wait, and the mean / 95th percentile of the delay in seconds.

| waits | fixed 10 s | exponential, cap 30 s | elapsed 0.1, cap 60 s | **Learned(10 s)** | its checks to fixed | mean delay of the best with as many checks | checks of the best that is as late |
|---|---|---|---|---|---|---|---|
`

// cadenceLine is a line of the table, of what [trace.measure] returned.
func cadenceLine(tr trace, r []paced) string {
	var s strings.Builder
	fmt.Fprintf(&s, "| %s |", tr.name)
	for _, p := range r[:len(paces)+1] {
		fmt.Fprintf(&s, " %.1f; %.2f / %.1f |", p.Checks, p.Mean.Seconds(), p.P95.Seconds())
	}
	learned, same, late := r[len(paces)], r[len(paces)+1], r[len(paces)+2]
	fmt.Fprintf(&s, " %.2f | %.2f | %.1f |", learned.Checks/r[0].Checks, same.Mean.Seconds(), late.Checks)
	return s.String()
}
