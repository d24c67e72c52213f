package bide_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/bide-dev/bide"
)

// TestTotalOverAbsence protects the last error of a step whose total passed
// while no worker was there: no attempt is made, none is counted, none is told.
func TestTotalOverAbsence(t *testing.T) {
	inBubble(t, func(e *env) {
		var told []int
		calls := 0
		w := bide.Define("pol-absent", func(ctx bide.Context, _ none) (none, error) {
			return bide.Step(ctx, "it", func(context.Context) (none, error) { calls++; return none{}, errSick },
				bide.RetryPolicy{InitialInterval: 10 * time.Minute, NoJitter: true, OnAttempt: func(a bide.Attempt) { told = append(told, a.Number) }},
				bide.Timeout(time.Hour))
		})
		hand := e.work(w)
		h := start(e, w, none{})
		time.Sleep(time.Minute)
		e.ok(hand.stop())
		time.Sleep(5 * time.Hour)
		e.work(w)
		_, err := result(e, h)
		x := wantErr[*bide.RetryExhaustedError](e, err)
		if calls != 1 || x.Attempts != 1 || x.Reason != bide.ReasonTotalTimeout || x.LastErr.Error() != "sick" || !slices.Equal(told, []int{1}) {
			t.Errorf("%d calls, told of %v: %+v", calls, told, x)
		}
	})
}

// TestPollPoison protects against a check that kills its process each time:
// the attempts count, and the bounds end the poll, also when it is the first.
func TestPollPoison(t *testing.T) {
	for name, c := range map[string]struct {
		good int // checks that come back, before those that do not
		opts []bide.PollOption
		most int
	}{
		"the first, by attempts":  {0, []bide.PollOption{bide.Every(time.Second), bide.MaxAttempts(3)}, 3},
		"the second, by attempts": {1, []bide.PollOption{bide.Every(time.Second), bide.MaxAttempts(3)}, 3},
		"the first, by time":      {0, []bide.PollOption{bide.Every(time.Second), bide.Timeout(10 * time.Second)}, 8},
		"the second, by time":     {1, []bide.PollOption{bide.Every(time.Second), bide.Timeout(10 * time.Second)}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(e *env) {
				calls := 0
				var hand *hand
				deadly := make(chan struct{}, 1)
				w := bide.Define("pol-poison", func(ctx bide.Context, _ none) (int, error) {
					return bide.Poll(ctx, "job", func(ctx context.Context) (int, error) {
						calls++
						if calls <= c.good {
							return 0, nil
						}
						deadly <- struct{}{}
						<-ctx.Done()
						return 0, ctx.Err()
					}, func(int) bool { return false }, append(c.opts, bide.Exact{})...)
				})
				hand = e.work(w)
				h := start(e, w, none{})
				done := make(chan error, 1)
				go func() { _, err := h.Result(e.Context()); done <- err }()
				for range 12 {
					select {
					case <-deadly:
						hand.gate.set(dead)
						hand.cancel()
						e.workAs(e.config(), w)
						hand = e.hands[len(e.hands)-1]
						continue
					case err := <-done:
						x := wantErr[*bide.PollTimeoutError](e, err)
						if calls > c.most || x.Attempts > c.most {
							t.Errorf("%d calls: %+v", calls, x)
						}
						if !errors.Is(x.LastErr, bide.ErrInterrupted) {
							t.Errorf("the last error is %v", x.LastErr)
						}
						return
					case <-time.After(time.Hour):
						t.Fatalf("it hangs after %d calls: %v", calls, e.get(h.ID()).Waiting)
					}
				}
				t.Errorf("after %d checks that killed their worker the poll still goes on: %v", calls, e.get(h.ID()).Waiting)
				e.ok(e.client.Terminate(e.Context(), h.ID(), ""))
				<-done
			})
		})
	}
}

// TestPollOverAbsence protects the last check: a poll whose deadline passed
// while no worker was there is checked once, not twice.
func TestPollOverAbsence(t *testing.T) {
	for name, value := range map[string]int{"pending": 1, "done": 7} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(e *env) {
				c := newClock()
				w := bide.Define("pol-absence", func(ctx bide.Context, _ none) (int, error) {
					return bide.Poll(ctx, "job", func(context.Context) (int, error) {
						c.tick()
						if len(c.ticks()) == 1 {
							return 0, nil
						}
						return value, nil
					}, func(n int) bool { return n == 7 }, bide.Every(10*time.Minute), bide.Timeout(time.Hour), bide.Exact{})
				})
				hand := e.work(w)
				h := start(e, w, none{})
				time.Sleep(time.Minute)
				e.ok(hand.stop())
				time.Sleep(5*time.Hour - time.Minute)
				e.work(w)
				out, err := result(e, h)
				c.want(e, "checks", 0, 5*time.Hour)
				if value == 7 && (out != 7 || err != nil) || value != 7 && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%d, %v", out, err)
				}
			})
		})
	}
}
