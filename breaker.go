package bide

import (
	"time"

	"github.com/bide-dev/bide/wait"
)

// Breaker stops checks, or iterations, of what keeps failing: after a cool-down a
// few probes go through, and close it again or not. A loop has its own; polls with
// a breaker of the same Name share it over the whole store. Zero fields mean the
// defaults.
//
// While it is open a poll makes no attempts and a loop no iterations: the next
// comes when a probe may go, or at the poll's deadline.
type Breaker struct {
	Name        string        // of a poll's; a loop needs none
	Failures    int           // so many in a row open it; default 5
	Rate        float64       // so does this share of failures, default 0.5,
	Calls       int           // of at least so many calls, default 20,
	Window      time.Duration // in so long; default 60 s
	Cooldown    time.Duration // default 30 s; doubled each time that a probe fails
	MaxCooldown time.Duration // default 10 min
	Probes      int           // at a time; default 1
	Successes   int           // of probes that close it; default 1
}

func (b Breaker) rules() wait.Breaker {
	return wait.Breaker{Failures: b.Failures, Rate: b.Rate, Calls: b.Calls, Window: b.Window,
		Cooldown: b.Cooldown, MaxCooldown: b.MaxCooldown, Probes: b.Probes, Successes: b.Successes}
}

func (b Breaker) loop(l *loop) { l.breaker = new(b.rules()) }
