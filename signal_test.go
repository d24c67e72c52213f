package bide_test

import (
	"testing"
	"time"

	"github.com/bide-dev/bide"
)

// A signal that comes while a turn is being unwound to park wakes the run: it
// was sent, so it is received, though nobody was waiting just then.
func TestSignalWhileParking(t *testing.T) {
	var send func()
	w := bide.Define("w", func(ctx bide.Context, _ int) (string, error) {
		defer func() {
			if bide.Parking(ctx) && send != nil {
				send()
			}
		}()
		return bide.Receive[string](ctx, "go")
	})
	onStage(t, bide.WorkerConfig{}, w, func(s *stage) {
		send = func() {
			send = nil
			if err := s.client.Signal(s.Context(), "it", "go", "now"); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Millisecond) // the news reaches the turn
		}
		run, err := w.Start(s.Context(), s.client, 0, bide.ID("it"))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if got, err := run.Result(s.Context()); got != "now" || err != nil || time.Since(began) > time.Second {
			t.Errorf("%q, %v after %v", got, err, time.Since(began))
		}
	})
}
