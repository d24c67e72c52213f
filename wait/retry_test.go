package wait_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide/wait"
)

func (s *script) retry(ctx context.Context, c wait.RetryConfig) (any, error) {
	s.start = time.Now()
	return wait.Retry(ctx, c, s.check)
}

// failing is a script that fails so often and then succeeds.
func failing(t *testing.T, n int, err error) *script {
	s := &script{t: t}
	for range n {
		s.answers = append(s.answers, answer{err: err})
	}
	s.answers = append(s.answers, answer{value: "done"})
	return s
}

func wantExhausted(t *testing.T, err error, reason string, attempts int) {
	t.Helper()
	var e *wait.RetryExhaustedError
	if !errors.As(err, &e) || e.Reason != reason || e.Attempts != attempts || e.Code() != "retry_exhausted" {
		t.Fatalf("error %v, want %s after %d attempts", err, reason, attempts)
	}
	if errors.Is(err, context.DeadlineExceeded) != (reason == wait.ReasonTotalTimeout) {
		t.Errorf("%s: is DeadlineExceeded: %v", reason, errors.Is(err, context.DeadlineExceeded))
	}
}

func TestRetryPauses(t *testing.T) {
	for _, c := range []struct {
		name   string
		config wait.RetryConfig
		want   []time.Duration // in seconds
	}{
		{"defaults", wait.RetryConfig{}, []time.Duration{1, 2, 4, 8, 16, 32, 64, 100, 100}},
		{"own", wait.RetryConfig{InitialInterval: 2 * second, BackoffCoefficient: 3, MaximumInterval: 50 * second}, []time.Duration{2, 6, 18, 50, 50}},
		{"constant", wait.RetryConfig{BackoffCoefficient: 1}, []time.Duration{1, 1, 1}},
	} {
		synctest.Test(t, func(t *testing.T) {
			c.config.NoJitter = true
			s := failing(t, len(c.want), io.EOF)
			if got, err := s.retry(t.Context(), c.config); got != "done" || err != nil {
				t.Fatalf("%s: %v, %v", c.name, got, err)
			}
			sum, want := time.Duration(0), []time.Duration{0}
			for _, pause := range c.want {
				sum += pause * second
				want = append(want, sum)
			}
			s.wantAt(want...)
			if s.limits[0] != 10*time.Minute {
				t.Errorf("%s: an attempt is given %v", c.name, s.limits[0])
			}
		})
	}
}

func TestRetryJitterIsFull(t *testing.T) {
	for r, want := range map[float64]time.Duration{0: 0, 0.25: 15 * second} {
		synctest.Test(t, func(t *testing.T) {
			s := failing(t, 1, io.EOF)
			if _, err := s.retry(t.Context(), wait.RetryConfig{InitialInterval: time.Minute, Rand: always(r)}); err != nil {
				t.Fatal(err)
			}
			s.wantAt(0, want)
		})
	}
}

func TestRetryHeedsTheDelayOfAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{t: t, answers: []answer{
			{err: io.EOF},
			{err: wait.After(io.EOF, time.Hour)}, // longer than any interval
			{err: &wait.ResponseError{Status: 503, Hint: wait.Hint{After: 3 * second}}},
			{err: wait.After(io.EOF, -1)},
			{panic: "oh"}, // the fifth failure: the row goes on where it was
			{value: "done"},
		}}
		if _, err := s.retry(t.Context(), wait.RetryConfig{NoJitter: true}); err != nil {
			t.Fatal(err)
		}
		s.wantAt(0, second, time.Hour+second, time.Hour+4*second, time.Hour+4*second, time.Hour+20*second)
	})
}

func TestRetryGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := failing(t, 9, context.DeadlineExceeded)
		got, err := s.retry(t.Context(), wait.RetryConfig{MaximumAttempts: 3, NoJitter: true})
		wantExhausted(t, err, wait.ReasonMaxAttempts, 3)
		s.wantAt(0, second, 3*second)
		if got != nil || time.Since(s.start) != 3*second {
			t.Errorf("%v after %v", got, time.Since(s.start))
		}

		// The next attempt would begin at 7 s: it fails at 3 s and does not wait.
		s = failing(t, 9, io.EOF)
		_, err = s.retry(t.Context(), wait.RetryConfig{Timeout: 7 * second, NoJitter: true})
		wantExhausted(t, err, wait.ReasonTotalTimeout, 3)
		if !errors.Is(err, io.EOF) || time.Since(s.start) != 3*second {
			t.Errorf("%v after %v", err, time.Since(s.start))
		}
		if want := []time.Duration{7 * second, 6 * second, 4 * second}; !slices.Equal(s.limits, want) {
			t.Errorf("attempts were given %v, want %v", s.limits, want)
		}

		s = failing(t, 9, wait.After(&url.Error{Op: "Get", URL: "x", Err: io.EOF}, time.Hour))
		_, err = s.retry(t.Context(), wait.RetryConfig{Timeout: time.Hour})
		wantExhausted(t, err, wait.ReasonTotalTimeout, 1)
		if _, ok := errors.AsType[*url.Error](err); !ok {
			t.Errorf("%v hides its cause", err)
		}
		if want := `wait: retry gave up after 1 attempts in 0s (total_timeout); last error: Get "x": EOF`; err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}

		// An attempt in flight when time is up is cut.
		s = &script{t: t, answers: []answer{{took: time.Hour}}}
		_, err = s.retry(t.Context(), wait.RetryConfig{Timeout: 5 * second})
		wantExhausted(t, err, wait.ReasonTotalTimeout, 1)
		if time.Since(s.start) != 5*second {
			t.Errorf("ended after %v", time.Since(s.start))
		}
	})
}

func TestRetryOfPermanentErrors(t *testing.T) {
	cause := &url.Error{Op: "Get", URL: "x", Err: io.EOF}
	for name, c := range map[string]struct {
		config wait.RetryConfig
		err    error
		once   bool
	}{
		"marked":              {wait.RetryConfig{}, wait.Permanent(cause), true},
		"RetryIf":             {wait.RetryConfig{RetryIf: func(err error) bool { return !errors.Is(err, io.EOF) }}, cause, true},
		"RetryIf says yes":    {wait.RetryConfig{RetryIf: func(error) bool { return true }}, cause, false},
		"by its type":         {wait.RetryConfig{NonRetryableErrorTypes: []string{"*url.Error"}}, cause, true},
		"by a type it wraps":  {wait.RetryConfig{NonRetryableErrorTypes: []string{"*url.Error"}}, fmt.Errorf("x: %w", cause), true},
		"by a type it joins":  {wait.RetryConfig{NonRetryableErrorTypes: []string{"*url.Error"}}, errors.Join(io.EOF, cause), true},
		"by part of its type": {wait.RetryConfig{NonRetryableErrorTypes: []string{"url.Error", "Error"}}, cause, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := failing(t, 1, c.err)
			var last wait.Attempt
			c.config.OnAttempt = func(a wait.Attempt) { last = a }
			_, err := s.retry(t.Context(), c.config)
			if c.once != (err == c.err) || c.once != (len(s.at) == 1) || last.Number != len(s.at) {
				t.Errorf("%s: %v after %d attempts", name, err, len(s.at))
			}
			if want := map[bool]wait.Outcome{true: wait.Failed, false: wait.Succeeded}[c.once]; last.Outcome != want || last.Delay != 0 {
				t.Errorf("%s: %+v, want %v", name, last, want)
			}
		})
	}
}

func TestRetryEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, s := range map[string]*script{"asleep": failing(t, 9, io.EOF), "in flight": {t: t, answers: []answer{{took: time.Hour}}}} {
			ctx, cancel := context.WithTimeout(t.Context(), 5*second)
			_, err := s.retry(ctx, wait.RetryConfig{InitialInterval: time.Minute, NoJitter: true})
			if err != context.DeadlineExceeded || time.Since(s.start) != 5*second || len(s.at) != 1 {
				t.Errorf("%s: %v after %v", name, err, time.Since(s.start))
			}
			cancel()
		}
	})
}

func TestRetryConfigCheck(t *testing.T) {
	for _, c := range []struct {
		field  string
		config wait.RetryConfig
	}{
		{"InitialInterval", wait.RetryConfig{InitialInterval: -1}},
		{"MaximumInterval", wait.RetryConfig{MaximumInterval: -1}},
		{"MaximumAttempts", wait.RetryConfig{MaximumAttempts: -1}},
		{"BackoffCoefficient", wait.RetryConfig{BackoffCoefficient: 0.5}},
		{"BackoffCoefficient", wait.RetryConfig{BackoffCoefficient: math.NaN()}},
		{"Timeout", wait.RetryConfig{Timeout: -1}},
		{"AttemptTimeout", wait.RetryConfig{AttemptTimeout: -1}},
	} {
		s := &script{t: t}
		_, err := s.retry(t.Context(), c.config)
		wantField(t, err, c.field)
		if len(s.at) > 0 {
			t.Errorf("%s: called all the same", c.field)
		}
	}
}
