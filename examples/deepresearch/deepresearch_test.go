package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/sqlite"
	"github.com/bide-dev/bide/webhook"
)

const takes = 7*time.Minute + 3*time.Second // between two checks

// A job of seven minutes, in virtual time: how long it is waited for, and what
// becomes of it when the service's call is lost or a person is asked.
func TestDeepResearch(t *testing.T) {
	late := 11 * time.Second // one interval and its jitter
	found := Report{Text: "What only deep research finds on tea.", By: "the service"}
	for name, c := range map[string]struct {
		lost     bool // the webhook does not get through
		patience time.Duration
		decision decision // is given a minute after the question
		report   Report
		err      error
		took     time.Duration // at least
		within   time.Duration // so much more at most
		asked    int
	}{
		"webhook":      {patience: time.Hour, report: found, took: takes, within: time.Second},
		"lost webhook": {patience: time.Hour, lost: true, report: found, took: takes, within: late},
		"wait longer": {patience: 5 * time.Minute, decision: decision{Action: "wait", Wait: time.Hour},
			report: found, took: takes, within: time.Second, asked: 1}, // the webhook outlives the first poll
		"a person's text": {patience: 5 * time.Minute, decision: decision{Action: "use", Text: "enough"},
			report: Report{Text: "enough", By: "a person"}, took: 6 * time.Minute, within: time.Second, asked: 1},
		"given up": {patience: 5 * time.Minute, decision: decision{Action: "give up"},
			err: errGivenUp, took: 6 * time.Minute, within: time.Second, asked: 1},
		"nobody answers": {patience: 5 * time.Minute,
			err: bide.ErrPollTimeout, took: 24*time.Hour + 5*time.Minute, within: time.Second, asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, err := sqlite.Open(":memory:")
				if err != nil {
					t.Fatal(err)
				}
				defer store.Close()
				hooks := http.Handler(webhook.NewHandler(store, webhook.Config{}))
				if c.lost {
					hooks = http.NotFoundHandler()
				}
				service, err := openService(filepath.Join(t.TempDir(), "jobs"), takes, &http.Client{Transport: inProcess{hooks}})
				if err != nil {
					t.Fatal(err)
				}

				runs := bide.NewClient(store)
				asked := 0
				ask := func(string) {
					asked++
					if c.decision.Action != "" {
						time.AfterFunc(time.Minute, func() {
							if err := runs.Signal(context.Background(), "r", "decision", c.decision); err != nil {
								t.Error(err)
							}
						})
					}
				}
				r := &researcher{&client{http: &http.Client{Transport: inProcess{service}}}, ask, c.patience, 24 * time.Hour}
				workflow := r.workflow()
				worker := bide.NewWorker(store, bide.WorkerConfig{PublicURL: "https://bide.test"})
				worker.Register(workflow)
				ctx, stop := context.WithCancel(t.Context())
				stopped := make(chan error)
				go func() { stopped <- worker.Run(ctx) }()

				began := time.Now()
				run, err := workflow.Start(ctx, runs, "tea", bide.ID("r"), bide.Timeout(48*time.Hour))
				if err != nil {
					t.Fatal(err)
				}
				report, err := run.Result(ctx)
				if report != c.report || !errors.Is(err, c.err) {
					t.Errorf("got %+v, %v; want %+v, %v", report, err, c.report, c.err)
				}
				if took := time.Since(began); took < c.took || took > c.took+c.within {
					t.Errorf("took %v, want %v and at most %v more", took, c.took, c.within)
				}
				if asked != c.asked {
					t.Errorf("a person was asked %d times, want %d", asked, c.asked)
				}
				stop()
				if err := <-stopped; err != nil {
					t.Error(err)
				}
				synctest.Wait() // until the service has heard the answer to its call
			})
		})
	}
}

// The service's jobs go on while it is down, and the same key is the same job.
func TestServiceRemembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "jobs")
		var jobs [2]job
		for i := range jobs {
			service, err := openService(file, time.Minute, &http.Client{Transport: inProcess{http.NotFoundHandler()}})
			if err != nil {
				t.Fatal(err)
			}
			c := &client{http: &http.Client{Transport: keyed{inProcess{service}}}}
			if jobs[i], err = c.submit(t.Context(), "tea", "http://bide.test/lost"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		if jobs[0].State != "running" || jobs[1].State != "completed" || jobs[0].ID != jobs[1].ID {
			t.Errorf("got %+v, then %+v", jobs[0], jobs[1])
		}
	})
}

// inProcess hands requests straight to a handler: a socket would let real time
// into the bubble.
type inProcess struct{ http.Handler }

func (h inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

// keyed gives all requests one key, as those of one step have.
type keyed struct{ http.RoundTripper }

func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Idempotency-Key", "0123456789")
	return k.RoundTripper.RoundTrip(r)
}
