package bide_test

import (
	"testing"
	"time"

	"github.com/bide-dev/bide"
)

// TestNowAfterContinueAsNew shows that a run which begins anew begins then, not when
// its first turn did: what is to be in an hour is not due at once.
func TestNowAfterContinueAsNew(t *testing.T) {
	inBubble(t, func(e *env) {
		began := newClock()
		wf := bide.Define("rounds", func(ctx bide.Context, round int) (int, error) {
			began.tick()
			if err := bide.SleepUntil(ctx, bide.Now(ctx).Add(time.Hour)); err != nil {
				return 0, err
			}
			if round == 3 {
				return round, nil
			}
			return 0, bide.ContinueAsNew(ctx, round+1)
		})
		cfg := e.config()
		cfg.MaxWarm = -1
		e.workAs(cfg, wf)
		_, err := result(e, start(e, wf, 1))
		e.ok(err)
		if took := time.Since(began.began); took != 3*time.Hour {
			t.Errorf("three rounds of an hour took %v, their turns began at %v", took, began.ticks())
		}
	})
}
