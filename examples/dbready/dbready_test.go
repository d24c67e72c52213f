package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/sqlite"
)

// A database that comes up within minutes, or not, in virtual time.
func TestReady(t *testing.T) {
	const (
		up    = 4 * time.Minute
		never = 24 * time.Hour
		hang  = 90 * time.Second // longer than the longest pause
		step  = 10 * time.Second
		ready = up + hang + 7*step
	)
	for name, c := range map[string]struct {
		up       time.Duration
		services []string
		password string
		err      error
		reason   string // of a poll that was given up
		took     time.Duration
		within   time.Duration
		most     int // refused connections
	}{
		// Late by the pause after many errors at most, a minute.
		"one": {up: up, services: []string{"web"}, password: password, took: ready, within: 66 * time.Second, most: 12},
		// Without the breaker it would be thrice as many refusals as of one.
		"three": {up: up, services: []string{"web", "queue", "mail"}, password: password, took: ready, within: 66 * time.Second, most: 22},
		"wrong password": {up: up, services: []string{"web"}, password: "guessed", err: errPassword,
			took: up + hang, within: 66 * time.Second, most: 12},
		"never": {up: never, services: []string{"web"}, password: password, err: bide.ErrPollTimeout, reason: bide.ReasonMaxConsecutiveErrors,
			took: 15 * time.Minute, within: 15 * time.Minute, most: 30},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				world := &world{file: filepath.Join(t.TempDir(), "database"), up: c.up, hang: hang, step: step, last: 7}
				if err := world.open(); err != nil {
					t.Fatal(err)
				}
				store, err := sqlite.Open(":memory:")
				if err != nil {
					t.Fatal(err)
				}
				defer store.Close()
				workflow := newWorkflow(&database{"", c.password, &http.Client{Transport: dialer{world}}})
				worker := bide.NewWorker(store, bide.WorkerConfig{Seed: 1, Logger: slog.New(slog.DiscardHandler)})
				worker.Register(workflow)
				ctx, stop := context.WithCancel(t.Context())
				stopped := make(chan error)
				go func() { stopped <- worker.Run(ctx) }()

				began := time.Now()
				var runs []*bide.Handle[status]
				for _, service := range c.services {
					run, err := workflow.Start(ctx, bide.NewClient(store), Wanted{service, 7}, bide.Timeout(24*time.Hour))
					if err != nil {
						t.Fatal(err)
					}
					runs = append(runs, run)
				}
				for _, run := range runs {
					s, err := run.Result(ctx)
					if !errors.Is(err, c.err) || err == nil && s.Migration != 7 {
						t.Errorf("got %v, %v; want %v", s, err, c.err)
					}
					if gaveUp, ok := errors.AsType[*bide.PollTimeoutError](err); c.reason != "" && (!ok || gaveUp.Reason != c.reason) {
						t.Errorf("got %v, want it given up: %s", err, c.reason)
					}
				}
				if took := time.Since(began); took < c.took || took > c.took+c.within {
					t.Errorf("took %v, want %v and at most %v more", took, c.took, c.within)
				}
				history, err := bide.NewClient(store).History(ctx, runs[0].ID(), 0)
				if err != nil || c.up == up && !slices.ContainsFunc(history[0].Poll.Checks, hung) {
					t.Errorf("no check of %v is given up after a second, %v", history[0].Poll.Checks, err)
				}
				if world.refused > c.most {
					t.Errorf("%d connections were refused, want %d at most", world.refused, c.most)
				}
				if c.err == nil && len(world.state.Sessions) != len(c.services) {
					t.Errorf("the database is used by %s", strings.Join(world.state.Sessions, ", "))
				}
				stop()
				if err := <-stopped; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// hung matches checks that were not answered.
func hung(l bide.CheckLine) bool { return strings.Contains(l.Error, "1s") }

// dialer is the way to the database: connections are refused until it listens. The
// rest goes straight to its handler, since a socket would let real time into the
// bubble.
type dialer struct{ *world }

func (d dialer) RoundTrip(r *http.Request) (*http.Response, error) {
	if time.Now().Before(d.listens()) {
		d.mu.Lock()
		d.refused++
		d.mu.Unlock()
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	resp := w.Result()
	resp.Request = r
	return resp, nil
}
