package bide_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/sqlite"
)

var (
	errIdnPlain = errors.New("idn: plain")
	errIdnOther = errors.New("idn: other")
)

// idnPointer is registered as a pointer, with a cause that its JSON does not hold.
type idnPointer struct {
	N     int `json:"n"`
	cause error
}

func (e *idnPointer) Error() string { return fmt.Sprintf("pointer %d: %v", e.N, e.cause) }
func (e *idnPointer) Unwrap() error { return e.cause }
func (e *idnPointer) Code() string  { return "idn_pointer" }

// idnValue is registered as a value.
type idnValue struct{ Who string }

func (e idnValue) Error() string { return "value " + e.Who }

// idnSlice cannot be compared.
type idnSlice []string

func (e idnSlice) Error() string { return strings.Join(e, ",") }

// idnOpaque is registered, and cannot become JSON.
type idnOpaque struct{ F func() }

func (idnOpaque) Error() string { return "opaque" }

// idnJoin has several causes.
type idnJoin struct {
	Note   string
	causes []error
}

func (e *idnJoin) Error() string   { return e.Note }
func (e *idnJoin) Unwrap() []error { return e.causes }

func init() {
	bide.RegisterError(errIdnPlain, errIdnOther, &idnPointer{}, idnValue{}, idnSlice{}, idnOpaque{}, &idnJoin{})
}

// idnTells says all that a workflow could ask of an error.
func idnTells(err error) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%v|%s|", err, bide.Code(err))
	for _, target := range []error{errIdnPlain, errIdnOther, bide.ErrCanceled, bide.ErrTimeout, bide.ErrInterrupted, bide.ErrNotFound} {
		fmt.Fprint(&s, errors.Is(err, target), " ")
	}
	if e, ok := errors.AsType[*idnPointer](err); ok {
		fmt.Fprint(&s, "pointer ", e.N, " ")
	}
	if e, ok := errors.AsType[idnValue](err); ok {
		fmt.Fprint(&s, "value ", e.Who, " ")
	}
	if e, ok := errors.AsType[idnSlice](err); ok {
		fmt.Fprint(&s, "slice ", e, " ")
	}
	if e, ok := errors.AsType[*idnJoin](err); ok {
		fmt.Fprint(&s, "join ", e.Note, " ")
	}
	return s.String()
}

var idnErrors = map[string]error{
	"a value":                 errIdnPlain,
	"a wrapped value":         fmt.Errorf("a: %w", fmt.Errorf("b: %w", errIdnPlain)),
	"a pointer":               &idnPointer{3, nil},
	"a pointer and its cause": &idnPointer{3, fmt.Errorf("because: %w", errIdnPlain)},
	"a wrapped pointer":       fmt.Errorf("a: %w", &idnPointer{4, errIdnOther}),
	"a struct":                idnValue{"me"},
	"a slice":                 idnSlice{"a", "b"},
	"joined":                  errors.Join(errIdnPlain, &idnPointer{5, nil}, idnValue{"you"}),
	"two in one text":         fmt.Errorf("%w and %w", errIdnPlain, errIdnOther),
	"a registered join":       &idnJoin{"note", []error{errIdnPlain, io.EOF, &idnPointer{6, errIdnOther}}},
	"of bide":                 fmt.Errorf("a: %w", &bide.TimeoutError{What: "x", After: time.Second}),
	"a sentinel of bide":      fmt.Errorf("a: %w", bide.ErrNotFound),
	"a pointer in a pointer":  &idnPointer{7, &idnPointer{8, errIdnPlain}},
	"twenty deep":             idnDeep(20),
	"of a step":               &bide.StepError{Type: "*other.Error", Message: "from elsewhere"},
}

func idnDeep(n int) error {
	err := errIdnPlain
	for range n {
		err = fmt.Errorf("w: %w", err)
	}
	return err
}

// TestIdnReplay protects what a workflow sees of a step's error: the same as the
// step returned, at first, on replay, in the run's result, and in a parent's.
func TestIdnReplay(t *testing.T) {
	for name, cause := range idnErrors {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(e *env) {
				want, turns := idnTells(cause), 0
				w := bide.Define("idn-replay", func(ctx bide.Context, _ none) (none, error) {
					_, err := bide.Step(ctx, "it", func(context.Context) (none, error) { return none{}, bide.Permanent(cause) })
					if got := idnTells(err); got != want {
						t.Errorf("turn %d sees\n%s, want\n%s", turns, got, want)
					}
					turns++
					if serr := bide.Sleep(ctx, time.Hour); serr != nil {
						return none{}, serr
					}
					return none{}, err
				})
				parent := bide.Define("idn-parent", func(ctx bide.Context, _ none) (none, error) {
					_, err := bide.Child(ctx, w, none{}, bide.ID("child"))
					return none{}, err
				})
				cfg := e.config()
				cfg.MaxWarm = -1
				e.workAs(cfg, w, parent)
				_, err := result(e, start(e, parent, none{}, bide.ID("parent")))
				if turns != 2 {
					t.Errorf("%d turns", turns)
				}
				// The run's own code stands before the cause's.
				tells := func(err error) string {
					_, s, _ := strings.Cut(idnTells(err), "|")
					_, s, _ = strings.Cut(s, "|")
					return s
				}
				if got := tells(err); got != tells(cause) {
					t.Errorf("the parent's result tells\n%s, want\n%s", got, tells(cause))
				}
				step := e.history("child")[0].Error
				if failed := e.get("child").Error; failed.Type != step.Type || failed.Code != step.Code || failed.Message != step.Message {
					t.Errorf("the run failed with %s %q, its step with %s %q", failed.Type, failed.Code, step.Type, step.Code)
				}
			})
		})
	}
}

// TestIdnTwice protects an error that is kept again and again, from run to run:
// each time it has the same type, words and causes.
func TestIdnTwice(t *testing.T) {
	for name, err := range idnErrors {
		t.Run(name, func(t *testing.T) {
			first := bide.NewFailure(err)
			for f, i := first, 0; i < 4; i++ {
				data, jerr := json.Marshal(f)
				if jerr != nil {
					t.Fatal(jerr)
				}
				var read *bide.Failure
				if jerr := json.Unmarshal(data, &read); jerr != nil {
					t.Fatal(jerr)
				}
				back := read.Err()
				if got, want := idnTells(back), idnTells(err); got != want {
					t.Errorf("round %d tells\n%s, want\n%s", i, got, want)
				}
				f = bide.NewFailure(back)
				if f.Type != first.Type || f.Code != first.Code || f.Message != first.Message {
					t.Errorf("round %d: %s %q %q, at first %s %q %q", i, f.Type, f.Code, f.Message, first.Type, first.Code, first.Message)
				}
			}
		})
	}
}

// TestIdnUnknown protects what is left of an error that is not registered, or
// that cannot be kept: its type's name, its words, its causes.
func TestIdnUnknown(t *testing.T) {
	for want, err := range map[string]error{
		"*errors.errorString":  io.EOF,
		"*fmt.wrapError":       fmt.Errorf("a: %w", io.EOF),
		"*errors.joinError":    errors.Join(io.EOF, errIdnPlain),
		"bide_test.idnOpaque":  idnOpaque{func() {}},
		"*bide_test.idnHidden": &idnHidden{},
	} {
		back := bide.NewFailure(err).Err()
		x, ok := errors.AsType[*bide.StepError](back)
		if !ok || x.Type != want || x.Message != err.Error() || back.Error() != err.Error() || errors.Is(back, errIdnPlain) != errors.Is(err, errIdnPlain) {
			t.Errorf("%s came back as %T %+v", want, back, back)
		}
	}
	for _, f := range []*bide.Failure{nil, bide.NewFailure(nil)} {
		if f != nil || f.Err() != nil {
			t.Errorf("nothing became %v", f)
		}
	}
	for name, f := range map[string]bide.Failure{ // what a file of another program may hold
		"nothing":          {},
		"no data":          {Type: "*bide_test.idnPointer", Message: "m"},
		"other data":       {Type: "*bide_test.idnPointer", Message: "m", Data: json.RawMessage(`[1]`)},
		"null data":        {Type: "*bide_test.idnPointer", Message: "m", Data: json.RawMessage(`null`)},
		"broken data":      {Type: "bide_test.idnValue", Message: "m", Data: json.RawMessage(`{`)},
		"causes of nil":    {Type: "x", Causes: []*bide.Failure{nil, nil}},
		"a cause too many": {Type: "*bide.TimeoutError", Data: json.RawMessage(`{}`), Causes: []*bide.Failure{nil, {Message: "a"}, {Message: "b"}}},
	} {
		err := f.Err()
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		_, _ = err.Error(), bide.NewFailure(err)
	}
}

type idnHidden struct{}

func (*idnHidden) Error() string { return "hidden" }

// TestIdnRegister protects programs from errors that could not be told apart.
func TestIdnRegister(t *testing.T) {
	panics := func(name, about string, errs ...error) {
		defer func() {
			if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), about) {
				t.Errorf("%s: the panic is %v", name, r)
			}
		}()
		bide.RegisterError(errs...)
	}
	panics("nil", "nil", nil)
	panics("nil among others", "nil", errIdnOther, nil)
	panics("the same words", "idn: plain", errors.New("idn: plain"))
	bide.RegisterError()
	bide.RegisterError(errIdnPlain, &idnPointer{}, &idnPointer{N: 4}, idnValue{}) // once more is no harm
	if bide.NewFailure(errIdnPlain).Err() != errIdnPlain {
		t.Error("a value registered twice is not itself")
	}
}

// TestIdnCodes protects the codes that other languages go by, also of every state
// of a run and through a chain.
func TestIdnCodes(t *testing.T) {
	for code, err := range map[string]error{
		"invalid": &bide.InvalidError{}, "payload_too_large": &bide.PayloadTooLargeError{}, "codec": &bide.CodecError{},
		"unknown_workflow": &bide.UnknownWorkflowError{}, "conflict": &bide.ConflictError{}, "misuse": &bide.MisuseError{},
		"diverged": &bide.DivergedError{}, "panic": &bide.PanicError{}, "retry_exhausted": &bide.RetryExhaustedError{LastErr: errIdnPlain},
		"step_interrupted": &bide.StepInterruptedError{}, "timeout": &bide.TimeoutError{}, "poll_timeout": &bide.PollTimeoutError{LastErr: errIdnPlain},
		"poll_failed": &bide.PollFailedError{Err: errIdnPlain}, "run_failed": &bide.RunError{State: bide.Failed, Err: errIdnPlain},
		"run_canceled": &bide.RunError{State: bide.Canceled}, "run_terminated": &bide.RunError{State: bide.Terminated},
		"run_timed_out": &bide.RunError{State: bide.TimedOut}, "idn_pointer": &idnPointer{1, errIdnPlain},
		"not_found": bide.ErrNotFound, "lease_lost": bide.ErrLeaseLost, "run_ended": bide.ErrRunEnded, "canceled": bide.ErrCanceled,
		"terminated": bide.ErrTerminated, "interrupted": bide.ErrInterrupted, "closed": bide.ErrClosed, "read_only": bide.ErrReadOnly, "store_full": bide.ErrStoreFull,
		"fact_changed": bide.ErrFactChanged,
	} {
		f := bide.NewFailure(err)
		back := f.Err()
		for _, x := range []error{err, fmt.Errorf("a: %w", err), errors.Join(io.EOF, err), back} {
			if got := bide.Code(x); got != code {
				t.Errorf("the code of %T %v is %q, want %q", x, x, got, code)
			}
		}
		if f.Code != code || errors.Is(back, errIdnPlain) != errors.Is(err, errIdnPlain) || back.Error() != err.Error() {
			t.Errorf("%s is kept as %+v and comes back as %v", code, f, back)
		}
		for _, sentinel := range []error{bide.ErrCanceled, bide.ErrTerminated, bide.ErrTimeout, bide.ErrPollTimeout, bide.ErrInterrupted, context.DeadlineExceeded} {
			if errors.Is(back, sentinel) != errors.Is(err, sentinel) {
				t.Errorf("%s: %v is found before or after, not both", code, sentinel)
			}
		}
	}
	for _, err := range []error{nil, io.EOF, errIdnPlain, bide.Permanent(io.EOF)} {
		if got := bide.Code(err); got != "" {
			t.Errorf("the code of %v is %q", err, got)
		}
	}
	if err := bide.RetryAfter(bide.Permanent(&idnPointer{}), 1); bide.Code(err) != "idn_pointer" {
		t.Errorf("a marked error lost its code: %q", bide.Code(err))
	}
}

// TestIdnMarks protects the history from marks that mean something to the attempt only.
func TestIdnMarks(t *testing.T) {
	for _, err := range []error{bide.Permanent(errIdnPlain), bide.RetryAfter(errIdnPlain, time.Hour), bide.RetryAfter(bide.Permanent(errIdnPlain), 1)} {
		if f := bide.NewFailure(err); f.Err() != errIdnPlain || err.Error() != errIdnPlain.Error() || !errors.Is(err, errIdnPlain) {
			t.Errorf("%v is kept as %+v", err, f)
		}
	}
	if f := bide.NewFailure(fmt.Errorf("a: %w", bide.Permanent(errIdnPlain))); !errors.Is(f.Err(), errIdnPlain) {
		t.Errorf("%+v", f)
	}
	if bide.Permanent(nil) != nil || bide.RetryAfter(nil, 1) != nil {
		t.Error("nothing became something")
	}
}

// FuzzIdnFailure protects the reader of a store: whatever stands in the place of an
// error, it becomes one, and that one can be kept.
func FuzzIdnFailure(f *testing.F) {
	for _, err := range idnErrors {
		f.Add([]byte(jsonOf(f, bide.NewFailure(err))))
	}
	f.Add([]byte(`{"type":"*bide_test.idnPointer","data":[],"causes":[null,{"causes":[{}]}]}`))
	f.Add([]byte(`{"type":"*bide.PollTimeoutError","data":{"last_value":"x","elapsed_ns":-1},"causes":[{"type":"idn: plain"}]}`))
	f.Add([]byte(`{"type":"*bide_test.idnJoin","data":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var kept *bide.Failure
		if json.Unmarshal(data, &kept) != nil || kept == nil {
			return
		}
		err := kept.Err()
		if err == nil {
			t.Fatalf("%s is no error", data)
		}
		again := bide.NewFailure(err)
		if again == nil || again.Message != err.Error() || again.Err() == nil {
			t.Fatalf("%s became %q, kept again as %+v", data, err, again)
		}
		if _, jerr := json.Marshal(again); jerr != nil {
			t.Fatalf("%s cannot be kept again: %v", data, jerr)
		}
	})
}

// FuzzIdnID protects ids: one that is taken names its run and no other, in the
// store, in a query and once more at a start; all others are refused by name.
func FuzzIdnID(f *testing.F) {
	for _, id := range []string{"a", "", "run_x", "Run_x", "with space", "über", "日本", "a/b?c#d%", strings.Repeat("x", 255), strings.Repeat("x", 256),
		"\x00", "a\x7f", "\xff", "\ufffd", "\u2028", "\u00a0", "%_", `a\`, "'; DROP TABLE run", "e\u0301", "\u00e9"} {
		f.Add(id)
	}
	store, err := sqlite.Open(":memory:")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = store.Close() })
	w := bide.Define("idn-id", func(bide.Context, string) (int, error) { return 0, nil })
	client := bide.NewClient(store)
	f.Fuzz(func(t *testing.T, id string) {
		h, err := w.Start(t.Context(), client, id, bide.ID(id))
		if err != nil {
			if e, ok := errors.AsType[*bide.InvalidError](err); !ok || e.Field != "id" || e.Reason == "" {
				t.Fatalf("%q is refused with %v", id, err)
			}
			return
		}
		r, err := client.Get(t.Context(), id)
		if err != nil || h.ID() != id || r.ID != id || string(r.Input) != jsonOf(t, id) {
			t.Fatalf("%q is read back as %q with %s, %v", id, r.ID, r.Input, err)
		}
		again, err := w.Start(t.Context(), client, id, bide.ID(id))
		if err != nil || again.New() {
			t.Fatalf("%q started again: %v", id, err)
		}
		if _, err := w.Start(t.Context(), client, id+"x", bide.ID(id)); bide.Code(err) != "conflict" {
			t.Fatalf("%q with another input: %v", id, err)
		}
		page, err := client.Runs(t.Context(), bide.Query{IDPrefix: id, Limit: 1000})
		found := false
		for _, r := range page {
			found = found || r.ID == id
			if !strings.HasPrefix(r.ID, id) {
				t.Fatalf("a query for %q finds %q", id, r.ID)
			}
		}
		if err != nil || !found && len(page) < 1000 {
			t.Fatalf("a query for %q finds %d runs without it, %v", id, len(page), err)
		}
	})
}

// FuzzIdnNames protects the names of states and kinds: those that are read are
// written the same, all others are refused.
func FuzzIdnNames(f *testing.F) {
	for s := bide.Queued; s <= bide.TimedOut; s++ {
		f.Add(s.String())
	}
	for k := bide.KindStep; k <= bide.KindPause; k++ {
		f.Add(k.String())
	}
	for _, odd := range []string{"", "state(0)", "kind(99)", "Running", " failed"} {
		f.Add(odd)
	}
	f.Fuzz(func(t *testing.T, name string) {
		var s bide.State
		var k bide.Kind
		serr, kerr := s.UnmarshalText([]byte(name)), k.UnmarshalText([]byte(name))
		if serr == nil && (s.String() != name || s < bide.Queued || s > bide.TimedOut) || kerr == nil && (k.String() != name || k < bide.KindStep) {
			t.Fatalf("%q became %v, %v", name, s, k)
		}
		for _, err := range []error{serr, kerr} {
			if err != nil && bide.Code(err) != "invalid" {
				t.Fatalf("%q is refused with %v", name, err)
			}
		}
	})
}

// FuzzIdnRecord protects histories on their way through JSON: what is written is
// read back the same, with every digit of its numbers and every byte of its data.
func FuzzIdnRecord(f *testing.F) {
	f.Add(int64(1), "3.2.1", int8(bide.KindStep), "write", []byte(`{"a":9007199254740993}`), "", 1, int64(1763697600123456), int64(5), "")
	f.Add(int64(1)<<62, "", int8(bide.KindPoll), "x\u2028<&>", []byte(`"\u0000"`), "broken", -3, int64(0), int64(-1), "fail")
	f.Add(int64(-1), "\xff", int8(0), "\x00", []byte(`null`), "\xff", 0, int64(-62135596800000000), int64(1)<<62, "complete")
	f.Fuzz(func(t *testing.T, seq int64, path string, kind int8, name string, data []byte, message string, n int, at, took int64, by string) {
		if !json.Valid(data) || at < -62135596800000000 || at > 253402300799999999 || kind < int8(bide.KindStep) || kind > int8(bide.KindPause) {
			return // no store holds this
		}
		for _, s := range []*string{&path, &name, &message, &by} {
			*s = strings.ToValidUTF8(*s, "?") // JSON has no other
		}
		when := time.UnixMicro(at).UTC()
		fail := &bide.Failure{Type: name, Message: message, Data: data, Causes: []*bide.Failure{{Message: by}}}
		idnTrip(t, bide.Record{Seq: seq, Path: path, Kind: bide.Kind(kind), Name: name, Data: data, Error: fail, Attempt: n, At: when, Took: time.Duration(took), By: by})
		idnTrip(t, bide.Wait{Path: path, Kind: bide.Kind(kind), Name: name, Since: when, Until: when, NextAt: when, Attempt: n, Streak: n,
			LastValue: data, LastError: fail, LastErrAt: when, Details: data})
		idnTrip(t, bide.Run{ID: name, Workflow: path, State: bide.State(1 + uint64(seq)%10), Version: seq, Labels: map[string]string{name: path}, Input: data, Error: fail,
			Values: map[string]json.RawMessage{name: data}, CreatedAt: when, Deadline: when, Generation: n})
	})
}

// idnTrip checks that a value is the same JSON before and after it was read.
func idnTrip[T any](t *testing.T, v T) {
	t.Helper()
	once, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("%+v cannot be written: %v", v, err)
	}
	var read T
	if err := json.Unmarshal(once, &read); err != nil {
		t.Fatalf("%s cannot be read: %v", once, err)
	}
	if twice := jsonOf(t, read); twice != string(once) {
		t.Fatalf("%s became %s", once, twice)
	}
}

// idnLoop is its own cause.
type idnLoop struct{}

func (*idnLoop) Error() string   { return "loop" }
func (e *idnLoop) Unwrap() error { return e }

// TestIdnEndless protects the store from errors that never end, and the joins that
// double at each level.
func TestIdnEndless(t *testing.T) {
	wide := errIdnPlain
	for range 12 {
		wide = errors.Join(wide, wide)
	}
	for _, err := range []error{&idnLoop{}, wide} {
		if data := jsonOf(t, bide.NewFailure(err)); len(data) > bide.MaxPayload {
			t.Errorf("%d bytes are kept", len(data))
		}
	}
}
