package wait_test

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/bide-dev/bide/wait"
)

type throttled struct{ error }

func (throttled) Throttled() bool { return true }

func TestJudge(t *testing.T) {
	slow := &wait.ResponseError{Status: 429, Hint: wait.Hint{After: 9 * second, Hard: true, Interval: second, Source: "Retry-After"}}
	for _, c := range []struct {
		name string
		err  error
		want wait.Outcome
		hint wait.Hint
	}{
		{"any", io.EOF, wait.Transient, wait.Hint{}},
		{"permanent", wait.Permanent(io.EOF), wait.Failed, wait.Hint{}},
		{"permanent, wrapped", fmt.Errorf("x: %w", wait.Permanent(io.EOF)), wait.Failed, wait.Hint{}},
		{"permanent, joined", errors.Join(io.EOF, wait.Permanent(io.EOF)), wait.Failed, wait.Hint{}},
		{"after", wait.After(io.EOF, 5*second), wait.Transient, wait.Hint{After: 5 * second, Source: "error"}},
		{"permanent after", wait.After(wait.Permanent(io.EOF), 5*second), wait.Failed, wait.Hint{After: 5 * second, Source: "error"}},
		{"throttled", throttled{io.EOF}, wait.Throttled, wait.Hint{Hard: true}},
		{"throttled after", wait.After(throttled{io.EOF}, second), wait.Throttled, wait.Hint{After: second, Hard: true, Source: "error"}},
		{"a response", fmt.Errorf("x: %w", slow), wait.Throttled, slow.Hint},
		{"a response made permanent", wait.Permanent(slow), wait.Failed, slow.Hint},
		{"a response with a delay around it", wait.After(slow, 5*second), wait.Throttled, wait.Hint{After: 5 * second, Hard: true, Interval: second, Source: "error"}},
	} {
		if got, hint := wait.Judge(c.err); got != c.want || hint != c.hint {
			t.Errorf("%s: %v, %+v; want %v, %+v", c.name, got, hint, c.want, c.hint)
		}
	}
	if wait.Permanent(nil) != nil || wait.After(nil, time.Second) != nil {
		t.Error("no error became one")
	}
	if err := wait.After(wait.Permanent(io.EOF), second); !errors.Is(err, io.EOF) || err.Error() != "EOF" {
		t.Errorf("marks change the error to %v", err)
	}
}

func TestUnmark(t *testing.T) {
	inner := wait.After(io.EOF, second)
	for _, c := range []struct {
		err, want error
		marked    bool
	}{
		{wait.Permanent(inner), inner, true},
		{inner, io.EOF, true},
		{io.EOF, io.EOF, false},
		{nil, nil, false},
	} {
		if got, marked := wait.Unmark(c.err); got != c.want || marked != c.marked {
			t.Errorf("of %v is left %v (%v), want %v", c.err, got, marked, c.want)
		}
	}
}

func TestOutcomeText(t *testing.T) {
	for o, want := range map[wait.Outcome]string{wait.Pending: "pending", wait.Succeeded: "succeeded", wait.Failed: "failed",
		wait.Transient: "transient", wait.Throttled: "throttled", wait.Skipped: "skipped", wait.Interrupted: "interrupted"} {
		text, err := o.MarshalText()
		var again wait.Outcome
		if err != nil || string(text) != want || again.UnmarshalText(text) != nil || again != o {
			t.Errorf("%d: %q, %v, back %v", o, text, err, again)
		}
	}
	wantField(t, new(wait.Outcome).UnmarshalText(nil), "outcome")
	if got := wait.Outcome(0).String(); got != "outcome(0)" {
		t.Error(got)
	}
}
