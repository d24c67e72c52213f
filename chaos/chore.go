package main

import (
	"context"
	"errors"
	"time"

	"github.com/bide-dev/bide"
)

// tend directs the loop that has nothing to do by itself, one thing after another,
// until ctx ends.
func (p *patrons) tend(ctx context.Context) {
	rng := p.dice(choreName)
	h := p.client.Loop(choreName)
	p.surely(func() error { _, err := h.State(p.ctx); return err })
	for ctx.Err() == nil {
		p.trigger(h, false)
		switch rng.IntN(5) {
		case 0:
			p.hold(h, bide.Abort(rng.IntN(2) == 0))
		case 1:
			p.surely(func() error { return h.ResetBackoff(p.ctx) })
		case 2:
			p.surely(func() error { return p.client.Breaker(breakerName).Close(p.ctx) })
		case 3:
			p.surely(func() error { return h.Stop(p.ctx) })
			stopped := false // seen so: from then on it is not for being retried
			p.surely(func() error {
				s, err := h.State(p.ctx)
				switch {
				case err != nil:
					return err
				case s.Stopped:
					stopped = true
					return p.client.Retry(p.ctx, "loop:"+choreName)
				case !stopped:
					return errors.New("not stopped yet")
				}
				return nil
			})
		}
		_ = pause(p.ctx, time.Duration(rng.IntN(1500))*time.Millisecond)
	}
}

// trigger runs the loop once, and again where nothing is seen of it: the iteration
// may have failed since the witness could not be reached.
func (p *patrons) trigger(h *bide.LoopHandle, force bide.Force) {
	var sent time.Time
	ask := func() error {
		sent = time.Now()
		_, err := h.Trigger(p.ctx, force)
		p.c.witness.note(triggers, choreName, failure(err), sent)
		if _, paused := errors.AsType[*bide.InvalidError](err); paused { // again, by a forced one that ended late
			return errors.Join(err, unlessDone(h.Resume(p.ctx)))
		}
		return err
	}
	for p.ctx.Err() == nil {
		p.surely(ask)
		for range 40 {
			if p.c.witness.saw(choreName, "").After(sent) {
				return
			}
			_ = pause(p.ctx, 100*time.Millisecond)
		}
	}
}

// hold pauses the loop: it is not to be triggered but by force.
func (p *patrons) hold(h *bide.LoopHandle, abort bide.Abort) {
	p.surely(func() error { return h.Pause(p.ctx, abort) })
	p.c.witness.note(pauses, choreName, "", time.Now())
	p.surely(func() error {
		sent := time.Now()
		_, err := h.Trigger(p.ctx, false)
		if _, paused := errors.AsType[*bide.InvalidError](err); paused {
			return nil
		}
		if err == nil {
			p.c.witness.note(triggers, choreName, "of a loop that is paused", sent)
		}
		return err
	})
	p.trigger(h, true)
	_ = pause(p.ctx, 300*time.Millisecond)
	p.c.witness.note(resumes, choreName, "", time.Now())
	p.surely(func() error { return unlessDone(h.Resume(p.ctx)) })
}

func failure(err error) string {
	if err == nil {
		return ""
	}
	return "failed: " + err.Error()
}
