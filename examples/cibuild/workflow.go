package main

import (
	"context"
	"fmt"
	"time"

	"github.com/bide-dev/bide"
)

// build is how the CI shows one, to who asks and in its webhook.
type build struct {
	ID         string  `json:"id"`
	Commit     string  `json:"commit"`
	Status     string  `json:"status"` // in_progress, completed
	Conclusion string  `json:"conclusion,omitempty"`
	Percent    float64 `json:"percent"`
	Log        string  `json:"log,omitempty"`
}

// Progress makes the build's progress that of the run which waits for it.
func (b build) Progress() (float64, string) { return b.Percent, "the build is " + b.Status }

func (b build) completed() bool { return b.Status == "completed" }

// BuildError is a build that went wrong: an answer, not a failure to get one.
type BuildError struct {
	Commit string `json:"commit"`
	Log    string `json:"log"`
}

func (e *BuildError) Error() string {
	return fmt.Sprintf("the build of %s failed: %s", e.Commit, e.Log)
}

func init() { bide.RegisterError(&BuildError{}) }

// verifier names what the CI's webhooks are signed by; see main.go.
const verifier = "ci"

func newWorkflow(ci *client) *bide.Workflow[string, build] {
	return bide.Define("cibuild", func(ctx bide.Context, commit string) (build, error) {
		// Made first, so that a build which ends before we even know its id is heard of.
		finished, err := bide.NewWebhook[build](ctx, "finished", bide.VerifiedBy(verifier))
		if err != nil {
			return build{}, err
		}
		started, err := bide.Step(ctx, "start", func(ctx context.Context) (build, error) {
			return ci.start(ctx, commit, finished.URL())
		})
		if err != nil {
			return build{}, err
		}

		// The webhook is signed and carries the whole build, so it is the answer
		// itself. The poll is the net below it.
		b, err := bide.Poll(ctx, "build",
			func(ctx context.Context) (build, error) { return ci.build(ctx, started.ID) },
			build.completed,
			bide.CompleteOn(finished), bide.Every(30*time.Second), bide.Timeout(2*time.Hour))
		if err == nil && b.Conclusion != "success" {
			err = &BuildError{Commit: commit, Log: b.Log}
		}
		return b, err
	})
}
