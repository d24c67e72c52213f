package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/probe"
	"github.com/bide-dev/bide/wait"
)

// pollLine is what is said while a poll goes on.
type pollLine struct {
	screen *screen
	bound  time.Duration // of the whole; 0: none
	began  time.Time

	mu   sync.Mutex
	last bide.Check
	said string // of the last line that was printed
	at   time.Time
}

// quietFor is how long lines that say the same are left out.
const quietFor = time.Minute

// checked is told of each check.
func (l *pollLine) checked(c bide.Check) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = c
	if l.screen.live() || c.NextAt.IsZero() {
		return
	}
	answer := answered(c)
	if answer == l.said && time.Since(l.at) < quietFor {
		return
	}
	l.said, l.at = answer, time.Now()
	l.screen.say("attempt %d: %s; next check in %s", c.Attempt, answer, short(time.Until(c.NextAt)))
}

// now is the line that is drawn on a terminal.
func (l *pollLine) now() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.last
	elapsed := short(time.Since(l.began).Round(time.Second))
	if l.bound > 0 {
		elapsed += " of " + short(l.bound)
	}
	if c.Attempt == 0 {
		return elapsed + ", checking now"
	}
	next := "checking now"
	if d := time.Until(c.NextAt); d > 0 {
		next = "next check in " + short(max(d.Round(time.Second), time.Second))
	}
	return fmt.Sprintf("%s, attempt %d, %s, last: %s", elapsed, c.Attempt, next, answered(c))
}

// answered says how a check went.
func answered(c bide.Check) string {
	if c.Err != nil {
		return fmt.Sprintf("%v, %v", c.Outcome, c.Err)
	}
	return inShort(c.Value)
}

// inShort is an observation in half a line.
func inShort(value json.RawMessage) string {
	var o probe.Observation
	if json.Unmarshal(value, &o) != nil || o.Status == 0 {
		return "no answer yet"
	}
	return describe(o)
}

func describe(o probe.Observation) string {
	content := o.Message
	if content == "" {
		content = strings.Join(strings.Fields(o.Content()), " ")
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s", o.Status, cutTo(content, 100)))
}

// outcome is what -o json prints.
type outcome struct {
	ID        string          `json:"id,omitempty"` // in the file
	State     string          `json:"state"`        // succeeded, failed, timed_out or interrupted
	Attempts  int             `json:"attempts"`
	ElapsedMS int64           `json:"elapsed_ms"`
	Status    int             `json:"status,omitempty"`
	Body      json.RawMessage `json:"body,omitempty"`
	Error     *complaint      `json:"error,omitempty"`
}

type complaint struct {
	Code    string `json:"code,omitempty"`
	Message string `json:"message"`
}

// report says how the wait has ended, in the words and the exit code that are
// asked for.
func (f *pollFlags) report(c *cobra.Command, show *screen, client *bide.Client, id string, o probe.Observation, err error) error {
	ctx := context.WithoutCancel(c.Context())
	out := outcome{Attempts: 0}
	if f.db != "" {
		out.ID = id
	}
	run, rerr := client.Get(ctx, id)
	if rerr != nil {
		return rerr
	}
	history, herr := client.History(ctx, id, 0)
	if herr != nil {
		return herr
	}
	for _, r := range history {
		if r.Kind == bide.KindPoll {
			out.Attempts, out.ElapsedMS = r.Attempt, r.Took.Milliseconds()
		}
	}
	if !run.State.Ended() {
		for _, w := range run.Waiting {
			out.Attempts, out.ElapsedMS = w.Attempt, time.Since(run.CreatedAt).Milliseconds()
		}
	}
	after := fmt.Sprintf(" after %s in %s", count(out.Attempts, "check"), short(time.Duration(out.ElapsedMS)*time.Millisecond))

	code := exitOK
	var timeout *bide.PollTimeoutError
	var failed *bide.PollFailedError
	switch {
	case err == nil:
		out.State = "succeeded"
		out.answer(o)
		show.verdict(green, "succeeded", fmt.Sprintf("%s, status %d", after, o.Status))
	case errors.As(err, &timeout):
		code, out.State = exitTimedOut, "timed_out"
		out.lastValue(timeout.LastValue)
		rest := after + ", " + reasons[timeout.Reason] + "; last answer: " + inShort(timeout.LastValue)
		if timeout.LastErr != nil {
			rest += "; last error: " + timeout.LastErr.Error()
		}
		out.Error = &complaint{Code: timeout.Code(), Message: "bide: timed out" + rest}
		show.verdict(red, "timed out", rest)
	case errors.As(err, &failed):
		if invalid, ok := errors.AsType[*bide.InvalidError](err); ok { // an environment variable is missing
			return inFlags(invalid)
		}
		code, out.State = exitFailed, "failed"
		out.lastValue(failed.LastValue)
		out.blame(failed.Err)
		show.verdict(red, "failed", after+": "+failed.Err.Error())
	case c.Context().Err() != nil && !run.State.Ended():
		code, out.State = exitInterrupted, "interrupted"
		kept := "nothing is kept of it; --db FILE would"
		if f.db != "" {
			kept = "the same command goes on with it"
		}
		show.verdict(red, "interrupted", after+"; "+kept)
	default:
		return err
	}
	if f.json || *f.output != table {
		data, err := json.Marshal(out)
		if err != nil {
			return err
		}
		fmt.Fprintln(c.OutOrStdout(), string(data))
	} else if code == exitOK {
		if content := o.Content(); content != "" {
			fmt.Fprintln(c.OutOrStdout(), strings.TrimSuffix(content, "\n"))
		}
	}
	if code != exitOK {
		return &endedError{code}
	}
	return nil
}

var reasons = map[string]string{
	bide.ReasonTotalTimeout: "the timeout has passed",
	bide.ReasonMaxAttempts:  "the most that were allowed",
	bide.ReasonRetryAfter:   "the service wants no check before the timeout",
}

func (r *outcome) answer(o probe.Observation) {
	r.Status, r.Body = o.Status, o.Body
	if r.Body == nil && o.Text != "" {
		r.Body, _ = json.Marshal(o.Text) // a string always can be
	}
}

func (r *outcome) lastValue(value json.RawMessage) {
	var o probe.Observation
	if json.Unmarshal(value, &o) == nil {
		r.answer(o)
	}
}

// blame tells of the error that has ended the wait, and of the answer it came from.
func (r *outcome) blame(err error) {
	r.Error = &complaint{Code: bide.Code(err), Message: err.Error()}
	if e, ok := errors.AsType[*probe.FailureError](err); ok {
		r.answer(e.Observation)
	}
	if e, ok := errors.AsType[*wait.ResponseError](err); ok {
		r.Status, r.Body = e.Status, nil
	}
}
