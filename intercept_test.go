package bide_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bide-dev/bide"
)

const traceOfStarter = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// TestIntercept shows that attempts are wrapped, each once, with the context that
// was returned, and that replays are not.
func TestIntercept(t *testing.T) {
	inBubble(t, func(e *env) {
		type key struct{}
		var mu sync.Mutex
		var lines []string
		var checks atomic.Int64
		cfg := e.config()
		cfg.MaxWarm = -1 // so that it replays
		cfg.Intercept = func(ctx context.Context, c bide.Call) (context.Context, func(error)) {
			mu.Lock()
			defer mu.Unlock()
			line := fmt.Sprintf("%s %s %v %q #%d trace %v", c.Run, c.Workflow, c.Kind, c.Name, c.Attempt, c.Trace == traceOfStarter)
			return context.WithValue(ctx, key{}, line), func(err error) {
				mu.Lock()
				defer mu.Unlock()
				lines = append(lines, fmt.Sprintf("%s: %v", line, err))
			}
		}
		child := bide.Define("child", func(ctx bide.Context, _ int) (int, error) {
			return 1, bide.Do(ctx, "c", func(ctx context.Context) error {
				if bide.AttemptNumber(ctx) != 1 {
					return errors.New("the step's context is lost")
				}
				return nil
			})
		})
		wf := bide.Define("wf", func(ctx bide.Context, _ int) (string, error) {
			s, err := bide.Step(ctx, "s", func(ctx context.Context) (string, error) {
				if bide.AttemptNumber(ctx) == 1 {
					panic("first")
				}
				return ctx.Value(key{}).(string), nil
			}, bide.RetryPolicy{NoJitter: true})
			if err != nil {
				return "", err
			}
			if err := bide.Sleep(ctx, time.Hour); err != nil {
				return "", err
			}
			if _, err := bide.Child(ctx, child, 1); err != nil {
				return "", err
			}
			_, err = bide.Poll(ctx, "p", func(context.Context) (int, error) { return 1, nil },
				func(int) bool { checks.Add(1); return checks.Load() == 2 }, bide.NoTimeout{})
			return s, err
		})
		e.workAs(cfg, wf, child)
		got, err := result(e, start(e, wf, 0, bide.ID("r"), bide.Trace(traceOfStarter)))
		e.ok(err)
		want := []string{
			`r wf step "s" #1 trace true: panic: first`,
			`r wf step "s" #2 trace true: <nil>`,
			`r:3 child step "c" #1 trace true: <nil>`,
			`r wf poll "p" #1 trace true: <nil>`, // pending is no error
			`r wf poll "p" #2 trace true: <nil>`,
		}
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(lines, want) {
			t.Errorf("got %q,\nwant %q", lines, want)
		}
		if got+": <nil>" != want[1] {
			t.Errorf("the step's context held %q", got)
		}
	})
}

func TestTraceBad(t *testing.T) {
	inBubble(t, func(e *env) {
		wf := bide.Define("wf", func(bide.Context, int) (int, error) { return 1, nil })
		_, err := wf.Start(e.Context(), e.client, 1, bide.Trace(""))
		e.ok(err)
		_, err = wf.Start(e.Context(), e.client, 1, bide.Trace("00-xyz"))
		wantErr[*bide.InvalidError](e, err)
	})
}
