package bide

import (
	"encoding/json"
	"fmt"
	"time"
)

// State is where a run stands.
type State int8

// The states of a run. A run that has reached one from [Succeeded] on stays in
// it, unless it is retried.
const (
	Queued     State = iota + 1 // due, and no worker has claimed it
	Running                     // a worker holds its lease and takes a turn
	Waiting                     // parked: something outside has to happen first
	Paused                      // held back by a person until resumed
	Canceling                   // asked to end; the workflow may clean up
	Succeeded                   // the workflow returned a result
	Failed                      // the workflow returned an error
	Canceled                    // the workflow ended after a cancel
	Terminated                  // ended from outside, without clean-up
	TimedOut                    // the run's own deadline passed
)

var stateNames = [...]string{"", "queued", "running", "waiting", "paused", "canceling",
	"succeeded", "failed", "canceled", "terminated", "timed_out"}

// String returns the state's name, the same in Go, SQL, JSON and on the wire.
func (s State) String() string {
	if s < 1 || int(s) >= len(stateNames) {
		return fmt.Sprintf("state(%d)", int8(s))
	}
	return stateNames[s]
}

// Ended reports whether the run is over.
func (s State) Ended() bool { return s >= Succeeded }

// MarshalText implements [encoding.TextMarshaler]; the zero State has no text.
func (s State) MarshalText() ([]byte, error) {
	if s < 1 || int(s) >= len(stateNames) {
		return nil, &InvalidError{Field: "state", Reason: s.String() + " is none"}
	}
	return []byte(stateNames[s]), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *State) UnmarshalText(text []byte) error {
	for i, name := range stateNames {
		if i > 0 && name == string(text) {
			*s = State(i)
			return nil
		}
	}
	return &InvalidError{Field: "state", Reason: fmt.Sprintf("%q is none of %v", text, stateNames[1:])}
}

// Run is what a store knows of one run, without its history.
type Run struct {
	ID       string `json:"id"`
	Workflow string `json:"workflow"`
	Queue    string `json:"queue"`
	State    State  `json:"state"`
	// Version grows with every commit to the run.
	Version  int64                      `json:"version"`
	Parent   string                     `json:"parent,omitempty"`
	Labels   map[string]string          `json:"labels,omitempty"`
	Input    json.RawMessage            `json:"input,omitempty"`
	Result   json.RawMessage            `json:"result,omitempty"`
	Error    *Failure                   `json:"error,omitempty"`
	Progress *ProgressState             `json:"progress,omitempty"`
	Values   map[string]json.RawMessage `json:"values,omitempty"`
	// Waiting says what the run waits for; a list, since branches wait side by side.
	Waiting   []Wait    `json:"waiting,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	StartedAt time.Time `json:"started_at,omitzero"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	// Deadline is when the run times out; zero means never.
	Deadline time.Time `json:"deadline_at,omitzero"`
	// Generation counts how often the run was continued as new.
	Generation int `json:"generation,omitempty"`
	// Trace is the W3C traceparent of whoever started the run.
	Trace string `json:"trace,omitempty"`
	// Seed feeds [Rand] and [NewID]: fixed for a run and generation, different for each.
	Seed uint64 `json:"-"`
}

// Kind says which verb made a [Record] or which wait a [Wait] is.
type Kind int8

// The kinds of records and waits.
const (
	KindStep        Kind = iota + 1
	KindStepStarted      // an at-most-once step is about to be called
	KindSleep
	KindReceive
	KindPoll
	KindChild
	KindRace
	KindPhase
	KindContinued // the run began anew with another input
	KindCanceled  // the verb at this path saw the run's cancel
	KindRetried   // a failed run was sent on its way again; what it forgets is in Data
	KindChecked   // a person asked a wait to look now
	KindExtended  // a person gave a wait another deadline
	KindBranch    // a branch is started; it leaves no record of its own
	KindJoin      // a branch was waited for; it leaves a record only of an error
	KindWebhook   // a webhook's URL was made
	// Only waits have the kinds below.
	KindQueue // no worker has taken the run yet
	KindRetry // a step between two attempts
	KindStuck // the workflow's code panicked or diverged from its history
	KindPause
	KindLoop // a loop between two iterations
)

var kindNames = [...]string{"", "step", "step_started", "sleep", "signal", "poll", "child", "race", "phase",
	"continued", "canceled", "retried", "checked", "extended", "branch", "join", "webhook",
	"queue", "retry", "stuck", "paused", "loop"}

// String returns the kind's name.
func (k Kind) String() string {
	if k < 1 || int(k) >= len(kindNames) {
		return fmt.Sprintf("kind(%d)", int8(k))
	}
	return kindNames[k]
}

// MarshalText implements [encoding.TextMarshaler]; the zero Kind has no text.
func (k Kind) MarshalText() ([]byte, error) {
	if k < 1 || int(k) >= len(kindNames) {
		return nil, &InvalidError{Field: "kind", Reason: k.String() + " is none"}
	}
	return []byte(kindNames[k]), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (k *Kind) UnmarshalText(text []byte) error {
	for i, name := range kindNames {
		if i > 0 && name == string(text) {
			*k = Kind(i)
			return nil
		}
	}
	return &InvalidError{Field: "kind", Reason: fmt.Sprintf("%q is none of %v", text, kindNames[1:])}
}

// Record is one line of a run's history.
type Record struct {
	// Seq orders the records of one store; a run's own are in ascending order.
	Seq int64 `json:"seq"`
	// Path is the place in the workflow: the branch's path and a counter within
	// the branch, "3" or "3.2.1".
	Path string `json:"path"`
	Kind Kind   `json:"kind"`
	Name string `json:"name,omitempty"`
	// Data is the result, or what else the kind keeps.
	Data    json.RawMessage `json:"data,omitempty"`
	Error   *Failure        `json:"error,omitempty"`
	Attempt int             `json:"attempt,omitempty"`
	// At is when the work ended, Took how long it was (microseconds resolution).
	At   time.Time     `json:"at"`
	Took time.Duration `json:"took_ns,omitempty"`
	// By names who settled a wait in the place of the world: complete or fail.
	By string `json:"by,omitempty"`
	// Poll tells how a poll went. Of a step whose attempts failed it has the last ten
	// of them, each a line with when it began (At), when it ended (Last) and its error.
	Poll *PollLog `json:"poll,omitempty"`
}

// Chunk is a piece of what a step has streamed, see [Stream].
type Chunk struct {
	// Seq orders the chunks and records of one store.
	Seq  int64  `json:"seq"`
	Path string `json:"path"` // of the step
	Name string `json:"name"`
	// Attempt is the step's: with another one a new segment begins, which takes
	// the place of what the attempts before it had streamed.
	Attempt int       `json:"attempt"`
	Data    []byte    `json:"data"`
	At      time.Time `json:"at"`
}

// Wait is what a run waits for, said as data. It is also the durable state of
// the wait: a poll or a step's retry goes on from it.
type Wait struct {
	Path    string    `json:"path,omitempty"`
	Kind    Kind      `json:"kind"`
	Name    string    `json:"name,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Until   time.Time `json:"until,omitzero"`   // the deadline
	NextAt  time.Time `json:"next_at,omitzero"` // the next attempt
	Attempt int       `json:"attempt,omitempty"`
	// Streak counts the errors in a row at the end of the attempts so far.
	Streak    int             `json:"streak,omitempty"`
	LastValue json.RawMessage `json:"last_value,omitempty"`
	LastError *Failure        `json:"last_error,omitempty"`
	LastErrAt time.Time       `json:"last_error_at,omitzero"`
	// Details are the last heartbeat's, handed to the next attempt of a step.
	Details json.RawMessage `json:"details,omitempty"`
	Poll    *PollState      `json:"poll,omitempty"`
	Loop    *LoopState      `json:"loop,omitempty"`
}
