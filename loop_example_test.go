package bide_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/sqlite"
)

func ExampleLoop() {
	// page is what a web server would answer: nothing to who has this version.
	page := func(ifNoneMatch string) (text, etag string, unchanged bool) {
		const version = `"v1"`
		return "sunny", version, ifNoneMatch == version
	}
	weather := bide.Loop("weather", func(ctx context.Context) error {
		text, etag, unchanged := page(bide.LastObservation(ctx).ETag)
		if err := bide.Observe(ctx, bide.Observation{ETag: etag, Unchanged: unchanged}); err != nil || unchanged {
			return err
		}
		return bide.Publish(ctx, "now", text)
	},
		bide.Every(10*time.Minute), bide.RunImmediately{},
		bide.Adaptive{Min: time.Minute, Max: time.Hour},
		bide.AttemptTimeout(10*time.Second))

	client, stop := example(weather)
	defer stop()
	s := exampleIterations(client, "weather", 1)
	fmt.Println("after the first:", s.Outcomes, s.Effective)

	t, err := client.Loop("weather").Trigger(context.Background(), false)
	if err != nil {
		panic(err)
	}
	s = exampleIterations(client, "weather", t.Iteration)
	fmt.Println("after a trigger:", s.Outcomes, s.Effective)

	var text string
	_, err = client.Loop("weather").Value(context.Background(), "now", &text)
	fmt.Println(text, err)
	// Output:
	// after the first: c 5m0s
	// after a trigger: cu 5m0s
	// sunny <nil>
}

// tides are the times of a schedule; package cron has schedules of cron
// expressions.
type tides []time.Time

func (t tides) Next(after time.Time) time.Time {
	for _, at := range t {
		if at.After(after) {
			return at
		}
	}
	return time.Time{} // there are no more
}

// A schedule that starts runs: the id is made of the time that the iteration is
// for, so that each time has one run, even if the process dies in the middle.
func ExampleScheduledAt() {
	store, err := sqlite.Open(":memory:")
	if err != nil {
		panic(err)
	}
	client := bide.NewClient(store)
	report := bide.Define("report", func(ctx bide.Context, tide time.Time) (string, error) {
		return "the report on " + tide.Format(time.StampMilli), nil
	})
	reportID := func(tide time.Time) bide.ID { return bide.ID("report-" + tide.Format(time.RFC3339Nano)) }

	now := time.Now().UTC().Truncate(time.Millisecond)
	high := tides{now.Add(time.Second), now.Add(time.Second + 20*time.Millisecond)} // not before the worker is there
	loop := bide.Loop("tide-reports", func(ctx context.Context) error {
		tide := bide.ScheduledAt(ctx)
		_, err := report.Start(ctx, client, tide, reportID(tide))
		return err
	}, bide.On(high, bide.MisfireAll))

	worker := bide.NewWorker(store, bide.WorkerConfig{})
	worker.Register(report, loop)
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- worker.Run(ctx) }()

	exampleIterations(client, "tide-reports", 2)
	for _, tide := range high {
		text, err := report.Handle(client, string(reportID(tide))).Result(ctx)
		fmt.Println(text == "the report on "+tide.Format(time.StampMilli), err)
	}
	stop()
	fmt.Println(<-stopped, store.Close())
	// Output:
	// true <nil>
	// true <nil>
	// <nil> <nil>
}

// exampleIterations returns the loop's state once it has made so many iterations.
func exampleIterations(c *bide.Client, name string, n int) bide.LoopState {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		s, err := c.Loop(name).State(context.Background())
		if err != nil && !errors.Is(err, bide.ErrNotFound) { // the worker has not begun yet
			panic(err)
		}
		if s.Iterations >= n {
			return s
		}
	}
	panic("the ticker stopped")
}
