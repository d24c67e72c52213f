package bide_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/bide-dev/bide"
)

// TestPollOutcomes protects what each answer of an HTTP service means.
func TestPollOutcomes(t *testing.T) {
	for name, c := range map[string]struct {
		first   answer
		outcome string
	}{
		"200 that is not the one is pending": {answer{body: "no"}, "pending"},
		"200 that is the one succeeds":       {isThere, "succeeded"},
		"202 is pending":                     {pending, "pending"},
		"304 is pending":                     {refused(304), "pending"},
		"400 fails":                          {refused(400), "failed"},
		"401 fails":                          {refused(401), "failed"},
		"403 fails":                          {refused(403), "failed"},
		"403 with a time is throttled":       {refused(403, "Retry-After", "5"), "throttled"},
		"403 with no quota is throttled":     {refused(403, "X-RateLimit-Remaining", "0"), "throttled"},
		"404 fails":                          {refused(404), "failed"},
		"408 is transient":                   {refused(408), "transient"},
		"410 fails":                          {refused(410), "failed"},
		"425 is transient":                   {refused(425), "transient"},
		"429 is throttled":                   {refused(429), "throttled"},
		"500 is transient":                   {refused(500), "transient"},
		"501 fails":                          {refused(501), "failed"},
		"502 is transient":                   {refused(502), "transient"},
		"503 is transient":                   {refused(503), "transient"},
		"503 with a time is throttled":       {refused(503, "Retry-After", "5"), "throttled"},
		"504 is transient":                   {refused(504), "transient"},
		"no answer is transient":             {answer{hang: true}, "transient"},
	} {
		t.Run(name, func(t *testing.T) {
			poll(t, []answer{c.first, isThere}, exactly(bide.Every(10*time.Second), bide.NoTimeout{}), func(a *asking) {
				if got := a.checks[0].Outcome.String(); got != c.outcome || a.record.Poll.Counts[c.outcome] == 0 {
					a.Errorf("%s (%v), want %s; counted %v", got, a.checks[0].Err, c.outcome, a.record.Poll.Counts)
				}
				if over := c.outcome == "succeeded" || c.outcome == "failed"; over != (len(a.at()) == 1) {
					a.Errorf("%d checks", len(a.at()))
				}
				if c.outcome == "failed" {
					wantErr[*bide.PollFailedError](a.env, a.err)
				} else {
					a.wantDone()
				}
			})
		})
	}
}

// A permanent error ends the poll, with the last value beside it.
func TestPollFailedKeepsLastValue(t *testing.T) {
	poll(t, []answer{{status: 202, body: "half"}, refused(410)}, exactly(bide.Every(time.Second), bide.NoTimeout{}), func(a *asking) {
		e := wantErr[*bide.PollFailedError](a.env, a.err)
		if e.Name != "job" || e.Attempts != 2 || string(e.LastValue) != `"half"` || e.Err == nil || bide.Code(e) != "poll_failed" {
			a.Errorf("%+v", e)
		}
		a.wantAt(0, 1)
	})
}

type brokenLink struct{}

func (brokenLink) Error() string { return "broken link" }

// Types that the poll names as fatal are, anywhere in the chain and whatever else
// the error says; others are not.
func TestPollNonRetryableErrorTypes(t *testing.T) {
	fatal := bide.NonRetryableErrorTypes{"bide_test.brokenLink"}
	at, _, _, err := polled(t, func(n int) (int, error) {
		if n == 1 {
			return 0, errors.New("broken link")
		}
		return 0, fmt.Errorf("wrapped: %w", errors.Join(errors.New("x"), bide.RetryAfter(brokenLink{}, time.Hour)))
	}, exactly(fatal, bide.Every(time.Second), bide.NoTimeout{})...)
	if e, ok := errors.AsType[*bide.PollFailedError](err); !ok || e.Attempts != 2 || fmt.Sprint(at) != offsets(0, 1) {
		t.Errorf("checks at %v, %v", at, err)
	}
}

// A panic of the check, or of the condition, is an error like any other.
func TestPollPanicIsTransient(t *testing.T) {
	for _, inDone := range []bool{false, true} {
		inBubble(t, func(e *env) {
			calls := 0
			w := bide.Define("panics", func(ctx bide.Context, _ none) (int, error) {
				return bide.Poll(ctx, "job", func(context.Context) (int, error) {
					if calls++; calls <= 3 && !inDone {
						panic("ouch")
					}
					return calls, nil
				}, func(n int) bool {
					if n <= 3 && inDone {
						panic("ouch")
					}
					return true
				}, bide.Every(time.Hour), bide.NoTimeout{}, bide.Exact{})
			})
			e.work(w)
			h := start(e, w, none{})
			time.Sleep(90 * time.Minute)
			kept := e.waitOf(h.ID(), bide.KindPoll)
			p := wantErr[*bide.PanicError](e, kept.LastError.Err())
			if kept.Streak != 2 || p.Value != "ouch" || p.Stack == "" {
				e.Errorf("the wait is %s", jsonOf(e, kept))
			}
			if n, err := result(e, h); n != 4 || err != nil {
				e.Errorf("in the condition %v: %d, %v", inDone, n, err)
			}
		})
	}
}

// A check that hangs is over at its AttemptTimeout, whether it heeds its context
// or not; what it says later is dropped.
func TestPollHangIsTransient(t *testing.T) {
	poll(t, []answer{{hang: true}, isThere}, exactly(bide.Every(time.Second), bide.NoTimeout{}, bide.AttemptTimeout(5*time.Second)), func(a *asking) {
		a.wantDone()
		a.wantAt(0, 6)
	})
	inBubble(t, func(e *env) {
		c := newClock()
		w := bide.Define("deaf", func(ctx bide.Context, _ none) (int, error) {
			return bide.Poll(ctx, "job", func(ctx context.Context) (int, error) {
				c.tick()
				n := len(c.ticks())
				if n < 3 {
					time.Sleep(100 * time.Second)
					_ = bide.Observe(ctx, bide.Observation{ETag: "late"})
				}
				return n, nil
			}, func(int) bool { return true }, bide.Every(time.Second), bide.NoTimeout{}, bide.Exact{})
		})
		e.work(w)
		n, err := result(e, start(e, w, none{}))
		if n != 3 || err != nil {
			e.Errorf("%d, %v", n, err)
		}
		c.want(e, "checks", 0, 31*time.Second, 63*time.Second) // 30 s each, and the back-off of 1 s and 2 s
		time.Sleep(time.Hour)
	})
}

// Errors in a row end the poll when they are as many as it bears; "not yet"
// breaks the row, and refusals for asking too often neither count nor break it.
func TestPollMaxConsecutiveErrors(t *testing.T) {
	down, busy := refused(500), refused(429)
	opts := exactly(bide.Every(time.Second), bide.NoTimeout{}, bide.MaxConsecutiveErrors(3))
	poll(t, []answer{down, down, pending, down, busy, busy, busy, busy, down, down, isThere}, opts, func(a *asking) {
		e := wantErr[*bide.PollTimeoutError](a.env, a.err)
		if e.Reason != bide.ReasonMaxConsecutiveErrors || e.Attempts != 10 || e.ConsecutiveErrors != 3 {
			a.Errorf("%+v", e)
		}
		if errors.Is(a.err, context.DeadlineExceeded) {
			a.Error("it counts as a deadline")
		}
	})
	poll(t, []answer{down, down, pending, down, down, isThere}, opts, func(a *asking) { a.wantDone() })
}

// By default a poll survives an afternoon of errors.
func TestPollSurvivesErrors(t *testing.T) {
	var script []answer
	for range 300 {
		script = append(script, refused(503))
	}
	poll(t, append(script, isThere), exactly(bide.Every(time.Second), bide.Timeout(21*24*time.Hour)), func(a *asking) {
		a.wantDone()
		if took := a.at()[300]; took < 4*time.Hour || took > 5*time.Hour {
			a.Errorf("it took %v", took)
		}
	})
}

// After the last attempt there is no pause; attempts are counted as they start.
func TestPollMaxAttempts(t *testing.T) {
	poll(t, []answer{pending, refused(500), pending}, exactly(bide.Every(time.Hour), bide.MaxAttempts(3)), func(a *asking) {
		e := wantErr[*bide.PollTimeoutError](a.env, a.err)
		if e.Reason != bide.ReasonMaxAttempts || e.Attempts != 3 || e.Elapsed != 2*time.Hour || time.Since(a.began).Round(time.Second) != 2*time.Hour {
			a.Errorf("it ended after %v: %+v", time.Since(a.began), e)
		}
		a.wantAt(0, 3600, 7200)
	})
	poll(t, []answer{pending, pending, isThere}, exactly(bide.Every(time.Second), bide.MaxAttempts(3)), func(a *asking) { a.wantDone() })
}

// An answer of 100 MB costs what a careful client reads of it.
func TestPollHugeAnswer(t *testing.T) {
	for _, status := range []int{200, 500} {
		poll(t, []answer{{status: status, size: 100 << 20}, isThere}, exactly(bide.Every(time.Second), bide.NoTimeout{}), func(a *asking) {
			a.wantDone()
			a.mu.Lock()
			defer a.mu.Unlock()
			if a.sent > 2*mostBody || a.checks[0].Outcome.String() != "transient" || len(a.checks[0].Err.Error()) > 200 {
				a.Errorf("%d bytes were sent; %v", a.sent, a.checks[0].Err)
			}
		})
	}
}

// A value that no store takes ends the poll with an error that says so.
func TestPollHugeValue(t *testing.T) {
	inBubble(t, func(e *env) {
		w := bide.Define("huge", func(ctx bide.Context, _ none) (int, error) {
			v, err := bide.Poll(ctx, "job", func(context.Context) ([]byte, error) { return make([]byte, bide.MaxPayload), nil },
				func([]byte) bool { return false }, bide.NoTimeout{})
			return len(v), err
		})
		_, err := run(e, w, none{})
		if x := wantErr[*bide.PayloadTooLargeError](e, err); x.Limit != bide.MaxPayload {
			e.Errorf("%+v", x)
		}
	})
}

// A redirect that leads in a circle is an error of that check.
func TestPollRedirectLoop(t *testing.T) {
	loop := refused(302, "Location", "/job")
	script := make([]answer, 10)
	for i := range script {
		script[i] = loop
	}
	poll(t, append(script, isThere), exactly(bide.Every(time.Minute), bide.NoTimeout{}), func(a *asking) {
		a.wantDone()
		if len(a.checks) != 2 || a.checks[0].Outcome.String() != "transient" || len(a.at()) != 11 {
			a.Errorf("%d checks, %d requests", len(a.checks), len(a.at()))
		}
	})
}
