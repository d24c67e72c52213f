package bide_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/webhook"
)

// What a poll learns of how long its waits take is kept: another worker, after all
// have stopped, checks as rarely as the one that learned it. The deadline's check
// is made all the same.
func TestPollLearned(t *testing.T) {
	inBubble(t, func(e *env) {
		var checks atomic.Int64
		flow := bide.Define("flow", func(ctx bide.Context, took time.Duration) (time.Duration, error) {
			begun := bide.Now(ctx)
			return bide.Poll(ctx, "render", func(context.Context) (time.Duration, error) {
				checks.Add(1)
				return time.Since(begun), nil
			}, func(since time.Duration) bool { return since >= took }, bide.Learned(10*time.Second), bide.Timeout(20*time.Minute))
		})
		e.work(flow)
		rng := rand.New(rand.NewPCG(5, 6))
		round := func(n int) (each float64, late time.Duration) {
			checks.Store(0)
			for range n {
				took := 3*time.Minute + time.Duration(rng.Int64N(int64(7*time.Minute)))
				h, err := flow.Start(e.Context(), e.client, took)
				if err != nil {
					t.Fatal(err)
				}
				seen, err := h.Result(e.Context())
				if err != nil {
					t.Fatal(err)
				}
				late += seen - took
			}
			return float64(checks.Load()) / float64(n), late / time.Duration(n)
		}
		round(150)
		e.restart(flow)
		if each, late := round(60); each > 28 || late > 8*time.Second { // fixed: 40 checks, 5 s
			t.Errorf("%.1f checks a wait, %v late on average", each, late)
		}
		h, err := flow.Start(e.Context(), e.client, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err = h.Result(e.Context()); err == nil || time.Since(start).Round(time.Second) != 20*time.Minute {
			t.Errorf("a wait that does not end gave %v after %v", err, time.Since(start))
		}
	})
}

// NoRelax keeps a poll at its own interval, however often the webhook has won.
func TestPollNoRelax(t *testing.T) {
	inBubble(t, func(e *env) {
		o := e.outside(webhook.Config{})
		var checks atomic.Int64
		var done atomic.Bool
		flow := bide.Define("flow", func(ctx bide.Context, id string) (bool, error) {
			hook, err := bide.NewWebhook[string](ctx, "done")
			if err != nil {
				return false, err
			}
			if err := o.tell(ctx, id, hook.URL()); err != nil {
				return false, err
			}
			return bide.Poll(ctx, "job", func(context.Context) (bool, error) {
				checks.Add(1)
				return done.Load(), nil
			}, func(b bool) bool { return b }, bide.Every(10*time.Second), bide.NoTimeout{}, bide.WakeOn(hook), bide.NoRelax{})
		})
		e.workAs(e.public(), flow)
		for i := range 7 {
			id := fmt.Sprint("run", i)
			checks.Store(0)
			done.Store(false)
			h := start(e, flow, id)
			time.Sleep(10 * time.Minute)
			if n := checks.Load(); n < 50 {
				t.Errorf("wait %d: %d checks in ten minutes", i, n)
			}
			done.Store(true)
			o.wantSent("POST", o.url(id), `"x"`, 202, "")
			if _, err := result(e, h); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
	})
}

// A poll whose last five waits were all ended by the webhook checks rarely, until a
// webhook is missed.
func TestPollRelaxes(t *testing.T) {
	inBubble(t, func(e *env) {
		o := e.outside(webhook.Config{})
		var checks atomic.Int64
		var done atomic.Bool
		flow := bide.Define("flow", func(ctx bide.Context, id string) (string, error) {
			hook, err := bide.NewWebhook[string](ctx, "done")
			if err != nil {
				return "", err
			}
			if err := o.tell(ctx, id, hook.URL()); err != nil {
				return "", err
			}
			_, err = bide.Poll(ctx, "job", func(context.Context) (bool, error) {
				checks.Add(1)
				return done.Load(), nil
			}, func(b bool) bool { return b }, bide.Every(10*time.Second), bide.NoTimeout{}, bide.WakeOn(hook))
			return "", err
		})
		e.workAs(e.public(), flow)
		n := 0
		wait := func(lost bool) int64 {
			n++
			id := fmt.Sprint("run", n)
			checks.Store(0)
			done.Store(false)
			h, err := flow.Start(e.Context(), e.client, id)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Minute)
			before := checks.Load()
			done.Store(true)
			if !lost {
				o.wantSent("POST", o.url(id), `"x"`, 202, "")
			}
			if _, err := h.Result(e.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute) // what was learned is kept, and read again
			return before
		}
		for range 5 {
			if n := wait(false); n < 50 {
				t.Errorf("%d checks in ten minutes before the webhook has proved itself", n)
			}
		}
		if n := wait(false); n > 4 {
			t.Errorf("%d checks in ten minutes of a relaxed poll", n)
		}
		wait(true)
		if n := wait(false); n < 50 {
			t.Errorf("%d checks in ten minutes after a webhook was missed", n)
		}
	})
}
