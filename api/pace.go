package api

import (
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/wait"
)

// A reader is told to come again no earlier and no later than this.
const (
	soonest = time.Second
	latest  = time.Minute
)

// pace returns when the run is expected to end, zero if that cannot be told, and
// how long to leave it alone: by the formula that bide's own polls go by.
func pace(run *bide.Run, at time.Time) (eta time.Time, next time.Duration) {
	began := run.CreatedAt
	if !run.StartedAt.IsZero() {
		began = run.StartedAt
	}
	eta = expected(run, began)
	change := eta
	for _, w := range run.Waiting {
		for _, t := range []time.Time{w.NextAt, sleepsUntil(w)} {
			if t.After(at) && (change.IsZero() || t.Before(change)) {
				change = t
			}
		}
	}
	p := wait.ETA{Min: soonest, Max: latest}.Pause(&wait.State{Start: began, ETA: change}, at)
	return eta, min(max(p.Base, soonest), latest)
}

func sleepsUntil(w bide.Wait) time.Time {
	if w.Kind == bide.KindSleep {
		return w.Until
	}
	return time.Time{}
}

// leastPercent is the progress from which on the rest can be told.
const leastPercent = 5

// expected is when the run ends if it goes on as it went so far.
func expected(run *bide.Run, began time.Time) time.Time {
	p := run.Progress
	if p == nil || p.Percent < leastPercent || !p.UpdatedAt.After(began) {
		return time.Time{}
	}
	left := float64(p.UpdatedAt.Sub(began)) * (100 - p.Percent) / p.Percent
	return p.UpdatedAt.Add(time.Duration(left)).UTC().Truncate(time.Millisecond)
}

// stretched is a pause as it is told while many are held: up to four times as long.
func (h *Handler) stretched(d time.Duration) time.Duration {
	load := float64(h.held.Load()) / float64(h.cfg.MaxWaiters)
	return min(time.Duration(float64(d)*(1+3*load)), latest)
}

// seconds rounds up, as Retry-After has it.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }
