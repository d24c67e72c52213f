package main

import (
	"context"
	"fmt"
	"time"

	"github.com/bide-dev/bide"
)

// Release is what is to be deployed, and what a run returns.
type Release struct {
	Version string `json:"version"`
}

// phases are what a deployment consists of. Each is a task of the platform that
// takes minutes, and each can be taken back.
var phases = []string{"database", "servers", "traffic"}

func newWorkflow(p *platform) *bide.Workflow[Release, Release] {
	return bide.Define("deployment", p.deploy)
}

// deploy goes through the phases. If one fails, or a person cancels the run, those
// that were begun are rolled back, the last one first.
func (p *platform) deploy(ctx bide.Context, r Release) (Release, error) {
	return bide.Saga(ctx, func(ctx bide.Context, undo *bide.Undo) (Release, error) {
		for i, phase := range phases {
			// Noted before the start: a phase that may have been begun is rolled back too.
			undo.Add("roll back "+phase, func(ctx context.Context) error { return p.rollBack(ctx, phase) })
			at := bide.AtStep{Index: i + 1, Count: len(phases), Name: phase}
			bide.Progress(ctx, float64(100*i/len(phases)), "", at)
			_, err := bide.Phase(ctx, phase, func(ctx bide.Context) (task, error) {
				return p.carryOut(ctx, phase, r)
			})
			if err != nil {
				return r, err
			}
		}
		bide.Progress(ctx, 100, "deployed "+r.Version)
		return r, nil
	})
}

// carryOut has the platform do one phase and waits until it is done.
func (p *platform) carryOut(ctx bide.Context, phase string, r Release) (task, error) {
	started, err := bide.Step(ctx, "start "+phase, func(ctx context.Context) (task, error) {
		return p.start(ctx, phase, r.Version)
	})
	if err != nil {
		return task{}, err
	}
	return bide.Poll(ctx, phase,
		func(ctx context.Context) (task, error) {
			t, err := p.task(ctx, started.ID)
			if err == nil && t.State == "failed" {
				err = bide.Permanent(fmt.Errorf("%s: %s", phase, t.Reason))
			}
			return t, err
		},
		func(t task) bool { return t.State == "done" },
		bide.ETA{Min: 2 * time.Second, Max: 20 * time.Second}, bide.Timeout(30*time.Minute))
}
