package wait_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide/wait"
)

// answer is one step of a script: what a check returns, after so long.
type answer struct {
	value any
	err   error
	took  time.Duration
	panic any
}

// script is a check that answers as told, and "pending" after that.
type script struct {
	t       *testing.T
	answers []answer
	start   time.Time
	at      []time.Duration // when each check began
	limits  []time.Duration // how long each was given
}

func (s *script) check(ctx context.Context) (any, error) {
	s.at = append(s.at, time.Since(s.start))
	end, ok := ctx.Deadline()
	if !ok {
		s.t.Error("a check without a time limit")
	}
	s.limits = append(s.limits, time.Until(end))
	a := answer{value: "pending"}
	if len(s.answers) > 0 {
		a, s.answers = s.answers[0], s.answers[1:]
	}
	select {
	case <-time.After(a.took):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if a.panic != nil {
		panic(a.panic)
	}
	return a.value, a.err
}

// poll runs the script, without jitter unless the config has some.
func (s *script) poll(ctx context.Context, c wait.PollConfig) (any, error) {
	s.start = time.Now()
	if c.Jitter == nil {
		c.Jitter = new(wait.NoJitter)
	}
	return wait.Poll(ctx, c, s.check, func(v any) bool { return v == "done" })
}

func (s *script) wantAt(want ...time.Duration) {
	s.t.Helper()
	if !slices.Equal(s.at, want) {
		s.t.Errorf("checks at %v, want %v", s.at, want)
	}
}

// every is the plan of a fixed interval.
func every(d time.Duration) wait.Plan { return wait.Plan{Strategy: wait.Fixed(d)} }

func wantTimeout(t *testing.T, err error, reason string, attempts int) *wait.TimeoutError {
	t.Helper()
	var e *wait.TimeoutError
	if !errors.As(err, &e) || e.Reason != reason || e.Attempts != attempts || e.Code() != "poll_timeout" {
		t.Fatalf("error %v, want %s after %d attempts", err, reason, attempts)
	}
	if errors.Is(err, context.DeadlineExceeded) != (reason == wait.ReasonTotalTimeout) {
		t.Errorf("%s: is DeadlineExceeded: %v", reason, errors.Is(err, context.DeadlineExceeded))
	}
	if !strings.Contains(e.Error(), reason) {
		t.Errorf("%q does not say why", e.Error())
	}
	return e
}

func TestPollSchedulesByOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pending := answer{value: "pending"}
		s := &script{t: t, answers: []answer{
			pending,           // at 0, 2 s
			{err: io.EOF},     // 2, at least 2 s
			{panic: "oh"},     // 4, twice that
			pending,           // 8
			{took: time.Hour}, // 10, is cut after 5 s, 2 s
			{err: &wait.ResponseError{Status: 429, Hint: wait.Hint{After: 9 * second, Hard: true}}}, // 17
			{value: "done"}, // 26
		}}
		var seen []wait.Attempt
		got, err := s.poll(t.Context(), wait.PollConfig{Plan: every(2 * second), NoTimeout: true, AttemptTimeout: 5 * second,
			OnAttempt: func(a wait.Attempt) { seen = append(seen, a) }})
		if got != "done" || err != nil {
			t.Fatalf("%v, %v", got, err)
		}
		s.wantAt(0, 2*second, 4*second, 8*second, 10*second, 17*second, 26*second)
		var outcomes []wait.Outcome
		for i, a := range seen {
			outcomes = append(outcomes, a.Outcome)
			if a.Number != i+1 || i+1 < len(s.at) && s.at[i]+a.Took+a.Delay != s.at[i+1] {
				t.Errorf("attempt %d: %+v", i+1, a)
			}
		}
		want := []wait.Outcome{wait.Pending, wait.Transient, wait.Transient, wait.Pending, wait.Transient, wait.Throttled, wait.Succeeded}
		if !slices.Equal(outcomes, want) || seen[6].Delay != 0 {
			t.Errorf("outcomes %v, want %v", outcomes, want)
		}
		var p *wait.PanicError
		if !errors.As(seen[2].Err, &p) || p.Value != "oh" || !strings.Contains(p.Stack, "script") || p.Error() != "panic: oh" || p.Code() != "panic" {
			t.Errorf("a panic became %v", seen[2].Err)
		}
	})
}

func TestPollChecksOnceMoreAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{t: t}
		got, err := s.poll(t.Context(), wait.PollConfig{Plan: every(4 * second), Timeout: 10 * second})
		e := wantTimeout(t, err, wait.ReasonTotalTimeout, 4)
		s.wantAt(0, 4*second, 8*second, 10*second)
		if got != "pending" || e.LastErr != nil || e.Elapsed != 10*second {
			t.Errorf("last value %v, %+v", got, e)
		}
		if want := []time.Duration{30 * second, 30 * second, 30 * second, 10 * second}; !slices.Equal(s.limits, want) {
			t.Errorf("checks were given %v, want %v", s.limits, want)
		}

		s = &script{t: t, answers: []answer{{}, {value: "done", took: 9 * second}}}
		if got, err := s.poll(t.Context(), wait.PollConfig{Plan: every(time.Minute), Timeout: 10 * second}); got != "done" || err != nil {
			t.Errorf("late, and yet there: %v, %v", got, err)
		}
		s.wantAt(0, 10*second)
	})
}

func TestPollYieldsToAHardFloorAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := &wait.ResponseError{Status: 429, Hint: wait.Hint{After: time.Minute, Hard: true}}
		s := &script{t: t, answers: []answer{{value: 1}, {err: refused}}}
		got, err := s.poll(t.Context(), wait.PollConfig{Plan: every(4 * second), Timeout: 10 * second})
		e := wantTimeout(t, err, wait.ReasonRetryAfter, 2)
		s.wantAt(0, 4*second)
		var cause *wait.ResponseError
		if got != 1 || !errors.Is(err, refused) || !errors.As(err, &cause) || cause != refused || e.ConsecutiveErrors != 0 || e.Elapsed != 10*second {
			t.Errorf("%v, %+v", got, e)
		}
	})
}

func TestPollGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{t: t, answers: []answer{{value: 1}, {took: time.Hour}}}
		got, err := s.poll(t.Context(), wait.PollConfig{Plan: every(second), MaxAttempts: 2, AttemptTimeout: second})
		e := wantTimeout(t, err, wait.ReasonMaxAttempts, 2) // not DeadlineExceeded, though the last check was
		if got != 1 || e.ConsecutiveErrors != 1 || e.LastErr != context.DeadlineExceeded {
			t.Errorf("%v, %+v", got, e)
		}
		if time.Since(s.start) != 2*second {
			t.Errorf("gave up after %v, want no pause after the last check", time.Since(s.start))
		}

		refused := &wait.ResponseError{Status: 429}
		s = &script{t: t, answers: []answer{{err: io.EOF}, {err: refused}, {value: 1}, {err: io.EOF}, {err: refused}, {err: io.EOF}}}
		_, err = s.poll(t.Context(), wait.PollConfig{Plan: every(second), MaxConsecutiveErrors: 2, NoTimeout: true})
		e = wantTimeout(t, err, wait.ReasonMaxConsecutiveErrors, 6)
		if !errors.Is(err, io.EOF) || e.ConsecutiveErrors != 2 || !e.LastErrAt.Equal(time.Now()) {
			t.Errorf("%+v", e)
		}

		var cause *wait.ResponseError
		s = &script{t: t, answers: []answer{{value: 1}, {err: &wait.ResponseError{Status: 404}}}}
		got, err = s.poll(t.Context(), wait.PollConfig{Plan: every(second), Timeout: time.Hour})
		if got != 1 || !errors.As(err, &cause) || cause.Status != 404 || len(s.at) != 2 {
			t.Errorf("%v, %v after %d checks", got, err, len(s.at))
		}
	})
}

func TestPollInitialDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{t: t}
		_, err := s.poll(t.Context(), wait.PollConfig{Plan: every(4 * second), InitialDelay: 5 * second, Timeout: 10 * second})
		wantTimeout(t, err, wait.ReasonTotalTimeout, 3)
		s.wantAt(5*second, 9*second, 10*second)

		s = &script{t: t}
		_, err = s.poll(t.Context(), wait.PollConfig{InitialDelay: time.Hour, Timeout: 10 * second})
		wantTimeout(t, err, wait.ReasonTotalTimeout, 1)
		s.wantAt(10 * second)
	})
}

func TestPollEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, s := range map[string]*script{
			"asleep":    {t: t},
			"in flight": {t: t, answers: []answer{{}, {took: 20 * second}}},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(15*second, cancel)
			seen := 0
			_, err := s.poll(ctx, wait.PollConfig{Plan: every(10 * second), Timeout: time.Hour, MaxConsecutiveErrors: 1,
				OnAttempt: func(wait.Attempt) { seen++ }})
			if err != context.Canceled || time.Since(s.start) != 15*second {
				t.Errorf("%s: %v after %v", name, err, time.Since(s.start))
			}
			if want := map[string]int{"asleep": 2, "in flight": 1}[name]; seen != want {
				t.Errorf("%s: %d attempts counted, want %d", name, seen, want)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s := &script{t: t}
		if _, err := s.poll(ctx, wait.PollConfig{NoTimeout: true}); err != context.Canceled || len(s.at) > 0 {
			t.Errorf("%v after %d checks, canceled before the first", err, len(s.at))
		}
		ctx, cancel = context.WithCancel(t.Context())
		got, err := wait.Poll(ctx, wait.PollConfig{NoTimeout: true},
			func(context.Context) (int, error) { cancel(); return 5, nil }, func(int) bool { return true })
		if got != 5 || err != nil { // it was there before anyone looked at the context
			t.Errorf("%v, %v", got, err)
		}
	})
}

// job says of itself all that a value may say.
type job struct {
	hint    wait.Hint
	eta     time.Time
	percent float64
}

func (j job) WaitHint() wait.Hint         { return j.hint }
func (j job) ETA() time.Time              { return j.eta }
func (j job) Progress() (float64, string) { return j.percent, "" }

func TestPollListensToValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		s := &script{t: t, answers: []answer{
			{value: job{hint: wait.Hint{After: 5 * second}}},
			{value: job{hint: wait.Hint{Interval: 7 * second}}}, // holds from now on
			{value: job{}},
			{value: job{eta: now.Add(69 * second)}}, // 40 of 50 s
			{value: job{}},                          // the same ETA: 8 of 10
			{value: "done"},
		}}
		_, err := s.poll(t.Context(), wait.PollConfig{Plan: wait.Plan{Strategy: wait.ETA{}}, Timeout: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		s.wantAt(0, 5*second, 12*second, 19*second, 59*second, 67*second)

		s = &script{t: t, answers: []answer{{value: job{percent: 1}}, {value: job{percent: 5}}, {value: job{percent: 10}}, {value: "done"}}}
		if _, err = s.poll(t.Context(), wait.PollConfig{Plan: wait.Plan{Strategy: wait.ETA{Min: 10 * second}}, Timeout: time.Hour}); err != nil {
			t.Fatal(err)
		}
		// 4 % in 10 s, then 5 %: 90 % at 0.43 % a second are 209 s, cut to 60 s.
		// The second rise, past 5 %, already says as much.
		s.wantAt(0, 10*second, 70*second, 130*second)
	})
}

func TestPollOfAServerThatHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held, not := answer{value: 1, took: 20 * second}, answer{value: 1, took: second}
		s := &script{t: t, answers: []answer{held, held, not, not, not, held, not, {value: "done"}}}
		_, err := s.poll(t.Context(), wait.PollConfig{NoTimeout: true, Rand: always(0.4), // 100 ms after a hold
			Plan: wait.Plan{Strategy: wait.LongPoll{Hold: 20 * second, Otherwise: wait.Fixed(10 * second)}}})
		if err != nil {
			t.Fatal(err)
		}
		const ms = time.Millisecond
		s.wantAt(0, 20100*ms, 40200*ms, 41300*ms, 52300*ms, 63300*ms, 83400*ms, 84500*ms)
		if s.limits[0] != 30*second {
			t.Errorf("a check that is held for 20 s got %v", s.limits[0])
		}
	})
}

func TestPollConfigCheck(t *testing.T) {
	for _, c := range []struct {
		field  string
		config wait.PollConfig
	}{
		{"Timeout", wait.PollConfig{}},
		{"Timeout", wait.PollConfig{MaxConsecutiveErrors: 3}},
		{"Timeout", wait.PollConfig{Timeout: -1}},
		{"NoTimeout", wait.PollConfig{Timeout: second, NoTimeout: true}},
		{"InitialDelay", wait.PollConfig{NoTimeout: true, InitialDelay: -1}},
		{"AttemptTimeout", wait.PollConfig{NoTimeout: true, AttemptTimeout: -1}},
		{"MaxAttempts", wait.PollConfig{NoTimeout: true, MaxAttempts: -1}},
		{"MaxConsecutiveErrors", wait.PollConfig{NoTimeout: true, MaxConsecutiveErrors: -1}},
		{"interval", wait.PollConfig{NoTimeout: true, Plan: every(1)}},
	} {
		s := &script{t: t}
		_, err := s.poll(t.Context(), c.config)
		wantField(t, err, c.field)
		if len(s.at) > 0 {
			t.Errorf("%s: checked all the same", c.field)
		}
	}
}

// Whatever the answers, checks keep their distance and a poll ends in time.
func TestPollOverRandomAnswers(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 15))
			s := &script{t: t}
			for range 300 {
				a := answer{value: 1, took: time.Duration(rnd.Int64N(int64(2 * second)))}
				switch rnd.IntN(8) {
				case 0:
					a.err = io.EOF
				case 1:
					a.err = &wait.ResponseError{Status: 429, Hint: wait.Hint{After: time.Duration(rnd.Int64N(int64(time.Minute))), Hard: true}}
				case 2:
					a.panic = "oh"
				case 3:
					a.value = job{hint: wait.Hint{After: time.Duration(rnd.Int64N(int64(time.Minute)))}, percent: 100 * rnd.Float64()}
				}
				s.answers = append(s.answers, a)
			}
			c := wait.PollConfig{Timeout: time.Duration(1 + rnd.Int64N(int64(10*time.Minute))), AttemptTimeout: second, Rand: rnd.Float64,
				Plan: wait.Plan{Strategy: []wait.Strategy{wait.Fixed(3 * second), wait.Exponential{}, wait.Elapsed{}, wait.ETA{}}[rnd.IntN(4)],
					Jitter: new(wait.Jitter(rnd.IntN(4))), Min: second}}
			_, err := s.poll(t.Context(), c)
			var e *wait.TimeoutError
			if !errors.As(err, &e) || e.Attempts != len(s.at) {
				t.Fatalf("seed %d: %v after %d checks", seed, err, len(s.at))
			}
			final := len(s.at) - 1
			for i, at := range s.at {
				if i > 0 && at-s.at[i-1] < second && (i < final || at < c.Timeout) {
					t.Fatalf("seed %d: checks at %v", seed, s.at)
				}
			}
			switch last := s.at[final]; {
			case e.Reason == wait.ReasonTotalTimeout && last < c.Timeout, e.Reason == wait.ReasonRetryAfter && last > c.Timeout,
				last > c.Timeout+second, e.Elapsed > c.Timeout+2*second:
				t.Fatalf("seed %d: %v, last check at %v of %v", seed, err, last, c.Timeout)
			}
		})
	}
}
