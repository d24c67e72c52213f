package server

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bide-dev/bide"
)

// census asks the store, at each scrape, what is in it.
type census struct {
	store             bide.Store
	queues, workflows names
	loops             names
}

const censusWithin = 5 * time.Second

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	descUp           = desc("bide_store_up", "Whether the store has answered this scrape.")
	descRuns         = desc("bide_runs", "Runs in the store.", "queue", "workflow", "state")
	descOldest       = desc("bide_queue_oldest_seconds", "For how long the run has been due that has waited longest for a worker.", "queue", "workflow")
	descWorkers      = desc("bide_workers", "Workers that the store knows.")
	descHeld         = desc("bide_leases_held", "Runs that workers have in hand.")
	descCommits      = desc("bide_commits_total", "Commits since the store was opened.")
	descTransactions = desc("bide_transactions_total", "Transactions that the commits were gathered into.")
	descLost         = desc("bide_leases_lost_total", "Leases that workers have lost.")
	descLoopPaused   = desc("bide_loop_paused", "Whether the loop is paused.", "loop")
	descLoopOpen     = desc("bide_loop_breaker_open", "Whether the loop's breaker is open.", "loop")
	descLoopFailures = desc("bide_loop_failures", "Failed iterations in a row.", "loop")
	descLoopInterval = desc("bide_loop_interval_seconds", "The effective interval of the loop.", "loop")
	descLoopSuccess  = desc("bide_loop_last_success_timestamp_seconds", "When the loop's last successful iteration ended.", "loop")
	descLoopRounds   = desc("bide_loop_iterations_total", "Iterations of the loop.", "loop")
)

// Describe implements [prometheus.Collector].
func (c *census) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descUp, descRuns, descOldest, descWorkers, descHeld, descCommits, descTransactions, descLost,
		descLoopPaused, descLoopOpen, descLoopFailures, descLoopInterval, descLoopSuccess, descLoopRounds} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *census) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), censusWithin)
	defer cancel()
	up := true
	if admin, ok := c.store.(bide.Admin); ok {
		status, err := admin.Status(ctx)
		if up = err == nil; up {
			c.status(ch, &status)
		}
	}
	loops, err := bide.NewClient(c.store).Loops(ctx)
	if err != nil {
		up = false
	}
	for i := range loops {
		c.loop(ch, &loops[i])
	}
	gauge(ch, descUp, number(up))
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func total(ch chan<- prometheus.Metric, d *prometheus.Desc, v int64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func (c *census) status(ch chan<- prometheus.Metric, s *bide.Status) {
	type cell struct{ queue, workflow string }
	runs := map[cell]map[bide.State]int64{} // names that are "other" fall together
	oldest := map[cell]time.Time{}
	for _, n := range s.Counts {
		at := cell{c.queues.of(n.Queue), c.workflows.of(n.Workflow)}
		if runs[at] == nil {
			runs[at] = map[bide.State]int64{}
		}
		runs[at][n.State] += n.Runs
		if was := oldest[at]; !n.Oldest.IsZero() && (was.IsZero() || n.Oldest.Before(was)) {
			oldest[at] = n.Oldest
		}
	}
	for at, states := range runs {
		for state, n := range states {
			gauge(ch, descRuns, float64(n), at.queue, at.workflow, state.String())
		}
	}
	for at, since := range oldest {
		gauge(ch, descOldest, max(time.Since(since), 0).Seconds(), at.queue, at.workflow)
	}
	held := 0
	for _, w := range s.Workers {
		held += w.Held
	}
	gauge(ch, descWorkers, float64(len(s.Workers)))
	gauge(ch, descHeld, float64(held))
	total(ch, descCommits, s.Commits)
	total(ch, descTransactions, s.Transactions)
	total(ch, descLost, s.LeasesLost)
}

func (c *census) loop(ch chan<- prometheus.Metric, l *bide.LoopState) {
	if l.Stopped || c.loops.of(l.Name) != l.Name {
		return
	}
	gauge(ch, descLoopPaused, number(l.Paused), l.Name)
	gauge(ch, descLoopOpen, number(l.Breaker != nil && !l.Breaker.OpenedAt.IsZero()), l.Name)
	gauge(ch, descLoopFailures, float64(l.Failures), l.Name)
	gauge(ch, descLoopInterval, l.Effective.Seconds(), l.Name)
	if !l.LastSuccessAt.IsZero() {
		gauge(ch, descLoopSuccess, float64(l.LastSuccessAt.UnixMilli())/1000, l.Name)
	}
	total(ch, descLoopRounds, int64(l.Iterations), l.Name)
}
