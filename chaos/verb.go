package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bide-dev/bide"
)

// verb is a part of a tour: what the run does, and what the world outside has to do
// with it.
type verb struct {
	do func(*part) error
	// calls are the endings of the places of the steps that it tells of; nil is one, of
	// the place itself.
	calls []string
	// gets are what it has got from outside in the end.
	gets func(job, place string) []string
	// answer is what is done outside, when a step of it asks for that.
	answer func(*patrons, *outcome, event)
}

// soon is a policy for what fails because the witness cannot be reached.
var soon = bide.RetryPolicy{InitialInterval: 50 * time.Millisecond, MaximumInterval: 500 * time.Millisecond}

// asked are the calls of a verb that asks first.
var asked = []string{".ask", ""}

// verbs are the parts of a tour, by name.
var verbs = map[string]verb{
	"plain":     {do: func(p *part) error { return p.step(p.place, soon) }},
	"flaky":     {do: (*part).flaky},
	"once":      {do: (*part).once},
	"do":        {do: (*part).untold},
	"heartbeat": {do: (*part).heartbeat},
	"drawn":     {do: (*part).drawn},
	"publish":   {do: (*part).publish},
	"phase":     {do: (*part).phase},
	"stream":    {do: (*part).stream},

	"nap":   {do: func(p *part) error { return p.sleep(p.within(100*time.Millisecond, 900*time.Millisecond)) }},
	"sleep": {do: func(p *part) error { return p.sleep(p.within(time.Second, 5*time.Second)) }},
	"until": {do: (*part).until},
	"quiet": {do: (*part).quiet},

	"signal":     {do: (*part).signal, gets: tallied},
	"hook":       {do: (*part).hook, calls: asked, gets: one, answer: (*patrons).deliver},
	"completeon": {do: (*part).completeOn, calls: asked, gets: one, answer: (*patrons).deliver},
	"wakeon":     {do: (*part).wakeOn, calls: asked, answer: (*patrons).wake},
	"event":      {do: (*part).event, calls: asked, gets: one, answer: (*patrons).tellEvent},

	"poll":    {do: func(p *part) error { return p.poll(p.job.ID+"/"+p.place, bide.Every(period)) }},
	"share":   {do: (*part).share},
	"learned": {do: func(p *part) error { return p.poll(p.job.ID+"/"+p.place, bide.Learned(period)) }},
	"observe": {do: (*part).observe},
	"breaker": {do: (*part).breaker},
	"job":     {do: (*part).outside, calls: []string{".submit", ".fetch"}},

	"all":  {do: (*part).all, calls: []string{".a", ".b"}},
	"go":   {do: (*part).both, calls: []string{".a", ".b"}},
	"race": {do: (*part).race},
	"saga": {do: (*part).saga, calls: []string{".book", ".drop"}},

	"child":     {do: (*part).child},
	"txstep":    {do: (*part).txStep},
	"cancel":    {do: (*part).doom, gets: fated, answer: (*patrons).cancel},
	"terminate": {do: (*part).doom, gets: fated, answer: (*patrons).terminate},
	"deadline":  {do: (*part).doom, gets: fated},

	"pause":    {do: (*part).paused, calls: []string{".ask", ".0", ".1", ".2", ".3", ".4", ""}, answer: (*patrons).pause},
	"retry":    {do: (*part).fall, calls: []string{".fall", ""}, answer: (*patrons).retry},
	"check":    {do: (*part).checked, calls: asked, answer: (*patrons).check},
	"complete": {do: (*part).completed, calls: asked, gets: one, answer: (*patrons).complete},
	"fail":     {do: (*part).failed, calls: asked, answer: (*patrons).fail},
	"extend":   {do: (*part).extended, calls: asked, answer: (*patrons).extend},
}

// steps are the places of the calls that a verb leaves in the story.
func (v verb) steps(place string) (all []string) {
	if v.calls == nil {
		return []string{place}
	}
	for _, c := range v.calls {
		all = append(all, place+c)
	}
	return all
}

// one is what a verb gets that waits for one thing.
func one(job, place string) []string { return []string{job + "/" + place} }

func (p *part) flaky() error {
	return p.stepOf(event{Place: p.place}, func(_ context.Context, e event) error {
		if e.Attempt < 3 {
			return errors.New("not yet")
		}
		return nil
	}, soon)
}

// once is a step that is called at most once: it may have failed, or been interrupted.
func (p *part) once() error {
	got, err := p.call(p.ctx, event{Place: p.place, Prev: p.story.last()}, nil, bide.RetryPolicy{MaximumAttempts: 1})
	if errors.Is(err, bide.ErrCanceled) {
		return err
	}
	p.tell(p.place, got)
	return nil
}

// untold is a step without a result, whose call only a later one can tell.
func (p *part) untold() error {
	at := p.story.last()
	err := bide.Do(p.ctx, p.place+".do", func(ctx context.Context) error {
		_, err := p.act(ctx, event{Place: p.place + ".do", Prev: at}, nil)
		return err
	}, soon)
	if err != nil {
		return err
	}
	return p.step(p.place, soon)
}

// heartbeat is a step that tells how far it has come, fails, and goes on from there.
func (p *part) heartbeat() error {
	at := p.story.last()
	got, err := bide.Step(p.ctx, p.place, func(ctx context.Context) (string, error) {
		n := bide.AttemptNumber(ctx)
		if before, ok := bide.HeartbeatDetails[int](ctx); ok && (before < 1 || before >= n) {
			return "", bide.Permanent(fmt.Errorf("attempt %d is given the heartbeat of attempt %d", n, before))
		}
		if err := bide.Heartbeat(ctx, n); err != nil {
			return "", err
		}
		return p.act(ctx, event{Place: p.place, Prev: at}, func(context.Context, event) error {
			if n == 1 {
				return errors.New("not yet")
			}
			return nil
		})
	}, soon, bide.HeartbeatTimeout(5*time.Second))
	p.tell(p.place, got)
	return err
}

// drawn is a step that is told what the workflow has drawn: the same on every replay.
// What it draws builds on a sleep, so that there is something to replay.
func (p *part) drawn() error {
	if err := bide.Sleep(p.ctx, time.Millisecond); err != nil {
		return err
	}
	drawn := fmt.Sprint(bide.NewID(p.ctx), bide.Rand(p.ctx).Uint64(), bide.Now(p.ctx).UnixMicro())
	bide.Log(p.ctx).Debug("drawn", "it", drawn)
	return p.stepOf(event{Place: p.place, Drawn: drawn}, nil, soon)
}

func (p *part) publish() error {
	_ = bide.Progress(p.ctx, 50, p.place)
	if err := p.step(p.place, soon); err != nil {
		return err
	}
	return bide.Publish(p.ctx, "latest", p.story.last())
}

func (p *part) phase() error {
	at := p.story.last()
	got, err := bide.Phase(p.ctx, "phase", func(ctx bide.Context) (string, error) {
		if err := bide.Sleep(ctx, 50*time.Millisecond); err != nil {
			return "", err
		}
		return p.call(ctx, event{Place: p.place, Prev: at}, nil, soon)
	})
	p.tell(p.place, got)
	return err
}

func (p *part) sleep(d time.Duration) error {
	due := bide.Now(p.ctx).Add(d)
	if err := bide.Sleep(p.ctx, d); err != nil {
		return err
	}
	return p.stepAt(due)
}

func (p *part) until() error {
	due := bide.Now(p.ctx).Add(p.within(100*time.Millisecond, 2*time.Second))
	if err := bide.SleepUntil(p.ctx, due); err != nil {
		return err
	}
	return p.stepAt(due)
}

// quiet waits for a signal that nobody sends.
func (p *part) quiet() error {
	d := p.within(100*time.Millisecond, time.Second)
	due := bide.Now(p.ctx).Add(d)
	if _, err := bide.Receive[string](p.ctx, "never", bide.Timeout(d)); !errors.Is(err, bide.ErrTimeout) {
		return fmt.Errorf("a signal that nobody sends: %w", err)
	}
	return p.stepAt(due)
}

const tally = 2 // signals of a verb "signal"

func tallied(job, place string) (values []string) {
	for n := range tally {
		values = append(values, fmt.Sprintf("%s/%s/%d", job, place, n))
	}
	return values
}

// signal takes up as many signals as the verb is sent, perhaps another one's.
func (p *part) signal() error {
	for range tally {
		got, err := bide.Receive[string](p.ctx, "tally")
		if err != nil {
			return err
		}
		p.story.Got = append(p.story.Got, got)
	}
	return p.step(p.place, soon)
}

// verbOf is the verb of a place, "cancel" of "0.2.cancel".
func verbOf(place string) string { return place[strings.LastIndex(place, ".")+1:] }
