package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"go.yaml.in/yaml/v3"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/probe"
)

// loopSpec is a loop as a file says it.
type loopSpec struct {
	Name          string         `yaml:"name"`
	Every         probe.Duration `yaml:"every"`
	Condition     string         `yaml:"condition"` // CEL, of now: while it is false nothing is asked
	Exact         bool           `yaml:"exact"`     // no jitter
	MaxMultiplier int            `yaml:"max_multiplier"`
	Immediately   bool           `yaml:"run_immediately"`
	FailWhen      string         `yaml:"fail_when"`
	probe.Spec    `yaml:",inline"`
}

var unknownKey = regexp.MustCompile(`field (\S+) not found in type \S+`)

// readLoops reads a file of loops; what is wrong with it is a usage error.
func readLoops(file string) ([]loopSpec, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var specs []loopSpec
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(&specs); errors.Is(err, io.EOF) {
		return nil, usage("%s: is empty; it must be a list of loops", file)
	} else if err != nil {
		text := unknownKey.ReplaceAllString(err.Error(), `there is no key "$1"`)
		text = strings.TrimPrefix(strings.ReplaceAll(text, "\n ", ""), "yaml: unmarshal errors: ")
		return nil, usage("%s: %s", file, text)
	}
	if len(specs) == 0 {
		return nil, usage("%s: has no loops", file)
	}
	seen := map[string]bool{}
	for i := range specs {
		s := &specs[i]
		if err := s.check(); err != nil {
			return nil, usage("%s: loop %d (%s): %w", file, i+1, s.Name, err)
		}
		if seen[s.Name] {
			return nil, usage("%s: two loops are called %q", file, s.Name)
		}
		seen[s.Name] = true
	}
	return specs, nil
}

const longestLoopName = 200 // bytes

func (s *loopSpec) check() error {
	switch {
	case s.Name == "" || len(s.Name) > longestLoopName || strings.ContainsFunc(s.Name, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return fmt.Errorf("name: must be a word of at most %d bytes", longestLoopName)
	case s.Every == 0:
		return errors.New("every: is missing; how often, as in 30s")
	case time.Duration(s.Every) < 10*time.Millisecond:
		return fmt.Errorf("every: is %v; it must be at least 10ms; give others' services 1s and more", time.Duration(s.Every))
	case s.MaxMultiplier < 0:
		return errors.New("max_multiplier: is negative; it must be at least 1")
	}
	return nil
}

// loop makes the definition.
func (s *loopSpec) loop() (*bide.LoopDefinition, error) {
	spec := s.Spec
	if s.FailWhen != "" {
		spec.Accept = append([]probe.Acceptor{{State: probe.Failure, When: s.FailWhen}}, spec.Accept...)
	}
	p, err := probe.New(spec)
	if invalid, ok := errors.AsType[*bide.InvalidError](err); ok {
		field := invalid.Field
		if s.FailWhen != "" && field == "accept[0].when" {
			field = "fail_when"
		}
		return nil, fmt.Errorf("%s: %s", field, invalid.Reason)
	} else if err != nil {
		return nil, err
	}
	options := []bide.LoopOption{bide.Every(s.Every), bide.MinInterval(min(time.Duration(s.Every), time.Second))}
	if s.Timeout > 0 {
		options = append(options, bide.AttemptTimeout(time.Duration(s.Timeout)+time.Second))
	}
	if s.Exact {
		options = append(options, bide.Exact{})
	}
	if s.MaxMultiplier > 0 {
		options = append(options, bide.MaxMultiplier(s.MaxMultiplier))
	}
	if s.Immediately {
		options = append(options, bide.RunImmediately{})
	}
	if s.Condition != "" {
		condition, err := compileCondition(s.Condition)
		if err != nil {
			return nil, fmt.Errorf("condition: %w", err)
		}
		options = append(options, condition)
	}
	return bide.Loop(s.Name, func(ctx context.Context) (bide.Result, error) {
		o, err := p.Check(ctx)
		switch {
		case err != nil:
			return bide.LoopFail, err
		case o.Unchanged:
			return bide.LoopUnchanged, nil
		case !o.Done() && spec.Until != "":
			return bide.LoopFail, fmt.Errorf("until is false: %s", describe(o))
		}
		return bide.LoopOK, bide.Publish(ctx, "answer", o)
	}, options...), nil
}

// compileCondition compiles a condition on the time, the variable now.
func compileCondition(text string) (bide.Condition, error) {
	env, err := cel.NewEnv(cel.Variable("now", cel.TimestampType))
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, fmt.Errorf("is no CEL that compiles: %w", issues.Err())
	}
	if !ast.OutputType().IsExactType(cel.BoolType) {
		return nil, fmt.Errorf("%q yields %s, it must yield bool", text, ast.OutputType())
	}
	program, err := env.Program(ast, cel.CostLimit(10_000))
	if err != nil {
		return nil, err
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
