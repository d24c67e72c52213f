package bide

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"
)

// A worker that the store cannot hear must not go on: its leases lapse, and others
// take its runs. It counts from before its last sign of life was sent, by its own
// clock, so that it has stopped before anyone else begins.

// heartbeat renews the worker's leases and looks for turns that do not move.
func (w *Worker) heartbeat(ctx context.Context) {
	seen := map[*turn]int64{}
	for sleepFor(ctx, w.cfg.Lease/3) {
		sent := time.Now()
		err := w.store.Commit(ctx, Lease{Worker: w.id}, Batch{})
		switch {
		case err == nil:
			w.heard(sent)
		case ctx.Err() == nil:
			w.log.Error("cannot renew leases", "error", err)
		}
		seen = w.watch(seen)
	}
}

// heard notes that the store has had the sign of life that was sent at the time.
func (w *Worker) heard(sent time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	until := int64(sent.Sub(w.born) + w.cfg.Lease)
	if until > w.until.Load() { // an answer may come after a later one's
		w.until.Store(until)
		w.lapse.Reset(time.Until(sent.Add(w.cfg.Lease)))
	}
}

// holds reports whether the leases are good, as far as the worker knows.
func (w *Worker) holds() bool { return int64(time.Since(w.born)) < w.until.Load() }

func (w *Worker) lapsed() {
	if !w.holds() {
		w.letGo()
	}
}

// letGo ends all turns where they are. What they have done and could not commit is
// done again by whoever takes the runs next.
func (w *Worker) letGo() {
	w.mu.Lock()
	if w.cut {
		w.mu.Unlock()
		return
	}
	w.cut = true
	turns := slices.Collect(maps.Values(w.turns))
	if w.askAgain != nil {
		w.askAgain()
	}
	w.mu.Unlock()
	w.log.Error("the store has not been reached for the length of a lease; the runs in hand are let go", "runs", len(turns))
	for _, t := range turns {
		t.mu.Lock()
		t.unwind(lost)
		t.mu.Unlock()
	}
}

// giveBack tells the store, after letGo and before anything new is taken, that
// nothing is in hand: it may never have noticed. Before that the turns have the time
// of a lease to commit what they had finished, if the runs are still theirs.
func (w *Worker) giveBack(ctx context.Context) error {
	w.mu.Lock()
	cut := w.cut
	w.mu.Unlock()
	if !cut {
		return nil
	}
	tidy := time.NewTimer(w.cfg.Lease)
	defer tidy.Stop()
	select {
	case <-w.whenIdle():
	case <-tidy.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	sent := time.Now()
	if err := w.store.Commit(ctx, Lease{Worker: w.id}, Batch{Next: Parked{Interrupted: true}}); err != nil && !errors.Is(err, ErrLeaseLost) {
		return err
	}
	w.mu.Lock()
	w.cut = false
	w.mu.Unlock()
	w.heard(sent) // last: the time may have run out again
	return nil
}

// watch reports turns that are pinned: a branch has run workflow code since the
// last look without calling a verb.
func (w *Worker) watch(seen map[*turn]int64) map[*turn]int64 {
	w.mu.Lock()
	turns := slices.Collect(maps.Values(w.turns))
	w.mu.Unlock()
	now := make(map[*turn]int64, len(turns))
	for _, t := range turns {
		t.mu.Lock()
		verbs, stays := t.verbs, t.code > 0 && !t.flushing
		t.mu.Unlock()
		if !stays {
			continue
		}
		now[t] = verbs
		if before, known := seen[t]; known && before == verbs && before >= 0 {
			now[t] = -1 // said once
			w.log.Warn("a turn is pinned: workflow code has called no verb for a while; it computes, or blocks on something that is not bide's",
				"run", t.run.ID, "workflow", t.def.name, "stacks", stacks())
		} else if known && before < 0 {
			now[t] = before
		}
	}
	return now
}
