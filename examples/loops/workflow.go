package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bide-dev/bide"
)

// dashboard is four loops, each of another kind. What one finds it publishes: any
// process with the store can read it, see [bide.LoopHandle.Value].
type dashboard struct {
	api    *client
	runs   *bide.Client
	minute time.Duration // shorter for those who cannot wait
	open   func(time.Time) bool
	digest bide.Schedule
}

// oneAtATime is what the terms of the service ask for: weather and news are of one
// provider.
var oneAtATime = bide.Group{Name: "provider", Limit: 1}

func (d *dashboard) definitions() []bide.Definition {
	return []bide.Definition{
		// At an interval. Failures double it, up to eight times; a success brings it back.
		bide.Loop("weather", d.weather, bide.Every(10*d.minute), oneAtATime, bide.RunImmediately{}),

		// As often as there is news, of which there is none at night.
		bide.Loop("news", d.news, bide.Every(5*d.minute), oneAtATime, bide.RunImmediately{},
			bide.Adaptive{Min: d.minute, Max: 30 * d.minute}),

		// While the market is open. A skipped turn is neither success nor failure.
		bide.Loop("stocks", d.stocks, bide.Every(d.minute),
			bide.Condition(func(context.Context) bool { return d.open(time.Now()) })),

		// At times of the calendar. If nobody was there, once when somebody is again.
		bide.Loop("notifications", d.notify, bide.On(d.digest, bide.MisfireOnce)),

		d.workflow(),
	}
}

func (d *dashboard) weather(ctx context.Context) error {
	text, _, err := d.api.get(ctx, "/weather")
	if err != nil {
		return err
	}
	return bide.Publish(ctx, "value", text)
}

func (d *dashboard) news(ctx context.Context) (bide.Result, error) {
	text, changed, err := d.api.get(ctx, "/news")
	if err != nil || !changed {
		return bide.LoopUnchanged, err
	}
	return bide.LoopChanged, bide.Publish(ctx, "value", text)
}

func (d *dashboard) stocks(ctx context.Context) error {
	text, _, err := d.api.get(ctx, "/stocks")
	if err != nil {
		return err
	}
	return bide.Publish(ctx, "value", text)
}

// notify leaves the work to a run of its own, with a history. The id makes a
// second one for the same time impossible.
func (d *dashboard) notify(ctx context.Context) error {
	at := bide.ScheduledAt(ctx).UTC().Format("2006-01-02T15:04")
	_, err := d.workflow().Start(ctx, d.runs, at, bide.ID("digest-"+at))
	return errors.Join(err, bide.Publish(ctx, "value", "digest-"+at))
}

// workflow is the daily digest: what the loops have found, by mail.
func (d *dashboard) workflow() *bide.Workflow[string, string] {
	return bide.Define("digest", func(ctx bide.Context, at string) (string, error) {
		text, err := bide.Step(ctx, "collect", func(ctx context.Context) (string, error) {
			lines := []string{"Digest of " + at}
			for _, name := range []string{"weather", "news", "stocks"} {
				var value string
				if _, err := d.runs.Loop(name).Value(ctx, "value", &value); err != nil {
					return "", err
				}
				lines = append(lines, fmt.Sprintf("%s: %s", name, value))
			}
			return strings.Join(lines, "\n"), nil
		})
		if err != nil {
			return "", err
		}
		err = bide.Do(ctx, "mail", func(ctx context.Context) error { return d.api.mail(ctx, text) })
		return text, err
	})
}
