package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"

	"connectrpc.com/connect"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/internal/wire"
)

// UnreachableError is a server that did not answer for ten seconds.
type UnreachableError struct {
	URL string `json:"url"`
	// Sent: it may have arrived, and have been carried out, or not. Else it has not.
	Sent bool  `json:"sent,omitempty"`
	Err  error `json:"-"` // the last attempt's
}

func (e *UnreachableError) Error() string {
	text := fmt.Sprintf("bide: the server at %s cannot be reached; see that it runs and that the URL is right", e.URL)
	if e.Sent {
		text = fmt.Sprintf("bide: the server at %s was lost on the way; whether this was carried out is unknown", e.URL)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns Err.
func (e *UnreachableError) Unwrap() error { return e.Err }

// Code returns "unreachable".
func (e *UnreachableError) Code() string { return "unreachable" }

func init() { bide.RegisterError(&UnreachableError{}) }

// failure is an error as the wire has it, nil for nil.
func failure(err error) []byte {
	if err == nil {
		return nil
	}
	data, jerr := json.Marshal(bide.NewFailure(err))
	if jerr != nil {
		data, _ = json.Marshal(bide.NewFailure(errors.New(err.Error())))
	}
	return data
}

// restore makes it an error again. One that has no identity is said to be the
// server's: a step's it is not.
func restore(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	f := new(bide.Failure)
	if err := json.Unmarshal(data, f); err != nil {
		return fmt.Errorf("bide: the server's error cannot be read: %w", err)
	}
	err := f.Err()
	if _, plain := err.(*bide.StepError); plain { //nolint:errorlint // only the outermost matters
		return fmt.Errorf("bide server: %w", err)
	}
	return err
}

// codes are Connect's for the sentinels that a store returns; all else has none.
var codes = []struct {
	err  error
	code connect.Code
}{
	{bide.ErrNotFound, connect.CodeNotFound},
	{bide.ErrClosed, connect.CodeUnavailable},
	{bide.ErrRunEnded, connect.CodeFailedPrecondition},
	{bide.ErrLeaseLost, connect.CodeFailedPrecondition},
	{bide.ErrFactChanged, connect.CodeAborted},
	{bide.ErrStoreFull, connect.CodeResourceExhausted},
	{bide.ErrReadOnly, connect.CodeFailedPrecondition},
}

// refusal is a store's error as an RPC's: Connect's code for those who know
// nothing of bide, and the error itself.
func refusal(err error) error {
	code := connect.CodeUnknown
	if invalid := (*bide.InvalidError)(nil); errors.As(err, &invalid) {
		code = connect.CodeInvalidArgument
	}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			code = c.code
		}
	}
	out := connect.NewError(code, err)
	if errors.Is(err, bide.ErrClosed) {
		return out // it is the server that ends, not the client's store
	}
	if detail, derr := connect.NewErrorDetail(&wire.Failure{Failure: failure(err)}); derr == nil {
		out.AddDetail(detail)
	}
	return out
}

// verdict is what a client makes of an RPC's error.
type verdict struct {
	final error // not nil: what the caller gets; to try again would not mend it
	sent  bool  // else: it may have arrived
}

func judge(url string, err error) verdict {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return verdict{}
	}
	var said *connect.Error
	if !errors.As(err, &said) {
		return verdict{sent: true}
	}
	for _, d := range said.Details() {
		if v, derr := d.Value(); derr == nil {
			if f, ok := v.(*wire.Failure); ok {
				return verdict{final: restore(f.GetFailure())}
			}
		}
	}
	invalid := func(field, reason string) verdict {
		return verdict{final: fmt.Errorf("%w (%w)", &bide.InvalidError{Field: field, Reason: reason}, err)}
	}
	switch said.Code() {
	case connect.CodeUnauthenticated, connect.CodePermissionDenied:
		return invalid("token", "the server at "+url+" does not accept it; dial with remote.Token")
	}
	if !connect.IsWireError(err) { // the code is a guess: a proxy's, or of an answer that was cut
		return verdict{sent: true}
	}
	switch said.Code() {
	case connect.CodeUnimplemented:
		return invalid("url", "the server at "+url+" is older than this program and does not know what is asked")
	case connect.CodeInvalidArgument, connect.CodeResourceExhausted:
		return invalid("request", "the server at "+url+" does not take it")
	}
	return verdict{sent: true}
}
