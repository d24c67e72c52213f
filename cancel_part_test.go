package bide_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bide-dev/bide"
)

// A cancel that finds the run parked inside a part lets the part's own code see it:
// what it has noted to be undone is undone.
func TestCancelInsideParkedPart(t *testing.T) {
	for name, within := range map[string]func(bide.Context, func(bide.Context) (string, error)) (string, error){
		"phase": func(ctx bide.Context, part func(bide.Context) (string, error)) (string, error) {
			return bide.Phase(ctx, "part", part)
		},
		"race": func(ctx bide.Context, part func(bide.Context) (string, error)) (string, error) {
			_, v, err := bide.Race(ctx, bide.Branch("part", part))
			return v, err
		},
		"all": func(ctx bide.Context, part func(bide.Context) (string, error)) (string, error) {
			_, err := bide.All(ctx, bide.Branch("part", part))
			return "", err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(e *env) {
				undone := 0
				flow := bide.Define("flow", func(ctx bide.Context, _ string) (string, error) {
					return within(ctx, func(ctx bide.Context) (string, error) {
						return bide.Saga(ctx, func(ctx bide.Context, undo *bide.Undo) (string, error) {
							if _, err := bide.Step(ctx, "do", func(context.Context) (string, error) { return "done", nil }); err != nil {
								return "", err
							}
							undo.Add("undo", func(context.Context) error { undone++; return nil })
							return "", bide.Sleep(ctx, time.Hour)
						})
					})
				})
				e.work(flow)
				h, err := flow.Start(e.Context(), e.client, "x", bide.ID("f"))
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(30 * time.Minute)
				if err := e.client.Cancel(e.Context(), "f", "enough"); err != nil {
					t.Fatal(err)
				}
				if _, err := h.Result(e.Context()); !errors.Is(err, bide.ErrCanceled) || undone != 1 {
					t.Errorf("got %v, undone %d times, want once", err, undone)
				}
			})
		})
	}
}
