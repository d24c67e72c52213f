package bide_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/bide-dev/bide"
)

// polled runs a poll whose check answers by script, until the workflow ends:
// numbers are values (7 is the one waited for), errors are errors. It returns
// when the checks were made.
func polled(t *testing.T, script func(n int) (int, error), opts ...bide.PollOption) (at []time.Duration, got int, records []bide.Record, failure error) {
	t.Helper()
	w := bide.Define("polls", func(ctx bide.Context, began time.Time) (int, error) {
		return bide.Poll(ctx, "job", func(context.Context) (int, error) {
			at = append(at, time.Since(began).Round(time.Millisecond))
			return script(len(at))
		}, func(n int) bool { return n == 7 }, opts...)
	})
	// Parking each time, so that every check comes from what was kept.
	onStage(t, bide.WorkerConfig{MaxWarm: -1, Seed: 1}, w, func(s *stage) {
		run, err := w.Start(s.Context(), s.client, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		got, failure = run.Result(s.Context())
		if records, err = s.client.History(s.Context(), run.ID(), 0); err != nil {
			t.Error(err)
		}
	})
	return at, got, records, failure
}

func doneAt(n int) func(int) (int, error) {
	return func(i int) (int, error) {
		if i == n {
			return 7, nil
		}
		return i % 5, nil
	}
}

func offsets(s ...float64) string {
	var out []time.Duration
	for _, x := range s {
		out = append(out, time.Duration(x*float64(time.Second)))
	}
	return fmt.Sprint(out)
}

// A poll checks when its strategy says, to the millisecond, and its errors have a
// back-off of their own.
func TestPollIntervals(t *testing.T) {
	down := errors.New("down")
	for name, c := range map[string]struct {
		script func(int) (int, error)
		opts   []bide.PollOption
		at     string
	}{
		"at once, then fixed": {doneAt(4), []bide.PollOption{bide.Every(10 * time.Second), bide.NoTimeout{}}, offsets(0, 10, 20, 30)},
		"after a delay":       {doneAt(2), []bide.PollOption{bide.Every(10 * time.Second), bide.InitialDelay(3 * time.Second), bide.NoTimeout{}}, offsets(3, 13)},
		"exponential": {doneAt(6), []bide.PollOption{bide.Exponential{Interval: time.Second, Coefficient: 2, Max: 5 * time.Second}, bide.NoTimeout{}},
			offsets(0, 1, 3, 7, 12, 17)},
		"errors back off by themselves": {func(n int) (int, error) {
			if n >= 2 && n <= 4 {
				return 0, down
			}
			return doneAt(7)(n)
		}, []bide.PollOption{bide.Every(time.Second), bide.NoTimeout{}}, offsets(0, 1, 2, 4, 8, 9, 10)},
		"an error's delay is a floor": {func(n int) (int, error) {
			if n == 2 {
				return 0, bide.RetryAfter(down, 30*time.Second)
			}
			return doneAt(4)(n)
		}, []bide.PollOption{bide.Every(time.Second), bide.NoTimeout{}}, offsets(0, 1, 31, 32)},
	} {
		t.Run(name, func(t *testing.T) {
			at, got, records, err := polled(t, c.script, append(c.opts, bide.Exact{})...)
			if fmt.Sprint(at) != c.at || got != 7 || err != nil {
				t.Errorf("checks at %v, want %s; got %d, %v", at, c.at, got, err)
			}
			if len(records) != 1 || records[0].Kind != bide.KindPoll || records[0].Attempt != len(at) {
				t.Errorf("the history is %v, want one record of %d attempts", records, len(at))
			}
		})
	}
}

// With jitter a fixed interval is never exceeded and never cut below nine tenths.
func TestPollJitter(t *testing.T) {
	at, _, _, _ := polled(t, doneAt(50), bide.Every(10*time.Second), bide.NoTimeout{})
	for i := 1; i < len(at); i++ {
		if d := at[i] - at[i-1]; d < 9*time.Second || d > 10*time.Second+time.Millisecond {
			t.Errorf("interval %d is %v", i, d)
		}
	}
}

// A poll that gives up makes its last check at the deadline, and says what it
// last saw and why it failed; on replay too.
func TestPollGivesUp(t *testing.T) {
	at, _, _, err := polled(t, func(n int) (int, error) {
		if n == 4 {
			return 0, errors.New("teapot")
		}
		return 3, nil
	}, bide.Every(10*time.Second), bide.Timeout(25*time.Second), bide.Exact{})
	e, ok := errors.AsType[*bide.PollTimeoutError](err)
	if !ok || fmt.Sprint(at) != offsets(0, 10, 20, 25) {
		t.Fatalf("checks at %v: %v", at, err)
	}
	if e.Reason != bide.ReasonTotalTimeout || e.Attempts != 4 || e.ConsecutiveErrors != 1 || string(e.LastValue) != "3" || e.LastErr == nil ||
		e.LastErr.Error() != "teapot" || e.Elapsed != 25*time.Second || !errors.Is(err, bide.ErrPollTimeout) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v", e)
	}
	at, _, _, err = polled(t, doneAt(99), bide.Every(time.Second), bide.MaxAttempts(3), bide.Exact{})
	if e, ok := errors.AsType[*bide.PollTimeoutError](err); !ok || e.Reason != bide.ReasonMaxAttempts || len(at) != 3 || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("checks at %v: %v", at, err)
	}
	at, got, _, err := polled(t, doneAt(4), bide.Every(10*time.Second), bide.Timeout(25*time.Second), bide.Exact{})
	if got != 7 || err != nil || fmt.Sprint(at) != offsets(0, 10, 20, 25) {
		t.Errorf("the check at the deadline does not count: %v, %d, %v", at, got, err)
	}
	_, _, _, err = polled(t, func(int) (int, error) { return 0, bide.Permanent(errors.New("gone")) }, bide.NoTimeout{})
	if e, ok := errors.AsType[*bide.PollFailedError](err); !ok || e.Attempts != 1 || e.Err.Error() != "gone" {
		t.Errorf("permanent: %v", err)
	}
	_, _, _, err = polled(t, func(n int) (int, error) {
		if n == 1 {
			panic("ouch")
		}
		return 7, nil
	}, bide.NoTimeout{})
	if err != nil {
		t.Errorf("a panic in a check: %v", err)
	}
}

// A thousand checks leave one record, and the wait says how it stands meanwhile.
func TestPollLong(t *testing.T) {
	at, _, records, err := polled(t, doneAt(1000), bide.Every(time.Minute), bide.NoTimeout{})
	if err != nil || len(at) != 1000 || len(records) != 1 {
		t.Errorf("%d checks, %d records, %v", len(at), len(records), err)
	}
}

// Each bad option is named, and nothing is checked.
func TestPollOptions(t *testing.T) {
	for field, opts := range map[string][]bide.PollOption{
		"Timeout":                 {bide.Every(time.Second)},
		"interval":                {bide.Every(0), bide.NoTimeout{}},
		"Exponential.Coefficient": {bide.Exponential{Coefficient: 0.5}, bide.NoTimeout{}},
		"Exponential.Max":         {bide.Exponential{Interval: time.Minute, Max: time.Second}, bide.NoTimeout{}},
		"InitialDelay":            {bide.InitialDelay(-1), bide.NoTimeout{}},
		"MaxAttempts":             {bide.MaxAttempts(-1), bide.NoTimeout{}},
		"AttemptTimeout":          {bide.AttemptTimeout(0), bide.NoTimeout{}},
	} {
		at, _, _, err := polled(t, doneAt(1), opts...)
		if e, ok := errors.AsType[*bide.InvalidError](err); !ok || e.Field != field || len(at) > 0 {
			t.Errorf("%s: %v after %d checks", field, err, len(at))
		}
	}
}

// Sleeps are exact over changes of worker, and a deadline of a receive stays
// where it was.
func TestSleepAndReceive(t *testing.T) {
	w := bide.Define("w", func(ctx bide.Context, began time.Time) (string, error) {
		if err := bide.Sleep(ctx, 90*time.Minute); err != nil {
			return "", err
		}
		slept := time.Since(began)
		if err := bide.SleepUntil(ctx, began.Add(-time.Hour)); err != nil {
			return "", err
		}
		if err := bide.SleepUntil(ctx, time.Time{}); err != nil {
			return "", err
		}
		if err := bide.Sleep(ctx, -1); err != nil {
			return "", err
		}
		_, err := bide.Receive[int](ctx, "never", bide.Timeout(time.Hour))
		late := time.Since(began)
		a, _ := bide.Receive[int](ctx, "n")
		b, berr := bide.Receive[string](ctx, "n")
		c, _ := bide.Receive[int](ctx, "n")
		return fmt.Sprint(slept.Round(time.Second), errors.Is(err, bide.ErrTimeout), late.Round(time.Second), a, b, bide.Code(berr), c), nil
	})
	onStage(t, bide.WorkerConfig{}, w, func(s *stage) {
		run, err := w.Start(s.Context(), s.client, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{1, 2, 3, 3} {
			if err := s.client.Signal(s.Context(), run.ID(), "n", n, bide.Key(fmt.Sprint(n))); err != nil {
				t.Error(err)
			}
		}
		for range 6 {
			time.Sleep(29 * time.Minute)
			s.stop()
			s.work(bide.WorkerConfig{}, w)
		}
		// The replays run the clock of the outside again; only the last counts.
		if got, err := run.Result(s.Context()); err != nil || got != "2h30m0s true 2h30m0s 1codec3" {
			t.Errorf("%q, %v", got, err)
		}
	})
}
