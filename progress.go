package bide

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// ProgressState is how far a run has come, as it last said itself.
type ProgressState struct {
	Percent   float64       `json:"percent"`
	Message   string        `json:"message,omitempty"`
	Step      *StepPosition `json:"step,omitempty"`
	UpdatedAt time.Time     `json:"updated_at"`
}

// StepPosition is "step 3 of 7".
type StepPosition struct {
	Index int    `json:"index"` // from 1
	Count int    `json:"count"`
	Name  string `json:"name,omitempty"`
}

// ProgressOption is an option of [Progress].
type ProgressOption interface{ progress(*ProgressState) }

// AtStep says that the progress is that of step Index of Count.
type AtStep StepPosition

func (s AtStep) progress(p *ProgressState) { p.Step = (*StepPosition)(&s) }

// Progress tells how far the run has come: percent (0 to 100), a message, and
// with [AtStep] which step of how many. It takes a workflow's Context or a
// step's context. Within one step the percent never goes back. It is shown
// within 50 ms or with the next commit, replaces what was said before, and
// leaves no record. On replay it does nothing.
//
// It returns an [InvalidError] for a percent that is no number from 0 to 100 or
// a step beyond its count, a [MisuseError] elsewhere than in a run.
func Progress(ctx context.Context, percent float64, message string, opts ...ProgressOption) error {
	if math.IsNaN(percent) || percent < 0 || percent > 100 {
		return &InvalidError{Field: "percent", Reason: fmt.Sprintf("is %v; it must be from 0 to 100", percent)}
	}
	p := ProgressState{Percent: percent, Message: message, UpdatedAt: now()}
	for _, o := range opts {
		o.progress(&p)
	}
	if s := p.Step; s != nil && (s.Index < 1 || s.Index > s.Count) {
		return &InvalidError{Field: "AtStep", Reason: fmt.Sprintf("step %d of %d", s.Index, s.Count)}
	}
	b, err := liveBranch(ctx, "Progress")
	if b == nil {
		return err
	}
	b.t.mu.Lock()
	defer b.t.mu.Unlock()
	if a := attemptOf(ctx); a != nil {
		a.upto = &percent
	}
	b.t.tellLocked(p)
	return nil
}

func (t *turn) tellLocked(p ProgressState) {
	if old := t.run.Progress; old != nil && sameStep(old.Step, p.Step) {
		p.Percent = max(p.Percent, old.Percent)
	}
	t.run.Progress = &p
	t.progress = &p
	t.changes++
	t.flushLate(progressAfter)
}

func sameStep(a, b *StepPosition) bool { return a == b || a != nil && b != nil && *a == *b }

// Publish makes a value (JSON) readable under the key while the run lives and
// after, see [Client.Value]. It takes a workflow's Context or a step's context,
// replaces an earlier value, and is durable with the next commit, within 50 ms.
// On replay it does nothing.
//
// It returns a [CodecError] or [PayloadTooLargeError] for the value, a
// [MisuseError] elsewhere than in a run.
func Publish(ctx context.Context, key string, value any) error {
	data, err := encode("value ", key, value)
	if err != nil {
		return err
	}
	b, err := liveBranch(ctx, "Publish")
	if b == nil {
		return err
	}
	t := b.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.values == nil {
		t.values = map[string]json.RawMessage{}
	}
	t.values[key] = data
	if a := attemptOf(ctx); a != nil && t.def.loop != nil {
		if a.published == nil {
			a.published = map[string]json.RawMessage{}
		}
		a.published[key] = data
	}
	t.changes++
	t.flushLate(progressAfter)
	return nil
}

// liveBranch finds the branch of a workflow's or a step's context; it returns
// nil and no error while the branch replays.
func liveBranch(ctx context.Context, verb string) (*branch, error) {
	if a := attemptOf(ctx); a != nil {
		a.v.t.mu.Lock()
		defer a.v.t.mu.Unlock()
		if a.over { // timed out, or of a race's loser: what it says now is dropped
			return nil, nil
		}
		return a.v.b, nil
	}
	c, ok := ctx.(Context)
	if !ok {
		return nil, &MisuseError{Verb: verb, Reason: "needs a workflow's Context or the context that a step's function is given"}
	}
	b := c.scope().b
	if b.replaying() {
		return nil, nil
	}
	return b, nil
}

// replaying reports whether an earlier turn has been further than where the
// branch is.
func (b *branch) replaying() bool {
	b.t.mu.Lock()
	defer b.t.mu.Unlock()
	return b.n < b.begun
}
