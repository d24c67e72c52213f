package bide_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/bide-dev/bide"
)

// Progress and values are seen while the run lives, from workflow and step;
// percents do not go back within a step; a terminal gets them as lines.
func TestProgressAndPublish(t *testing.T) {
	w := bide.Define("render", func(ctx bide.Context, _ int) (int, error) {
		if err := bide.Progress(ctx, 10, "reading", bide.AtStep{Index: 1, Count: 3}); err != nil {
			return 0, err
		}
		if err := bide.Sleep(ctx, time.Minute); err != nil {
			return 0, err
		}
		_, err := bide.Step(ctx, "encode", func(ctx context.Context) (int, error) {
			for _, p := range []float64{40, 20, 60} {
				if err := bide.Progress(ctx, p, "encoding", bide.AtStep{Index: 2, Count: 3, Name: "video"}); err != nil {
					return 0, err
				}
				if err := bide.Publish(ctx, "frames", int(p)); err != nil {
					return 0, err
				}
				time.Sleep(time.Minute)
			}
			return 0, nil
		})
		return 0, err
	})
	onStage(t, bide.WorkerConfig{}, w, func(s *stage) {
		run, err := w.Start(s.Context(), s.client, 0)
		if err != nil {
			t.Fatal(err)
		}
		var screen strings.Builder
		done := make(chan error)
		go func() {
			_, err := run.Result(s.Context(), bide.TerminalProgress(&screen))
			done <- err
		}()
		for i, want := range []struct {
			percent float64
			frames  int
		}{{10, 0}, {40, 40}, {40, 20}, {60, 60}} {
			time.Sleep(map[bool]time.Duration{true: 30 * time.Second, false: time.Minute}[i == 0])
			now, err := run.Get(s.Context())
			if err != nil || now.Progress == nil || now.Progress.Percent != want.percent {
				t.Errorf("after %d min: %+v, %v", i+1, now.Progress, err)
			}
			var frames int
			if found, err := s.client.Value(s.Context(), run.ID(), "frames", &frames); err != nil || found != (i > 0) || frames != want.frames {
				t.Errorf("after %d min: %d frames, %v, %v", i+1, frames, found, err)
			}
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		want := "[render] 10% - step 1 of 3 reading\n[render] 40% - step 2 of 3 video encoding\n[render] 60% - step 2 of 3 video encoding\n[render] 100% - succeeded\n"
		if screen.String() != want {
			t.Errorf("the screen says\n%s", screen.String())
		}
	})
	for _, p := range []float64{-1, 101, math.NaN()} {
		if err := bide.Progress(t.Context(), p, ""); bide.Code(err) != "invalid" {
			t.Errorf("%v %%: %v", p, err)
		}
	}
	if err := bide.Progress(t.Context(), 1, ""); bide.Code(err) != "misuse" {
		t.Errorf("outside a run: %v", err)
	}
	if err := bide.Publish(t.Context(), "x", make(chan int)); bide.Code(err) != "codec" {
		t.Errorf("a channel: %v", err)
	}
}
