package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bide-dev/bide"
)

// victim is a run that others end, and how it ended.
type victim struct {
	Job   string
	Fate  string
	State string
	Error string `json:",omitempty"` // why there is nothing to read of it
	Began string // the call by which it began, as it has published it
	Clean string // the call by which it cleaned up
	Gone  string // and the one after
}

// fates are how the victims of the verbs end.
var fates = map[string]bide.State{"cancel": bide.Canceled, "terminate": bide.Terminated, "deadline": bide.TimedOut}

func fated(job, place string) []string {
	return []string{fmt.Sprintf("%s/%s is %v", job, place, fates[verbOf(place)])}
}

// doom starts a run, and waits for its end.
func (p *part) doom() error {
	fate := verbOf(p.place)
	in := p.sub(fate)
	opts := []bide.StartOption{bide.ID(in.ID)}
	due := bide.Now(p.ctx)
	if fate == "deadline" {
		opts = append(opts, bide.Timeout(300*time.Millisecond))
		due = due.Add(300 * time.Millisecond)
	}
	v, err := bide.StartChild(p.ctx, p.cast.victim, in, opts...)
	if err != nil {
		return err
	}
	_, err = v.Result(p.ctx)
	ended, ok := errors.AsType[*bide.RunError](err)
	if !ok {
		return fmt.Errorf("a run whose fate is %s: %w", fate, err)
	}
	p.story.Got = append(p.story.Got, fmt.Sprintf("%s is %v", in.ID, ended.State))
	if fate == "deadline" {
		return p.stepAt(due)
	}
	return p.step(p.place, soon)
}

// suffer is the victim: it has itself ended, and waits for that in one of several
// ways.
func (c *cast) suffer(ctx bide.Context, in job) (story, error) {
	p := &part{cast: c, ctx: ctx, job: in, story: in.Told, place: "victim"}
	_, where, _ := strings.Cut(in.ID, "/")
	e := event{Place: "victim"}
	if in.Fate != "deadline" {
		e.Ask = where
	}
	err := p.stepOf(e, nil, soon)
	if err == nil {
		err = bide.Publish(ctx, "began", p.story.last())
	}
	if err == nil {
		err = p.hang()
	}
	if !errors.Is(err, bide.ErrCanceled) {
		return story{}, fmt.Errorf("whose fate is %s: %w", in.Fate, err)
	}
	if in.Fate == "cancel" {
		p.ctx = bide.WithoutCancel(ctx)
		for _, name := range []string{"clean", "gone"} {
			if cerr := p.step(name, soon); cerr != nil {
				return story{}, cerr
			}
			if perr := bide.Publish(p.ctx, name, p.story.last()); perr != nil {
				return story{}, perr
			}
		}
	}
	return story{}, err
}

// hang waits for what does not come.
func (p *part) hang() error {
	switch p.within(0, 4) {
	case 0:
		return bide.Sleep(p.ctx, time.Hour)
	case 1:
		_, err := bide.Receive[string](p.ctx, "never")
		return err
	case 2:
		_, err := bide.Poll(p.ctx, "never", never, func(s string) bool { return s != "" }, bide.Every(period), bide.NoTimeout{})
		return err
	}
	return bide.Do(p.ctx, "hang", func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}, soon)
}

func (p *patrons) cancel(_ *outcome, e event) {
	rng := p.dice(e.Job)
	c := p.any(rng)
	p.surely(func() error { return c.Cancel(p.ctx, e.Job, "chaos") })
}

func (p *patrons) terminate(_ *outcome, e event) {
	rng := p.dice(e.Job)
	c := p.any(rng)
	p.surely(func() error {
		if err := c.Terminate(p.ctx, e.Job, "chaos"); !errors.Is(err, bide.ErrRunEnded) {
			return err
		}
		return nil
	})
}

// readVictim takes down how a victim ended.
func (p *patrons) readVictim(ctx context.Context, job, place string) victim {
	v := victim{Job: job + "/" + place, Fate: verbOf(place)}
	run, err := p.client.Get(ctx, v.Job)
	v.State = run.State.String()
	for key, at := range map[string]*string{"began": &v.Began, "clean": &v.Clean, "gone": &v.Gone} {
		_, verr := p.client.Value(ctx, v.Job, key, at)
		err = errors.Join(err, verr)
	}
	if err != nil {
		v.Error = err.Error()
	}
	return v
}
