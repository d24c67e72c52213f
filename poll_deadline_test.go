package bide_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/wait"
)

// The check at the deadline is the last, starts at it, and may take 10 s; what it
// finds counts. A check that would leave only a sliver before it moves to it.
func TestPollFinalCheck(t *testing.T) {
	for name, c := range map[string]struct {
		last answer
		opts []bide.PollOption
		at   []float64
		done bool
		ends time.Duration
	}{
		"succeeds":      {isThere, nil, []float64{0, 10, 20, 25}, true, 25 * time.Second},
		"succeeds late": {answer{body: "done", delay: 9 * time.Second}, nil, []float64{0, 10, 20, 25}, true, 34 * time.Second},
		"hangs":         {answer{hang: true}, nil, []float64{0, 10, 20, 25}, false, 35 * time.Second},
		"hangs, with an attempt timeout below 10 s": {answer{hang: true}, []bide.PollOption{bide.AttemptTimeout(3 * time.Second)}, []float64{0, 10, 20, 25}, false, 28 * time.Second},
		"a sliver before it":                        {isThere, []bide.PollOption{bide.Every(12 * time.Second), bide.MinInterval(5 * time.Second)}, []float64{0, 12, 25}, true, 25 * time.Second},
		"after a delay that is beyond it":           {isThere, []bide.PollOption{bide.InitialDelay(time.Hour)}, []float64{25}, true, 25 * time.Second},
		"a delay that leaves a sliver":              {isThere, []bide.PollOption{bide.InitialDelay(23 * time.Second), bide.MinInterval(5 * time.Second)}, []float64{25}, true, 25 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			script := append(slices.Repeat([]answer{pending}, len(c.at)-1), c.last)
			poll(t, script, exactly(append([]bide.PollOption{bide.Every(10 * time.Second), bide.Timeout(25 * time.Second)}, c.opts...)...), func(a *asking) {
				a.wantAt(c.at...)
				if took := time.Since(a.began).Round(10 * time.Millisecond); took != c.ends {
					a.Errorf("it ended after %v, want %v", took, c.ends)
				}
				if c.done {
					a.wantDone()
				} else if e := wantErr[*bide.PollTimeoutError](a.env, a.err); e.Reason != bide.ReasonTotalTimeout || !errors.Is(e.LastErr, bide.ErrTimeout) {
					a.Errorf("%+v", e)
				}
				if got := a.checks[len(a.checks)-1]; got.Trigger != bide.TriggerFinal || !got.NextAt.IsZero() {
					a.Errorf("%+v", got)
				}
			})
		})
	}
}

// What a poll that has given up says is the same in the turn that saw it and on
// replay by another worker: type, reason, last value, last error by its type.
func TestPollTimeoutErrorSurvivesReplay(t *testing.T) {
	for name, c := range map[string]struct {
		opt    bide.PollOption
		reason string
	}{
		"total":        {bide.Timeout(25 * time.Second), bide.ReasonTotalTimeout},
		"attempts":     {bide.MaxAttempts(2), bide.ReasonMaxAttempts},
		"errors":       {bide.MaxConsecutiveErrors(1), bide.ReasonMaxConsecutiveErrors},
		"a hard floor": {bide.Timeout(15 * time.Second), bide.ReasonRetryAfter},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(e *env) {
				last := refused(503)
				if c.reason == bide.ReasonRetryAfter {
					last = refused(503, "Retry-After", "600")
				}
				s := serve(e.T, answer{status: 202, body: "half"}, last)
				var seen []string
				w := bide.Define("timeouts", func(ctx bide.Context, _ none) (none, error) {
					_, err := bide.Poll(ctx, "job", s.ask, isDone, bide.Every(10*time.Second), c.opt, bide.NoTimeout{}, bide.Exact{})
					x, ok := errors.AsType[*bide.PollTimeoutError](err)
					r, known := errors.AsType[*wait.ResponseError](err)
					if !ok || !known {
						return none{}, err
					}
					seen = append(seen, fmt.Sprint(x, x.Name, x.ID == "the-run", x.Reason, x.Attempts, x.ConsecutiveErrors, x.Elapsed, string(x.LastValue), x.LastErrAt, r,
						r.Status, r.Hint, errors.Is(err, bide.ErrPollTimeout), errors.Is(err, context.DeadlineExceeded), errors.Is(err, x.LastErr), bide.Code(err)))
					if err := bide.Sleep(ctx, time.Hour); err != nil {
						return none{}, err
					}
					return none{}, err
				})
				e.work(w)
				h := start(e, w, none{}, bide.ID("the-run"))
				time.Sleep(2 * time.Minute)
				e.restart(w)
				_, err := result(e, h)
				wantErr[*bide.PollTimeoutError](e, err)
				if len(seen) != 2 || seen[0] != seen[1] {
					e.Errorf("seen in turn: %q", seen)
				}
				if is := errors.Is(err, context.DeadlineExceeded); is != (c.reason == bide.ReasonTotalTimeout) || !errors.Is(err, bide.ErrPollTimeout) {
					e.Errorf("%v: a deadline is %v", err, is)
				}
				x := wantErr[*bide.PollTimeoutError](e, err)
				if x.Reason != c.reason || string(x.LastValue) != `"half"` || wantErr[*wait.ResponseError](e, x.LastErr).Status != 503 ||
					x.LastErrAt.Sub(s.began) < 10*time.Second || x.Attempts < 2 {
					e.Errorf("%+v", x)
				}
			})
		})
	}
}

// The other two ends keep what they carry as well.
func TestPollErrorsSurviveReplay(t *testing.T) {
	inBubble(t, func(e *env) {
		s := serve(e.T, answer{body: "half"}, refused(http.StatusGone))
		turns := 0
		w := bide.Define("ends", func(ctx bide.Context, _ none) (none, error) {
			turns++
			_, err := bide.Poll(ctx, "job", s.ask, isDone, bide.Every(time.Second), bide.NoTimeout{})
			f, ok := errors.AsType[*bide.PollFailedError](err)
			if r, known := errors.AsType[*wait.ResponseError](err); !ok || !known || r.Status != http.StatusGone || string(f.LastValue) != `"half"` {
				e.Errorf("turn %d: %v", turns, err)
			}
			_, err = bide.Poll(ctx, "still", func(ctx context.Context) (int, error) { return 0, bide.Progress(ctx, 30, "") }, func(int) bool { return false },
				bide.Every(time.Second), bide.StallTimeout(10*time.Second), bide.NoTimeout{})
			if x, ok := errors.AsType[*bide.PollStalledError](err); !ok || x.LastProgress.Percent != 30 || x.Stalled < 10*time.Second {
				e.Errorf("turn %d: %v", turns, err)
			}
			return none{}, bide.Sleep(ctx, time.Hour)
		})
		e.work(w)
		h := start(e, w, none{})
		time.Sleep(time.Minute)
		e.restart(w)
		_, err := result(e, h)
		e.ok(err)
		if turns != 2 {
			e.Errorf("%d turns", turns)
		}
	})
}

// A pause does not move the deadline: what came due meanwhile is one check, the
// last.
func TestPollPauseDoesNotMoveDeadline(t *testing.T) {
	inBubble(t, func(e *env) {
		s := serve(e.T, pending)
		w := bide.Define("paused", func(ctx bide.Context, _ none) (string, error) {
			return bide.Poll(ctx, "job", s.ask, isDone, bide.Every(10*time.Minute), bide.Timeout(time.Hour), bide.Exact{})
		})
		e.work(w)
		h := start(e, w, none{})
		time.Sleep(15 * time.Minute)
		until := e.waitOf(h.ID(), bide.KindPoll).Until
		e.ok(e.client.Pause(e.Context(), h.ID()))
		time.Sleep(3 * time.Hour)
		e.wantState(h.ID(), bide.Paused)
		e.ok(e.client.Resume(e.Context(), h.ID()))
		_, err := result(e, h)
		x := wantErr[*bide.PollTimeoutError](e, err)
		if got := s.at(); !slices.Equal(got, []time.Duration{0, 10 * time.Minute, 3*time.Hour + 15*time.Minute}) || x.Attempts != 3 || until.Sub(s.began) != time.Hour {
			e.Errorf("asked at %v, until %v: %+v", got, until, x)
		}
	})
}

// A poll that a cancel finds asleep is over at once, and asks no more.
func TestPollCancelSleeping(t *testing.T) {
	for _, parked := range []bool{false, true} {
		inBubble(t, func(e *env) {
			s := serve(e.T, pending)
			w := bide.Define("canceled", func(ctx bide.Context, _ none) (string, error) {
				return bide.Poll(ctx, "job", s.ask, isDone, bide.Every(8*time.Second), bide.NoTimeout{}, bide.Exact{})
			})
			cfg := e.config()
			if parked {
				cfg.MaxWarm = -1
			}
			e.workAs(cfg, w)
			h := start(e, w, none{})
			time.Sleep(20 * time.Second)
			began := time.Now()
			e.ok(e.client.Cancel(e.Context(), h.ID(), ""))
			_, err := result(e, h)
			if !errors.Is(err, bide.ErrCanceled) || time.Since(began) > time.Second {
				e.Errorf("parked %v: %v after %v", parked, err, time.Since(began))
			}
			e.wantState(h.ID(), bide.Canceled)
			e.ok(e.client.Cancel(e.Context(), h.ID(), "")) // once more is no matter
			time.Sleep(time.Hour)
			if n := len(s.requests()); n != 3 {
				e.Errorf("parked %v: asked %d times, want 3", parked, n)
			}
			e.wantScript(h.ID(), "1 canceled job")
		})
	}
}

// A cancel ends the context of a check in flight; one that does not heed it is
// waited for, 10 s. A check that succeeds all the same has come first.
func TestPollCancelInFlight(t *testing.T) {
	for name, c := range map[string]struct {
		check func(ctx context.Context) (string, error)
		took  time.Duration
		done  bool
	}{
		"heeds": {func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }, 0, false},
		"deaf":  {func(context.Context) (string, error) { time.Sleep(25 * time.Second); return "done", nil }, 10 * time.Second, false},
		"success": {func(ctx context.Context) (string, error) {
			<-ctx.Done()
			time.Sleep(time.Second)
			return "done", nil
		}, time.Second, true},
		"not yet": {func(ctx context.Context) (string, error) {
			<-ctx.Done()
			time.Sleep(time.Second)
			return "", nil
		}, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(e *env) {
				calls := newClock()
				w := bide.Define("canceled", func(ctx bide.Context, _ none) (string, error) {
					return bide.Poll(ctx, "job", func(ctx context.Context) (string, error) { calls.tick(); return c.check(ctx) }, isDone, bide.NoTimeout{})
				})
				e.work(w)
				h := start(e, w, none{})
				time.Sleep(5 * time.Second)
				began := time.Now()
				e.ok(e.client.Cancel(e.Context(), h.ID(), ""))
				got, err := result(e, h)
				if took := time.Since(began).Round(10 * time.Millisecond); took != c.took || c.done != (got == "done") || c.done != (err == nil) || !c.done && !errors.Is(err, bide.ErrCanceled) {
					e.Errorf("%q, %v after %v", got, err, took)
				}
				time.Sleep(time.Hour)
				calls.want(e, "checks", 0)
			})
		})
	}
}

// A poll that could only wait for its deadline, since the server has refused it
// for longer, goes on when it is given more time, and no sooner than the server
// said; more time that is not enough changes nothing.
func TestPollExtendAfterTooLate(t *testing.T) {
	for name, refusal := range map[string]answer{
		"429":      refused(429, "Retry-After", "600"),
		"no quota": {status: 202, header: map[string]string{"RateLimit": `"a";r=0;t=600`}},
	} {
		for by, want := range map[time.Duration][]time.Duration{
			time.Hour:        {0, 600 * time.Second},
			10 * time.Minute: {0, 600 * time.Second},
			5 * time.Minute:  {0},
			-time.Minute:     {0},
		} {
			t.Run(fmt.Sprint(name, " ", by), func(t *testing.T) {
				inBubble(t, func(e *env) {
					s := serve(e.T, refusal, isThere)
					w := bide.Define("extended", func(ctx bide.Context, _ none) (string, error) {
						return bide.Poll(ctx, "job", s.ask, isDone, bide.Every(10*time.Second), bide.Timeout(2*time.Minute), bide.Exact{})
					})
					e.work(w)
					h := start(e, w, none{})
					time.Sleep(30 * time.Second)
					e.ok(e.client.Extend(e.Context(), h.ID(), "job", by))
					_, err := result(e, h)
					if got := s.at(); !slices.Equal(got, want) || (err == nil) != (len(want) == 2) {
						e.Errorf("asked at %v, want %v; %v", got, want, err)
					}
					if err != nil && (wantErr[*bide.PollTimeoutError](e, err).Reason != bide.ReasonRetryAfter || time.Since(s.began).Round(time.Second) != 2*time.Minute+by) {
						e.Errorf("after %v: %v", time.Since(s.began), err)
					}
				})
			})
		}
	}
	// A deadline that is brought nearer than a hard floor leaves no last check.
	inBubble(t, func(e *env) {
		s := serve(e.T, refused(429, "Retry-After", "60"), isThere)
		w := bide.Define("shortened", func(ctx bide.Context, _ none) (string, error) {
			return bide.Poll(ctx, "job", s.ask, isDone, bide.Timeout(2*time.Minute))
		})
		e.work(w)
		h := start(e, w, none{})
		time.Sleep(time.Second)
		e.ok(e.client.Extend(e.Context(), h.ID(), "job", -90*time.Second))
		_, err := result(e, h)
		if x := wantErr[*bide.PollTimeoutError](e, err); x.Reason != bide.ReasonRetryAfter || len(s.requests()) != 1 || x.Elapsed.Round(time.Second) != 30*time.Second {
			e.Errorf("asked at %v: %+v", s.at(), x)
		}
	})
}

// More time moves a check that had been moved to the deadline back to where the
// strategy, or the service, wants it.
func TestPollExtend(t *testing.T) {
	inBubble(t, func(e *env) {
		s := serve(e.T, pending)
		w := bide.Define("extended", func(ctx bide.Context, _ none) (string, error) {
			return bide.Poll(ctx, "job", s.ask, isDone, bide.Every(40*time.Second), bide.Timeout(time.Minute), bide.Exact{})
		})
		e.work(w)
		h := start(e, w, none{})
		time.Sleep(50 * time.Second)
		e.ok(e.client.Extend(e.Context(), h.ID(), "job", time.Minute))
		_, err := result(e, h)
		wantErr[*bide.PollTimeoutError](e, err)
		if got := s.at(); !slices.Equal(got, []time.Duration{0, 40e9, 80e9, 120e9}) {
			e.Errorf("asked at %v", got)
		}
		for _, r := range e.history(h.ID()) {
			if r.Kind == bide.KindPoll && (r.Poll.Counts["pending"] != 4 || r.Took != 2*time.Minute) {
				e.Errorf("%s", jsonOf(e, r))
			}
		}
	})
	for name, c := range map[string]struct {
		opt   bide.PollOption
		first answer
		at    []time.Duration
	}{
		"a wish":          {bide.InitialDelay(0), refused(http.StatusAccepted, "Retry-After", "600"), []time.Duration{0, 600 * time.Second}},
		"a delay":         {bide.InitialDelay(10 * time.Minute), isThere, []time.Duration{600 * time.Second}},
		"not much longer": {bide.InitialDelay(65 * time.Minute), isThere, []time.Duration{61 * time.Minute}},
	} {
		inBubble(t, func(e *env) {
			s := serve(e.T, c.first, isThere)
			w := bide.Define("extended", func(ctx bide.Context, _ none) (string, error) {
				return bide.Poll(ctx, "job", s.ask, isDone, bide.Timeout(time.Minute), bide.Exact{}, c.opt)
			})
			cfg := e.config()
			cfg.MaxWarm = -1
			e.workAs(cfg, w)
			h := start(e, w, none{})
			time.Sleep(30 * time.Second)
			e.ok(e.client.Extend(e.Context(), h.ID(), "job", time.Hour))
			_, err := result(e, h)
			e.ok(err)
			if got := s.at(); !slices.Equal(got, c.at) {
				e.Errorf("%s: asked at %v, want %v", name, got, c.at)
			}
		})
	}
}

// A person's word ends the poll, and its record tells how it went until then.
func TestPollSettledKeepsLog(t *testing.T) {
	for _, fails := range []bool{false, true} {
		inBubble(t, func(e *env) {
			s := serve(e.T, answer{body: "a"}, answer{body: "b"}, refused(500))
			w := bide.Define("settled", func(ctx bide.Context, _ none) (string, error) {
				return bide.Poll(ctx, "job", s.ask, isDone, bide.Every(10*time.Second), bide.NoTimeout{}, bide.Exact{})
			})
			e.work(w)
			h := start(e, w, none{})
			time.Sleep(25 * time.Second)
			if fails {
				e.ok(e.client.Fail(e.Context(), h.ID(), "job", "no use"))
			} else {
				e.ok(e.client.Complete(e.Context(), h.ID(), "job", "given"))
			}
			got, err := result(e, h)
			if fails == (err == nil) || !fails && got != "given" {
				e.Errorf("%q, %v", got, err)
			}
			r := e.history(h.ID())[0]
			if r.By == "" || r.Attempt != 3 || r.Poll == nil || len(r.Poll.Checks) != 2 || len(r.Poll.Values) != 2 || r.Took.Round(time.Second) != 25*time.Second {
				e.Errorf("the record is %s", jsonOf(e, r))
			}
		})
	}
}
