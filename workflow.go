package bide

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Workflow is a defined workflow: a name and a function. Workers register it,
// clients start runs of it.
type Workflow[In, Out any] struct{ def *definition }

// Definition is any [Workflow], its types erased.
type Definition interface{ definition() *definition }

type definition struct {
	name     string
	queue    string
	validate func(input json.RawMessage) error
	call     func(ctx Context, input json.RawMessage) Next
	loop     *loop // nil for a workflow
}

// DefineOption is an option of [Define].
type DefineOption interface{ define(*definition) }

// Queue names the queue that runs wait in for a worker; the default is
// "default". It is an option of [Define] (for all runs), of Start and of
// [StartChild].
type Queue string

func (q Queue) define(d *definition) { d.queue = string(q) }

type validate struct{ check func(json.RawMessage) error }

func (v validate) define(d *definition) { d.validate = v.check }

// Validate is an option of [Define]: fn is asked when a run is to be started,
// and its error refuses the start, in the client, before anything is kept.
func Validate[In any](fn func(In) error) DefineOption {
	return validate{check: func(data json.RawMessage) error {
		in, err := decode[In]("input", "", data)
		if err != nil {
			return err
		}
		if err := fn(in); err != nil {
			if _, typed := errors.AsType[*InvalidError](err); typed {
				return err
			}
			return fmt.Errorf("%w: %w", &InvalidError{Field: "input", Reason: "refused by the workflow's Validate"}, err)
		}
		return nil
	}}
}

// Define makes a workflow of an ordinary function. In and Out must survive
// encoding/json. The name is kept with every run: it must not change while runs
// of it live. Define panics on an empty name or one with control characters, and
// on a nil function.
func Define[In, Out any](name string, fn func(Context, In) (Out, error), opts ...DefineOption) *Workflow[In, Out] {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }) {
		panic(fmt.Sprintf("bide.Define: the name %q: give the workflow a plain, lasting name", name))
	}
	if fn == nil {
		panic(fmt.Sprintf("bide.Define %q: the function is nil", name))
	}
	d := &definition{name: name, validate: func(data json.RawMessage) error {
		_, err := decode[In]("input", "", data)
		return err
	}}
	for _, o := range opts {
		o.define(d)
	}
	d.call = func(ctx Context, input json.RawMessage) Next {
		in, err := decode[In]("input", "", input)
		if err != nil {
			return Ended{State: Failed, Error: NewFailure(err)}
		}
		out, err := fn(ctx, in)
		var again *continueAsNew
		switch {
		case errors.As(err, &again):
			return Continued{Input: again.input}
		case errors.Is(err, ErrCanceled):
			return Ended{State: Canceled, Error: NewFailure(err)}
		case err != nil:
			return Ended{State: Failed, Error: NewFailure(err)}
		}
		result, err := encode("result of workflow ", name, out)
		if err != nil {
			return Ended{State: Failed, Error: NewFailure(err)}
		}
		return Done{Result: result}
	}
	return &Workflow[In, Out]{d}
}

func (w *Workflow[In, Out]) definition() *definition { return w.def }

// Name returns the workflow's name.
func (w *Workflow[In, Out]) Name() string { return w.def.name }

// StartOption is an option of a start: [ID], [Queue], [Delay], [Timeout],
// [Labels], [Conflict], [FirstSignal], [Trace], and [Detached] for children.
type StartOption interface{ start(*NewRun) error }

// ID gives the run its id, unique in the store; starting the same id again gives
// the existing run. Without it the store makes one.
type ID string

// Delay lets the run begin only after so long.
type Delay time.Duration

// Labels are kept with the run, to find it by.
type Labels map[string]string

// Trace is the W3C traceparent of whoever starts the run
// ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"). Children have their
// parent's.
type Trace string

const maxID = 255 // bytes

func (id ID) start(r *NewRun) error {
	switch {
	case id == "":
		return &InvalidError{Field: "id", Reason: "is empty; leave bide.ID out and the store makes one"}
	case len(id) > maxID:
		return &InvalidError{Field: "id", Reason: fmt.Sprintf("has %d bytes, at most %d are allowed", len(id), maxID)}
	case strings.HasPrefix(string(id), "run_"):
		return &InvalidError{Field: "id", Reason: `begins with "run_", which is for ids of the store's making`}
	case strings.HasPrefix(string(id), loopPrefix):
		return &InvalidError{Field: "id", Reason: `begins with "loop:", which is for loops`}
	case strings.ContainsFunc(string(id), func(r rune) bool { return r <= ' ' || r == 0x7f || r == '�' }):
		return &InvalidError{Field: "id", Reason: "has white space, control characters or bytes that are no UTF-8"}
	}
	r.ID = string(id)
	return nil
}

func (q Queue) start(r *NewRun) error {
	if q == "" {
		return &InvalidError{Field: "queue", Reason: "is empty"}
	}
	r.Queue = string(q)
	return nil
}

func (d Delay) start(r *NewRun) error {
	if d < 0 {
		return &InvalidError{Field: "delay", Reason: "is negative"}
	}
	r.StartAt = after(now(), time.Duration(d))
	return nil
}

func (d Timeout) start(r *NewRun) error {
	if d <= 0 {
		return &InvalidError{Field: "timeout", Reason: "must be above 0; leave it out for none"}
	}
	r.Deadline = after(now(), time.Duration(d))
	return nil
}

func (t Trace) start(r *NewRun) error {
	if t == "" { // nobody traces
		return nil
	}
	if !t.Valid() {
		return &InvalidError{Field: "trace", Reason: "is no W3C traceparent: 00-<32 hex digits>-<16 hex digits>-<2 hex digits>"}
	}
	r.Trace = string(t)
	return nil
}

// Valid reports whether it has the form of a traceparent.
func (t Trace) Valid() bool { return traceparent.MatchString(string(t)) }

var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

func (l Labels) start(r *NewRun) error   { r.Labels = l; return nil }
func (c Conflict) start(r *NewRun) error { r.Conflict = c; return nil }
func (f firstSignal) start(r *NewRun) error {
	if f.err != nil {
		return f.err
	}
	r.Messages = append(r.Messages, f.m)
	return nil
}

type firstSignal struct {
	m   Message
	err error
}

// FirstSignal puts a signal into the run's inbox as it is started: both happen
// or neither. A start that finds an existing run sends nothing.
func FirstSignal(name string, value any) StartOption {
	data, err := encode("signal ", name, value)
	if name == "" {
		err = &InvalidError{Field: "signal name", Reason: "is empty"}
	}
	return firstSignal{Message{Op: OpSignal, Name: name, Data: data}, err}
}

// NewRun checks the input and the options of a start and returns what a [Store] is
// asked to create, for starts that go past the [Client]: within a transaction of
// one's own, say. Errors are those of [Workflow.Start] before it asks the store.
func (w *Workflow[In, Out]) NewRun(in In, opts ...StartOption) (NewRun, error) {
	run, err := w.newRun(in, opts)
	if run.Queue == "" {
		run.Queue = defaultQueue
	}
	return run, err
}

// newRun checks the input and the options.
func (w *Workflow[In, Out]) newRun(in In, opts []StartOption) (NewRun, error) {
	data, err := encode("input", "", in)
	if err != nil {
		return NewRun{}, err
	}
	return w.def.newRun(data, opts)
}

func (d *definition) newRun(input json.RawMessage, opts []StartOption) (NewRun, error) {
	r := NewRun{Workflow: d.name, Queue: d.queue, Input: input}
	if err := d.validate(input); err != nil {
		return r, err
	}
	for _, o := range opts {
		if err := o.start(&r); err != nil {
			return r, err
		}
	}
	return r, nil
}

// Start begins a run of the workflow and returns once it is durable. The input
// is validated first. Errors: [InvalidError], [CodecError],
// [PayloadTooLargeError], [ConflictError], and those of the store.
func (w *Workflow[In, Out]) Start(ctx context.Context, c *Client, in In, opts ...StartOption) (*Handle[Out], error) {
	r, err := w.newRun(in, opts)
	if err != nil {
		return nil, err
	}
	created, err := c.create(ctx, r)
	if err != nil {
		return nil, err
	}
	return &Handle[Out]{c: c, id: created.ID, created: created.New}, nil
}

// Handle returns the handle of a run that was started before. It does not ask
// the store whether there is one.
func (w *Workflow[In, Out]) Handle(c *Client, id string) *Handle[Out] {
	return &Handle[Out]{c: c, id: id}
}
