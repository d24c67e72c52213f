package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/cron"
	"github.com/bide-dev/bide/sqlite"
)

// marketOpen is from 9:30 to 16:00 on working days.
func marketOpen(t time.Time) bool {
	at := t.Sub(t.Truncate(24 * time.Hour))
	return t.Weekday() != time.Saturday && t.Weekday() != time.Sunday && at >= 9*time.Hour+30*time.Minute && at < 16*time.Hour
}

// headline changes every minute from noon to one, and not otherwise.
func headline(t time.Time) string {
	if t.Hour() == 12 {
		return "breaking at " + t.Format("15:04")
	}
	return "nothing happens"
}

// A Monday, in virtual time.
func TestDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		monday := time.Date(2000, 1, 3, 0, 0, 0, 0, time.UTC)
		time.Sleep(time.Until(monday))
		store, err := sqlite.Open(":memory:")
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		service := newService(2*time.Second, headline)
		runs := bide.NewClient(store)
		d := &dashboard{
			api:  &client{http: &http.Client{Transport: inProcess{service}}},
			runs: runs, minute: time.Minute, open: marketOpen, digest: cron.MustParse("0 8 * * *"),
		}
		// Half the day in one process, the other half in the next.
		work := func(d *dashboard) (stop func()) {
			worker := bide.NewWorker(store, bide.WorkerConfig{Seed: 1, Logger: slog.New(slog.DiscardHandler)})
			worker.Register(d.definitions()...)
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
		until := func(hour, minute int) {
			time.Sleep(time.Until(monday.Add(time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute)))
		}
		state := func(name string) bide.LoopState {
			t.Helper()
			s, err := runs.Loop(name).State(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return s
		}

		stop := work(d)
		until(7, 0)
		if s := state("news"); s.Effective != 30*time.Minute || !strings.Contains(s.Outcomes, "uuu") {
			t.Errorf("news is asked for every %v at night, want every 30m: %s", s.Effective, s.Outcomes)
		}
		if s := state("stocks"); s.Iterations != 0 || s.Skipped != "condition" {
			t.Errorf("stocks ran %d times at night, skipped for %q", s.Iterations, s.Skipped)
		}
		until(7, 30)
		stop()
		until(8, 30) // nobody was there at 8: the digest comes late, and once
		stop = work(d)
		until(12, 55)
		if s := state("news"); s.Effective != time.Minute || s.Outcomes[len(s.Outcomes)-1] != 'c' {
			t.Errorf("news is asked for every %v while it breaks, want every 1m: %s", s.Effective, s.Outcomes)
		}
		until(24, 0)
		stop()

		for _, at := range service.asked["/stocks"] {
			if !marketOpen(at) {
				t.Errorf("asked for stocks at %v", at)
			}
		}
		if n := len(service.asked["/stocks"]); n < 350 || n > 430 {
			t.Errorf("asked for stocks %d times in 390 minutes", n)
		}
		weather := state("weather")
		if n := weather.Iterations; n < 80 || n > 150 || !strings.Contains(weather.Outcomes, "ff") || !strings.Contains(weather.Outcomes, "fc") || weather.Multiplier > 2 {
			t.Errorf("weather ran %d times: %s, now at %d times its interval", n, weather.Outcomes, weather.Multiplier)
		}
		if service.mostBusy != 1 {
			t.Errorf("%d requests of the provider at once, want 1 at most", service.mostBusy)
		}
		checkDigest(t, runs, service)
	})
}

// checkDigest reads the one run that the loop has started.
func checkDigest(t *testing.T, runs *bide.Client, service *service) {
	t.Helper()
	list, err := runs.Runs(t.Context(), bide.Query{Workflow: "digest"})
	if err != nil || len(list) != 1 || list[0].ID != "digest-2000-01-03T08:00" || list[0].State != bide.Succeeded {
		t.Fatalf("the digests are %v, %v; want one, of 8:00", list, err)
	}
	run, err := runs.Get(t.Context(), list[0].ID)
	if err != nil || !strings.Contains(string(run.Result), "degrees") || !strings.Contains(string(run.Result), "nothing happens") {
		t.Errorf("the digest is %s, %v", run.Result, err)
	}
	if late := run.StartedAt.Sub(time.Date(2000, 1, 3, 8, 30, 0, 0, time.UTC)); late < 0 || late > 5*time.Second {
		t.Errorf("the digest was begun at %v", run.StartedAt)
	}
	if len(service.mails) != 1 {
		t.Errorf("%d mails were sent", len(service.mails))
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
