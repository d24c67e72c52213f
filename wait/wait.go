// Package wait is the maths of delays: pure functions of what has happened so
// far, the time and a source of randomness. It imports the standard library
// only and knows nothing of the rest of bide.
//
// A [Plan] says when a check comes next: by a [Strategy] while the answer is
// "not yet", by a back-off of its own after an error, never before the server
// wants it, and once more at the deadline. [Breaker] and [Pace] are the same for
// calls and loops that never end. [Poll] and [Retry] put a Plan to work in plain
// Go code, without a store.
package wait

import (
	"math"
	"time"
)

// Backoff returns the n-th delay (n ≥ 1) of an exponential row:
// min(limit, initial·coefficient^(n-1)). Overflow gives limit; a limit of 0 means
// none but the largest Duration. It is never below 0: an initial of 0 or less
// gives 0 for every n.
func Backoff(initial, limit time.Duration, coefficient float64, n int) time.Duration {
	if limit <= 0 {
		limit = math.MaxInt64
	}
	if initial <= 0 {
		return 0 // 0 times an overflow is not a number, and must not become limit
	}
	d := float64(initial) * math.Pow(coefficient, float64(max(n, 1)-1))
	if math.IsNaN(d) || d >= float64(limit) {
		return limit
	}
	return time.Duration(max(d, 0))
}

// Jitter spreads delays, so that many who began together do not stay together.
type Jitter int8

// The kinds of jitter, of a delay b under a cap.
const (
	NoJitter     Jitter = iota // b
	Equal                      // b/2 + U(0, b/2)
	Full                       // U(0, b)
	Proportional               // b·(1 + U(-0.1, 0.1)), cut to the cap
)

// Apply returns the delay with jitter: never above limit (0: none), never below
// 0. rnd returns a number in [0, 1).
func (j Jitter) Apply(b, limit time.Duration, rnd func() float64) time.Duration {
	if b <= 0 {
		return 0
	}
	switch j {
	case Equal:
		b = b/2 + time.Duration(rnd()*float64(b/2))
	case Full:
		b = time.Duration(rnd() * float64(b))
	case Proportional:
		b = min(times(b, 0.9+0.2*rnd()), math.MaxInt64/2) // 146 years: far from an overflow
	}
	if limit > 0 && b > limit {
		b = limit
	}
	return b
}

// times is d·f, where an overflow is the largest Duration and what is no number, or
// below 0, is 0.
func times(d time.Duration, f float64) time.Duration {
	switch x := float64(d) * f; {
	case !(x > 0):
		return 0
	case x >= math.MaxInt64:
		return math.MaxInt64
	default:
		return time.Duration(x)
	}
}

// clamp is d, at least low and at most high; low wins.
func clamp(d, low, high time.Duration) time.Duration { return max(min(d, high), low) }

// since is b - a, never below 0: a clock that went back does not make a wait
// younger than it is.
func since(a, b time.Time) time.Duration { return max(b.Sub(a), 0) }
