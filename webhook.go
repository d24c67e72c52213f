package bide

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"
)

// Webhook is a URL made for one run, through which the outside world tells it
// something.
type Webhook[T any] struct{ h *hook }

// hook is a Webhook, its type erased.
type hook struct {
	name   string
	path   string
	token  string
	base   string
	key    string // of its fact: a hash of the token
	verify string
	gone   bool // late deliveries are told so
}

// WebhookOption is an option of [NewWebhook].
type WebhookOption interface{ webhook(*hookFact) }

// VerifiedBy names the verifier, among those that the handler was given, that each
// delivery must pass. Without it whoever knows the URL may deliver.
type VerifiedBy string

func (v VerifiedBy) webhook(f *hookFact) { f.Verify = string(v) }

const (
	factHook   = "webhook"
	factSecret = "secret"
	factEvent  = "event"

	hookPath = "/v1/hooks/"
	// A sender may try again for three days with a new timestamp: for so long a
	// hook whose wait is over says so instead of being unknown.
	hookRetention = 75 * time.Hour
)

// hookFact is what the store knows of a hook, under the hash of its token.
type hookFact struct {
	Run    string `json:"run"`
	Path   string `json:"path"`
	Verify string `json:"verify,omitempty"`
	Over   bool   `json:"over,omitempty"`
}

// NewWebhook makes a URL for this run, durably before anything that comes after:
// give it to the outside job as you start it. Deliveries are kept from then on,
// whether the run waits for them yet or not. A poll takes them by [WakeOn] or
// [CompleteOn], [Webhook.Receive] waits for them alone. T is what is delivered, as
// JSON; a body that is no JSON comes as a string.
//
// The token in the URL is known to the run alone; the store keeps a hash of it and
// a secret to make it from. It returns an [InvalidError] for an empty name or when
// the worker has no PublicURL, [ErrCanceled] when the run is canceled.
func NewWebhook[T any](ctx Context, name string, opts ...WebhookOption) (*Webhook[T], error) {
	h, err := newHook(ctx, name, opts)
	if err != nil {
		return nil, err
	}
	return &Webhook[T]{h}, nil
}

func newHook(ctx Context, name string, opts []WebhookOption) (*hook, error) {
	v, err := begin(ctx, KindWebhook, name, true)
	if err != nil {
		return nil, err
	}
	t := v.t
	place := v.path
	if g := t.run.Generation; g > 0 { // a run that began anew does not hear of what it was before
		place += "~" + strconv.Itoa(g)
	}
	f := hookFact{Run: t.run.ID, Path: place}
	if r := v.result(); r != nil {
		data, err := v.replay(r)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(data, &f); err != nil {
			return nil, &CodecError{Field: "webhook", Message: err.Error()}
		}
	} else {
		for _, o := range opts {
			o.webhook(&f)
		}
		if t.w.cfg.PublicURL == "" {
			_, err := v.finish(Record{Error: NewFailure(&InvalidError{Field: "WorkerConfig.PublicURL", Reason: "is empty: nobody could reach the webhook"})}, nil)
			return nil, err
		}
	}
	secret, err := t.w.secret()
	if err != nil { // the store is closed under us
		v.leave()
	}
	mac := hmac.New(sha256.New, secret)
	_ = json.NewEncoder(mac).Encode([]any{t.run.ID, t.run.Generation, v.path, t.run.Seed})
	token := base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:24])
	h := &hook{name: name, path: place, token: token, base: strings.TrimRight(t.w.cfg.PublicURL, "/"), key: hookKey(token), verify: f.Verify}
	t.mu.Lock()
	t.minted = append(t.minted, h)
	t.mu.Unlock()
	if v.result() != nil {
		return h, nil
	}
	data, _ := json.Marshal(f)
	t.mu.Lock()
	t.putFact(Fact{Kind: factHook, Key: h.key, Value: data})
	t.mu.Unlock()
	if _, err := v.finish(Record{Data: data}, nil); err != nil {
		return nil, err
	}
	return h, nil
}

// hookKey is the hash under which a token is kept.
func hookKey(token string) string {
	sum := sha256.Sum256([]byte(token))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// signal is the name of the messages that the hook's deliveries become.
func (h *hook) signal() string { return hookSignal(h.path) }

func hookSignal(path string) string { return "bide:webhook:" + path }

// expire lets the store forget the hook after a while, until when late deliveries
// are told so: over says that the run goes on without it. The turn's lock is held.
func (h *hook) expire(t *turn, over bool) {
	if h.gone {
		return
	}
	h.gone = over
	data, _ := json.Marshal(hookFact{Run: t.run.ID, Path: h.path, Verify: h.verify, Over: over})
	t.putFact(Fact{Kind: factHook, Key: h.key, Value: data, ExpiresAt: after(t.now(), hookRetention)})
	t.changes++
}

// URL returns where to POST to.
func (h *Webhook[T]) URL() string { return h.h.base + hookPath + h.h.token }

// ApprovalURL returns the page of a bide server on which a person decides: it asks what
// the run has published as "question", and delivers {"approved","by","comment"}.
func (h *Webhook[T]) ApprovalURL() string { return h.h.base + "/v1/approvals/" + h.h.token }

// Receive waits for a delivery, without a poll, and returns what was delivered.
// Several are received in the order in which they came. Errors are those of
// [Receive].
func (h *Webhook[T]) Receive(ctx Context, opts ...ReceiveOption) (T, error) {
	data, err := receive(ctx, inbound{kind: KindWebhook, name: h.h.name, signal: h.h.signal(), hook: h.h}, opts)
	if err != nil {
		var zero T
		return zero, err
	}
	return decode[T]("webhook ", h.h.name, data)
}

// WakeOn lets a delivery to the webhook make the poll check at once: the delivery
// says that it is time to look, the check says what is true. A delivery that is
// lost costs one interval. Once the poll is over late deliveries are told so.
func WakeOn[T any](h *Webhook[T]) PollOption { return wakeOn{h: h.h} }

// CompleteOn is [WakeOn] for a webhook whose deliveries carry the whole value, of
// the poll's own type, and are signed ([VerifiedBy]): one that the poll's condition
// is true for ends the poll. Without VerifiedBy the poll is an [InvalidError].
func CompleteOn[T any](h *Webhook[T]) PollOption { return wakeOn{h: h.h, complete: true} }

type wakeOn struct {
	h        *hook
	complete bool
}

func (w wakeOn) poll(c *pollConfig) { c.hook = &w }

// secret is what the store's webhook tokens are made from.
func (w *Worker) secret() ([]byte, error) {
	for failures := 1; ; failures++ {
		w.mu.Lock()
		secret := w.hookSecret
		w.mu.Unlock()
		if secret != nil {
			return secret, nil
		}
		secret, err := w.readSecret()
		switch {
		case err == nil:
			w.mu.Lock()
			w.hookSecret = secret
			w.mu.Unlock()
		case errors.Is(err, ErrClosed) || !sleepFor(w.base, backoff(failures)):
			return nil, err
		default:
			w.log.Error("cannot read the secret of webhooks; trying again", "error", err)
		}
	}
}

func (w *Worker) readSecret() ([]byte, error) {
	for {
		facts, err := w.store.Facts(w.base, factSecret, factHook)
		if err != nil {
			return nil, err
		}
		if len(facts) > 0 {
			var secret []byte
			err := json.Unmarshal(facts[0].Value, &secret)
			return secret, err
		}
		secret := make([]byte, 32)
		_, _ = rand.Read(secret) // never fails
		data, _ := json.Marshal(secret)
		err = w.store.Commit(w.base, Lease{}, Batch{Facts: []Fact{{Kind: factSecret, Key: factHook, Value: data}}})
		if err != nil && !errors.Is(err, ErrFactChanged) {
			return nil, err
		}
	}
}

// ReceiveEvent waits for an event that came to the fixed URL of a source (see
// package webhook) under the key, such as the id of a job. Events that came before
// anyone asked are kept for 24 hours. Where several runs ask for one key, the one
// that asked last gets what comes. Errors are those of [Receive].
func ReceiveEvent[T any](ctx Context, source, key string, opts ...ReceiveOption) (T, error) {
	name := source + "/" + key
	data, err := receive(ctx, inbound{kind: KindWebhook, name: name, signal: eventSignal(name), event: name}, opts)
	if err != nil {
		var zero T
		return zero, err
	}
	return decode[T]("event ", name, data)
}

func eventSignal(name string) string { return "bide:event:" + name }

// eventFact is what the store knows of a source and key: who receives, or what has
// come before anyone asked.
type eventFact struct {
	Run    string    `json:"run,omitempty"`
	Events []Message `json:"events,omitempty"`
}

// listen asks for the event on behalf of the run.
func (v *verb) listen(event string) {
	for failures := 1; ; failures++ {
		err := v.t.w.listen(v.t.run.ID, event)
		if err == nil || errors.Is(err, ErrRunEnded) {
			return
		}
		if !errors.Is(err, ErrClosed) {
			v.t.w.log.Error("cannot ask for an event; trying again", "run", v.t.run.ID, "event", event, "error", err)
		}
		if errors.Is(err, ErrClosed) || !sleepFor(v.t.ctx, backoff(failures)) {
			v.leave()
		}
	}
}

// unlisten lets the store forget after a while who asked for the event.
func (v *verb) unlisten(event string) {
	if event == "" {
		return
	}
	data, _ := json.Marshal(eventFact{Run: v.t.run.ID})
	v.t.mu.Lock()
	v.t.putFact(Fact{Kind: factEvent, Key: event, Value: data, ExpiresAt: after(v.t.now(), eventsKept)})
	v.t.mu.Unlock()
}

// leave ends the turn, its store being gone.
func (v *verb) leave() {
	v.t.mu.Lock()
	v.t.unwind(lost)
	v.b.exitLocked()
}

// listen makes the run the receiver of the event, and fetches what has come.
func (w *Worker) listen(run, name string) error {
	for {
		fact, f, err := readEvent(w.base, w.store, name)
		if err != nil {
			return err
		}
		for _, m := range f.Events { // keys make a second time harmless
			if _, err := w.store.Signal(w.base, run, m); err != nil {
				return err
			}
		}
		if f.Run == run && len(f.Events) == 0 {
			return nil
		}
		err = writeEvent(w.base, w.store, fact, eventFact{Run: run}, time.Time{})
		if !errors.Is(err, ErrFactChanged) {
			return err
		}
	}
}

func readEvent(ctx context.Context, s Store, name string) (Fact, eventFact, error) {
	var f eventFact
	facts, err := s.Facts(ctx, factEvent, name)
	if err != nil || len(facts) == 0 {
		return Fact{Kind: factEvent, Key: name}, f, err
	}
	if err := json.Unmarshal(facts[0].Value, &f); err != nil {
		return facts[0], f, &CodecError{Field: "event " + name, Message: err.Error()}
	}
	return facts[0], f, nil
}

func writeEvent(ctx context.Context, s Store, at Fact, f eventFact, expires time.Time) error {
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	at.Value, at.ExpiresAt = data, expires
	return s.Commit(ctx, Lease{}, Batch{Facts: []Fact{at}})
}
