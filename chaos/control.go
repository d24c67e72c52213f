package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/bide-dev/bide"
)

// What a person does to a run, and to what it waits for. None of it is asked for
// through the servers where a request that was held up, and comes late, would be
// asked for anew.

// waitOf is the name of the wait at a place: another than that of the step after it,
// which may be a wait too, if it has to be tried again.
func waitOf(place string) string { return place + ".wait" }

// never is a check of what is never there.
func never(context.Context) (string, error) { return "", nil }

// paused is a second of steps in a row, while somebody pauses the run.
func (p *part) paused() error {
	if err := p.ask(""); err != nil {
		return err
	}
	for n := range 5 {
		err := p.stepOf(event{Place: fmt.Sprintf("%s.%d", p.place, n)}, func(ctx context.Context, _ event) error {
			return pause(ctx, 200*time.Millisecond)
		}, soon)
		if err != nil {
			return err
		}
	}
	if _, err := bide.Receive[string](p.ctx, p.place); err != nil {
		return err
	}
	return p.step(p.place, soon)
}

// pause pauses the run for a while.
func (p *patrons) pause(o *outcome, e event) {
	rng := p.dice(e.Job + e.Ask)
	p.surely(func() error { return p.client.Pause(p.ctx, o.Run) })
	p.c.witness.note(pauses, e.Job, e.Ask, time.Now())
	_ = pause(p.ctx, time.Duration(1000+rng.IntN(500))*time.Millisecond)
	p.c.witness.note(resumes, e.Job, e.Ask, time.Now())
	p.surely(func() error { return unlessDone(p.client.Resume(p.ctx, o.Run)) })
	p.signal(o, e.Ask, e.Ask, rng)
}

// unlessDone is the error, but for one that says that it was done before.
func unlessDone(err error) error {
	if _, done := errors.AsType[*bide.InvalidError](err); done {
		return nil
	}
	return err
}

// fall is a step that fails for good, and the run with it, until the run is retried.
func (p *part) fall() error {
	err := p.stepOf(event{Place: p.place + ".fall", Ask: p.place}, func(ctx context.Context, _ event) error {
		forgiven, err := p.post(ctx, event{What: plea, Job: p.job.ID, Place: p.place, Call: nonce(), URL: p.job.ID + "/" + p.place})
		if err == nil && !forgiven {
			err = bide.Permanent(errors.New("not forgiven"))
		}
		return err
	}, soon)
	if err != nil {
		return err
	}
	return p.step(p.place, soon)
}

// retry sends a run on its way again that has failed.
func (p *patrons) retry(o *outcome, e event) {
	p.until(e, func(*rand.Rand) error {
		run, err := p.client.Get(p.ctx, o.Run)
		if err != nil || run.State != bide.Failed {
			return err
		}
		p.c.witness.grant(e.Job + "/" + e.Ask)
		return p.client.Retry(p.ctx, o.Run)
	})
}

// checked polls once an hour, until somebody has it look.
func (p *part) checked() error {
	if err := p.ask(""); err != nil {
		return err
	}
	if _, err := bide.Poll(p.ctx, waitOf(p.place), p.looks(look, p.job.ID+"/"+p.place), ready, bide.Every(time.Hour), bide.NoTimeout{}); err != nil {
		return err
	}
	return p.step(p.place, soon)
}

func (p *patrons) check(o *outcome, e event) {
	p.until(e, func(rng *rand.Rand) error { return p.any(rng).Check(p.ctx, o.Run, waitOf(e.Ask)) })
}

// completed waits for what somebody else says that it is.
func (p *part) completed() error {
	if err := p.ask(""); err != nil {
		return err
	}
	got, err := bide.Poll(p.ctx, waitOf(p.place), never, func(s string) bool { return s != "" }, bide.Every(time.Hour), bide.NoTimeout{})
	if err != nil {
		return err
	}
	p.story.Got = append(p.story.Got, got)
	return p.step(p.place, soon)
}

func (p *patrons) complete(o *outcome, e event) {
	p.until(e, func(rng *rand.Rand) error { return p.any(rng).Complete(p.ctx, o.Run, waitOf(e.Ask), e.Job+"/"+e.Ask) })
}

const forgetIt = "forget it"

// failed waits for what somebody says that it will not come.
func (p *part) failed() error {
	if err := p.ask(""); err != nil {
		return err
	}
	if _, err := bide.Receive[string](p.ctx, waitOf(p.place)); err == nil || !strings.Contains(err.Error(), forgetIt) {
		return fmt.Errorf("a wait that is failed: %w", err)
	}
	return p.step(p.place, soon)
}

func (p *patrons) fail(o *outcome, e event) {
	p.until(e, func(rng *rand.Rand) error { return p.any(rng).Fail(p.ctx, o.Run, waitOf(e.Ask), forgetIt) })
}

// extended sleeps for an hour, which somebody cuts short.
func (p *part) extended() error {
	if err := p.ask(""); err != nil {
		return err
	}
	if err := bide.Sleep(p.ctx, time.Hour); err != nil {
		return err
	}
	return p.step(p.place, soon)
}

func (p *patrons) extend(o *outcome, e event) {
	p.until(e, func(*rand.Rand) error {
		run, err := p.client.Get(p.ctx, o.Run)
		if err != nil {
			return err
		}
		for _, w := range run.Waiting {
			if w.Kind == bide.KindSleep && !strings.Contains(w.Path, ".") && time.Until(w.Until) > time.Minute {
				return p.client.Extend(p.ctx, o.Run, w.Path, -time.Hour)
			}
		}
		return nil
	})
}

// until does something to a run's wait until the run has gone on: that there is no
// such wait yet, or none any more, is not noticed.
func (p *patrons) until(e event, do func(*rand.Rand) error) {
	rng := p.dice(e.Job + e.Ask)
	for p.ctx.Err() == nil && p.c.witness.saw(e.Job, e.Ask).IsZero() {
		_ = do(rng) // it will be tried again
		_ = pause(p.ctx, 200*time.Millisecond)
	}
}
