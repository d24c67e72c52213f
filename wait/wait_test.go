package wait_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/bide-dev/bide/wait"
)

const forever = time.Duration(math.MaxInt64)

func TestBackoff(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		name           string
		initial, limit time.Duration
		coefficient    float64
		n              int
		want           time.Duration
	}{
		{"first", time.Second, time.Minute, 2, 1, time.Second},
		{"second", time.Second, time.Minute, 2, 2, 2 * time.Second},
		{"sixth", time.Second, time.Minute, 2, 6, 32 * time.Second},
		{"cut to the limit", time.Second, time.Minute, 2, 7, time.Minute},
		{"exactly the limit", time.Second, 32 * time.Second, 2, 6, 32 * time.Second},
		{"limit below the first", time.Minute, time.Second, 2, 1, time.Second},
		{"fraction", time.Second, time.Minute, 1.5, 3, 2250 * time.Millisecond},
		{"constant", time.Second, time.Minute, 1, 1_000_000, time.Second},
		{"falling", time.Second, time.Minute, 0.5, 3, 250 * time.Millisecond},
		{"falling to nothing", time.Second, time.Minute, 0.5, 5000, 0},
		{"n of 0 is 1", time.Second, time.Minute, 2, 0, time.Second},
		{"n below 0 is 1", time.Second, time.Minute, 2, math.MinInt, time.Second},
		{"no limit", time.Second, 0, 2, 10, 512 * time.Second},
		{"negative limit is none", time.Second, -time.Second, 2, 10, 512 * time.Second},
		{"int64 overflow", time.Second, 0, 2, 40, forever},
		{"float64 overflow", time.Second, 0, 2, math.MaxInt, forever},
		{"overflow under a limit", time.Second, time.Hour, 2, math.MaxInt, time.Hour},
		{"largest", forever, 0, 1, 1, forever},
		{"zero initial", 0, time.Minute, 2, 5, 0},
		{"zero initial, coefficient overflows", 0, time.Minute, 2, 5000, 0},
		{"zero initial, infinite coefficient", 0, time.Minute, inf, 2, 0},
		{"negative initial", -time.Second, time.Minute, 2, 5, 0},
		{"negative initial overflows", -time.Second, time.Minute, 2, 5000, 0},
		{"infinite coefficient, first", time.Second, time.Minute, inf, 1, time.Second},
		{"infinite coefficient", time.Second, time.Minute, inf, 2, time.Minute},
		{"NaN coefficient", time.Second, time.Minute, nan, 2, time.Minute},
		{"negative coefficient", time.Second, time.Minute, -2, 2, 0},
		{"minus infinity", time.Second, time.Minute, -inf, 2, 0},
		{"zero coefficient", time.Second, time.Minute, 0, 2, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := wait.Backoff(c.initial, c.limit, c.coefficient, c.n)
			if got != c.want {
				t.Errorf("Backoff(%v, %v, %v, %d) = %v, want %v", c.initial, c.limit, c.coefficient, c.n, got, c.want)
			}
		})
	}
}

// Doubling is exact in floating point, so here it can be held against integers.
func TestBackoffAgainstIntegers(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		initial := time.Duration(rnd.Int64N(1 << rnd.IntN(53)))
		limit := time.Duration(rnd.Int64N(1 << rnd.IntN(53)))
		n := 1 + rnd.IntN(200)

		want := new(big.Int).Lsh(big.NewInt(int64(initial)), uint(n-1))
		most := big.NewInt(int64(limit))
		if limit == 0 {
			most.SetInt64(math.MaxInt64)
		}
		if want.Cmp(most) > 0 {
			want = most
		}
		if got := wait.Backoff(initial, limit, 2, n); int64(got) != want.Int64() {
			t.Fatalf("Backoff(%d, %d, 2, %d) = %d, want %v", initial, limit, n, got, want)
		}
	}
}

func TestBackoffProperties(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		initial := time.Duration(rnd.Int64N(1<<rnd.IntN(63)) - rnd.Int64N(2))
		limit := time.Duration(rnd.Int64N(1<<rnd.IntN(63)) - rnd.Int64N(2))
		checkBackoff(t, initial, limit, 4*rnd.Float64(), rnd.IntN(300)-10)
	}
}

func FuzzBackoff(f *testing.F) {
	f.Add(int64(time.Second), int64(time.Minute), 2.0, 7)
	f.Add(int64(time.Second), int64(0), 1.5, math.MaxInt)
	f.Add(int64(0), int64(time.Minute), 2.0, 5000)
	f.Add(int64(-1), int64(-1), -2.0, -1)
	f.Add(int64(math.MinInt64), int64(math.MaxInt64), math.Inf(-1), 2)
	f.Add(int64(math.MaxInt64), int64(1), math.NaN(), 3)
	f.Add(int64(1), int64(math.MaxInt64), 1+0x1p-52, 100_000)
	f.Fuzz(func(t *testing.T, initial, limit int64, coefficient float64, n int) {
		checkBackoff(t, time.Duration(initial), time.Duration(limit), coefficient, n)
	})
}

// checkBackoff checks what holds for all inputs.
func checkBackoff(t *testing.T, initial, limit time.Duration, coefficient float64, n int) {
	t.Helper()
	d := wait.Backoff(initial, limit, coefficient, n)
	most := limit
	if most <= 0 {
		most = forever
	}
	if d < 0 || d > most {
		t.Fatalf("Backoff(%d, %d, %v, %d) = %d, not in [0, %d]", initial, limit, coefficient, n, d, most)
	}
	if initial <= 0 && d != 0 {
		t.Fatalf("Backoff(%d, %d, %v, %d) = %d, want 0 for nothing to grow from", initial, limit, coefficient, n, d)
	}
	if n <= 1 {
		if first := wait.Backoff(initial, limit, coefficient, 1); d != first {
			t.Fatalf("Backoff(%d, %d, %v, %d) = %d, but %d for n = 1", initial, limit, coefficient, n, d, first)
		}
	}
	// The row rises, or falls for a coefficient below 1, as far as floating point
	// can tell: the error of a power grows with n, so the claim ends somewhere.
	if n < 1 || n > 100_000 {
		return
	}
	next := wait.Backoff(initial, limit, coefficient, n+1)
	slack := 1 + 1e-9*float64(d)
	switch {
	case coefficient >= 1 && float64(next) < float64(d)-slack:
		t.Fatalf("Backoff(%d, %d, %v, %d) = %d, and then falls to %d", initial, limit, coefficient, n, d, next)
	case coefficient > 0 && coefficient < 1 && float64(next) > float64(d)+slack:
		t.Fatalf("Backoff(%d, %d, %v, %d) = %d, and then rises to %d", initial, limit, coefficient, n, d, next)
	}
}

var jitters = []struct {
	name string
	kind wait.Jitter
}{
	{"none", wait.NoJitter},
	{"equal", wait.Equal},
	{"full", wait.Full},
	{"proportional", wait.Proportional},
}

func TestJitterEnds(t *testing.T) {
	least, most := 0.0, math.Nextafter(1, 0)
	for _, c := range []struct {
		name     string
		kind     wait.Jitter
		b, limit time.Duration
		r        float64
		want     time.Duration
	}{
		{"none", wait.NoJitter, time.Minute, 0, most, time.Minute},
		{"none above the limit", wait.NoJitter, time.Minute, time.Second, most, time.Second},
		{"equal, least", wait.Equal, time.Minute, 0, least, 30 * time.Second},
		{"equal, middle", wait.Equal, time.Minute, 0, 0.5, 45 * time.Second},
		{"equal above the limit", wait.Equal, time.Minute, 40 * time.Second, 0.5, 40 * time.Second},
		{"full, least", wait.Full, time.Minute, 0, least, 0},
		{"full, middle", wait.Full, time.Minute, 0, 0.5, 30 * time.Second},
		{"full above the limit", wait.Full, time.Minute, time.Second, 0.5, time.Second},
		{"proportional, least", wait.Proportional, time.Minute, 0, least, 54 * time.Second},
		{"proportional, middle", wait.Proportional, time.Minute, 0, 0.5, time.Minute},
		{"proportional above the limit", wait.Proportional, time.Minute, time.Minute, most, time.Minute},
		{"zero", wait.Full, 0, time.Minute, most, 0},
		{"negative", wait.Proportional, math.MinInt64, time.Minute, most, 0},
		{"negative limit is none", wait.NoJitter, time.Minute, -1, most, time.Minute},
		{"a kind that is none", wait.Jitter(99), time.Minute, time.Hour, most, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.kind.Apply(c.b, c.limit, func() float64 { return c.r }); got != c.want {
				t.Errorf("Apply(%v, %v) with %v = %v, want %v", c.b, c.limit, c.r, got, c.want)
			}
		})
	}
}

// Jitter that spreads delays unevenly, or not at all, would keep together the
// very callers it is to part.
func TestJitterSpreads(t *testing.T) {
	const b, samples = time.Hour, 20_000
	for _, c := range []struct {
		name     string
		kind     wait.Jitter
		from, to float64 // of b
	}{
		{"equal", wait.Equal, 0.5, 1},
		{"full", wait.Full, 0, 1},
		{"proportional", wait.Proportional, 0.9, 1.1},
	} {
		t.Run(c.name, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(5, 6))
			var tenths [10]int
			for range samples {
				share := float64(c.kind.Apply(b, 0, rnd.Float64)) / float64(b)
				i := int(10 * (share - c.from) / (c.to - c.from))
				if i < 0 || i > 9 {
					t.Fatalf("%v of the delay, not in [%v, %v]", share, c.from, c.to)
				}
				tenths[i]++
			}
			for i, n := range tenths {
				if n < samples/10*9/10 || n > samples/10*11/10 {
					t.Errorf("tenth %d got %d of %d", i, n, samples)
				}
			}
		})
	}
}

func TestJitterProperties(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	for _, j := range jitters {
		t.Run(j.name, func(t *testing.T) {
			for range 20_000 {
				b := time.Duration(rnd.Int64N(1<<rnd.IntN(63)) - rnd.Int64N(2))
				limit := time.Duration(rnd.Int64N(1<<rnd.IntN(63)) - rnd.Int64N(2))
				checkJitter(t, j.kind, b, limit, rnd.Float64())
			}
		})
	}
}

func FuzzJitter(f *testing.F) {
	for _, j := range jitters {
		f.Add(int8(j.kind), int64(time.Second), int64(time.Minute), 0.5)
		f.Add(int8(j.kind), int64(math.MaxInt64), int64(0), math.Nextafter(1, 0))
		f.Add(int8(j.kind), int64(math.MinInt64), int64(-1), 0.0)
		f.Add(int8(j.kind), int64(1), int64(1), 0.9)
	}
	f.Add(int8(99), int64(time.Second), int64(time.Minute), 0.5)
	f.Fuzz(func(t *testing.T, kind int8, b, limit int64, r float64) {
		if !(r >= 0 && r < 1) {
			return // no source of randomness gives this
		}
		checkJitter(t, wait.Jitter(kind), time.Duration(b), time.Duration(limit), r)
	})
}

// checkJitter checks what holds for all inputs.
func checkJitter(t *testing.T, kind wait.Jitter, b, limit time.Duration, r float64) {
	t.Helper()
	d := kind.Apply(b, limit, func() float64 { return r })
	b = max(b, 0)
	low, high := b, b
	switch kind {
	case wait.Equal:
		low = b / 2
	case wait.Full:
		low = 0
	case wait.Proportional:
		// A little for rounding; after a century and a half the delay is no longer
		// spread but cut.
		slack := 1 + time.Duration(1e-12*float64(b))
		low = time.Duration(math.Min(0.9*float64(b), math.MaxInt64/2)) - slack
		high = time.Duration(math.Min(1.1*float64(b), math.MaxInt64/2)) + slack
	}
	if limit > 0 {
		low, high = min(low, limit), min(high, limit)
	}
	low = max(low, 0)
	if d < low || d > high {
		t.Fatalf("Jitter(%d).Apply(%d, %d) with %v = %d, not in [%d, %d]", kind, b, limit, r, d, low, high)
	}
}

func BenchmarkExponential(b *testing.B) {
	for n := 0; b.Loop(); n++ {
		wait.Backoff(time.Second, time.Minute, 2, n%20)
	}
}
