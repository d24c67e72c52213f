package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bide-dev/bide"
)

// Report is what a run returns.
type Report struct {
	Text string `json:"text"`
	By   string `json:"by"` // who wrote it: the service, or a person
}

// decision is what a person says when the job takes too long.
type decision struct {
	Action string        `json:"action"` // wait, use, give up
	Wait   time.Duration `json:"wait_ns,omitempty"`
	Text   string        `json:"text,omitempty"`
}

// errGivenUp is registered, so that whoever waits for the run can tell it from
// other errors.
var errGivenUp = errors.New("a person has given the job up")

func init() { bide.RegisterError(errGivenUp) }

// researcher is what the workflow works with.
type researcher struct {
	api      *client
	ask      func(question string) // a person
	patience time.Duration         // how long a job may take before a person is asked
	answerIn time.Duration         // how long that person has
}

func (r *researcher) workflow() *bide.Workflow[string, Report] {
	return bide.Define("deepresearch", r.research)
}

func (r *researcher) research(ctx bide.Context, topic string) (Report, error) {
	// The URL is there before the job: what comes through it is kept from now on,
	// whether we wait for it yet or not.
	finished, err := bide.NewWebhook[job](ctx, "finished")
	if err != nil {
		return Report{}, err
	}
	bide.Progress(ctx, 0, "submitting")
	submitted, err := bide.Step(ctx, "submit", func(ctx context.Context) (job, error) {
		return r.api.submit(ctx, topic, finished.URL())
	})
	if err != nil {
		return Report{}, err
	}

	for patience := r.patience; ; {
		done, err := r.await(ctx, submitted.ID, finished, patience)
		if !errors.Is(err, bide.ErrPollTimeout) {
			return Report{Text: done.Findings, By: "the service"}, err
		}
		d, err := r.decide(ctx, topic, err)
		switch {
		case err != nil:
			return Report{}, err
		case d.Action == "wait":
			patience = d.Wait
		case d.Action == "use":
			return Report{Text: d.Text, By: "a person"}, nil
		default:
			return Report{}, errGivenUp
		}
	}
}

// await asks every 10 s whether the job is done, and at once when the webhook says
// so. A webhook that is lost costs one interval, no more, and one that comes while a
// person decides is there when the run waits on.
func (r *researcher) await(ctx bide.Context, id string, finished *bide.Webhook[job], patience time.Duration) (job, error) {
	return bide.Poll(ctx, "job",
		func(ctx context.Context) (job, error) { return r.api.job(ctx, id) },
		func(j job) bool { return j.State == "completed" },
		bide.Every(10*time.Second), bide.WakeOn(finished), bide.Timeout(patience))
}

// decide asks a person what to do, who may take hours: the run holds nothing
// meanwhile. Nobody answers? Then the time-out is the run's error.
func (r *researcher) decide(ctx bide.Context, topic string, late error) (decision, error) {
	bide.Progress(ctx, 0, "waiting for a person to decide")
	err := bide.Do(ctx, "ask", func(context.Context) error {
		r.ask(fmt.Sprintf("The job on %q is late: %v.", topic, late))
		return nil
	})
	if err != nil {
		return decision{}, err
	}
	d, err := bide.Receive[decision](ctx, "decision", bide.Timeout(r.answerIn))
	if errors.Is(err, bide.ErrTimeout) {
		return d, fmt.Errorf("nobody decided: %w", late)
	}
	return d, err
}
