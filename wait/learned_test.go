package wait_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/bide-dev/bide/wait"
)

// play plays a poll of a wait that takes d, with a check at once. It returns how
// many checks it takes, when the last of them but one was, and when the last.
func play(d time.Duration, pause func(time.Duration) time.Duration) (checks int, pending, done time.Duration) {
	for checks = 1; done < d; checks++ {
		pending, done = done, done+pause(done)
	}
	return checks, pending, done
}

// cadence is what a poll of many waits took on average.
type cadence struct{ checks, delay float64 } // s

// learn plays waits one after the other, each paced by what was seen of those
// before, and counts those after the first skip; and so at a fixed interval.
func learn(s *wait.Sketch, skip, n int, interval time.Duration, draw func(i int) time.Duration) (learned, fixed cadence) {
	count := func(c *cadence, checks int, delay time.Duration) {
		c.checks += float64(checks) / float64(n)
		c.delay += delay.Seconds() / float64(n)
	}
	for i := range skip + n {
		d := draw(i)
		checks, pending, done := play(d, func(at time.Duration) time.Duration { return s.Pause(at, interval, interval/100) })
		s.AddBetween(pending, done)
		if i >= skip {
			count(&learned, checks, done-d)
			checks, _, done = play(d, func(time.Duration) time.Duration { return interval })
			count(&fixed, checks, done-d)
		}
	}
	return learned, fixed
}

func logNormal(rnd *rand.Rand, median time.Duration, sigma float64) time.Duration {
	return time.Duration(float64(median) * math.Exp(sigma*rnd.NormFloat64()))
}

// What it is for: as many checks as it may have against a fixed interval, and no
// later on average. It learns only from what its own checks see.
func TestLearnedSavesChecks(t *testing.T) {
	const interval = 10 * time.Second
	for _, c := range []struct {
		name  string
		draw  func(*rand.Rand) time.Duration
		ratio float64 // of the checks of a fixed interval, at most
		delay float64 // of its mean delay, at most
	}{
		{"log-normal, clipped", func(r *rand.Rand) time.Duration {
			return min(max(logNormal(r, 5*time.Minute, 0.3), 3*time.Minute), 10*time.Minute)
		}, 0.5, 1},
		{"uniform", func(r *rand.Rand) time.Duration { return 3*time.Minute + time.Duration(r.Int64N(int64(7*time.Minute))) }, 0.6, 1},
		{"two peaks", func(r *rand.Rand) time.Duration {
			if r.IntN(3) > 0 {
				return logNormal(r, time.Minute, 0.2)
			}
			return logNormal(r, 20*time.Minute, 0.1)
		}, 0.33, 1},
		{"nearly constant", func(r *rand.Rand) time.Duration { return logNormal(r, 5*time.Minute, 0.01) }, 0.15, 1},
		{"Weibull, shape 3", func(r *rand.Rand) time.Duration {
			return time.Duration(math.Cbrt(r.ExpFloat64()) * float64(6*time.Minute))
		}, 0.68, 1.1},
		{"exponential", func(r *rand.Rand) time.Duration { return time.Duration(r.ExpFloat64() * float64(5*time.Minute)) }, 1, 1.1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(20, 1))
			var s wait.Sketch
			learned, fixed := learn(&s, 1000, 5000, interval, func(int) time.Duration { return c.draw(rnd) })
			t.Logf("%.2f checks and %.2f s, fixed %.2f and %.2f", learned.checks, learned.delay, fixed.checks, fixed.delay)
			if learned.checks > c.ratio*fixed.checks || learned.delay > c.delay*fixed.delay {
				t.Errorf("%.2f checks (%.3f of fixed), %.2f s late (%.3f of fixed); want at most %v and %v",
					learned.checks, learned.checks/fixed.checks, learned.delay, learned.delay/fixed.delay, c.ratio, c.delay)
			}
		})
	}
}

// While it knows little it is not much later than a fixed interval would be, and
// not dearer than twice that.
func TestLearnedWithFewWaits(t *testing.T) {
	for _, sigma := range []float64{0.1, 0.3, 1} {
		var checks, delay [3]float64
		for seed := range uint64(100) {
			rnd := rand.New(rand.NewPCG(21, seed))
			var s wait.Sketch
			draw := func(int) time.Duration { return logNormal(rnd, 5*time.Minute, sigma) }
			for i, n := range []int{8, 12, 40} { // up to 8, 20, 60 waits
				learned, fixed := learn(&s, 0, n, 10*time.Second, draw)
				checks[i] += learned.checks / fixed.checks / 100
				delay[i] += learned.delay / fixed.delay / 100
			}
		}
		t.Logf("sigma %v: checks %.2f, delay %.2f of fixed", sigma, checks, delay)
		for i := range checks {
			if checks[i] > 2 || delay[i] > 1.35 {
				t.Errorf("sigma %v: checks %.2f, delay %.2f of fixed", sigma, checks, delay)
			}
		}
	}
}

// Waits that take another time from now on are learned, longer or shorter.
func TestLearnedFollowsDrift(t *testing.T) {
	for _, c := range []struct{ from, to time.Duration }{{time.Minute, 30 * time.Minute}, {30 * time.Minute, time.Minute}} {
		rnd := rand.New(rand.NewPCG(22, 1))
		var s wait.Sketch
		learn(&s, 0, 1000, 10*time.Second, func(int) time.Duration { return logNormal(rnd, c.from, 0.3) })
		draw := func(int) time.Duration { return logNormal(rnd, c.to, 0.3) }
		early, fixed := learn(&s, 0, 50, 10*time.Second, draw)
		late, _ := learn(&s, 650, 1000, 10*time.Second, draw)
		t.Logf("%v to %v: %.2f then %.2f, fixed %.2f", c.from, c.to, early, late, fixed)
		if early.delay > 60 {
			t.Errorf("%v to %v: %.1f s late at first", c.from, c.to, early.delay)
		}
		if late.delay > 1.15*fixed.delay || late.checks > fixed.checks {
			t.Errorf("%v to %v: after 700 waits %.2f, fixed %.2f", c.from, c.to, late, fixed)
		}
	}
}

// The interval is the scale: the same waits in other units of time give the same
// pauses in these, whatever the least pause allows.
func TestLearnedScales(t *testing.T) {
	for _, unit := range []time.Duration{10 * time.Millisecond, 10 * time.Second, 10 * time.Minute} {
		rnd := rand.New(rand.NewPCG(23, 1))
		var s wait.Sketch
		learned, fixed := learn(&s, 500, 1500, unit, func(int) time.Duration { return logNormal(rnd, 30*unit, 0.3) })
		if learned.checks > 0.56*fixed.checks || learned.delay > 1.02*fixed.delay {
			t.Errorf("%v: %.3v, fixed %.3v", unit, learned, fixed)
		}
	}
}

// A pause longer than the interval can still be asked for; then that one rules.
func TestLearnedPauseIsAtLeastLeast(t *testing.T) {
	rnd := rand.New(rand.NewPCG(24, 1))
	var s wait.Sketch
	for range 100 {
		s.Add(logNormal(rnd, time.Minute, 0.3))
	}
	for at := time.Duration(0); at < time.Hour; at += 7 * time.Second {
		if d := s.Pause(at, time.Second, 30*time.Second); d < 30*time.Second {
			t.Fatalf("at %v the pause is %v", at, d)
		}
	}
}

// A copy is independent of its original.
func TestSketchCopy(t *testing.T) {
	var s wait.Sketch
	for range 20 {
		s.Add(time.Minute)
	}
	before := s.Pause(0, time.Second, 0)
	other := s
	for range 500 {
		other.Add(time.Hour)
	}
	if d := other.Pause(0, time.Second, 0); d == before {
		t.Errorf("the copy still pauses for %v", d)
	}
	if d := s.Pause(0, time.Second, 0); d != before || s.Count() != 20 {
		t.Errorf("the original pauses for %v, not %v, and knows %d waits", d, before, s.Count())
	}
}

func BenchmarkPause(b *testing.B) {
	rnd := rand.New(rand.NewPCG(25, 1))
	var s wait.Sketch
	for range 1000 {
		s.Add(logNormal(rnd, 5*time.Minute, 1))
	}
	b.Run("plan", func(b *testing.B) {
		interval := 10 * time.Second
		for b.Loop() {
			interval++ // another plan each time
			s.Pause(0, interval, time.Second)
		}
	})
	b.Run("pause", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.Pause(time.Minute, 10*time.Second, time.Second)
		}
	})
	b.Run("add", func(b *testing.B) {
		for b.Loop() {
			s.AddBetween(4*time.Minute, 5*time.Minute)
		}
	})
}
