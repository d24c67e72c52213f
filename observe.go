package bide

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/bide-dev/bide/wait"
)

// Observation is what a check learns besides its value. A check that asks over
// HTTP gets the Hint from [wait.ParseHint].
type Observation struct {
	wait.Hint `json:"-"`
	// ETA is when the thing says that it will be done.
	ETA time.Time `json:"-"`
	// Unchanged: the answer was "as before" (304). The value that the check returns
	// is not looked at, the last one stands.
	Unchanged bool `json:"-"`
	// ETag and LastModified, byte for byte as they came, are for the next check's
	// If-None-Match and If-Modified-Since; see [LastObservation].
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"last_modified,omitempty"`
}

// Observe tells the poll or loop whose check's context it is given what the check
// has learned; the last call of a check counts. It returns a [MisuseError]
// elsewhere.
func Observe(ctx context.Context, o Observation) error {
	a := attemptOf(ctx)
	if a == nil {
		return &MisuseError{Verb: "Observe", Reason: "needs the context that a check is given"}
	}
	a.v.t.mu.Lock()
	defer a.v.t.mu.Unlock()
	a.seen = o
	return nil
}

// LastObservation returns the ETag and LastModified that the poll's or loop's last
// check, in whatever process, has observed.
func LastObservation(ctx context.Context) Observation {
	if a := attemptOf(ctx); a != nil {
		return a.last
	}
	return Observation{}
}

// observe adds what a check's value says by itself, and reports whether it is to
// be left unlooked at since nothing has changed.
func (a *attempt) observe(v any) (unchanged bool) {
	t := a.v.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if h, ok := v.(interface{ WaitHint() wait.Hint }); ok && a.seen.Hint == (wait.Hint{}) {
		a.seen.Hint = h.WaitHint()
	}
	if e, ok := v.(interface{ ETA() time.Time }); ok && a.seen.ETA.IsZero() {
		a.seen.ETA = e.ETA()
	}
	if p, ok := v.(interface{ Progress() (float64, string) }); ok && !a.over {
		percent, message := p.Progress()
		if percent = min(max(percent, 0), 100); percent == percent { // is a number
			a.upto = &percent
			t.tellLocked(ProgressState{Percent: percent, Message: message, UpdatedAt: t.now()})
		}
	}
	return a.seen.Unchanged
}

// PollState is what a poll remembers from one check to the next, beside what
// every [Wait] has.
type PollState struct {
	wait.State
	Seen Observation `json:"seen,omitzero"`
	// Base is the pause before jitter, Floor what the server asked for, by Source:
	// why the next check comes when it does.
	Base   time.Duration `json:"base_ns,omitempty"`
	Floor  time.Duration `json:"floor_ns,omitempty"`
	Source string        `json:"floor_source,omitempty"`
	// NotBefore is when a server that has refused may be asked again: there is no
	// check before, at the deadline neither.
	NotBefore time.Time `json:"not_before,omitzero"`
	// Uncut is when the check that was moved to the deadline would come otherwise.
	Uncut time.Time `json:"uncut,omitzero"`
	// LastPending is when a check last saw "not yet".
	LastPending time.Time `json:"last_pending,omitzero"`
	ShareSeq    int64     `json:"share_seq,omitempty"` // of the newest shared check
	Log         PollLog   `json:"log"`
}

// PollLog tells how a poll has gone. It is bounded: a million checks that find the
// same are one line.
type PollLog struct {
	Counts map[string]int `json:"counts,omitempty"` // checks by outcome
	// Checks are the last 50 lines, each a check, or several alike in a row.
	Checks []CheckLine `json:"checks,omitempty"`
	// Values are the last 50 changes of the value.
	Values []ValueLine `json:"values,omitempty"`
}

// CheckLine is one check, or several in a row with the same outcome.
type CheckLine struct {
	At      time.Time    `json:"at"`
	Last    time.Time    `json:"last,omitzero"` // when the last of several was
	Count   int          `json:"count,omitempty"`
	Outcome wait.Outcome `json:"outcome"`
	Trigger Trigger      `json:"trigger,omitempty"`
	Error   string       `json:"error,omitempty"` // at most 200 bytes
}

// ValueLine is a change of the observed value.
type ValueLine struct {
	At      time.Time       `json:"at"`
	Value   json.RawMessage `json:"value,omitempty"` // left out above 1 KiB
	Percent float64         `json:"percent,omitempty"`
}

// Trigger says why a check was made.
type Trigger string

// The triggers. The empty one is the timer.
const (
	TriggerTimer   Trigger = ""
	TriggerManual  Trigger = "manual"
	TriggerWebhook Trigger = "webhook"
	TriggerFinal   Trigger = "final"  // at the deadline
	TriggerResume  Trigger = "resume" // the process before died in the middle
)

const (
	logLines  = 50
	logValue  = 1 << 10
	logErrors = 200
)

func (l PollLog) clone() PollLog {
	return PollLog{Counts: maps.Clone(l.Counts), Checks: slices.Clone(l.Checks), Values: slices.Clone(l.Values)}
}

func (l *PollLog) count(o wait.Outcome) {
	if l.Counts == nil {
		l.Counts = map[string]int{}
	}
	l.Counts[o.String()]++
}

// checked adds a line, or counts the last one up.
func (l *PollLog) checked(c *Check) {
	l.count(c.Outcome)
	text := ""
	if c.Err != nil {
		text = shorten(c.Err.Error(), logErrors)
	}
	if n := len(l.Checks); n > 0 {
		last := &l.Checks[n-1]
		if last.Outcome == c.Outcome && last.Trigger == c.Trigger && last.Error == text {
			last.Last, last.Count = c.EndedAt, max(last.Count, 1)+1
			return
		}
	}
	l.Checks = append(trim(l.Checks), CheckLine{At: c.EndedAt, Outcome: c.Outcome, Trigger: c.Trigger, Error: text})
}

func (l *PollLog) changed(at time.Time, value json.RawMessage, percent float64) {
	if len(value) > logValue {
		value = nil
	}
	l.Values = append(trim(l.Values), ValueLine{At: at, Value: value, Percent: percent})
}

// trim makes room for one more line.
func trim[T any](lines []T) []T {
	if len(lines) < logLines {
		return lines
	}
	copy(lines, lines[1:])
	return lines[:logLines-1]
}

func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && s[limit]&0xc0 == 0x80 { // not in the middle of a rune
		limit--
	}
	return s[:limit] + "…"
}

// Check tells [OnCheck] how one check went and when the next one comes.
type Check struct {
	Poll      string
	Attempt   int // from 1
	Trigger   Trigger
	DueAt     time.Time
	StartedAt time.Time
	EndedAt   time.Time
	Outcome   wait.Outcome
	Err       error
	Value     json.RawMessage // the last one observed
	Changed   bool            // it differs from the one before
	Percent   float64
	ETA       time.Time
	Base      time.Duration // the pause before jitter
	Floor     time.Duration // what the server asked for, by FloorSource
	FloorFrom string
	NextAt    time.Time // zero: there is none
}
