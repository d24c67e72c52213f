package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/bide-dev/bide"
)

// lookAgain is how often a store is asked that tells nobody of changes.
const lookAgain = 500 * time.Millisecond

// changes returns a channel that receives whenever there may be something new of
// the run ("": of any).
func changes(store bide.Store, id string) (<-chan *bide.Run, func()) {
	if w, ok := store.(bide.Waker); ok {
		return w.Wake(id, false)
	}
	ticks, done := make(chan *bide.Run, 1), make(chan struct{})
	go func() {
		ticker := time.NewTicker(lookAgain)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				select {
				case ticks <- nil:
				default:
				}
			}
		}
	}()
	return ticks, func() { close(done) }
}

// explainFollow says what to do about an error of a command that follows a run.
func (t *target) explainFollow(ctx context.Context, c *cobra.Command, id string, err error) error {
	if ctx.Err() != nil {
		return said(fmt.Sprintf("interrupted; the run goes on, %s follows it again", t.command(c.Name(), id, "-f")), ctx.Err())
	}
	return t.explain(id, err)
}

// follow calls look, and again after each change of the run until it has ended.
func follow(ctx context.Context, store bide.Store, id string, look func() error) error {
	wake, stop := changes(store, id)
	defer stop()
	for {
		run, err := store.Run(ctx, id) // first: what it did before its end is there to be seen then
		if err != nil {
			return err
		}
		if err := look(); err != nil || run.State.Ended() {
			return err
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
