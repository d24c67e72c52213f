package main

import (
	"context"
	"errors"
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

const (
	build = 3 * time.Minute
	boot  = 40 * time.Second
)

// The whole pipeline in virtual time, and how long each part of it took.
func TestProvision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world, history, err := provision(t, boot, (*cloud).provision, "web-1")
		if err != nil {
			t.Fatal(err)
		}
		least := map[string]time.Duration{"create": 0, "address": build, "ssh": boot - 2*time.Second, "configure": 0}
		slack := map[string]time.Duration{"create": time.Second, "address": 2 * time.Second, "ssh": 14 * time.Second, "configure": time.Second}
		parts := 0
		for _, r := range history {
			if r.Kind == bide.KindPhase {
				parts++
				if r.Took < least[r.Name] || r.Took > least[r.Name]+slack[r.Name] {
					t.Errorf("%s took %v, want %v and at most %v more", r.Name, r.Took, least[r.Name], slack[r.Name])
				}
			}
			if r.Kind == bide.KindPoll && r.Attempt > 15 {
				t.Errorf("asked for the address %d times, although the cloud says when it will be there", r.Attempt)
			}
		}
		if parts != 4 {
			t.Errorf("%d parts are timed, want 4", parts)
		}
		if len(world.servers) != 1 {
			t.Errorf("%d servers were ordered", len(world.servers))
		}
		for _, m := range world.servers {
			want := []string{"uptime", "apt-get install -y nginx", "install -m 644 site.conf /etc/nginx", "systemctl reload nginx"}
			if !slices.Equal(m.History, want) {
				t.Errorf("the machine ran %q, want %q", m.History, want)
			}
		}
	})
}

// A machine that never boots is given up when its time is over; one that the cloud
// cannot build, at once.
func TestProvisionFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, _, err := provision(t, time.Hour, (*cloud).provision, "web-1")
		gaveUp, ok := errors.AsType[*bide.RetryExhaustedError](err)
		if took := time.Since(began) - build; !ok || gaveUp.Step != "ssh" || gaveUp.Reason != bide.ReasonTotalTimeout || took > 5*time.Minute+2*time.Second || took < 4*time.Minute {
			t.Errorf("after %v: %v; want ssh to be given up after 5 minutes", took, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, _, err := provision(t, boot, (*cloud).provision, "bad-1")
		failed, ok := errors.AsType[*bide.PollFailedError](err)
		if took := time.Since(began); !ok || !strings.Contains(failed.Error(), "cannot be built") || took > build+2*time.Second {
			t.Errorf("after %v: %v; want a poll that failed", took, err)
		}
	})
}

// A part alone: waiting for a machine's SSH is a workflow by itself.
func TestLoginAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, history, err := provision(t, boot, func(c *cloud, ctx bide.Context, ip string) (Ready, error) {
			if _, err := c.create(ctx, "web-1"); err != nil {
				return Ready{}, err
			}
			said, err := c.login(ctx, ip)
			return Ready{ID: said}, err
		}, "10.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < build+boot || took > build+boot+12*time.Second {
			t.Errorf("took %v", took)
		}
		if ssh := history[len(history)-1]; ssh.Attempt < 10 {
			t.Errorf("in at attempt %d, want several refused", ssh.Attempt)
		}
	})
}

// Only a refused connection is tried again.
func TestLoginStopsAtOtherErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, history, err := provision(t, boot, func(c *cloud, ctx bide.Context, ip string) (Ready, error) {
			c.machines = &http.Client{Transport: inProcess{http.NotFoundHandler()}}
			_, err := c.login(ctx, ip)
			return Ready{}, err
		}, "10.0.0.1")
		if bide.Code(err) != "http_404" && !strings.Contains(err.Error(), "404") || errors.Is(err, syscall.ECONNREFUSED) || history[0].Attempt != 1 {
			t.Errorf("got %v after %d attempts", err, history[0].Attempt)
		}
	})
}

// provision runs a part, or the whole, as a workflow.
func provision(t *testing.T, boot time.Duration, part func(*cloud, bide.Context, string) (Ready, error), input string) (*world, []bide.Record, error) {
	t.Helper()
	store, err := sqlite.Open(":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	w, err := openWorld(filepath.Join(t.TempDir(), "servers"), build, boot)
	if err != nil {
		t.Fatal(err)
	}
	c := &cloud{http: &http.Client{Transport: inProcess{w}}, machines: &http.Client{Transport: w}}
	workflow := bide.Define("part", func(ctx bide.Context, in string) (Ready, error) { return part(c, ctx, in) })
	worker := bide.NewWorker(store, bide.WorkerConfig{Seed: 1})
	worker.Register(workflow)
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error)
	go func() { stopped <- worker.Run(ctx) }()
	defer func() {
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	}()

	runs := bide.NewClient(store)
	run, err := workflow.Start(ctx, runs, input, bide.Timeout(24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	_, failure := run.Result(ctx)
	history, err := runs.History(ctx, run.ID(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return w, history, failure
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
