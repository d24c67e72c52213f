package timeline_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide/internal/timeline"
)

func TestLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		line := timeline.Start(start, 0)
		want := func(after, ahead time.Duration) {
			t.Helper()
			if got := line.Now().Sub(start); got != after {
				t.Errorf("it shows the start + %v, want + %v", got, after)
			}
			if got := line.Ahead(); got != ahead {
				t.Errorf("it is %v ahead, want %v", got, ahead)
			}
		}
		time.Sleep(time.Minute)
		want(time.Minute, 0)
		timeline.Jump(6 * time.Hour)
		want(6*time.Hour+time.Minute, 0) // forward: followed
		time.Sleep(time.Minute)
		want(6*time.Hour+2*time.Minute, 0)
		timeline.Jump(-12 * time.Hour)
		want(6*time.Hour+2*time.Minute, 12*time.Hour) // back: it goes on ticking
		time.Sleep(time.Minute)
		want(6*time.Hour+3*time.Minute, 12*time.Hour)
		timeline.Jump(6 * time.Hour)
		want(6*time.Hour+3*time.Minute, 6*time.Hour) // still behind where it was
	})
}

// Whatever is done to the wall clock, a line never goes back and never runs slower
// than the machine ticks.
func TestLineNeverSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jumps := time.Duration(0)
		defer func() { timeline.Jump(-jumps) }()
		rng := rand.New(rand.NewPCG(1, 2))
		line, total := timeline.Start(time.Now(), 0), time.Duration(0)
		for last := line.Now(); total < 1000*time.Hour; {
			step := time.Duration(rng.Int64N(int64(time.Hour)))
			jump := time.Duration(rng.Int64N(int64(2*time.Hour))) - time.Hour
			time.Sleep(step)
			timeline.Jump(jump)
			jumps += jump
			now := line.Now()
			if ran := now.Sub(last); ran < step || ran > step+max(jump, 0) {
				t.Fatalf("in %v with a jump of %v it went on by %v", step, jump, ran)
			}
			last, total = now, total+step
		}
	})
}

// A line of a clock elsewhere ticks on, whatever is done to the clock here.
func TestSteady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		line := timeline.Steady(start, time.Second)
		for i, jump := range []time.Duration{0, 6 * time.Hour, -12 * time.Hour, 6 * time.Hour} {
			timeline.Jump(jump)
			time.Sleep(time.Minute)
			if got, want := line.Now().Sub(start), time.Duration(i+1)*time.Minute; got != want || line.Ahead() != time.Second {
				t.Errorf("after a jump of %v it shows the start + %v, %v ahead; want + %v, 1 s", jump, got, line.Ahead(), want)
			}
		}
	})
}
