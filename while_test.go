package bide_test

import (
	"context"
	"errors"
	"testing"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/sqlite"
)

func TestWhile(t *testing.T) {
	inBubble(t, func(e *env) {
		wf := bide.Define("wf", func(ctx bide.Context, n int) (int, error) {
			return n, bide.Do(ctx, "s", func(context.Context) error { return nil })
		})
		newWorker := func(s bide.Store) *bide.Worker {
			w := bide.NewWorker(s, e.config())
			w.Register(wf)
			return w
		}
		h := start(e, wf, 7)
		got := 0
		boom := errors.New("boom")
		err := newWorker(e.store).While(e.Context(), func(ctx context.Context) (err error) {
			got, err = h.Result(ctx)
			return errors.Join(err, boom)
		})
		if got != 7 || !errors.Is(err, boom) {
			t.Errorf("got %d, %v; want 7 and what fn returned", got, err)
		}
		canceled, cancel := context.WithCancel(e.Context())
		cancel()
		if err := newWorker(e.store).While(canceled, func(ctx context.Context) error { <-ctx.Done(); return nil }); err != nil {
			t.Errorf("after ctx has ended: %v", err)
		}

		other, err := sqlite.Open(":memory:")
		e.ok(err)
		e.ok(other.Close())
		err = newWorker(other).While(e.Context(), func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		if !errors.Is(err, bide.ErrClosed) {
			t.Errorf("of a worker that fails: %v, want its error", err)
		}
	})
}
