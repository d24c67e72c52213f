package api

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dunglas/httpsfv"

	"github.com/bide-dev/bide"
)

// start makes a run.
func (h *Handler) start(w http.ResponseWriter, r *http.Request) error {
	key, err := idempotencyKey(r)
	if err != nil {
		return err
	}
	if key == "" && h.cfg.RequireKey {
		return refusal(keyMissing, "send an Idempotency-Key that is new for each run, and the same when you try again")
	}
	body, err := h.body(w, r)
	if err != nil {
		return err
	}
	run, err := h.newRun(body)
	if err != nil {
		return err
	}
	run.Trace = traceparent(r)
	if key != "" {
		run.Key = digest([]byte("POST /v1/runs\n" + key))
		run.Print = digest(canonical(body))
	}
	created, err := h.store.Create(r.Context(), []bide.NewRun{run})
	if err != nil {
		return err
	}
	if created[0].Err != nil {
		return created[0].Err
	}
	id := created[0].ID
	if key != "" && !created[0].New {
		w.Header().Set("Idempotency-Replayed", "true")
	}
	h.location(w, id)
	return h.started(w, r, id)
}

// started answers with the run, once it has ended if that is preferred.
func (h *Handler) started(w http.ResponseWriter, r *http.Request, id string) error {
	if p, err := holdFor(r); err == nil && p.most > 0 {
		err := h.hold(w, r, func(w http.ResponseWriter, r *http.Request) error {
			s, err := h.await(r, id, p.most, func(*snapshot) bool { return false })
			if err != nil {
				return err
			}
			p.heeded(w)
			status := http.StatusAccepted
			if s.run.State.Ended() {
				status = http.StatusOK
			}
			return flushed(w, func() error { return h.sendRun(w, status, &s.run) })
		})
		if err == nil { // else it is answered at once: it is there
			return nil
		}
	}
	run, err := h.store.Run(r.Context(), id)
	if err != nil {
		return err
	}
	return h.sendRun(w, http.StatusAccepted, &run)
}

// newRun reads the body of a start.
func (h *Handler) newRun(body json.RawMessage) (bide.NewRun, error) {
	o, err := parseObject(body)
	if err != nil {
		return bide.NewRun{}, err
	}
	var run bide.NewRun
	now := time.Now()
	given := o.members["id"] != nil
	run.Workflow, run.Queue, run.ID = o.text("workflow"), o.text("queue"), o.text("id")
	o.take("labels", &run.Labels, "an object of strings")
	if run.Input = o.members["input"]; run.Input == nil {
		run.Input = json.RawMessage("null")
	}
	delete(o.members, "input")
	delay, _ := o.duration("delay")
	timeout, bounded := o.duration("timeout")
	var hook json.RawMessage
	o.take("webhook", &hook, "an object")
	if err := o.done(); err != nil {
		return run, err
	}
	switch {
	case run.Workflow == "":
		return run, invalid("workflow", "is missing; name the workflow to run")
	case len(run.Workflow) > maxName || strings.ContainsFunc(run.Workflow, unprintable):
		return run, invalid("workflow", "must be at most 255 bytes, without control characters")
	case reserved(run.Workflow):
		return run, invalid("workflow", `must not begin with "loop:" or "bide.", which are bide's own`)
	case len(run.Queue) > maxName || strings.ContainsFunc(run.Queue, unprintable):
		return run, invalid("queue", "must be at most 255 bytes, without control characters")
	case given && !fitID(run.ID):
		return run, invalid("id", `must be 1 to 255 bytes without white space, and not ".", ".." or "/", which lead elsewhere in a path; leave it out and one is made`)
	case strings.HasPrefix(run.ID, "run_") || strings.HasPrefix(run.ID, "loop:"):
		return run, invalid("id", `must not begin with "run_" or "loop:", which are for ids of bide's making`)
	case len(run.Input) > bide.MaxPayload:
		return run, &bide.PayloadTooLargeError{Field: "input", Size: len(run.Input), Limit: bide.MaxPayload}
	case delay < 0:
		return run, invalid("delay", "must not be negative")
	case bounded && timeout <= 0:
		return run, invalid("timeout", "must be above 0; leave it out for none")
	}
	if err := fitLabels(run.Labels); err != nil {
		return run, err
	}
	if run.Queue == "" {
		run.Queue = "default"
	}
	if delay > 0 {
		run.StartAt = ahead(now, delay)
	}
	if bounded {
		run.Deadline = ahead(now, timeout)
	}
	if hook != nil {
		run.OnEnd, err = h.onEnd(hook)
	}
	return run, err
}

// farthest is as far ahead as a time is kept.
const farthest = 100 * 365 * 24 * time.Hour

func ahead(now time.Time, d time.Duration) time.Time { return now.Add(min(d, farthest)).UTC() }

const maxName = 255 // bytes

func unprintable(r rune) bool { return r < ' ' || r == 0x7f || r == utf8.RuneError }

func fitID(id string) bool {
	return id != "" && id != "." && id != ".." && id != "/" && len(id) <= maxName && !strings.ContainsFunc(id, func(r rune) bool { return r == ' ' || unprintable(r) })
}

func reserved(workflow string) bool {
	return strings.HasPrefix(workflow, "loop:") || strings.HasPrefix(workflow, "bide.")
}

// Bounds of labels, which are read with every row of a list.
const (
	maxLabels = 32
	maxLabel  = 1024 // bytes
)

func fitLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return invalid("labels", "has more than 32 members")
	}
	for k, v := range labels {
		if k == "" || len(k) > maxName || strings.ContainsAny(k, ":") || strings.ContainsFunc(k, unprintable) ||
			len(v) > maxLabel || strings.ContainsFunc(v, unprintable) {
			return invalid("labels", "must have keys of 1 to 255 bytes without a colon, values of at most 1024, both without control characters")
		}
	}
	return nil
}

// idempotencyKey is the header's key, as a structured-field string or bare; ""
// for none.
func idempotencyKey(r *http.Request) (string, error) {
	lines := r.Header.Values("Idempotency-Key")
	if len(lines) == 0 {
		return "", nil
	}
	key := strings.TrimSpace(lines[0])
	if strings.HasPrefix(key, `"`) {
		item, err := httpsfv.UnmarshalItem(lines)
		if err != nil {
			return "", invalid("Idempotency-Key", "begins with a quote and is no structured-field string (RFC 8941)")
		}
		key, _ = item.Value.(string)
	}
	if len(lines) > 1 || key == "" || len(key) > maxName || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "", invalid("Idempotency-Key", "must be one key of 1 to 255 printable ASCII characters")
	}
	return key, nil
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// canonical is JSON in the one form that all ways to write it have; its numbers
// stay as they are written.
func canonical(data json.RawMessage) []byte {
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return data
	}
	out, err := json.Marshal(v)
	if err != nil {
		return data
	}
	return out
}

// traceparent is the request's trace, "" for none that is well-formed.
func traceparent(r *http.Request) string {
	if t := bide.Trace(r.Header.Get("Traceparent")); t.Valid() {
		return string(t)
	}
	return ""
}
