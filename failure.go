package bide

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/bide-dev/bide/wait"
)

// Failure is an error as it is kept: enough to give it its identity back.
type Failure struct {
	Code    string          `json:"code,omitempty"` // stable, of bide's own errors
	Type    string          `json:"type,omitempty"` // the Go type, or the name of a registered value
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"` // of a registered type
	Causes  []*Failure      `json:"causes,omitempty"`
}

// registry holds what can be restored from a Failure. It is filled at init time
// by RegisterError and read at run time.
var registry = struct {
	sync.RWMutex
	types  map[string]reflect.Type
	values map[string]error
	names  map[error]string
}{types: map[string]reflect.Type{}, values: map[string]error{}, names: map[error]string{}}

func init() {
	for name, err := range registry.values {
		registry.names[err] = name
	}
	RegisterError(&InvalidError{}, &PayloadTooLargeError{}, &CodecError{}, &UnknownWorkflowError{}, &ConflictError{},
		&MisuseError{}, &DivergedError{}, &PanicError{}, &RetryExhaustedError{}, &StepInterruptedError{}, &TimeoutError{},
		&RunError{}, &PollTimeoutError{}, &PollFailedError{}, &PollStalledError{}, &wait.ResponseError{})
}

// RegisterError makes errors keep their identity through replay. Each example is
// either a value made with [errors.New], which comes back as itself (its message
// must be unique among those registered), or a value of an error type, which
// comes back by its JSON form. All other errors come back as [*StepError].
//
// Call it at init time. It panics on a nil, or on a second value with the same
// message.
func RegisterError(examples ...error) {
	registry.Lock()
	defer registry.Unlock()
	plain := reflect.TypeOf(errors.New(""))
	for _, err := range examples {
		if err == nil {
			panic("bide.RegisterError: nil is not an error to register")
		}
		t := reflect.TypeOf(err)
		if t != plain {
			registry.types[t.String()] = t
			continue
		}
		name := err.Error()
		if old, taken := registry.values[name]; taken && old != err {
			panic(fmt.Sprintf("bide.RegisterError: two errors say %q; give one of them another message", name))
		}
		registry.values[name] = err
		registry.names[err] = name
	}
}

// NewFailure returns the kept form of err, nil for nil.
func NewFailure(err error) *Failure {
	registry.RLock()
	defer registry.RUnlock()
	left := maxCauses
	return encodeFailure(err, &left)
}

const maxCauses = 100 // how many causes are kept, in all: a chain may be circular

func encodeFailure(err error, left *int) *Failure {
	if err == nil {
		return nil
	}
	if bare, marked := wait.Unmark(err); marked { // that matters to the attempt only
		return encodeFailure(bare, left)
	}
	if e, ok := err.(*restored); ok { // kept again as what it was
		f := encodeFailure(e.err, left)
		f.Message, f.Causes = e.message, encodeCauses(e.causes, left)
		return f
	}
	f := &Failure{Message: err.Error()}
	t := reflect.TypeOf(err)
	if reflect.ValueOf(err).Comparable() {
		if name, ok := registry.names[err]; ok {
			f.Type, f.Code = name, Code(err)
			return f
		}
	}
	f.Causes = encodeCauses(unwrap(err), left)
	f.Type = t.String()
	if e, ok := err.(*StepError); ok {
		f.Type = e.Type
	} else if _, ok := registry.types[f.Type]; ok {
		if c, ok := err.(interface{ Code() string }); ok {
			f.Code = c.Code()
		}
		if data, jerr := json.Marshal(err); jerr == nil {
			f.Data = data
		}
	}
	return f
}

func encodeCauses(errs []error, left *int) (causes []*Failure) {
	for _, err := range errs {
		if *left <= 0 {
			break
		}
		*left--
		causes = append(causes, encodeFailure(err, left))
	}
	return causes
}

func unwrap(err error) []error {
	switch e := err.(type) {
	case interface{ cause() error }: // matched by a method Is of its own
		if cause := e.cause(); cause != nil {
			return []error{cause}
		}
	case interface{ Unwrap() error }:
		if cause := e.Unwrap(); cause != nil {
			return []error{cause}
		}
	case interface{ Unwrap() []error }:
		return e.Unwrap()
	}
	return nil
}

// Err returns the error again: registered ones as themselves, others as
// [*StepError]; [errors.Is] and [errors.As] see the causes too.
func (f *Failure) Err() error {
	if f == nil {
		return nil
	}
	registry.RLock()
	defer registry.RUnlock()
	return f.restore()
}

func (f *Failure) restore() error {
	if err, ok := registry.values[f.Type]; ok {
		return err
	}
	var causes []error
	for _, c := range f.Causes {
		if c != nil {
			causes = append(causes, c.restore())
		}
	}
	t, ok := registry.types[f.Type]
	if !ok || f.Data == nil {
		return &StepError{Type: f.Type, Message: f.Message, causes: causes}
	}
	base := t
	if t.Kind() == reflect.Pointer {
		base = t.Elem()
	}
	v := reflect.New(base)
	if json.Unmarshal(f.Data, v.Interface()) != nil {
		return &StepError{Type: f.Type, Message: f.Message, causes: causes}
	}
	if base == t {
		v = v.Elem()
	}
	err := v.Interface().(error)
	if s, ok := err.(interface{ setCauses([]error) }); ok {
		s.setCauses(causes)
		return err
	}
	if len(causes) == 0 {
		return err
	}
	return &restored{message: f.Message, err: err, causes: causes}
}

// restored joins a registered error with causes that its JSON form does not hold.
type restored struct {
	message string
	err     error
	causes  []error
}

func (e *restored) Error() string   { return e.message }
func (e *restored) Unwrap() []error { return append([]error{e.err}, e.causes...) }
