package server

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/bide-dev/bide"
)

// maxNames is how many names of workflows, queues and loops stand in metrics, each
// kind on its own; those that come later are "other".
const maxNames = 200

// metrics are what /metrics shows: what has passed through this server, counted,
// and what the store says of itself when it is asked (see [census]).
type metrics struct {
	registry *prometheus.Registry

	started, finished *prometheus.CounterVec
	attempts          *prometheus.CounterVec
	took              map[bide.Kind]prometheus.Observer
	steps             [2]prometheus.Counter // failed, succeeded
	commitTime        prometheus.Histogram
	timerLag          prometheus.Histogram
	streams           prometheus.Gauge
	requests          *prometheus.CounterVec
	requestTime       *prometheus.HistogramVec

	workflows names
	tallies   sync.Map // workflow: *tally
}

func newMetrics(store bide.Store) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		started:  counter("bide_runs_started_total", "Runs started through this server.", "workflow"),
		finished: counter("bide_runs_finished_total", "Runs that ended through this server, in a turn or terminated.", "workflow", "state"),
		attempts: counter("bide_attempts_total", "Attempts of steps, counted when the step is over, and checks of polls, as they are kept.", "kind", "outcome"),
		commitTime: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "bide_commit_duration_seconds",
			Help: "How long the store took to make a commit durable.", Buckets: prometheus.ExponentialBuckets(0.000_1, 4, 9)}),
		timerLag: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "bide_timer_lag_seconds",
			Help: "How long after its time a parked run was handed to a worker.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 10)}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{Name: "bide_http_streams",
			Help: "Streams of events that are open."}),
		requests: counter("bide_http_requests_total", "Requests answered.", "route", "method", "code"),
		requestTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "bide_http_request_duration_seconds",
			Help: "How long an answer took, long polls included, streams of events not.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 9)}, []string{"route"}),
	}
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "bide_work_duration_seconds",
		Help: "How long the last attempt of a step took, and a poll from its first check on.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 15)}, []string{"kind"})
	m.took = map[bide.Kind]prometheus.Observer{}
	for _, k := range []bide.Kind{bide.KindStep, bide.KindPoll} {
		m.took[k] = took.WithLabelValues(k.String())
	}
	m.steps = [2]prometheus.Counter{m.attempts.WithLabelValues("step", "failed"), m.attempts.WithLabelValues("step", "succeeded")}
	m.registry.MustRegister(m.started, m.finished, m.attempts, took, m.commitTime, m.timerLag, m.streams, m.requests, m.requestTime,
		&census{store: store}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// handler serves the metrics to two scrapes at once: each reads the store.
func (m *metrics) handler() http.Handler {
	show := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
	scrapes := make(chan struct{}, 2)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case scrapes <- struct{}{}:
			defer func() { <-scrapes }()
			show.ServeHTTP(w, r)
		default:
			problem(w, http.StatusServiceUnavailable, "overloaded", "two scrapes are under way already", retryBusy)
		}
	})
}

// of returns the tally of a workflow.
func (m *metrics) of(workflow string) *tally {
	if t, ok := m.tallies.Load(workflow); ok {
		return t.(*tally) //nolint:errcheck // nothing else is in it
	}
	label := m.workflows.of(workflow)
	t := &tally{started: m.started.WithLabelValues(label)}
	for s := bide.Succeeded; s <= bide.TimedOut; s++ {
		t.finished[s] = m.finished.WithLabelValues(label, s.String())
	}
	if label == workflow { // else whoever starts runs by ever new names fills the memory
		m.tallies.Store(workflow, t)
	}
	return t
}

// record counts what a step or a poll has cost.
func (m *metrics) record(r *bide.Record) {
	took, counted := m.took[r.Kind]
	if !counted {
		return
	}
	took.Observe(r.Took.Seconds())
	if r.Kind == bide.KindPoll { // see [meter.checks]
		return
	}
	failed := r.Attempt
	if r.Error == nil {
		failed--
		m.steps[1].Inc()
	}
	m.steps[0].Add(float64(max(failed, 0)))
}

func (m *metrics) streamBegins() { m.streams.Inc() }

// request counts a request that is answered.
func (m *metrics) request(w *response, took time.Duration) {
	at := route(w.inner)
	m.requests.WithLabelValues(at, method(w.inner.Method), strconv.Itoa(status(w))).Inc()
	if w.stream {
		m.streams.Dec()
		return
	}
	m.requestTime.WithLabelValues(at).Observe(took.Seconds())
}

// method keeps methods that clients make up out of the labels.
func method(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions:
		return m
	}
	return "other"
}

// names bounds the values of a label.
type names struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (n *names) of(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.seen[name] {
		if len(n.seen) >= maxNames {
			return "other"
		}
		if n.seen == nil {
			n.seen = map[string]bool{}
		}
		n.seen[name] = true
	}
	return name
}
