package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/sqlite"
)

const (
	takes = 5 * time.Minute
	pace  = 20 * time.Second
)

// An order of five minutes, in virtual time: its outcome, and how the authority was
// asked.
func TestCertify(t *testing.T) {
	for name, c := range map[string]struct {
		domain   string
		cancelAt time.Duration
		pem      string // contained
		err      error
		reason   string
		took     time.Duration
		within   time.Duration
	}{
		// Late by a refusal's pause at most; then the signing takes a moment.
		"valid":    {domain: "shop.example", pem: "shop.example", took: takes + pace, within: 5 * pace},
		"invalid":  {domain: "forbidden.example", reason: "its CAA record names another authority", took: takes, within: 5 * pace},
		"canceled": {domain: "shop.example", cancelAt: time.Minute, err: bide.ErrCanceled, took: time.Minute, within: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, err := sqlite.Open(":memory:")
				if err != nil {
					t.Fatal(err)
				}
				defer store.Close()
				service, err := openService(filepath.Join(t.TempDir(), "orders"), takes, pace)
				if err != nil {
					t.Fatal(err)
				}
				workflow := newWorkflow(&client{http: &http.Client{Transport: inProcess{service}}})
				worker := bide.NewWorker(store, bide.WorkerConfig{})
				worker.Register(workflow)
				ctx, stop := context.WithCancel(t.Context())
				stopped := make(chan error)
				go func() { stopped <- worker.Run(ctx) }()

				began := time.Now()
				runs := bide.NewClient(store)
				run, err := workflow.Start(ctx, runs, c.domain, bide.Timeout(24*time.Hour))
				if err != nil {
					t.Fatal(err)
				}
				if c.cancelAt > 0 {
					time.Sleep(c.cancelAt)
					if len(service.state.DNS) != 1 {
						t.Error("the challenge is not published")
					}
					if err := runs.Cancel(ctx, run.ID(), "changed our mind"); err != nil {
						t.Fatal(err)
					}
				}
				pem, err := run.Result(ctx)
				refused, isRefused := errors.AsType[*InvalidOrderError](err)
				switch {
				case c.pem != "" && (err != nil || !strings.Contains(pem, c.pem)):
					t.Errorf("got %q, %v", pem, err)
				case c.reason != "" && (!isRefused || refused.Reason != c.reason || refused.Domain != c.domain):
					t.Errorf("got %v, want a refusal: %s", err, c.reason)
				case c.err != nil && !errors.Is(err, c.err):
					t.Errorf("got %v, want %v", err, c.err)
				}
				if took := time.Since(began); took < c.took || took > c.took+c.within {
					t.Errorf("took %v, want %v and at most %v more", took, c.took, c.within)
				}
				if len(service.state.DNS) != 0 {
					t.Errorf("the challenge is left in the DNS: %v", service.state.DNS)
				}
				checkPace(t, service.asked)
				stop()
				if err := <-stopped; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// checkPace proves that every Retry-After was heeded, those of refusals too.
func checkPace(t *testing.T, asked []time.Time) {
	t.Helper()
	for i := 1; i < len(asked); i++ {
		least := pace
		if i%3 == 0 { // the one before was refused
			least = 4 * pace
		}
		if gap := asked[i].Sub(asked[i-1]); gap < least || gap > 2*least {
			t.Errorf("asked for the %d. time after %v; the authority wants %v", i+1, gap, least)
		}
	}
	if len(asked) < 2 {
		t.Errorf("asked %d times", len(asked))
	}
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
