package main

import (
	"context"
	"fmt"

	"github.com/bide-dev/bide"
)

const (
	rounds = 15
	steps  = 1 + 3*rounds + 1
)

// newAgent returns the workflow. It is a plain Go loop: what makes it lasting is
// that each touch of the world stands in a Step with a name of its own.
func newAgent(w *world) *bide.Workflow[string, string] {
	return bide.Define("agent47", func(ctx bide.Context, question string) (string, error) {
		taken := 0
		step := func(name, input string) (string, error) {
			bide.Progress(ctx, float64(100*taken/steps), name, bide.AtStep{Index: taken + 1, Count: steps})
			taken++
			return bide.Step(ctx, name, func(ctx context.Context) (string, error) {
				return w.act(ctx, name, input)
			})
		}

		memory, err := step("plan", question)
		if err != nil {
			return "", err
		}
		for i := 1; i <= rounds; i++ {
			thought, err := step(fmt.Sprintf("think-%d", i), memory)
			if err != nil {
				return "", err
			}
			found, err := step(fmt.Sprintf("tool-%d", i), thought)
			if err != nil {
				return "", err
			}
			memory, err = step(fmt.Sprintf("observe-%d", i), found)
			if err != nil {
				return "", err
			}
		}
		return step("answer", memory)
	})
}
