package bide

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"time"
	"unicode/utf8"
)

// Delivery is what came to a webhook's URL.
type Delivery struct {
	// ID is the sender's id of the message; empty: the body's hash stands in for it.
	// A second delivery of one id is dropped.
	ID   string
	Body []byte // JSON; anything else is received as a string
}

// Receipt says what became of a delivery that was no error.
type Receipt struct {
	Duplicate bool `json:"duplicate,omitempty"` // it had come before
	Late      bool `json:"late,omitempty"`      // its wait was over
}

// HookTarget is the run that a webhook's token leads to.
type HookTarget struct {
	Run    string
	Verify string // the verifier that a delivery must pass first, "" for none
	path   string
	over   bool
	c      *Client
}

// Path is that of the verb in the run's history that made the webhook, with "~2" and so
// on behind it after [ContinueAsNew].
func (h *HookTarget) Path() string { return h.path }

// Over reports whether the run goes on without a delivery: the wait is past.
func (h *HookTarget) Over() bool { return h.over }

// Hook finds what a webhook's token leads to, or returns [ErrNotFound].
func (c *Client) Hook(ctx context.Context, token string) (*HookTarget, error) {
	facts, err := c.store.Facts(ctx, factHook, hookKey(token))
	if err != nil {
		return nil, err
	}
	if len(facts) == 0 {
		return nil, ErrNotFound
	}
	var f hookFact
	if err := json.Unmarshal(facts[0].Value, &f); err != nil {
		return nil, &CodecError{Field: "webhook", Message: err.Error()}
	}
	return &HookTarget{Run: f.Run, Verify: f.Verify, path: f.Path, over: f.Over, c: c}, nil
}

// Deliver puts the delivery into the run's inbox, durably before it returns. The
// run may have ended: that is a late delivery when it ended by itself, and
// [ErrGone] when it was canceled, was terminated or timed out.
func (h *HookTarget) Deliver(ctx context.Context, d Delivery) (Receipt, error) {
	if h.over {
		return Receipt{Late: true}, nil
	}
	isNew, err := h.c.store.Signal(ctx, h.Run, d.message(hookSignal(h.path)))
	switch {
	case errors.Is(err, ErrRunEnded):
		run, err := h.c.store.Run(ctx, h.Run)
		if err != nil {
			return Receipt{}, err
		}
		if run.State == Succeeded || run.State == Failed {
			return Receipt{Late: true}, nil
		}
		return Receipt{}, ErrGone
	case errors.Is(err, ErrNotFound):
		return Receipt{}, ErrGone
	}
	return Receipt{Duplicate: err == nil && !isNew}, err
}

// message is the delivery as an entry of the inbox.
func (d Delivery) message(signal string) Message {
	id := d.ID
	if id == "" {
		sum := sha256.Sum256(d.Body)
		id = base64.RawURLEncoding.EncodeToString(sum[:])
	}
	m := Message{Op: OpSignal, Name: signal, Key: signal + ":" + id, Data: d.Body}
	switch {
	case len(d.Body) == 0:
		m.Data = []byte("null")
	case !json.Valid(d.Body) && utf8.Valid(d.Body):
		m.Data, _ = json.Marshal(string(d.Body))
	case !json.Valid(d.Body):
		m.Data, _ = json.Marshal(d.Body) // base64
	}
	return m
}

// eventsKept is how long an event waits for someone to ask for its key, and
// mostEvents how many of one key do.
const (
	eventsKept = 24 * time.Hour
	mostEvents = 100
)

// DeliverEvent hands an event of a source to the run that waits for its key with
// [ReceiveEvent], or keeps it until one does, for 24 hours.
func (c *Client) DeliverEvent(ctx context.Context, source, key string, d Delivery) (Receipt, error) {
	switch {
	case source == "":
		return Receipt{}, &InvalidError{Field: "source", Reason: "is empty"}
	case key == "":
		return Receipt{}, &InvalidError{Field: "event key", Reason: "is empty"}
	}
	name := source + "/" + key
	m := d.message(eventSignal(name))
	for {
		fact, f, err := readEvent(ctx, c.store, name)
		if err != nil {
			return Receipt{}, err
		}
		if f.Run != "" {
			isNew, err := c.store.Signal(ctx, f.Run, m)
			if !errors.Is(err, ErrRunEnded) && !errors.Is(err, ErrNotFound) {
				return Receipt{Duplicate: err == nil && !isNew}, err
			}
			f.Run = ""
		}
		for _, old := range f.Events {
			if old.Key == m.Key {
				return Receipt{Duplicate: true}, nil
			}
		}
		if len(f.Events) >= mostEvents {
			return Receipt{}, ErrStoreFull
		}
		m.At = now()
		f.Events = append(f.Events, m)
		err = writeEvent(ctx, c.store, fact, f, after(now(), eventsKept))
		if !errors.Is(err, ErrFactChanged) {
			return Receipt{}, err
		}
	}
}
