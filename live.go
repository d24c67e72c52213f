package bide

import (
	"encoding/json"
	"time"
)

// A live wait can be acted on from outside: check now, extend, complete with a
// value, fail. Each of these leaves a record, so that the history tells who
// settled what.

// acts matches messages that act on this verb's wait, by its name or path.
func (v *verb) acts(m *Message) bool {
	return m.Op >= OpCheckWait && (m.Name == v.path || m.Name == v.name && v.name != "")
}

// settled ends the verb by a person's word.
func (v *verb) settled(m *Message, attempt int) ([]byte, error) {
	return v.finish(settlement(m, attempt), m)
}

func settlement(m *Message, attempt int) Record {
	if m.Op == OpFailWait {
		return Record{Error: m.Error, Attempt: attempt, By: "fail"}
	}
	return Record{Data: m.Data, Attempt: attempt, By: "complete"}
}

// note leaves a record of an act that does not end the wait, together with the state
// that it has made of it, if the wait has one: a commit may come at any time.
func (v *verb) note(r Record, m *Message, state *Wait) {
	t := v.t
	t.mu.Lock()
	r.At = t.now()
	v.recordLocked(r)
	t.consumed = append(t.consumed, m.Seq)
	if state != nil {
		v.keepWaitLocked(*state)
	}
	t.mu.Unlock()
}

// extension is by how much an OpExtendWait message moves a deadline.
func extension(m *Message) time.Duration {
	var d time.Duration
	_ = json.Unmarshal(m.Data, &d) // Control has checked it
	return d
}

// sawCancel lets the verb see the run's cancel, if there is one.
func (v *verb) sawCancel() bool {
	t := v.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.canceled || v.detached {
		return false
	}
	t.forgetWait(v.path)
	v.canceledLocked()
	return true
}

// cancelNow is sawCancel for a wait that the cancel has ended.
func (v *verb) cancelNow() { v.sawCancel() }
