package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bide-dev/bide"
)

// What bide demo runs. It pretends to work, for as long as real work might take;
// all else is as in a program of one's own.

func (d *demo) workflows(loop *bide.LoopHandle) []bide.Definition {
	return []bide.Definition{
		bide.Define(demoHello, hello),
		bide.Define(demoResearch, d.research),
		bide.Define(demoApproval, approval),
		bide.Loop(demoLoop, func(ctx context.Context) error { return prices(ctx, loop) }, bide.Every(5*time.Second), bide.MaxMultiplier(4), bide.RunImmediately{}),
	}
}

func hello(ctx bide.Context, name string) (string, error) {
	return bide.Step(ctx, "greet", func(context.Context) (string, error) { return "hello " + name, nil })
}

func (d *demo) research(ctx bide.Context, topic string) (string, error) {
	bide.Progress(ctx, 0, "asking a model what to search for")
	queries, err := bide.Step(ctx, "queries", func(ctx context.Context) ([]string, error) {
		return []string{topic + " prices", topic + " trends", topic + " harvest"}, pretend(ctx, 500*time.Millisecond)
	})
	if err != nil {
		return "", err
	}

	bide.Progress(ctx, 10, "searching")
	var searches []bide.NamedBranch[string]
	for i, q := range queries {
		searches = append(searches, bide.Branch(q, func(ctx bide.Context) (string, error) {
			return bide.Step(ctx, "search "+q, func(ctx context.Context) (string, error) {
				return fmt.Sprintf("%d pages on %s", 7*(i+1), q), pretend(ctx, time.Duration(i+1)*400*time.Millisecond)
			})
		}))
	}
	found, err := bide.All(ctx, searches...)
	if err != nil {
		return "", err
	}

	bide.Progress(ctx, 20, "handing the pages to a deep-research service")
	job, err := bide.Step(ctx, "submit", func(context.Context) (demoJob, error) { return newDemoJob(d.job), nil })
	if err != nil {
		return "", err
	}
	_, err = bide.Poll(ctx, "deep-research",
		func(ctx context.Context) (jobStatus, error) {
			s, err := job.status(time.Now())
			if err == nil {
				bide.Progress(ctx, 20+s.Percent*0.6, "the service is at work")
			}
			return s, err
		},
		func(s jobStatus) bool { return s.State == "completed" },
		bide.ETA{Min: time.Second, Max: 5 * time.Second}, bide.Timeout(time.Hour))
	if err != nil {
		return "", err
	}

	bide.Progress(ctx, 80, "writing the report")
	report, err := bide.Step(ctx, "analyse", func(ctx context.Context) (string, error) {
		text := fmt.Sprintf("On %s: %s. In short, people wait for it gladly.\n", topic, strings.Join(found, ", "))
		stream := bide.Stream(ctx)
		for word := range strings.SplitAfterSeq(text, " ") { // as a model would
			if _, err := stream.WriteString(word); err != nil {
				return "", err
			}
			if err := pretend(ctx, 100*time.Millisecond); err != nil {
				return "", err
			}
		}
		return text, nil
	})
	if err != nil {
		return "", err
	}
	err = bide.Do(ctx, "save", func(ctx context.Context) error { return pretend(ctx, 200*time.Millisecond) })
	bide.Progress(ctx, 100, "saved")
	return report, err
}

// demoJob is a job of a service that does not die with this program: how far it is
// depends on the time alone.
type demoJob struct {
	Began time.Time     `json:"began"`
	Takes time.Duration `json:"takes_ns"`
}

type jobStatus struct {
	State   string    `json:"state"`
	Percent float64   `json:"percent"`
	Due     time.Time `json:"due"`
}

// ETA is when the job will be done, by which the poll chooses its interval.
func (s jobStatus) ETA() time.Time { return s.Due }

var errBusy = errors.New("the service says: 503, busy")

func newDemoJob(takes time.Duration) demoJob { return demoJob{time.Now(), takes} }

// status is what the service answers. For a while in the middle it is too busy to.
func (j demoJob) status(now time.Time) (jobStatus, error) {
	s := jobStatus{State: "running", Percent: min(100*float64(now.Sub(j.Began))/float64(j.Takes), 100), Due: j.Began.Add(j.Takes)}
	switch {
	case s.Percent >= 100:
		s.State = "completed"
	case s.Percent > 45 && s.Percent < 50:
		return s, errBusy
	}
	s.Percent = float64(int(s.Percent))
	return s, nil
}

const approvalPath = "/v1/approvals/"

// approval waits for a person, who decides on the page of the link or sends a signal.
func approval(ctx bide.Context, what string) (any, error) {
	link, err := bide.NewWebhook[any](ctx, "link")
	if err != nil {
		return nil, err
	}
	if err := bide.Publish(ctx, "question", "May we "+what+"?"); err != nil { // what the page asks
		return nil, err
	}
	if err := bide.Publish(ctx, "link", link.ApprovalURL()); err != nil {
		return nil, err
	}
	_, answer, err := bide.Race(ctx,
		bide.Branch("signal", func(ctx bide.Context) (any, error) {
			return bide.Receive[any](ctx, "approval", bide.Timeout(72*time.Hour))
		}),
		bide.Branch("link", func(ctx bide.Context) (any, error) { return link.Receive(ctx) }))
	return answer, err
}

// prices is asked at an interval. Three times it fails, from the first on, so that its
// interval grows; then it works five times, and so on.
func prices(ctx context.Context, loop *bide.LoopHandle) error {
	s, err := loop.State(ctx)
	if err != nil {
		return err
	}
	if s.Iterations%8 < 3 {
		return errBusy
	}
	return bide.Publish(ctx, "teapot", 30+time.Now().Second()%10)
}

// pretend is work that takes so long.
func pretend(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
