package bide_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/wait"
)

// undecided is an error that could name a delay and does not.
type undecided struct{}

func (undecided) Error() string                         { return "undecided" }
func (undecided) NextRetryDelay() (time.Duration, bool) { return time.Hour, false }

// What an error says of the next try is for that one only, and none when it says
// none; attempts and total bind it.
func TestStepNextRetryDelay(t *testing.T) {
	down := errors.New("down")
	policy := bide.RetryPolicy{NoJitter: true, MaximumAttempts: 4}
	for name, c := range map[string]struct {
		errs   []error
		opts   []bide.StepOption
		at     string
		reason string
	}{
		"none named":                     {[]error{undecided{}}, []bide.StepOption{policy}, offsets(0, 1, 3, 7), bide.ReasonMaxAttempts},
		"one named, k goes on":           {[]error{down, bide.RetryAfter(down, time.Hour), down}, []bide.StepOption{policy}, offsets(0, 1, 3601, 3605), bide.ReasonMaxAttempts},
		"above the maximum":              {[]error{bide.RetryAfter(down, time.Hour)}, []bide.StepOption{bide.RetryPolicy{MaximumInterval: time.Second, MaximumAttempts: 3}}, offsets(0, 3600, 7200), bide.ReasonMaxAttempts},
		"zero and below are at once":     {[]error{bide.RetryAfter(down, 0), bide.RetryAfter(down, -time.Hour), down}, []bide.StepOption{policy}, offsets(0, 0, 0, 4), bide.ReasonMaxAttempts},
		"the total binds it":             {[]error{bide.RetryAfter(down, time.Hour)}, []bide.StepOption{policy, bide.Timeout(time.Hour)}, offsets(0), bide.ReasonTotalTimeout},
		"just below the total":           {[]error{bide.RetryAfter(down, time.Hour-time.Second), down}, []bide.StepOption{policy, bide.Timeout(time.Hour)}, offsets(0, 3599), bide.ReasonTotalTimeout},
		"anywhere in the chain":          {[]error{fmt.Errorf("a: %w", errors.Join(down, bide.RetryAfter(down, time.Minute))), down}, []bide.StepOption{policy}, offsets(0, 60, 62, 66), bide.ReasonMaxAttempts},
		"a permanent error needs none":   {[]error{bide.RetryAfter(bide.Permanent(down), time.Minute)}, []bide.StepOption{policy}, offsets(0), ""},
		"the other way round":            {[]error{bide.Permanent(bide.RetryAfter(down, time.Minute))}, []bide.StepOption{policy}, offsets(0), ""},
		"an infinite coefficient":        {[]error{down}, []bide.StepOption{bide.RetryPolicy{NoJitter: true, MaximumAttempts: 3, BackoffCoefficient: math.Inf(1), MaximumInterval: time.Minute}}, offsets(0, 1, 61), bide.ReasonMaxAttempts},
		"the maximum is 100 × the first": {[]error{down}, []bide.StepOption{bide.RetryPolicy{NoJitter: true, MaximumAttempts: 4, BackoffCoefficient: 50}}, offsets(0, 1, 51, 151), bide.ReasonMaxAttempts},
	} {
		t.Run(name, func(t *testing.T) {
			at, err := tries(t, func(n int) error { return c.errs[min(n, len(c.errs))-1] }, c.opts...)
			if fmt.Sprint(at) != c.at {
				t.Errorf("attempts at %v, want %s", at, c.at)
			}
			x, exhausted := errors.AsType[*bide.RetryExhaustedError](err)
			if exhausted != (c.reason != "") || exhausted && (x.Reason != c.reason || x.Attempts != len(at)) {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

// A response says by its status and headers whether and when to try again.
func TestStepCheckResponse(t *testing.T) {
	for name, c := range map[string]struct {
		first answer
		at    []time.Duration // in seconds
	}{
		"400":                          {refused(400), []time.Duration{0}},
		"401":                          {refused(401), []time.Duration{0}},
		"404":                          {refused(404), []time.Duration{0}},
		"408":                          {refused(408), []time.Duration{0, 1}},
		"425":                          {refused(425), []time.Duration{0, 1}},
		"429":                          {refused(429), []time.Duration{0, 1}},
		"429 with a time":              {refused(429, "Retry-After", "17"), []time.Duration{0, 17}},
		"500":                          {refused(500), []time.Duration{0, 1}},
		"501":                          {refused(501), []time.Duration{0}},
		"503 with a date":              {refused(503, "Retry-After", "Sat, 01 Jan 2000 00:00:17 GMT"), []time.Duration{0, 17}},
		"503 with a date that is past": {refused(503, "Retry-After", "Fri, 31 Dec 1999 00:00:17 GMT"), []time.Duration{0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(e *env) {
				s := serve(e.T, c.first, answer{body: "ok"})
				w := bide.Define("responses", func(ctx bide.Context, _ none) (string, error) {
					return bide.Step(ctx, "call", s.ask, bide.RetryPolicy{NoJitter: true})
				})
				out, err := run(e, w, none{})
				for i := range c.at {
					c.at[i] *= time.Second
				}
				if got := s.at(); !slices.Equal(got, c.at) {
					e.Errorf("asked at %v, want %v", got, c.at)
				}
				if len(c.at) == 2 && (out != "ok" || err != nil) {
					e.Errorf("%q, %v", out, err)
				}
				if len(c.at) == 1 && wantErr[*wait.ResponseError](e, err).Status != c.first.status {
					e.Errorf("%v", err)
				}
			})
		})
	}
}

// The presets that the documentation gives behave as it says.
func TestStepPresets(t *testing.T) {
	httpFailure := func(status int) error { return &wait.ResponseError{Status: status} }
	for name, c := range map[string]struct {
		policy bide.RetryPolicy
		err    error
		at     string
	}{
		"model call":               {bide.RetryPolicy{InitialInterval: 2 * time.Second, MaximumInterval: time.Minute, MaximumAttempts: 5, NoJitter: true}, httpFailure(500), offsets(0, 2, 6, 14, 30)},
		"model call, unauthorized": {bide.RetryPolicy{InitialInterval: 2 * time.Second, MaximumInterval: time.Minute, MaximumAttempts: 5}, httpFailure(401), offsets(0)},
		"database": {bide.RetryPolicy{InitialInterval: 500 * time.Millisecond, BackoffCoefficient: 1.5, MaximumAttempts: 10, NoJitter: true,
			RetryIf: func(err error) bool { return !strings.Contains(err.Error(), "unique") }}, errors.New("locked"),
			"[0s 500ms 1.25s 2.375s 4.063s 6.594s 10.391s 16.086s 24.629s 37.443s]"},
		"database, unique violation": {bide.RetryPolicy{InitialInterval: 500 * time.Millisecond, BackoffCoefficient: 1.5, MaximumAttempts: 10,
			RetryIf: func(err error) bool { return !strings.Contains(err.Error(), "unique") }}, errors.New("unique violation"), offsets(0)},
		"e-mail":                  {bide.RetryPolicy{MaximumAttempts: 1}, errors.New("down"), offsets(0)},
		"external API":            {bide.RetryPolicy{InitialInterval: 5 * time.Second, MaximumAttempts: 3, NoJitter: true}, httpFailure(502), offsets(0, 5, 15)},
		"external API, not found": {bide.RetryPolicy{InitialInterval: 5 * time.Second, MaximumAttempts: 3}, httpFailure(404), offsets(0)},
	} {
		t.Run(name, func(t *testing.T) {
			at, err := tries(t, func(int) error { return c.err }, c.policy)
			if fmt.Sprint(at) != c.at || err == nil {
				t.Errorf("attempts at %v, want %s; %v", at, c.at, err)
			}
		})
	}
}

// OnAttempt tells of each attempt once, in order, and a panic of it is none of the
// step's business.
func TestStepOnAttempt(t *testing.T) {
	var told []string
	note := func(a bide.Attempt) {
		told = append(told, fmt.Sprint(a.Name, a.Number, " ", a.Err, " ", a.Delay))
		panic("ouch")
	}
	at, err := tries(t, func(n int) error {
		if n < 3 {
			return errors.New("down")
		}
		return nil
	}, bide.RetryPolicy{NoJitter: true, OnAttempt: note})
	want := []string{"it1 down 1s", "it2 down 2s", "it3 <nil> 0s"}
	if err != nil || len(at) != 3 || !slices.Equal(told, want) {
		t.Errorf("told %q, want %q; %v", told, want, err)
	}
	told = nil
	if _, err := tries(t, func(int) error { return errors.New("down") }, bide.RetryPolicy{NoJitter: true, MaximumAttempts: 2, OnAttempt: note}); err == nil || !slices.Equal(told, []string{"it1 down 1s", "it2 down 0s"}) {
		t.Errorf("told %q, %v", told, err)
	}
}

// A run's cancel is no failure of the step in flight: it is neither tried again
// nor counted.
func TestStepCancelIsNoFailure(t *testing.T) {
	for _, once := range []int{0, 1, 5} {
		inBubble(t, func(e *env) {
			calls, told := 0, 0
			w := bide.Define("canceled", func(ctx bide.Context, _ none) (none, error) {
				return bide.Step(ctx, "it", func(ctx context.Context) (none, error) {
					calls++
					<-ctx.Done()
					return none{}, ctx.Err()
				}, bide.RetryPolicy{MaximumAttempts: once, OnAttempt: func(bide.Attempt) { told++ }})
			})
			e.work(w)
			h := start(e, w, none{})
			time.Sleep(time.Minute)
			e.ok(e.client.Cancel(e.Context(), h.ID(), ""))
			_, err := result(e, h)
			time.Sleep(time.Hour)
			if err == nil || !errors.Is(err, bide.ErrCanceled) || calls != 1 || told != 0 {
				e.Errorf("%d calls, %d told, %v", calls, told, err)
			}
		})
	}
}

// An attempt may take ten minutes unless it is told otherwise, and never longer
// than is left of the total.
func TestStepAttemptTimeoutDefault(t *testing.T) {
	for name, c := range map[string]struct {
		opts []bide.StepOption
		left time.Duration // of the attempt's context; 0: no deadline
	}{
		"default":       {nil, 10 * time.Minute},
		"its own":       {[]bide.StepOption{bide.AttemptTimeout(time.Hour)}, time.Hour},
		"none":          {[]bide.StepOption{bide.NoTimeout{}}, 0},
		"the total":     {[]bide.StepOption{bide.NoTimeout{}, bide.Timeout(time.Minute)}, time.Minute},
		"once":          {[]bide.StepOption{bide.RetryPolicy{MaximumAttempts: 1}}, 10 * time.Minute},
		"once, a total": {[]bide.StepOption{bide.RetryPolicy{MaximumAttempts: 1}, bide.Timeout(time.Minute)}, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(e *env) {
				var left time.Duration
				w := bide.Define("limits", func(ctx bide.Context, _ none) (none, error) {
					return bide.Step(ctx, "it", func(ctx context.Context) (none, error) {
						if d, ok := ctx.Deadline(); ok {
							left = time.Until(d)
						}
						return none{}, nil
					}, c.opts...)
				})
				_, err := run(e, w, none{})
				if e.ok(err); left != c.left {
					e.Errorf("the attempt had %v, want %v", left, c.left)
				}
			})
		})
	}
}

// A step between two attempts waits as long as was drawn once, whoever restarts,
// and what it ends with is the same in the turn that saw it and on replay.
func TestStepRetrySurvivesReplay(t *testing.T) {
	inBubble(t, func(e *env) {
		s := serve(e.T, refused(503), refused(http.StatusBadGateway))
		var seen []string
		w := bide.Define("replays", func(ctx bide.Context, _ none) (none, error) {
			_, err := bide.Step(ctx, "call", s.ask, bide.RetryPolicy{InitialInterval: time.Hour, MaximumAttempts: 2})
			x, ok := errors.AsType[*bide.RetryExhaustedError](err)
			r, known := errors.AsType[*wait.ResponseError](err)
			if !ok || !known {
				return none{}, err
			}
			seen = append(seen, fmt.Sprint(x, x.Step, x.Attempts, x.Reason, r.Status, errors.Is(err, x.LastErr), bide.Code(err)))
			return none{}, bide.Sleep(ctx, 5*time.Hour)
		})
		hand := e.work(w)
		h := start(e, w, none{})
		time.Sleep(time.Second)
		next := e.waitOf(h.ID(), bide.KindRetry).NextAt
		for i := range 4 {
			if i%2 == 0 {
				hand.crash()
			} else {
				e.ok(hand.stop())
			}
			hand = e.work(w)
			time.Sleep(2 * testLease)
			if got := e.waitOf(h.ID(), bide.KindRetry); !got.NextAt.Equal(next) || got.Attempt != 1 {
				e.Errorf("a restart moved the next attempt from %v to %+v", next, got)
			}
		}
		time.Sleep(2 * time.Hour)
		e.ok(hand.stop())
		e.work(w)
		_, err := result(e, h)
		e.ok(err)
		if got := s.at(); len(got) != 2 || !next.Equal(s.began.Add(got[1])) {
			e.Errorf("called at %v, due at %v", got, next)
		}
		if len(seen) != 2 || seen[0] != seen[1] || !strings.Contains(seen[0], "502") {
			e.Errorf("seen in turn: %q", seen)
		}
	})
}

// A step's record has its last ten failed attempts, with when they were, through
// parks and crashes; a step that succeeds at once has none and pays for none.
func TestStepKeepsFailedAttempts(t *testing.T) {
	inBubble(t, func(e *env) {
		calls := 0
		w := bide.Define("attempts", func(ctx bide.Context, _ none) (int, error) {
			if err := bide.Do(ctx, "at once", func(context.Context) error { return nil }); err != nil {
				return 0, err
			}
			return bide.Step(ctx, "late", func(context.Context) (int, error) {
				if calls++; calls <= 13 {
					time.Sleep(2 * time.Second)
					return 0, fmt.Errorf("no %d%s", calls, strings.Repeat(".", 1000))
				}
				return calls, nil
			}, bide.RetryPolicy{InitialInterval: time.Minute, MaximumInterval: time.Minute, NoJitter: true})
		})
		hand := e.work(w)
		began := time.Now()
		h := start(e, w, none{})
		time.Sleep(3 * time.Minute)
		if kept := e.waitOf(h.ID(), bide.KindRetry).Poll.Log.Checks; len(kept) != 3 {
			e.Errorf("the wait has %v", kept)
		}
		hand.crash()
		e.work(w)
		_, err := result(e, h)
		e.ok(err)
		records := e.history(h.ID())
		if records[0].Poll != nil {
			e.Errorf("at once: %+v", records[0].Poll)
		}
		if records[1].Attempt != 14 || len(records[1].Poll.Checks) != 10 {
			e.Fatalf("%+v", records[1])
		}
		for i, c := range records[1].Poll.Checks {
			n := i + 4 // of the attempt
			at := began.Add(time.Duration(n-1) * 62 * time.Second)
			if c.At.Sub(at).Abs() > 100*time.Millisecond || c.Last.Sub(c.At) != 2*time.Second || c.Outcome != wait.Transient ||
				!strings.HasPrefix(c.Error, fmt.Sprintf("no %d.", n)) || len(c.Error) > 210 {
				e.Errorf("attempt %d is kept as %+v", n, c)
			}
		}
	})
}

// How a step ended is the last of its failed attempts, too; one that a crash cut
// short is among them.
func TestStepKeepsHowItEnded(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		opts []bide.StepOption
		want string
	}{
		"permanent": {bide.Permanent(errors.New("never")), nil, "[failed]"},
		"exhausted": {errors.New("down"), []bide.StepOption{bide.RetryPolicy{MaximumAttempts: 2}}, "[transient transient]"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(e *env) {
				w := bide.Define("ends", func(ctx bide.Context, _ none) (none, error) {
					return none{}, bide.Do(ctx, "it", func(context.Context) error { return c.err }, c.opts...)
				})
				e.work(w)
				h := start(e, w, none{})
				_, _ = result(e, h)
				var got []wait.Outcome
				for _, line := range e.history(h.ID())[0].Poll.Checks {
					got = append(got, line.Outcome)
				}
				if fmt.Sprint(got) != c.want {
					e.Errorf("%v, want %v", got, c.want)
				}
			})
		})
	}
	inBubble(t, func(e *env) {
		first := true
		w := bide.Define("cut", func(ctx bide.Context, _ none) (none, error) {
			return none{}, bide.Do(ctx, "it", func(ctx context.Context) error {
				if first {
					first = false
					<-ctx.Done()
				}
				return nil
			}, bide.RetryPolicy{MaximumAttempts: 3})
		})
		hand := e.work(w)
		h := start(e, w, none{})
		time.Sleep(time.Minute)
		hand.crash()
		e.work(w)
		_, err := result(e, h)
		e.ok(err)
		if r := e.history(h.ID())[0]; r.Attempt != 2 || len(r.Poll.Checks) != 1 || r.Poll.Checks[0].Outcome != wait.Interrupted {
			e.Errorf("%+v", r)
		}
	})
}
