package bide_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/wait"
)

// jobAt is a job at a scripted service.
func jobAt(s *service) bide.Job[string, string, string] {
	return bide.Job[string, string, string]{
		Submit: func(ctx context.Context) (string, error) { return s.do(ctx, http.MethodPost, "/jobs") },
		Status: func(ctx context.Context, id string) (string, error) { return s.do(ctx, http.MethodGet, "/"+id) },
		Done:   isDone,
		Fetch: func(ctx context.Context, id string) (string, error) {
			return s.do(ctx, http.MethodGet, "/"+id+"/result")
		},
		Cancel: func(ctx context.Context, id string) error {
			_, err := s.do(ctx, http.MethodDelete, "/"+id)
			return err
		},
		Retry: bide.RetryPolicy{InitialInterval: 2 * time.Second, NoJitter: true},
	}
}

var jobID = answer{status: http.StatusAccepted, body: "j1"}

// jobFlow is a workflow of one job.
func jobFlow(j bide.Job[string, string, string], opts ...bide.PollOption) *bide.Workflow[none, string] {
	return bide.Define("job", func(ctx bide.Context, _ none) (string, error) { return j.Run(ctx, "render", exactly(opts...)...) })
}

// told says what a service was asked, line by line: "POST /jobs at 0s".
func (s *service) told() []string {
	var lines []string
	for _, r := range s.requests() {
		lines = append(lines, fmt.Sprint(r.method, " ", r.path, " ", r.at))
	}
	return lines
}

func wantTold(e *env, s *service, want ...string) {
	e.Helper()
	if got := s.told(); !slices.Equal(got, want) {
		e.Errorf("asked\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// TestJob protects the order of a job's parts, each a record of its own, and the
// pause before the first check.
func TestJob(t *testing.T) {
	inBubble(t, func(e *env) {
		s := serve(e.T, jobID, pending, isThere, answer{body: "the result"})
		w := jobFlow(jobAt(s), bide.Every(10*time.Second), bide.Timeout(time.Hour))
		e.work(w)
		h := start(e, w, none{})
		out, err := result(e, h)
		if out != "the result" || err != nil {
			e.Errorf("%q, %v", out, err)
		}
		wantTold(e, s, "POST /jobs 0s", "GET /j1 10s", "GET /j1 20s", "GET /j1/result 20s")
		e.wantScript(h.ID(), "1 step render submit", "2 poll render", "3 step render fetch")
	})
}

// TestJobFirstCheck protects what decides when the first check comes: an interval,
// or InitialDelay, and in any case what the answer to the submit has said.
func TestJobFirstCheck(t *testing.T) {
	for name, c := range map[string]struct {
		header []string
		opts   []bide.PollOption
		at     time.Duration // of the first check; 0: there is none
		reason string
	}{
		"an interval":               {nil, nil, 10 * time.Second, ""},
		"of the default strategy":   {nil, []bide.PollOption{bide.Exponential{}}, time.Second, ""},
		"of Elapsed":                {nil, []bide.PollOption{bide.Elapsed{Min: 7 * time.Second}}, 7 * time.Second, ""},
		"a delay":                   {nil, []bide.PollOption{bide.InitialDelay(3 * time.Second)}, 3 * time.Second, ""},
		"a wish":                    {[]string{"Retry-After", "45"}, nil, 45 * time.Second, ""},
		"a wish below the interval": {[]string{"Retry-After", "4"}, nil, 10 * time.Second, ""},
		"a wish and a delay":        {[]string{"Retry-After", "45"}, []bide.PollOption{bide.InitialDelay(3 * time.Second)}, 45 * time.Second, ""},
		"a delay beyond the wish":   {[]string{"Retry-After", "4"}, []bide.PollOption{bide.InitialDelay(time.Minute)}, time.Minute, ""},
		"an interval of its own":    {[]string{"X-Poll-Interval", "45"}, nil, 45 * time.Second, ""},
		"a wish beyond the timeout": {[]string{"Retry-After", "900"}, nil, 5 * time.Minute, ""},
		"no quota left":             {[]string{"RateLimit", `"a";r=0;t=45`}, nil, 45 * time.Second, ""},
		"no quota before the end":   {[]string{"RateLimit", `"a";r=0;t=900`}, nil, 0, bide.ReasonRetryAfter},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(e *env) {
				first := refused(http.StatusAccepted, c.header...)
				first.body, first.delay = "j1", 2*time.Second
				s := serve(e.T, first, isThere)
				_, err := run(e, jobFlow(jobAt(s), append([]bide.PollOption{bide.Every(10 * time.Second), bide.Timeout(5 * time.Minute)}, c.opts...)...), none{})
				if c.at == 0 {
					if x := wantErr[*bide.PollTimeoutError](e, err); x.Reason != c.reason || x.Attempts != 0 || len(s.requests()) != 1 {
						e.Errorf("asked %q: %+v", s.told(), x)
					}
					return
				}
				at := (2*time.Second + c.at).String()
				e.ok(err)
				wantTold(e, s, "POST /jobs 0s", "GET /j1 "+at, "GET /j1/result "+at)
			})
		})
	}
}

// handle is what a job is known by, at a service that says in its answer when the
// job will be done.
type handle struct {
	Name string
	Due  time.Time
}

func (h handle) ETA() time.Time { return h.Due }

// What the ID itself says is as good as what is observed.
func TestJobETA(t *testing.T) {
	inBubble(t, func(e *env) {
		c := newClock()
		j := bide.Job[handle, int, string]{
			Submit: func(context.Context) (handle, error) { return handle{"j1", time.Now().Add(50 * time.Second)}, nil },
			Status: func(context.Context, handle) (int, error) { c.tick(); return 0, nil },
			Done:   func(int) bool { return true },
			Fetch:  func(_ context.Context, h handle) (string, error) { return h.Name, nil },
		}
		w := bide.Define("job", func(ctx bide.Context, _ none) (string, error) {
			return j.Run(ctx, "render", bide.ETA{}, bide.NoTimeout{}, bide.Exact{})
		})
		out, err := run(e, w, none{})
		if out != "j1" || err != nil {
			e.Errorf("%q, %v", out, err)
		}
		c.want(e, "checks", 40*time.Second)
	})
}

// TestJobCrash protects each part from being done again for a crash in another:
// the worker dies at each of its commits in turn. Only the part whose own commit
// failed is repeated, and the floor that the submit gave holds from the submit.
func TestJobCrash(t *testing.T) {
	for at := 1; ; at++ {
		reached := false
		inBubble(t, func(e *env) {
			j, calls, submitted := bide.Job[string, int, string]{}, map[string]int{}, time.Time{}
			j.Submit = func(ctx context.Context) (string, error) {
				calls["submit"]++
				submitted = time.Now()
				return "j1", bide.Observe(ctx, bide.Observation{Hint: wait.Hint{After: 5 * time.Minute}})
			}
			j.Status = func(_ context.Context, id string) (int, error) {
				calls["status"]++
				if early := time.Until(submitted.Add(5 * time.Minute)); early > 0 || id != "j1" {
					e.Errorf("crash at commit %d: %q was asked for %v too early", at, id, early)
				}
				return calls["status"], nil
			}
			j.Done = func(n int) bool { return n >= 3 }
			j.Fetch = func(_ context.Context, id string) (string, error) {
				calls["fetch"]++
				if calls["status"] < 3 {
					e.Errorf("fetched after %d checks", calls["status"])
				}
				return "result of " + id, nil
			}
			w := bide.Define("job", func(ctx bide.Context, _ none) (string, error) {
				return j.Run(ctx, "render", bide.Every(20*time.Second), bide.NoTimeout{}, bide.Exact{})
			})
			hand := e.work(w)
			hand.gate.mu.Lock()
			hand.gate.onCommit = func(bide.Batch) error {
				hand.gate.mu.Lock()
				defer hand.gate.mu.Unlock()
				if hand.gate.commits >= at {
					reached = true
					hand.gate.mode = dead
					return bide.ErrClosed
				}
				return nil
			}
			hand.gate.mu.Unlock()
			h := start(e, w, none{})
			time.Sleep(10 * time.Minute)
			_ = hand.stop()
			e.work(w)
			out, err := result(e, h)
			extra := calls["submit"] + calls["status"] + calls["fetch"] - 5
			if out != "result of j1" || err != nil || extra > 1 || calls["submit"] > 2 || calls["status"] > 4 || calls["fetch"] > 2 {
				e.Errorf("crash at commit %d: %q, %v after %v", at, out, err, calls)
			}
			e.wantScript(h.ID(), "1 step render submit", "2 poll render", "3 step render fetch")
		})
		if !reached {
			if at < 5 {
				t.Errorf("the job took %d commits, so that little was tried", at-1)
			}
			return
		}
	}
}

// A crash in the middle of the fetch goes on with the fetch.
func TestJobCrashInFetch(t *testing.T) {
	inBubble(t, func(e *env) {
		s := serve(e.T, jobID, isThere, answer{hang: true}, answer{body: "the result"})
		w := jobFlow(jobAt(s), bide.Every(10*time.Second), bide.NoTimeout{})
		hand := e.work(w)
		h := start(e, w, none{})
		time.Sleep(15 * time.Second)
		hand.gate.set(dead)
		hand.cancel()
		e.work(w)
		out, err := result(e, h)
		got := s.told()
		if out != "the result" || err != nil || len(got) != 4 || !strings.HasPrefix(got[3], "GET /j1/result ") {
			e.Errorf("%q, %v; asked %q", out, err, got)
		}
	})
}

// TestJobCancel protects the remote job from being left running: whenever the run
// is canceled with the job submitted, it is told, until it has heard, once.
func TestJobCancel(t *testing.T) {
	hangs := answer{hang: true}
	for name, c := range map[string]struct {
		script []answer
		at     time.Duration
		told   []string
		lines  []string
	}{
		"while it waits": {[]answer{jobID, pending, {status: 204}}, 12 * time.Second,
			[]string{"POST /jobs 0s", "GET /j1 10s", "DELETE /j1 12s"}, []string{"1 step render submit", "2 canceled render", "3 step render cancel"}},
		"in a check": {[]answer{jobID, hangs, {status: 204}}, 12 * time.Second,
			[]string{"POST /jobs 0s", "GET /j1 10s", "DELETE /j1 12s"}, []string{"1 step render submit", "2 canceled render", "3 step render cancel"}},
		"in the fetch": {[]answer{jobID, isThere, hangs, {status: 204}}, 12 * time.Second,
			[]string{"POST /jobs 0s", "GET /j1 10s", "GET /j1/result 10s", "DELETE /j1 12s"},
			[]string{"1 step render submit", "2 poll render", "3 canceled render fetch", "4 step render cancel"}},
		"tried again": {[]answer{jobID, pending, refused(500), refused(503), {status: 204}}, 12 * time.Second,
			[]string{"POST /jobs 0s", "GET /j1 10s", "DELETE /j1 12s", "DELETE /j1 14s", "DELETE /j1 18s"},
			[]string{"1 step render submit", "2 canceled render", "3 step render cancel"}},
		"before it is submitted": {[]answer{hangs, {status: 204}}, 12 * time.Second,
			[]string{"POST /jobs 0s"}, []string{"1 canceled render submit"}},
		"between two tries to submit": {[]answer{refused(500), {status: 204}}, time.Second,
			[]string{"POST /jobs 0s"}, []string{"1 canceled render submit"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(e *env) {
				s := serve(e.T, c.script...)
				w := jobFlow(jobAt(s), bide.Every(10*time.Second), bide.NoTimeout{})
				e.work(w)
				h := start(e, w, none{})
				time.Sleep(c.at)
				e.ok(e.client.Cancel(e.Context(), h.ID(), ""))
				_, err := result(e, h)
				if !errors.Is(err, bide.ErrCanceled) {
					e.Errorf("%v", err)
				}
				e.wantState(h.ID(), bide.Canceled)
				time.Sleep(time.Hour)
				wantTold(e, s, c.told...)
				e.wantScript(h.ID(), c.lines...)
			})
		})
	}
}

// A submit that succeeds though the run is canceled has started a job.
func TestJobCancelOfLateSubmit(t *testing.T) {
	inBubble(t, func(e *env) {
		s := serve(e.T, answer{status: 204})
		j := jobAt(s)
		j.Submit = func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "j1", nil
		}
		w := jobFlow(j, bide.NoTimeout{})
		e.work(w)
		h := start(e, w, none{})
		time.Sleep(time.Second)
		e.ok(e.client.Cancel(e.Context(), h.ID(), ""))
		_, err := result(e, h)
		if !errors.Is(err, bide.ErrCanceled) {
			e.Errorf("%v", err)
		}
		wantTold(e, s, "DELETE /j1 1s")
	})
}

// The cancel is a step like others: a crash does not lose it, a permanent error
// ends it and is told, and without a Cancel there is none.
func TestJobCancelStep(t *testing.T) {
	inBubble(t, func(e *env) {
		s := serve(e.T, jobID, answer{hang: true}, answer{status: 204})
		w := jobFlow(jobAt(s), bide.Every(time.Hour), bide.NoTimeout{})
		hand := e.work(w)
		h := start(e, w, none{})
		time.Sleep(time.Second)
		e.ok(e.client.Cancel(e.Context(), h.ID(), ""))
		time.Sleep(time.Second)
		hand.gate.set(dead)
		hand.cancel()
		e.work(w)
		if _, err := result(e, h); !errors.Is(err, bide.ErrCanceled) {
			e.Errorf("%v", err)
		}
		time.Sleep(time.Minute)
		if got := s.told(); len(got) != 3 || !strings.HasPrefix(got[2], "DELETE /j1 ") {
			e.Errorf("asked %q", got)
		}
		e.wantScript(h.ID(), "1 step render submit", "2 canceled render", "3 step render cancel")
	})
	for _, deaf := range []bool{true, false} {
		inBubble(t, func(e *env) {
			s := serve(e.T, jobID, refused(http.StatusForbidden))
			j := jobAt(s)
			if deaf {
				j.Cancel = nil
			}
			w := jobFlow(j, bide.Every(time.Hour), bide.NoTimeout{})
			e.work(w)
			h := start(e, w, none{})
			time.Sleep(time.Second)
			e.ok(e.client.Cancel(e.Context(), h.ID(), ""))
			_, err := result(e, h)
			if !errors.Is(err, bide.ErrCanceled) || deaf == strings.Contains(err.Error(), "403") {
				e.Errorf("%v", err)
			}
			e.wantState(h.ID(), bide.Canceled)
		})
	}
}

// A fetch that comes before the result is there is tried again for FetchGrace
// after the job was done; later the same answer is the end.
func TestJobFetchGrace(t *testing.T) {
	for name, c := range map[string]struct {
		answers []answer
		change  func(*bide.Job[string, string, string])
		told    []string // of the fetch
		code    string   // of the error
	}{
		"404, 409, 425": {[]answer{refused(404), refused(409), refused(425), {body: "x"}}, nil, []string{"10s", "12s", "16s", "24s"}, ""},
		"too long":      {[]answer{refused(404)}, nil, []string{"10s", "12s", "16s", "24s", "40s"}, "http_404"},
		"410":           {[]answer{refused(410)}, nil, []string{"10s"}, "http_410"},
		"401":           {[]answer{refused(401)}, nil, []string{"10s"}, "http_401"},
		"shorter": {[]answer{refused(404)}, func(j *bide.Job[string, string, string]) { j.FetchGrace = 5 * time.Second },
			[]string{"10s", "12s", "16s"}, "http_404"},
		"whatever RetryIf says": {[]answer{refused(404), {body: "x"}}, func(j *bide.Job[string, string, string]) {
			j.Retry.RetryIf = func(error) bool { return false }
		}, []string{"10s", "12s"}, ""},
		"RetryIf of what is not early": {[]answer{refused(404), refused(500)}, func(j *bide.Job[string, string, string]) {
			j.Retry.RetryIf = func(error) bool { return false }
		}, []string{"10s", "12s"}, "http_500"},
		"attempts bind": {[]answer{refused(404)}, func(j *bide.Job[string, string, string]) { j.Retry.MaximumAttempts = 2 },
			[]string{"10s", "12s"}, "retry_exhausted"},
		"a status of one's own": {[]answer{refused(404), {body: "x"}}, func(j *bide.Job[string, string, string]) {
			fetch := j.Fetch
			j.Fetch = func(ctx context.Context, id string) (string, error) {
				r, err := fetch(ctx, id)
				if err != nil {
					err = fmt.Errorf("sdk: %w", sdkError{404})
				}
				return r, err
			}
		}, []string{"10s", "12s"}, ""},
		"a short status of one's own": {[]answer{refused(409), {body: "x"}}, func(j *bide.Job[string, string, string]) {
			fetch := j.Fetch
			j.Fetch = func(ctx context.Context, id string) (string, error) {
				r, err := fetch(ctx, id)
				if err != nil {
					err = shortError{409}
				}
				return r, err
			}
		}, []string{"10s", "12s"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(e *env) {
				s := serve(e.T, append([]answer{jobID, isThere}, c.answers...)...)
				j := jobAt(s)
				if c.change != nil {
					c.change(&j)
				}
				out, err := run(e, jobFlow(j, bide.Every(10*time.Second), bide.NoTimeout{}), none{})
				want := []string{"POST /jobs 0s", "GET /j1 10s"}
				for _, at := range c.told {
					want = append(want, "GET /j1/result "+at)
				}
				wantTold(e, s, want...)
				if c.code == "" {
					if out != "x" || err != nil {
						e.Errorf("%q, %v", out, err)
					}
				} else if run := wantErr[*bide.RunError](e, err); bide.Code(run.Err) != c.code {
					e.Errorf("%v, want the code %s", err, c.code)
				}
			})
		})
	}
}

// sdkError is an error that knows its status, and is permanent by itself.
type sdkError struct{ status int }

func (e sdkError) Error() string   { return "sdk error" }
func (e sdkError) HTTPStatus() int { return e.status }
func (e sdkError) Permanent() bool { return true }

type shortError struct{ status int }

func (e shortError) Error() string   { return "short error" }
func (e shortError) Status() int     { return e.status }
func (e shortError) Permanent() bool { return true }

// A job that ends badly is not fetched, nor canceled: the workflow hears why.
func TestJobErrors(t *testing.T) {
	inBubble(t, func(e *env) {
		s := serve(e.T, refused(400))
		_, err := run(e, jobFlow(jobAt(s), bide.NoTimeout{}), none{})
		if x := wantErr[*bide.RunError](e, err); bide.Code(x.Err) != "http_400" || len(s.requests()) != 1 {
			e.Errorf("asked %q: %v", s.told(), err)
		}
	})
	inBubble(t, func(e *env) {
		s := serve(e.T, jobID, pending)
		_, err := run(e, jobFlow(jobAt(s), bide.Every(10*time.Second), bide.Timeout(15*time.Second)), none{})
		wantErr[*bide.PollTimeoutError](e, err)
		wantTold(e, s, "POST /jobs 0s", "GET /j1 10s", "GET /j1 15s")
	})
	inBubble(t, func(e *env) {
		s := serve(e.T, jobID, refused(410))
		_, err := run(e, jobFlow(jobAt(s), bide.Every(10*time.Second), bide.NoTimeout{}), none{})
		wantErr[*bide.PollFailedError](e, err)
		wantTold(e, s, "POST /jobs 0s", "GET /j1 10s")
	})
}

// TestJobBadInput protects against jobs that make no sense: nothing is submitted.
func TestJobBadInput(t *testing.T) {
	type job = bide.Job[string, string, string]
	for field, c := range map[string]struct {
		name   string
		change func(*job)
		opts   []bide.PollOption
	}{
		"Job.Submit":                  {"x", func(j *job) { j.Submit = nil }, nil},
		"Job.Status":                  {"x", func(j *job) { j.Status = nil }, nil},
		"Job.Done":                    {"x", func(j *job) { j.Done = nil }, nil},
		"Job.Fetch":                   {"x", func(j *job) { j.Fetch = nil }, nil},
		"Job.FetchGrace":              {"x", func(j *job) { j.FetchGrace = -1 }, nil},
		"RetryPolicy.MaximumAttempts": {"x", func(j *job) { j.Retry.MaximumAttempts = -1 }, nil},
		"job name":                    {"", func(*job) {}, nil},
		"interval":                    {"x", func(*job) {}, []bide.PollOption{bide.Every(0)}},
		"MaxAttempts":                 {"x", func(*job) {}, []bide.PollOption{bide.MaxAttempts(-1)}},
	} {
		inBubble(t, func(e *env) {
			s := serve(e.T, jobID)
			j := jobAt(s)
			c.change(&j)
			w := bide.Define("job", func(ctx bide.Context, _ none) (string, error) {
				return j.Run(ctx, c.name, append(c.opts, bide.NoTimeout{})...)
			})
			_, err := run(e, w, none{})
			if x := wantErr[*bide.InvalidError](e, err); x.Field != field || len(s.requests()) != 0 {
				e.Errorf("asked %q: %+v, want the field %s", s.told(), x, field)
			}
		})
	}
}

// A person may say that the job was started, and by what it is known: the wait
// goes on from then.
func TestJobSubmitSettled(t *testing.T) {
	inBubble(t, func(e *env) {
		s := serve(e.T, refused(500), isThere, answer{body: "the result"})
		j := jobAt(s)
		j.Retry.InitialInterval = time.Hour
		w := jobFlow(j, bide.Every(10*time.Second), bide.NoTimeout{})
		e.work(w)
		h := start(e, w, none{})
		time.Sleep(time.Minute)
		e.ok(e.client.Complete(e.Context(), h.ID(), "render submit", map[string]string{"id": "j2"}))
		out, err := result(e, h)
		if out != "the result" || err != nil {
			e.Errorf("%q, %v", out, err)
		}
		wantTold(e, s, "POST /jobs 0s", "GET /j2 1m10s", "GET /j2/result 1m10s")
	})
}
