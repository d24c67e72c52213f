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

const takes = 10*time.Minute + 5*time.Second // between two checks

// A build of ten minutes, in virtual time: when we hear of its end, and by what.
func TestBuild(t *testing.T) {
	net := 33 * time.Second // one interval and its jitter
	webhook := "webhook"
	for name, c := range map[string]struct {
		commit string
		lost   bool          // the webhook does not get through
		secret string        // that the CI signs with, if another
		slow   time.Duration // the CI's answer to the start
		by     string        // what ended the poll, if not a check
		checks int           // at most
		log    string        // of the failed build
		took   time.Duration // at least
		within time.Duration // so much more at most
	}{
		"success":        {commit: "4f2a91c", by: webhook, checks: 22, took: takes, within: time.Second},
		"failure":        {commit: "bad0ff1", by: webhook, checks: 12, log: "--- FAIL: TestTea (0.21s)", took: takes / 2, within: time.Second},
		"webhook lost":   {commit: "4f2a91c", lost: true, checks: 23, took: takes, within: net},
		"failure, lost":  {commit: "bad0ff1", lost: true, checks: 13, log: "--- FAIL: TestTea (0.21s)", took: takes / 2, within: net},
		"webhook forged": {commit: "4f2a91c", secret: "guessed", checks: 23, took: takes, within: net},
		"webhook early":  {commit: "bad0ff1", slow: 6 * time.Minute, by: webhook, checks: 0, log: "--- FAIL: TestTea (0.21s)", took: 6 * time.Minute, within: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, c.secret, c.lost, c.slow)
				began := time.Now()
				run, err := w.workflow.Start(t.Context(), w.runs, c.commit, bide.ID("b"), bide.Timeout(24*time.Hour))
				if err != nil {
					t.Fatal(err)
				}
				b, err := run.Result(t.Context())
				failure, failed := errors.AsType[*BuildError](err)
				switch {
				case c.log == "" && (err != nil || b.Conclusion != "success"):
					t.Errorf("got %+v, %v", b, err)
				case c.log != "" && (!failed || failure.Log != c.log || failure.Commit != c.commit):
					t.Errorf("got %v, want a build that failed with %q", err, c.log)
				}
				if took := time.Since(began); took < c.took || took > c.took+c.within {
					t.Errorf("took %v, want %v and at most %v more", took, c.took, c.within)
				}
				history, err := w.runs.History(t.Context(), "b", 0)
				if err != nil || len(history) != 3 { // webhook, start, poll
					t.Fatalf("%d records, %v", len(history), err)
				}
				if poll := history[2]; poll.By != c.by || poll.Attempt > c.checks {
					t.Errorf("ended by %q after %d checks, want by %q after at most %d", poll.By, poll.Attempt, c.by, c.checks)
				}
			})
		})
	}
}

// world is all that a run needs, inside a bubble of virtual time.
type world struct {
	runs     *bide.Client
	workflow *bide.Workflow[string, build]
}

func newWorld(t *testing.T, ciSecret string, lost bool, slow time.Duration) *world {
	store, err := sqlite.Open(":memory:")
	if err != nil {
		t.Fatal(err)
	}
	signed, err := webhook.GitHub(secret)
	if err != nil {
		t.Fatal(err)
	}
	hooks := http.Handler(webhook.NewHandler(store, webhook.Config{Verifiers: map[string]webhook.Verifier{verifier: signed}}))
	if lost {
		hooks = http.NotFoundHandler()
	}
	if ciSecret == "" {
		ciSecret = secret
	}
	ci, err := openService(filepath.Join(t.TempDir(), "builds"), takes, ciSecret, &http.Client{Transport: inProcess{hooks}})
	if err != nil {
		t.Fatal(err)
	}
	slowly := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ci.ServeHTTP(w, r)
		if r.Method == "POST" {
			time.Sleep(slow)
		}
	})
	workflow := newWorkflow(&client{http: &http.Client{Transport: inProcess{slowly}}})
	worker := bide.NewWorker(store, bide.WorkerConfig{PublicURL: "https://bide.test"})
	worker.Register(workflow)
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error)
	go func() { stopped <- worker.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		synctest.Wait() // until the CI has heard the answer to its call
		store.Close()
	})
	return &world{bide.NewClient(store), workflow}
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
