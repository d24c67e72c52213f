package bide

import (
	"context"
	"errors"
	"slices"
)

// Undo collects what would take back the steps done so far; see [Saga].
type Undo struct{ steps []undoStep }

type undoStep struct {
	name string
	fn   func(context.Context) error
	opts []StepOption
}

// Add notes how to take back a step that has just been done. The function runs
// as a [Step] of the name, with the options, if the saga fails.
func (u *Undo) Add(name string, fn func(context.Context) error, opts ...StepOption) {
	u.steps = append(u.steps, undoStep{name, fn, opts})
}

// Saga runs fn and returns what it returns. If that is an error, also that of a
// canceled run, the compensations added so far run first, each as a durable
// step, the last added first; one that fails for good does not keep the others
// from running, and its error is joined to that of fn.
func Saga[T any](ctx Context, fn func(Context, *Undo) (T, error)) (T, error) {
	var undo Undo
	value, err := fn(ctx, &undo)
	if err == nil {
		return value, nil
	}
	errs := []error{err}
	clean := WithoutCancel(ctx)
	for _, s := range slices.Backward(undo.steps) {
		_, uerr := Step(clean, s.name, func(ctx context.Context) (struct{}, error) { return struct{}{}, s.fn(ctx) }, s.opts...)
		if uerr != nil {
			errs = append(errs, uerr)
		}
	}
	if len(errs) == 1 {
		return value, err
	}
	return value, errors.Join(errs...)
}
