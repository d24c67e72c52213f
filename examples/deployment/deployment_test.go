package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/sqlite"
)

// A deployment of 15 minutes, in virtual time: it succeeds, fails in its last
// phase, is canceled in its second.
func TestDeploy(t *testing.T) {
	for name, c := range map[string]struct {
		version  string
		cancelAt time.Duration
		restart  bool // the worker is stopped in the middle for a while
		err      error
		text     string // in the error
		progress []float64
		log      string // what the platform did
		took     time.Duration
	}{
		"succeeds": {version: "v2", progress: []float64{0, 33, 66, 100}, log: "database v2, servers v2, traffic v2", took: 15 * time.Minute},
		"outlives its process": {version: "v2", restart: true, progress: []float64{0, 33, 66, 100},
			log: "database v2, servers v2, traffic v2", took: 15 * time.Minute},
		"fails": {version: "bad3", text: "one request of two fails", progress: []float64{0, 33, 66},
			log: "database bad3, servers bad3, traffic bad3, traffic rolled back, servers rolled back, database rolled back", took: 15 * time.Minute},
		"canceled": {version: "v2", cancelAt: 7 * time.Minute, err: bide.ErrCanceled, progress: []float64{0, 33},
			log: "database v2, servers v2, servers rolled back, database rolled back", took: 7 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, err := sqlite.Open(":memory:")
				if err != nil {
					t.Fatal(err)
				}
				defer store.Close()
				service, err := openService(filepath.Join(t.TempDir(), "tasks"), map[string]time.Duration{
					"database": 3 * time.Minute, "servers": 8 * time.Minute, "traffic": 4 * time.Minute,
				})
				if err != nil {
					t.Fatal(err)
				}
				workflow := newWorkflow(&platform{http: &http.Client{Transport: inProcess{service}}})
				work := func() (stop func()) {
					worker := bide.NewWorker(store, bide.WorkerConfig{Seed: 1})
					worker.Register(workflow)
					ctx, cancel := context.WithCancel(t.Context())
					stopped := make(chan error)
					go func() { stopped <- worker.Run(ctx) }()
					return func() {
						cancel()
						if err := <-stopped; err != nil {
							t.Error(err)
						}
					}
				}
				stop := work()

				began := time.Now()
				runs := bide.NewClient(store)
				run, err := workflow.Start(t.Context(), runs, Release{c.version}, bide.Timeout(24*time.Hour))
				if err != nil {
					t.Fatal(err)
				}
				watched := make(chan []float64)
				go func() { watched <- percents(t, runs, run.ID()) }()
				if c.restart {
					time.Sleep(5 * time.Minute)
					stop()
					time.Sleep(3 * time.Minute)
					stop = work()
				}
				if c.cancelAt > 0 {
					time.Sleep(c.cancelAt)
					if err := runs.Cancel(t.Context(), run.ID(), "changed our mind"); err != nil {
						t.Fatal(err)
					}
				}
				release, err := run.Result(t.Context())
				switch {
				case c.err == nil && c.text == "" && (err != nil || release.Version != c.version):
					t.Errorf("got %v, %v", release, err)
				case c.err != nil && !errors.Is(err, c.err):
					t.Errorf("got %v, want %v", err, c.err)
				case c.text != "" && (err == nil || !strings.Contains(err.Error(), c.text)):
					t.Errorf("got %v, want %q in it", err, c.text)
				}
				if took := time.Since(began); took < c.took || took > c.took+10*time.Second {
					t.Errorf("took %v, want %v", took, c.took)
				}
				if got := <-watched; !slices.Equal(got, c.progress) {
					t.Errorf("progress %v, want %v", got, c.progress)
				}
				if got := strings.Join(service.state.Log, ", "); got != c.log {
					t.Errorf("the platform did\n%s\nwant\n%s", got, c.log)
				}
				stop()
			})
		})
	}
}

// percents are all that the run told of its progress until its end.
func percents(t *testing.T, runs *bide.Client, id string) (seen []float64) {
	for run, err := range runs.Watch(t.Context(), id) {
		if err != nil {
			t.Error(err)
			break
		}
		if p := run.Progress; p != nil && (len(seen) == 0 || seen[len(seen)-1] != p.Percent) {
			seen = append(seen, p.Percent)
		}
	}
	return seen
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
