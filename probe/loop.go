package probe

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"cel.dev/cel-go/cel"

	"github.com/bide-dev/bide"
)

// LoopSpec is a loop that is said as data: a [Spec], and when it is put. It reads the
// same from JSON and YAML, with the fields of the Spec beside its own.
type LoopSpec struct {
	Name  string   `json:"name" yaml:"name"`
	Every Duration `json:"every" yaml:"every"` // from the end of one iteration to the begin of the next
	// Condition is CEL on the time, the variable now: while it is false nothing is asked.
	Condition      string `json:"condition,omitempty" yaml:"condition,omitempty"`
	Exact          bool   `json:"exact,omitempty" yaml:"exact,omitempty"`                   // no jitter
	MaxMultiplier  int    `json:"max_multiplier,omitempty" yaml:"max_multiplier,omitempty"` // of Every, after failures; default 8
	RunImmediately bool   `json:"run_immediately,omitempty" yaml:"run_immediately,omitempty"`
	// FailWhen is CEL on an answer: one for which it holds is a failure. So is a 2xx
	// for which Until does not hold.
	FailWhen string `json:"fail_when,omitempty" yaml:"fail_when,omitempty"`
	Spec     `yaml:",inline"`
}

const (
	longestName  = 200 // bytes
	leastEvery   = 10 * time.Millisecond
	mostOfUntil  = 100 // bytes of an answer that an error repeats
	clockCost    = 10_000
	longestCheck = math.MaxInt64 - time.Second
)

// Loop makes the loop of a spec; its value "answer" is the last [Observation]. What
// is wrong with the spec is a [bide.InvalidError] that names the field as it is
// written in JSON.
func Loop(spec LoopSpec, with []Option, opts ...bide.LoopOption) (*bide.LoopDefinition, error) {
	if err := spec.check(); err != nil {
		return nil, err
	}
	p, err := spec.probe(with)
	if err != nil {
		return nil, err
	}
	every := time.Duration(spec.Every)
	own := []bide.LoopOption{bide.Every(every), bide.MinInterval(min(every, time.Second)),
		bide.AttemptTimeout(min(time.Duration(p.spec.Timeout), longestCheck) + time.Second)}
	if spec.Exact {
		own = append(own, bide.Exact{})
	}
	if spec.MaxMultiplier > 0 {
		own = append(own, bide.MaxMultiplier(spec.MaxMultiplier))
	}
	if spec.RunImmediately {
		own = append(own, bide.RunImmediately{})
	}
	if spec.Condition != "" {
		condition, err := compileClock("condition", spec.Condition)
		if err != nil {
			return nil, err
		}
		own = append(own, condition)
	}
	return bide.Loop(spec.Name, p.iterate, append(own, opts...)...), nil
}

func (s *LoopSpec) check() error {
	unfit := func(r rune) bool { return r <= ' ' || r == 0x7f || r == utf8.RuneError }
	switch {
	case s.Name == "" || len(s.Name) > longestName || strings.ContainsFunc(s.Name, unfit):
		return invalid("name", "must be a word of at most %d bytes", longestName)
	case s.Every == 0:
		return invalid("every", "is missing; how often, as in 30s")
	case time.Duration(s.Every) < leastEvery:
		return invalid("every", "is %v; it must be at least %v; give others' services 1s and more", time.Duration(s.Every), leastEvery)
	case s.MaxMultiplier < 0:
		return invalid("max_multiplier", "is negative; it must be at least 1")
	}
	return nil
}

// probe is what asks. FailWhen is the first of its acceptors.
func (s *LoopSpec) probe(with []Option) (*Probe, error) {
	spec := s.Spec
	if s.FailWhen != "" {
		spec.Accept = append([]Acceptor{{State: Failure, When: s.FailWhen}}, spec.Accept...)
	}
	p, err := New(spec, with...)
	field, ok := errors.AsType[*bide.InvalidError](err)
	if !ok || s.FailWhen == "" {
		return p, err
	}
	var i int
	var rest string
	if _, err := fmt.Sscanf(field.Field, "accept[%d].%s", &i, &rest); err != nil {
		return nil, field
	}
	if i == 0 {
		return nil, &bide.InvalidError{Field: "fail_when", Reason: field.Reason}
	}
	return nil, &bide.InvalidError{Field: fmt.Sprintf("accept[%d].%s", i-1, rest), Reason: field.Reason}
}

// iterate is one iteration of a loop.
func (p *Probe) iterate(ctx context.Context) (bide.Result, error) {
	o, err := p.Check(ctx)
	switch {
	case err != nil:
		return bide.LoopFail, err
	case o.Unchanged:
		return bide.LoopUnchanged, nil
	case !o.Done() && p.until != nil:
		text := strings.Join(strings.Fields(o.Content()), " ")
		if len(text) > mostOfUntil {
			text = strings.ToValidUTF8(text[:mostOfUntil], "") + "..."
		}
		return bide.LoopFail, fmt.Errorf("until is false: %s", strings.TrimSpace(fmt.Sprint(o.Status, " ", text)))
	}
	return bide.LoopOK, bide.Publish(ctx, "answer", o)
}

// compileClock compiles a condition on the time.
func compileClock(field, text string) (bide.Condition, error) {
	env, err := cel.NewEnv(cel.Variable("now", cel.TimestampType))
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, invalid(field, "is no CEL that compiles: %v", issues.Err())
	}
	if !ast.OutputType().IsExactType(cel.BoolType) {
		return nil, invalid(field, "%q yields %s, it must yield bool", text, ast.OutputType())
	}
	program, err := env.Program(ast, cel.CostLimit(clockCost))
	if err != nil {
		return nil, invalid(field, "is no CEL that can be run: %v", err)
	}
	return func(context.Context) bool {
		out, _, err := program.Eval(map[string]any{"now": time.Now()})
		if err != nil {
			return false
		}
		yes, _ := out.Value().(bool) // has been checked
		return yes
	}, nil
}
