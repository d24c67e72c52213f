package main

import (
	"context"
	"io"
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
	"github.com/bide-dev/bide/webhook"
)

const day = 24 * time.Hour

var asked = []string{
	"ann: please approve: a chair",
	"ann: reminder: a chair",
	"ann: second reminder: a chair",
	"bob: ann does not answer, please approve: a chair",
}

// A week in virtual time, with every way to its end.
func TestApproval(t *testing.T) {
	for name, c := range map[string]struct {
		after   time.Duration // when the world answers
		link    []string      // by posting these
		signal  *Verdict      // or by this
		verdict Verdict
		mails   int    // of those above
		last    string // to who has asked
		took    time.Duration
	}{
		"by the link at once": {after: time.Minute, link: []string{`{"approved":true,"by":"ann"}`},
			verdict: Verdict{true, "ann"}, mails: 1, last: "joe: approved by ann: a chair", took: time.Minute},
		"by a signal, after a reminder": {after: 36 * time.Hour, signal: &Verdict{true, "ann"},
			verdict: Verdict{true, "ann"}, mails: 2, last: "joe: approved by ann: a chair", took: 36 * time.Hour},
		"refused by the boss": {after: 4 * day, link: []string{`{"approved":false,"by":"bob"}`},
			verdict: Verdict{false, "bob"}, mails: 4, last: "joe: refused by bob: a chair", took: 4 * day},
		"nonsense is passed over": {after: 2 * day, link: []string{"yes", `{"approved":"maybe"}`, `{"approved":true}`},
			verdict: Verdict{false, "the calendar"}, mails: 4, last: "joe: refused by the calendar: a chair", took: 7 * day},
		"nobody answers": {after: 8 * day,
			verdict: Verdict{false, "the calendar"}, mails: 4, last: "joe: refused by the calendar: a chair", took: 7 * day},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				stop := w.work()
				began := time.Now()
				run := w.start()
				time.AfterFunc(c.after, func() {
					for _, body := range c.link {
						w.wantPosted(body, http.StatusAccepted, "{}")
					}
					if c.signal != nil {
						if err := w.runs.Signal(context.Background(), run.ID(), "verdict", c.signal); err != nil {
							t.Error(err)
						}
					}
				})
				v, err := run.Result(t.Context())
				if v != c.verdict || err != nil {
					t.Errorf("got %+v, %v; want %+v", v, err, c.verdict)
				}
				if took := time.Since(began); took < c.took || took > c.took+time.Second {
					t.Errorf("took %v, want %v", took, c.took)
				}
				w.wantMails(append(asked[:c.mails:c.mails], c.last))
				w.wantPosted(`{"approved":true,"by":"late"}`, http.StatusOK, `"late":true`)
				stop()
			})
		})
	}
}

// Nobody is there for a day and a half: what fell due meanwhile comes late, and
// what was done is not done again.
func TestApprovalOutlivesItsProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.work()
		run := w.start()
		time.Sleep(36 * time.Hour)
		w.wantMails(asked[:2])
		stop()
		w.wantPosted(`{"approved":true}`, http.StatusAccepted, "{}") // the links are still served
		time.Sleep(36 * time.Hour)
		w.wantMails(asked[:2])
		stop = w.work()
		defer stop()
		time.Sleep(time.Minute)
		w.wantMails(asked)
		w.wantPosted(`{"approved":true,"by":"bob"}`, http.StatusAccepted, "{}")
		if v, err := run.Result(t.Context()); v != (Verdict{true, "bob"}) || err != nil {
			t.Errorf("got %+v, %v", v, err)
		}
	})
}

// world is all that a run needs, inside a bubble of virtual time.
type world struct {
	*testing.T
	store    bide.Store
	runs     *bide.Client
	hooks    http.Handler
	mails    *mailServer
	workflow *bide.Workflow[Request, Verdict]
}

func newWorld(t *testing.T) *world {
	store, err := sqlite.Open(":memory:")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	mails, err := openMailServer(filepath.Join(t.TempDir(), "mails"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	o := &office{mail: &mailer{http: &http.Client{Transport: inProcess{mails}}}, approver: "ann", boss: "bob", day: day}
	return &world{t, store, bide.NewClient(store), webhook.NewHandler(store, webhook.Config{}), mails, o.workflow()}
}

// work sets a worker to work until it is stopped.
func (w *world) work() (stop func()) {
	worker := bide.NewWorker(w.store, bide.WorkerConfig{PublicURL: "https://bide.test"})
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

func (w *world) start() *bide.Handle[Verdict] {
	w.Helper()
	run, err := w.workflow.Start(w.Context(), w.runs, Request{What: "a chair", From: "joe"}, bide.Timeout(30*day))
	if err != nil {
		w.Fatal(err)
	}
	return run
}

// wantPosted follows the link of the first mail.
func (w *world) wantPosted(body string, status int, answer string) {
	w.Helper()
	w.mails.mu.Lock()
	link := w.mails.sent[0].Link
	w.mails.mu.Unlock()
	r := httptest.NewRecorder()
	w.hooks.ServeHTTP(r, httptest.NewRequest("POST", strings.TrimPrefix(link, "https://bide.test"), strings.NewReader(body)))
	if r.Code != status || !strings.Contains(r.Body.String(), answer) {
		w.Errorf("POST %s: %d %s, want %d %s", body, r.Code, r.Body, status, answer)
	}
}

func (w *world) wantMails(want []string) {
	w.Helper()
	if got := w.mails.subjects(); !slices.Equal(got, want) {
		w.Errorf("mails:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
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
