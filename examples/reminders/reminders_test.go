package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/sqlite"
)

const day = 24 * time.Hour

// Four days in virtual time, with and without an answer.
func TestRemind(t *testing.T) {
	for name, c := range map[string]struct {
		answerAt time.Duration
		down     bool // nobody is there when the answer comes
		answer   string
		mails    int
		took     time.Duration
	}{
		"no answer":                {mails: 4, took: 4 * day},
		"an answer at once":        {answerAt: time.Minute, answer: "paid", mails: 1, took: time.Minute},
		"an answer the third day":  {answerAt: 2*day + time.Hour, answer: "paid", mails: 3, took: 2*day + time.Hour},
		"an answer while down":     {answerAt: day / 2, down: true, answer: "paid", mails: 1, took: day},
		"down for a day, no words": {down: true, mails: 4, took: 4 * day},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				stop := w.work()
				began := time.Now()
				run, err := w.workflow.Start(t.Context(), w.runs, "ann", bide.Timeout(30*day))
				if err != nil {
					t.Fatal(err)
				}
				if c.answer != "" {
					time.AfterFunc(c.answerAt, func() {
						if err := w.runs.Signal(context.Background(), run.ID(), "answer", c.answer); err != nil {
							t.Error(err)
						}
					})
				}
				if c.down {
					time.Sleep(day / 4)
					stop()
					time.Sleep(3 * day / 4)
					stop = w.work()
				}
				o, err := run.Result(t.Context())
				if err != nil || o.Answer != c.answer || o.Unknown != nil {
					t.Errorf("got %+v, %v, want the answer %q", o, err, c.answer)
				}
				if took := time.Since(began); took < c.took || took > c.took+time.Second {
					t.Errorf("took %v, want %v", took, c.took)
				}
				if got := w.server.subjects(); !slices.Equal(got, subjects[:c.mails]) {
					t.Errorf("mails %q, want the first %d", got, c.mails)
				}
				stop()
			})
		})
	}
}

// The process dies while a mail is being sent: it is not sent again, and the
// outcome says that nobody knows.
func TestMailIsNotSentTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		died := make(chan struct{})
		w.server.slow = func() { <-died }
		stop := w.work()
		run, err := w.workflow.Start(t.Context(), w.runs, "ann", bide.Timeout(30*day))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // the mail is out, the server's answer is not
		stop()                  // its grace is over before that
		close(died)
		defer w.work()()
		o, err := run.Result(t.Context())
		if err != nil || !slices.Equal(o.Unknown, subjects[:1]) {
			t.Errorf("got %+v, %v; want it to be unknown whether %q was sent", o, err, subjects[0])
		}
		if got := w.server.subjects(); !slices.Equal(got, subjects) {
			t.Errorf("mails %q, want each once", got)
		}
	})
}

// world is all that a run needs, inside a bubble of virtual time.
type world struct {
	*testing.T
	store    bide.Store
	runs     *bide.Client
	server   *mailServer
	workflow *bide.Workflow[string, Outcome]
}

func newWorld(t *testing.T) *world {
	store, err := sqlite.Open(":memory:")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	server, err := openMailServer(filepath.Join(t.TempDir(), "mails"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	r := &reminders{mail: &mailer{http: &http.Client{Transport: inProcess{server}}}, day: day}
	return &world{t, store, bide.NewClient(store), server, r.workflow()}
}

// work sets a worker to work until it is stopped.
func (w *world) work() (stop func()) {
	worker := bide.NewWorker(w.store, bide.WorkerConfig{})
	worker.Register(w.workflow)
	ctx, cancel := context.WithCancel(w.Context())
	stopped := make(chan error)
	go func() { stopped <- worker.Run(ctx) }()
	return func() {
		cancel()
		if err := <-stopped; err != nil {
			w.Error(err)
		}
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
