package sqlite

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
)

// A worker with nothing to do asks the file nothing, however long: what is due
// next is known, and a sleeping run costs a query when it wakes, not before.
func TestIdleWorkerAsksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(memory)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		nap := bide.Define("nap", func(ctx bide.Context, d time.Duration) (bool, error) { return true, bide.Sleep(ctx, d) })
		ctx, cancel := context.WithCancel(t.Context())
		worker := bide.NewWorker(s, bide.WorkerConfig{})
		worker.Register(nap)
		done := make(chan error)
		go func() { done <- worker.Run(ctx) }()
		run, err := nap.Start(ctx, bide.NewClient(s), 25*time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		asked := func() int64 {
			if err := s.group.Do(&op{tick: true}); err != nil { // the writer's fields are its own
				t.Fatal(err)
			}
			return s.w.asked
		}
		time.Sleep(time.Minute)
		before := asked()
		time.Sleep(24 * time.Hour)
		if n := asked() - before; n > 24*60*2 {
			t.Errorf("an idle worker ran %d statements in a day", n)
		} else {
			t.Logf("%d statements in a day", n)
		}
		if _, err := run.Result(ctx); err != nil {
			t.Error(err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
