package bide_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/wait"
)

// Many waits on one thing cost the checks of one, over all workers, and all end
// soon after it is done.
func TestSharedPoll(t *testing.T) {
	inBubble(t, func(e *env) {
		var checks, most, inFlight atomic.Int64
		start := time.Now()
		shared := bide.Define("shared", func(ctx bide.Context, _ int) (int, error) {
			return bide.Poll(ctx, "job", func(context.Context) (int, error) {
				most.Store(max(most.Load(), inFlight.Add(1)))
				defer inFlight.Add(-1)
				time.Sleep(time.Second) // it takes its time
				return int(checks.Add(1)), nil
			}, func(int) bool { return time.Since(start) > 5*time.Minute }, bide.Every(10*time.Second), bide.NoTimeout{}, bide.Share("job-7"), bide.Exact{})
		})
		e.work(shared)
		e.work(shared)
		var handles []*bide.Handle[int]
		for i := range 200 {
			h, err := shared.Start(e.Context(), e.client, i)
			if err != nil {
				t.Fatal(err)
			}
			handles = append(handles, h)
		}
		var seen int
		for _, h := range handles {
			v, err := h.Result(e.Context())
			if err != nil {
				t.Fatal(err)
			}
			if seen == 0 {
				seen = v
			}
			if v != seen {
				t.Errorf("one saw %d, another %d", v, seen)
			}
		}
		if took := time.Since(start); took > 5*time.Minute+25*time.Second {
			t.Errorf("the last ended after %v", took)
		}
		if n := checks.Load(); n < 20 || n > 32 || most.Load() != 1 {
			t.Errorf("%d checks, up to %d at once; one poll would have made about 27", n, most.Load())
		}
	})
}

// Whoever was to check dies; another takes over. An error that one sees all see.
func TestSharedPollSurvives(t *testing.T) {
	inBubble(t, func(e *env) {
		var checks atomic.Int64
		hang := make(chan struct{})
		shared := bide.Define("shared", func(ctx bide.Context, _ int) (string, error) {
			return bide.Poll(ctx, "job", func(ctx context.Context) (string, error) {
				switch checks.Add(1) {
				case 1:
					<-hang // its worker dies
					return "", ctx.Err()
				case 2:
					return "", errors.New("down")
				case 3:
					return "", bide.Permanent(errors.New("no such job"))
				}
				return "unreachable", nil
			}, func(string) bool { return true }, bide.Every(10*time.Second), bide.NoTimeout{}, bide.Share("k"), bide.Exact{})
		})
		first := e.work(shared)
		one, err := shared.Start(e.Context(), e.client, 1)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		first.gate.set(dead)
		close(hang)
		e.work(shared)
		two, err := shared.Start(e.Context(), e.client, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range []*bide.Handle[string]{one, two} {
			_, err := h.Result(e.Context())
			if failed, ok := errors.AsType[*bide.PollFailedError](err); !ok || failed.Err == nil || failed.Err.Error() != "no such job" {
				t.Errorf("%v, want the error that one of them saw", err)
			}
		}
		if checks.Load() != 3 {
			t.Errorf("%d checks, want 3", checks.Load())
		}
	})
}

// Polls with one breaker: once it is open none checks, and the attempts are not
// counted; a probe closes it.
func TestPollBreaker(t *testing.T) {
	inBubble(t, func(e *env) {
		var checks atomic.Int64
		start := time.Now()
		flow := bide.Define("flow", func(ctx bide.Context, i int) (string, error) {
			return bide.Poll(ctx, fmt.Sprint("p", i), func(context.Context) (string, error) {
				checks.Add(1)
				if time.Since(start) < 2*time.Minute {
					return "", errors.New("down")
				}
				return "up", nil
			}, func(string) bool { return true }, bide.Every(time.Second), bide.MaxAttempts(100), bide.Exact{},
				bide.Breaker{Name: "api", Failures: 3, Cooldown: 30 * time.Second})
		})
		e.work(flow)
		var handles []*bide.Handle[string]
		for i := range 3 {
			h, err := flow.Start(e.Context(), e.client, i)
			if err != nil {
				t.Fatal(err)
			}
			handles = append(handles, h)
		}
		time.Sleep(20 * time.Second)
		if n := checks.Load(); n != 3 {
			t.Errorf("%d checks before the breaker opened, want 3", n)
		}
		if c, err := e.client.Breaker("api").State(e.Context()); err != nil || c.State(time.Now()) != wait.Open {
			t.Errorf("the breaker is %v, %v", c.State(time.Now()), err)
		}
		for _, h := range handles {
			if v, err := h.Result(e.Context()); err != nil || v != "up" {
				t.Errorf("%q, %v", v, err)
			}
		}
		if n := checks.Load(); n > 10 {
			t.Errorf("%d checks: an open breaker lets probes through only", n)
		}
		if c, err := e.client.Breaker("api").State(e.Context()); err != nil || c.State(time.Now()) != wait.Closed {
			t.Errorf("in the end the breaker is %v, %v", c.State(time.Now()), err)
		}
	})
}

// A breaker that a person opens holds a poll up to its deadline.
func TestPollBreakerAtDeadline(t *testing.T) {
	inBubble(t, func(e *env) {
		flow := bide.Define("flow", func(ctx bide.Context, _ int) (string, error) {
			return bide.Poll(ctx, "p", func(context.Context) (string, error) { return "up", nil },
				func(string) bool { return true }, bide.Every(time.Second), bide.Timeout(time.Minute), bide.Breaker{Name: "api"})
		})
		e.work(flow)
		if err := e.client.Breaker("api").Open(e.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		h, err := flow.Start(e.Context(), e.client, 1)
		if err != nil {
			t.Fatal(err)
		}
		_, err = h.Result(e.Context())
		if timeout, ok := errors.AsType[*bide.PollTimeoutError](err); !ok || timeout.Attempts != 0 || time.Since(start).Round(time.Second) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if err := e.client.Breaker("api").Close(e.Context()); err != nil {
			t.Fatal(err)
		}
		if h, err = flow.Start(e.Context(), e.client, 2); err != nil {
			t.Fatal(err)
		}
		if v, err := h.Result(e.Context()); err != nil || v != "up" {
			t.Errorf("%q, %v", v, err)
		}
	})
}

// mute is a store that says nothing of breakers.
type mute struct{ bide.Store }

func (m mute) Facts(ctx context.Context, kind string, keys ...string) ([]bide.Fact, error) {
	if kind == "breaker" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return m.Store.Facts(ctx, kind, keys...)
}

// Where the store does not say what it has of a breaker, the polls that share it wait
// for that together, and not for long.
func TestPollBreakerUnknown(t *testing.T) {
	inBubble(t, func(e *env) {
		e.store = mute{e.store}
		w := bide.Define("w", func(ctx bide.Context, _ none) (bool, error) {
			return bide.Poll(ctx, "w", func(context.Context) (bool, error) { return true, nil }, func(b bool) bool { return b },
				bide.Every(time.Minute), bide.Timeout(time.Hour), bide.Breaker{Name: "api"})
		})
		e.work(w)
		began := time.Now()
		var runs []*bide.Handle[bool]
		for range 20 {
			runs = append(runs, start(e, w, none{}))
		}
		for _, h := range runs {
			if ok, err := result(e, h); !ok || err != nil {
				t.Errorf("%v, %v", ok, err)
			}
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("twenty polls took %v", took)
		}
	})
}
