package bide

import (
	"encoding/json"
	"time"

	"github.com/bide-dev/bide/wait"
)

// isOver says whether and how the check ends the poll.
func (p *pollRun) isOver(c *Check) (bool, json.RawMessage, error) {
	switch c.Outcome {
	case wait.Succeeded:
		return true, p.state.LastValue, nil
	case wait.Failed:
		return true, nil, &PollFailedError{Name: p.name, Attempts: p.state.Attempt, LastValue: p.state.LastValue, Err: c.Err}
	}
	if reason := p.usedUp(c.Trigger); reason != "" {
		return true, nil, p.timedOut(reason)
	}
	if at, ok := p.stallsAt(); ok && !at.After(c.EndedAt) {
		return true, nil, &PollStalledError{Name: p.name, Attempts: p.state.Attempt, Stalled: c.EndedAt.Sub(at.Add(-*p.stallTimeout)),
			LastValue: p.state.LastValue, LastProgress: p.progress()}
	}
	return false, nil, nil
}

// usedUp says which of the poll's bounds is reached, if one is.
func (p *pollRun) usedUp(last Trigger) string {
	switch {
	case last == TriggerFinal:
		return ReasonTotalTimeout
	case p.maxAttempts > 0 && p.state.Attempt >= p.maxAttempts:
		return ReasonMaxAttempts
	case p.maxErrors > 0 && p.Errors >= p.maxErrors:
		return ReasonMaxConsecutiveErrors
	}
	return ""
}

// stallsAt is when the poll has stalled, unless the progress rises before. An
// error says nothing of the progress: then it is for the next answer to tell.
func (p *pollRun) stallsAt() (time.Time, bool) {
	if p.stallTimeout == nil || p.Errors+p.Throttled > 0 {
		return time.Time{}, false
	}
	return after(later(p.PercentAt, p.state.Since), *p.stallTimeout), true
}

func (p *pollRun) progress() *ProgressState {
	if p.PercentAt.IsZero() {
		return nil
	}
	return &ProgressState{Percent: p.Percent, UpdatedAt: p.PercentAt}
}

func (p *pollRun) timedOut(reason string) error {
	return &PollTimeoutError{Name: p.name, ID: p.t.run.ID, Reason: reason, Attempts: p.state.Attempt,
		ConsecutiveErrors: p.Errors, Elapsed: p.t.now().Sub(p.state.Since), LastValue: p.state.LastValue,
		LastProgress: p.progress(), LastErr: p.state.LastError.Err(), LastErrAt: p.state.LastErrAt}
}

// over ends the poll.
func (p *pollRun) over(r Record) (bool, []byte, error) { return p.overBy(r, nil) }

// overBy ends the poll by a person's word, if there is one.
func (p *pollRun) overBy(r Record, m *Message) (bool, []byte, error) {
	log := p.Log.clone()
	r.Poll = &log
	p.t.mu.Lock()
	data, err := p.finishLocked(r, m)
	if p.hook != nil && (r.Error == nil || r.Error.Code != "poll_timeout") { // else the run may wait on: what comes meanwhile is kept
		p.hook.h.expire(p.t, true) // later deliveries are told that they are late
	}
	p.t.mu.Unlock()
	return true, data, err
}
