package bide

import "encoding/json"

// ContinueAsNew returns the error with which a workflow says that its run should
// begin anew with another input and an empty history:
//
//	return zero, bide.ContinueAsNew(ctx, next)
//
// The run keeps its id and the signals that it has not received; children that
// have not ended are canceled unless [Detached]. It is for workflows that go on
// for ever. in must be of the workflow's input type.
func ContinueAsNew(ctx Context, in any) error {
	data, err := encode("input", "", in)
	if err != nil {
		return err
	}
	return &continueAsNew{data}
}

type continueAsNew struct{ input json.RawMessage }

func (*continueAsNew) Error() string { return "bide: continue as new" }
