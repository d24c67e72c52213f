package bide_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/sqlite"
)

var errBroke = errors.New("account is empty")

// shortfall is an error type that comes back as itself.
type shortfall struct {
	Missing int `json:"missing"`
	cause   error
}

func (s *shortfall) Error() string { return fmt.Sprintf("%d short: %v", s.Missing, s.cause) }
func (s *shortfall) Unwrap() error { return s.cause }

type stranger struct{ X []int }

func (s stranger) Error() string { return "a stranger" }

func init() { bide.RegisterError(errBroke, &shortfall{}) }

// An error keeps its identity through the store, in the first turn and on replay
// alike; what is not registered keeps its type's name and its words.
func TestErrorsThroughReplay(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want func(error) bool
	}{
		"a registered value": {errBroke, func(err error) bool { return err == errBroke }},
		"wrapped":            {fmt.Errorf("paying: %w", errBroke), func(err error) bool { return errors.Is(err, errBroke) && err.Error() == "paying: account is empty" }},
		"joined":             {errors.Join(errors.New("x"), errBroke), func(err error) bool { return errors.Is(err, errBroke) }},
		"a registered type":  {&shortfall{3, nil}, func(err error) bool { e, ok := errors.AsType[*shortfall](err); return ok && e.Missing == 3 }},
		"a registered type, a cause": {&shortfall{3, errBroke}, func(err error) bool {
			e, ok := errors.AsType[*shortfall](err)
			return ok && e.Missing == 3 && errors.Is(err, errBroke)
		}},
		"a stranger": {fmt.Errorf("met %w", stranger{[]int{1}}), func(err error) bool {
			e, ok := errors.AsType[*bide.StepError](err)
			return ok && e.Type == "*fmt.wrapError" && e.Message == "met a stranger"
		}},
		"a context's": {fmt.Errorf("get: %w", context.DeadlineExceeded), func(err error) bool { return strings.Contains(err.Error(), "deadline exceeded") }},
		"bide's own":  {fmt.Errorf("x: %w", bide.ErrNotFound), func(err error) bool { return errors.Is(err, bide.ErrNotFound) && bide.Code(err) == "not_found" }},
	} {
		t.Run(name, func(t *testing.T) {
			var seen []string
			w := bide.Define("w", func(ctx bide.Context, _ int) (int, error) {
				_, err := bide.Step(ctx, "it", func(context.Context) (int, error) { return 0, bide.Permanent(c.err) })
				if !c.want(err) {
					t.Errorf("it came back as %T %v", err, err)
				}
				seen = append(seen, fmt.Sprintf("%T %v", err, err))
				return 0, bide.Sleep(ctx, time.Hour)
			})
			onStage(t, bide.WorkerConfig{}, w, func(s *stage) {
				run, err := w.Start(s.Context(), s.client, 0)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := run.Result(s.Context()); err != nil {
					t.Error(err)
				}
			})
			if len(seen) != 2 || seen[0] != seen[1] {
				t.Errorf("first and on replay: %q", seen)
			}
		})
	}
}

// Every typed error has a stable code and a text that says what to do.
func TestCodes(t *testing.T) {
	for code, err := range map[string]error{
		"invalid": &bide.InvalidError{Field: "f", Reason: "r"}, "payload_too_large": &bide.PayloadTooLargeError{Field: "f", Size: 2, Limit: 1},
		"codec": &bide.CodecError{Field: "f"}, "unknown_workflow": &bide.UnknownWorkflowError{Name: "w"}, "conflict": &bide.ConflictError{ID: "i"},
		"misuse": &bide.MisuseError{Verb: "v"}, "diverged": &bide.DivergedError{Path: "1"}, "panic": &bide.PanicError{Value: "v"},
		"retry_exhausted":  &bide.RetryExhaustedError{Step: "s", LastErr: errBroke},
		"step_interrupted": &bide.StepInterruptedError{Step: "s"}, "timeout": &bide.TimeoutError{What: "w"}, "run_failed": &bide.RunError{State: bide.Failed, Err: errBroke},
		"poll_timeout": &bide.PollTimeoutError{Name: "p", LastErr: errBroke, LastValue: json.RawMessage(`1`)}, "poll_failed": &bide.PollFailedError{Name: "p", Err: errBroke},
	} {
		back := bide.NewFailure(err).Err()
		if bide.Code(err) != code || bide.Code(back) != code || back.Error() != err.Error() || reflect.TypeOf(back) != reflect.TypeOf(err) {
			t.Errorf("%s: %v came back as %T %v", code, err, back, back)
		}
		if errors.Is(err, errBroke) != errors.Is(back, errBroke) {
			t.Errorf("%s lost its cause", code)
		}
	}
	if bide.Code(errBroke) != "" || bide.NewFailure(nil) != nil || (*bide.Failure)(nil).Err() != nil || bide.Permanent(nil) != nil || bide.RetryAfter(nil, 1) != nil {
		t.Error("nothing became something")
	}
	for name, bad := range map[string]func(){
		"nil":           func() { bide.RegisterError(nil) },
		"the same text": func() { bide.RegisterError(errors.New("account is empty")) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("RegisterError took %s", name)
				}
			}()
			bad()
		}()
	}
}

// Whatever a file holds in the place of an error, reading it does not panic.
func FuzzFailure(f *testing.F) {
	for _, err := range []error{errBroke, &shortfall{1, errBroke}, &bide.RetryExhaustedError{LastErr: errBroke}, stranger{}} {
		data, jerr := json.Marshal(bide.NewFailure(err))
		if jerr != nil {
			f.Fatal(jerr)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"type":"*bide_test.shortfall","data":[],"causes":[null]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var kept *bide.Failure
		if json.Unmarshal(data, &kept) != nil {
			return
		}
		if err := kept.Err(); err != nil {
			_ = err.Error()
			_ = bide.NewFailure(err)
		}
	})
}

// Records and waits read from JSON become the same JSON again.
func FuzzRecord(f *testing.F) {
	at := time.UnixMicro(1763697600123456).UTC()
	for _, v := range []any{
		bide.Record{Seq: 7, Path: "3.1", Kind: bide.KindStep, Name: "s", Data: json.RawMessage(`9007199254740993`), Attempt: 2, At: at, Took: time.Second},
		bide.Record{Kind: bide.KindPoll, Error: bide.NewFailure(errBroke), At: at, By: "fail"},
		bide.Wait{Path: "1", Kind: bide.KindPoll, Name: "p", Since: at, Until: at, NextAt: at, Attempt: 3, Streak: 1, LastError: bide.NewFailure(errBroke)},
		bide.Run{ID: "x", State: bide.TimedOut, CreatedAt: at, Labels: map[string]string{"a": "b"}},
	} {
		data, err := json.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, v := range []any{&bide.Record{}, &bide.Wait{}, &bide.Run{}} {
			if json.Unmarshal(data, v) != nil {
				continue
			}
			once, err := json.Marshal(v)
			if err != nil {
				continue // a time or a state that JSON has no form for
			}
			again := reflect.New(reflect.TypeOf(v).Elem()).Interface()
			if err := json.Unmarshal(once, again); err != nil {
				t.Fatalf("%s does not read back: %v", once, err)
			}
			if twice, err := json.Marshal(again); err != nil || string(once) != string(twice) {
				t.Fatalf("%s became %s, %v", once, twice, err)
			}
		}
	})
}

// An id is either refused with an InvalidError, or names its run from then on.
func FuzzID(f *testing.F) {
	for _, id := range []string{"a", "", "run_x", "with space", "über", "a/b?c#d%", strings.Repeat("x", 256), "\x00", "'; DROP TABLE run"} {
		f.Add(id)
	}
	store, err := sqlite.Open(":memory:")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = store.Close() })
	w := bide.Define("w", func(bide.Context, string) (int, error) { return 0, nil })
	client := bide.NewClient(store)
	f.Fuzz(func(t *testing.T, id string) {
		run, err := w.Start(t.Context(), client, "in", bide.ID(id))
		if err != nil {
			if e, ok := errors.AsType[*bide.InvalidError](err); !ok || e.Field != "id" {
				t.Fatalf("%q is refused with %v", id, err)
			}
			return
		}
		got, err := client.Get(t.Context(), run.ID())
		if err != nil || got.ID != id {
			t.Fatalf("%q is read back as %q, %v", id, got.ID, err)
		}
	})
}
