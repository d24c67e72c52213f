package probe

import (
	"context"
	"strings"
	"sync"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/types"
)

// What a CEL expression can ask for.
//
//	status     int       of the answer
//	headers    map       of the answer, names in lower case
//	body       dyn       the body, if it is JSON; numbers are doubles
//	text       string    the body as text
//	attempt    int       from 1
//	elapsed    duration  since the wait began
//	unchanged  bool      the answer is 304, "as before"
const (
	varStatus    = "status"
	varHeaders   = "headers"
	varBody      = "body"
	varText      = "text"
	varAttempt   = "attempt"
	varElapsed   = "elapsed"
	varUnchanged = "unchanged"
)

// costLimit is the most one evaluation may cost, in CEL's units: about 0.1 s.
// Whether an expression may need more is estimated with usualSize as the length of
// all lists, maps and strings that it is given.
const (
	costLimit = 1_000_000
	usualSize = 1_000
)

var celEnv = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		cel.Variable(varStatus, cel.IntType),
		cel.Variable(varHeaders, cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable(varBody, cel.DynType),
		cel.Variable(varText, cel.StringType),
		cel.Variable(varAttempt, cel.IntType),
		cel.Variable(varElapsed, cel.DurationType),
		cel.Variable(varUnchanged, cel.BoolType),
		cel.CrossTypeNumericComparisons(true),
		cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateRegexLiterals()),
	)
})

// expression is compiled CEL. A nil one stands for a field that is empty.
type expression struct {
	field   string
	text    string
	program cel.Program
	asks    map[string]bool // for which variables
}

// compile compiles the CEL of a field; it must yield the type, where one is given.
func compile(field, text string, want *cel.Type) (*expression, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	env, err := celEnv()
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, invalid(field, "is no CEL that compiles: %v", issues.Err())
	}
	if got := ast.OutputType(); want != nil && !got.IsExactType(want) {
		mend := ""
		switch {
		case got.Kind() == types.DynKind && want == cel.BoolType:
			mend = `; compare it with something, as in body.done == true`
		case want == cel.StringType:
			mend = `; put it into string(...)`
		}
		return nil, invalid(field, "%q yields %s, it must yield %s%s", text, got, want, mend)
	}
	estimate, err := env.EstimateCost(ast, sizes{})
	if err != nil {
		return nil, invalid(field, "%v", err)
	}
	if estimate.Max > costLimit {
		return nil, invalid(field, "is too costly: up to %d units for lists of %d, at most %d are allowed; ask for less, or without loops inside loops",
			estimate.Max, usualSize, uint64(costLimit))
	}
	program, err := env.Program(ast, cel.CostLimit(costLimit), cel.InterruptCheckFrequency(1000))
	if err != nil {
		return nil, invalid(field, "%v", err)
	}
	e := &expression{field: field, text: text, program: program, asks: map[string]bool{}}
	for _, r := range ast.NativeRep().ReferenceMap() {
		e.asks[r.Name] = true
	}
	return e, nil
}

// sizes estimates the sizes of what an answer holds.
type sizes struct{}

// EstimateSize implements [cost.Estimator].
func (sizes) EstimateSize(cost.AstNode) *cost.SizeEstimate {
	s := cost.RangedSizeEstimate(0, usualSize)
	return &s
}

// EstimateCallCost implements [cost.Estimator]: the standard costs.
func (sizes) EstimateCallCost(string, string, *cost.AstNode, []cost.AstNode) *cost.CallEstimate {
	return nil
}

// value evaluates the expression on an answer.
func (e *expression) value(ctx context.Context, a *answer) (any, error) {
	out, _, err := e.program.ContextEval(ctx, a.vars)
	if err != nil {
		return nil, &ConditionError{Field: e.field, Status: a.status, Reason: err.Error()}
	}
	return out.Value(), nil
}

func (e *expression) holds(ctx context.Context, a *answer) (bool, error) {
	v, err := e.value(ctx, a)
	yes, _ := v.(bool) // what it yields was checked when it was compiled
	return yes, err
}

// percent reads a progress.
func percent(v any) (float64, bool) {
	switch n := v.(type) {
	case int64:
		return float64(n), n >= 0 && n <= 100
	case uint64:
		return float64(n), n <= 100
	case float64:
		return n, n >= 0 && n <= 100
	}
	return 0, false
}

// moment reads an ETA.
func moment(v any, now time.Time) time.Time {
	switch t := v.(type) {
	case time.Time:
		return t
	case time.Duration:
		return now.Add(t)
	case string:
		at, _ := time.Parse(time.RFC3339, t) // what cannot be read is the zero time
		return at
	}
	return time.Time{}
}
