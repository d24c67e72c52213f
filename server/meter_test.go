package server_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/server"
)

// What a store answers is passed on as it is, errors too.
func TestMeterPassesOn(t *testing.T) {
	inner := &scripted{bare: bare{openStore(t)}}
	srv, err := server.New(inner, server.Config{})
	if err != nil {
		t.Fatal(err)
	}
	store := srv.Store()
	lease := bide.Lease{Run: "r", Worker: "w", Epoch: 7}
	batches := []bide.Batch{
		{},
		{Records: []bide.Record{{Kind: bide.KindStep}, {Kind: bide.KindPoll}, {Kind: bide.KindSleep, Poll: &bide.PollLog{}}}},
		{Start: []bide.NewRun{{Workflow: "w"}}, Facts: []bide.Fact{{Kind: "api_key"}}},
		{Next: bide.Done{}}, {Next: bide.Ended{State: bide.Failed}}, {Next: bide.Ended{State: 99}}, {Next: bide.Parked{}}, {Next: bide.Continued{}},
	}
	for _, want := range []error{nil, bide.ErrLeaseLost, bide.ErrFactChanged, bide.ErrClosed, errors.New("disk on fire")} {
		inner.err = want
		inner.created = []bide.Created{{ID: "a", New: true}, {Err: bide.ErrNotFound}, {ID: "b"}}
		created, err := store.Create(t.Context(), make([]bide.NewRun, 3))
		if err != want || !slices.Equal(created, inner.created) {
			t.Errorf("%v: created %v, %v", want, created, err)
		}
		inner.claimed = []bide.Claimed{{Lease: lease, Run: bide.Run{Workflow: "w"}}, {Lease: lease, News: true}, {Lease: lease, News: true, Lost: true}}
		claimed, err := store.Claim(t.Context(), bide.Claim{Worker: "w"})
		if err != want || len(claimed) != 3 || claimed[0].Epoch != 7 || !claimed[2].Lost {
			t.Errorf("%v: claimed %v, %v", want, claimed, err)
		}
		for _, l := range []bide.Lease{lease, {}, {Worker: "w"}, {Run: "unknown", Worker: "other"}} {
			for i, b := range batches {
				if err := store.Commit(t.Context(), l, b); err != want || inner.lease != l {
					t.Errorf("%v: committed %d under %+v: %v", want, i, l, err)
				}
			}
		}
	}
}

// scripted is a store that answers what it is told to.
type scripted struct {
	bare
	created []bide.Created
	claimed []bide.Claimed
	lease   bide.Lease
	err     error
}

func (s *scripted) Create(context.Context, []bide.NewRun) ([]bide.Created, error) {
	return s.created, s.err
}

func (s *scripted) Claim(context.Context, bide.Claim) ([]bide.Claimed, error) {
	return s.claimed, s.err
}

func (s *scripted) Commit(_ context.Context, l bide.Lease, _ bide.Batch) error {
	s.lease = l
	return s.err
}

// bare is a store with none of the optional interfaces.
type bare struct{ bide.Store }

func TestOptionalInterfaces(t *testing.T) {
	store := openStore(t)
	for _, c := range []struct {
		store         bide.Store
		wakes, admins bool
	}{{store, true, true}, {bare{store}, false, false}, {struct {
		bare
		bide.Waker
	}{bare{store}, store.(bide.Waker)}, true, false}, {struct {
		bare
		bide.Admin
	}{bare{store}, store.(bide.Admin)}, false, true}} {
		srv, err := server.New(c.store, server.Config{})
		if err != nil {
			t.Fatal(err)
		}
		_, wakes := srv.Store().(bide.Waker)
		_, admins := srv.Store().(bide.Admin)
		if wakes != c.wakes || admins != c.admins {
			t.Errorf("%T: Waker %v, Admin %v", c.store, wakes, admins)
		}
	}
}

func TestMetrics(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := serve(t, dir, server.Config{})
		defer b.close()
		tried := 0
		work := bide.Define("work", func(ctx bide.Context, fail bool) (int, error) {
			n, err := bide.Step(ctx, "try", func(context.Context) (int, error) {
				if tried++; tried%3 != 0 {
					return 0, errors.New("not yet")
				}
				return 1, nil
			}, bide.RetryPolicy{InitialInterval: time.Second, NoJitter: true})
			if err != nil {
				return 0, err
			}
			if _, err := bide.Poll(ctx, "look", func(context.Context) (int, error) { n++; return n, nil }, func(n int) bool { return n > 3 },
				bide.Every(time.Second), bide.Timeout(time.Minute)); err != nil {
				return 0, err
			}
			if err := bide.Sleep(ctx, time.Hour); err != nil {
				return 0, err
			}
			if fail {
				return 0, errors.New("failed")
			}
			return n, nil
		})
		tick := bide.Loop("tick", func(context.Context) error { return nil }, bide.Every(time.Minute))
		worker := bide.NewWorker(b.srv.Store(), bide.WorkerConfig{})
		worker.Register(work, tick)
		ctx, cancel := context.WithCancel(t.Context())
		worked := make(chan error, 1)
		go func() { worked <- worker.Run(ctx) }()
		client := bide.NewClient(b.srv.Store())
		for i, fail := range []bool{false, true, false} {
			h, err := work.Start(t.Context(), client, fail)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := h.Result(t.Context()); (err != nil) != fail {
				t.Errorf("run %d: %v", i, err)
			}
		}
		waitingRun(t, b.store)
		time.Sleep(10 * time.Second)
		for _, c := range []struct {
			want   float64
			name   string
			labels []string
		}{
			{3, "bide_runs_started_total", []string{`workflow="work"`}},
			{2, "bide_runs_finished_total", []string{`workflow="work"`, `state="succeeded"`}},
			{1, "bide_runs_finished_total", []string{`workflow="work"`, `state="failed"`}},
			{6, "bide_attempts_total", []string{`kind="step"`, `outcome="failed"`}},
			{3, "bide_attempts_total", []string{`kind="step"`, `outcome="succeeded"`}},
			{6, "bide_attempts_total", []string{`kind="poll"`, `outcome="pending"`}},
			{3, "bide_attempts_total", []string{`kind="poll"`, `outcome="succeeded"`}},
			{3, "bide_work_duration_seconds_count", []string{`kind="poll"`}},
			{2, "bide_runs", []string{`workflow="work"`, `state="succeeded"`}},
			{1, "bide_runs", []string{`queue="nowhere"`, `state="queued"`}},
			{10, "bide_queue_oldest_seconds", []string{`queue="nowhere"`}},
			{2, "bide_workers", nil}, // and that of the webhooks
			{1, "bide_store_up", nil},
			{0, "bide_loop_failures", []string{`loop="tick"`}},
			{60, "bide_loop_interval_seconds", []string{`loop="tick"`}},
		} {
			if got := b.metric(c.name, c.labels...); got != c.want {
				t.Errorf("%s%v is %v, want %v", c.name, c.labels, got, c.want)
			}
		}
		for _, name := range []string{"bide_commits_total", "bide_transactions_total", "bide_timer_lag_seconds_count", "bide_commit_duration_seconds_count",
			"bide_http_request_duration_seconds_count", "go_goroutines"} {
			if b.metric(name) <= 0 {
				t.Errorf("%s is not there", name)
			}
		}
		if n := b.metric("bide_loop_iterations_total", `loop="tick"`); n < 160 || n > 200 { // jitter
			t.Errorf("%v iterations in three hours", n)
		}
		if b.metric("bide_http_requests_total", `route="GET /metrics"`, `code="200"`, `method="GET"`) < 15 {
			t.Error("requests are not counted")
		}
		cancel()
		if err := <-worked; err != nil {
			t.Error(err)
		}
	})
}

// What is under way, and what is ended from outside, counts too, and each once.
func TestMetricsOfWhatLasts(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := serve(t, dir, server.Config{})
		defer b.close()
		checks := 0
		polls := bide.Define("polls", func(ctx bide.Context, _ any) (any, error) {
			_, err := bide.Poll(ctx, "job", func(context.Context) (int, error) {
				if checks++; checks%5 == 0 {
					return 0, errors.New("no answer")
				}
				return checks, nil
			}, func(n int) bool { return n > 50 }, bide.Every(time.Minute), bide.Exact{}, bide.Timeout(24*time.Hour))
			return nil, err
		})
		counted := func() float64 { return b.metric("bide_attempts_total", `kind="poll"`) }
		client := bide.NewClient(b.srv.Store())
		h, err := polls.Start(t.Context(), client, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 { // a worker after another
			worker := bide.NewWorker(b.srv.Store(), bide.WorkerConfig{})
			worker.Register(polls)
			ctx, cancel := context.WithCancel(t.Context())
			worked := make(chan error, 1)
			go func() { worked <- worker.Run(ctx) }()
			time.Sleep(20*time.Minute + time.Second)
			cancel()
			if err := <-worked; err != nil {
				t.Error(err)
			}
			if got := counted(); got != float64(checks) || checks < 15 {
				t.Errorf("%v checks are counted, there were %d", got, checks)
			}
		}
		if _, err := h.Result(t.Context()); err != nil || checks != 51 {
			t.Errorf("%d checks, %v", checks, err)
		}
		for outcome, want := range map[string]float64{"pending": 40, "transient": 10, "succeeded": 1} {
			if got := b.metric("bide_attempts_total", `kind="poll"`, `outcome="`+outcome+`"`); got != want {
				t.Errorf("%s: %v, want %v", outcome, got, want)
			}
		}

		finished := func(state string) float64 {
			return b.metric("bide_runs_finished_total", `workflow="polls"`, `state="`+state+`"`)
		}
		if h, err = polls.Start(t.Context(), client, nil); err != nil {
			t.Fatal(err)
		}
		if err := client.Cancel(t.Context(), h.ID(), ""); err != nil || finished("canceled") != 0 { // it has yet to heed it
			t.Error(err, finished("canceled"))
		}
		if err := client.Terminate(t.Context(), h.ID(), ""); err != nil {
			t.Error(err)
		}
		if err := client.Terminate(t.Context(), h.ID(), ""); err != nil && !errors.Is(err, bide.ErrRunEnded) {
			t.Error(err)
		}
		if finished("terminated") != 1 || finished("succeeded") != 1 || finished("canceled") != 0 {
			t.Errorf("%v terminated, %v succeeded, %v canceled", finished("terminated"), finished("succeeded"), finished("canceled"))
		}
	})
}

// Whoever sends requests cannot make the server keep ever more series.
func TestMetricsAreBounded(t *testing.T) {
	srv, _ := start(t, openStore(t), server.Config{})
	store := srv.Store()
	var runs []bide.NewRun
	for i := range 500 {
		runs = append(runs, bide.NewRun{Workflow: "w" + strings.Repeat("x", i), Queue: "q" + strings.Repeat("x", i), Input: []byte("1")})
	}
	if _, err := store.Create(t.Context(), runs); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		raw(t, srv, "BREW"+strings.Repeat("X", 3), "/nowhere/"+strings.Repeat("x", 10), "localhost")
		raw(t, srv, "GET", "/v1/runs/"+strings.Repeat("y", 10), "evil.example")
	}
	_, text := ask(t, "GET", srv.URL()+"/metrics", "")
	if n := strings.Count(text, "\nbide_runs_started_total{"); n != 201 || sum(t, text, "bide_runs_started_total") != 500 {
		t.Errorf("%d series of runs started", n)
	}
	if n := strings.Count(text, "\nbide_runs{"); n != 201 || sum(t, text, "bide_runs") != 500 {
		t.Errorf("%d series of runs", n)
	}
	if strings.Contains(text, "BREW") || strings.Contains(text, "nowhere") || strings.Contains(text, "yyy") {
		t.Error("what clients make up is a label")
	}
}

// What counting costs a commit.
func BenchmarkMeter(b *testing.B) {
	quiet := silent{bare{openStore(b)}}
	srv, err := server.New(quiet, server.Config{})
	if err != nil {
		b.Fatal(err)
	}
	store := srv.Store()
	claimed, err := store.Claim(b.Context(), bide.Claim{Worker: "w"})
	if err != nil {
		b.Fatal(err)
	}
	batch := bide.Batch{Records: []bide.Record{{Kind: bide.KindStep, Attempt: 1, Took: time.Millisecond}}}
	for b.Loop() {
		if err := store.Commit(b.Context(), claimed[0].Lease, batch); err != nil {
			b.Fatal(err)
		}
	}
}

// silent is a store whose commits cost nothing.
type silent struct{ bide.Store }

func (silent) Claim(context.Context, bide.Claim) ([]bide.Claimed, error) {
	return []bide.Claimed{{Lease: bide.Lease{Run: "r", Worker: "w"}, Run: bide.Run{Workflow: "x"}}}, nil
}

func (silent) Commit(context.Context, bide.Lease, bide.Batch) error { return nil }
