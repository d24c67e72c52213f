package bide

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/bide-dev/bide/wait"
)

// Share lets all polls with the same key in one store make one check between them,
// over all workers: whoever is due first checks for all, the others look at what it
// found with conditions of their own. All of them must ask for the same thing in
// the same type. A check that a person or a webhook asks for is always made.
type Share string

func (s Share) poll(c *pollConfig) { c.share = (*string)(&s) }

const (
	factShare = "share"
	shareKept = 24 * time.Hour
	shareLook = time.Second // when to look again at a check that another makes
)

// sharedCheck is the newest check of a key, and who makes the next.
type sharedCheck struct {
	Seq    int64           `json:"seq"`
	At     time.Time       `json:"at"`
	NextAt time.Time       `json:"next_at"`
	Value  json.RawMessage `json:"value,omitempty"`
	// Outcome is how it went, for a check without a value.
	Outcome wait.Outcome  `json:"outcome,omitempty"`
	Error   *Failure      `json:"error,omitempty"`
	Floor   time.Duration `json:"floor_ns,omitempty"`
	Hard    bool          `json:"hard,omitempty"`
	// Busy names who is checking, until when at most.
	Busy      string    `json:"busy,omitempty"`
	BusyUntil time.Time `json:"busy_until,omitzero"`
}

// sharedError is an error of a check that another poll has made.
type sharedError struct {
	error
	outcome wait.Outcome
	hint    wait.Hint
}

func (e *sharedError) Unwrap() error       { return e.error }
func (e *sharedError) Permanent() bool     { return e.outcome == wait.Failed }
func (e *sharedError) Throttled() bool     { return e.outcome == wait.Throttled }
func (e *sharedError) WaitHint() wait.Hint { return e.hint }

// shared makes a check, or takes over one that another poll of the key has made.
// While another is making one it is errSkipped.
func (p *pollRun) shared() (json.RawMessage, error) {
	own := p.trigger == TriggerManual || p.trigger == TriggerWebhook
	for {
		fact, s, ferr := p.readShare()
		if ferr != nil { // the store is in trouble: check alone
			return p.attempt()
		}
		at := p.t.now()
		switch {
		case own:
		case s.Seq > p.ShareSeq && (p.ShareSeq > 0 || s.NextAt.After(at)):
			p.ShareSeq = s.Seq
			return p.adopt(&s)
		case s.BusyUntil.After(at) && p.trigger != TriggerFinal:
			p.state.NextAt = after(at, min(s.BusyUntil.Sub(at), shareLook))
			return nil, errSkipped
		}
		s.Busy, s.BusyUntil = p.t.run.ID, after(at, p.attemptTimeout+time.Second)
		if ferr := p.writeShare(&fact, s); errors.Is(ferr, ErrFactChanged) {
			continue
		}
		data, err := p.attempt()
		p.publish(fact, s, data, err)
		return data, err
	}
}

// adopt is the other's check as if it were this poll's.
func (p *pollRun) adopt(s *sharedCheck) (json.RawMessage, error) {
	p.hint = wait.Hint{}
	if s.Error != nil {
		return nil, &sharedError{s.Error.Err(), s.Outcome, wait.Hint{After: max(s.At.Add(s.Floor).Sub(p.t.now()), 0), Hard: s.Hard, Source: "shared"}}
	}
	if p.done(s.Value) {
		return s.Value, nil
	}
	return s.Value, errPending
}

// publish tells the others. The next check is drawn here, so that all agree on it.
func (p *pollRun) publish(fact Fact, s sharedCheck, data json.RawMessage, err error) {
	s.Seq, s.At, s.Value, s.Error, s.Busy, s.BusyUntil = s.Seq+1, p.t.now(), data, nil, "", time.Time{}
	if errors.Is(err, errUnchanged) {
		s.Value = p.state.LastValue
	}
	s.Outcome = 0
	hint := p.hint
	state := p.State
	if err != nil && err != errPending && err != errUnchanged {
		s.Outcome, hint = wait.Judge(err)
		s.Error, s.Floor, s.Hard = NewFailure(err), hint.After, hint.Hard
		state.Errors++
	} else {
		state.Saw(0, 0)
	}
	s.NextAt = after(p.plan.Next(&state, hint, p.t.now(), time.Time{}, p.t.w.random).At, 0)
	p.ShareSeq, p.shareNext = s.Seq, s.NextAt
	_ = p.writeShare(&fact, s) // another has taken over: what it finds counts
}

func (p *pollRun) readShare() (Fact, sharedCheck, error) {
	var s sharedCheck
	fact := Fact{Kind: factShare, Key: *p.share}
	facts, err := p.t.w.store.Facts(p.t.w.base, factShare, *p.share)
	if err == nil && len(facts) > 0 {
		fact = facts[0]
		err = json.Unmarshal(fact.Value, &s)
		p.shareNext = s.NextAt
	}
	return fact, s, err
}

// writeShare writes the check and notes its version.
func (p *pollRun) writeShare(fact *Fact, s sharedCheck) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	fact.Value, fact.ExpiresAt = data, after(p.t.now(), shareKept)
	if err := p.t.w.store.Commit(p.t.w.base, Lease{}, Batch{Facts: []Fact{*fact}}); err != nil {
		return err
	}
	facts, err := p.t.w.store.Facts(p.t.w.base, factShare, *p.share)
	if err == nil && len(facts) > 0 {
		fact.Version = facts[0].Version
	}
	return err
}
