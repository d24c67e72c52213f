package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/wait"
)

func (p *Probe) check(ctx context.Context, w *watch) (Observation, error) {
	known := w.begin()
	attempt, seen := bide.AttemptNumber(ctx), bide.LastObservation(ctx)
	inside := attempt > 0
	if !inside {
		attempt, seen = known.attempts, known.seen
	}
	r, err := p.request(seen)
	if err != nil {
		return Observation{}, bide.Permanent(err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(p.spec.Timeout))
	defer cancel()
	a, err := p.fetch(ctx, r)
	if err != nil {
		return Observation{}, err
	}
	a.understand(attempt, max(a.at.Sub(known.began), 0))
	o, err := p.judge(ctx, known, a)
	if err != nil {
		return Observation{}, err
	}
	told := a.told(seen)
	told.Unchanged = o.Unchanged
	if a.isOK() {
		told.ETA = p.tell(ctx, a)
	}
	if inside {
		_ = bide.Observe(ctx, told) // it belongs to a check
	}
	w.end(a, told, o)
	return o, nil
}

// begin counts a check, and returns what is known before it.
func (w *watch) begin() known {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.began.IsZero() {
		w.began = time.Now()
	}
	w.attempts++
	return w.known
}

func (w *watch) end(a *answer, told bide.Observation, o Observation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found = w.found || a.isOK()
	w.seen, w.last = told, o
}

// judge finds the first rule that fits the answer.
func (p *Probe) judge(ctx context.Context, w known, a *answer) (Observation, error) {
	if a.isOK() && a.truncated {
		return Observation{}, &BodyTooLargeError{URL: a.request.place(), Limit: p.spec.MaxBody}
	}
	if o, fits, err := p.accepted(ctx, w, a); fits || err != nil {
		return o, err
	}
	switch {
	case a.status == http.StatusNotModified:
		return a.asBefore(w, pending), nil
	case p.until != nil && (a.isOK() || p.everyStatus):
		yes, err := p.until.holds(ctx, a)
		switch {
		case err != nil && a.isOK():
			return Observation{}, a.cannotTell(err)
		case yes:
			return a.observation(succeeded), nil
		case a.isOK():
			return a.observation(pending), nil
		}
	case a.status == http.StatusAccepted:
		return a.observation(pending), nil
	case a.isOK():
		return a.observation(succeeded), nil
	}
	if location := a.header.Get("Location"); a.status == http.StatusSeeOther && location != "" {
		return p.result(ctx, a, location)
	}
	if a.status == http.StatusNotFound && !w.found && a.at.Sub(w.began) < time.Duration(p.spec.NotFoundGrace) {
		return a.observation(pending), nil
	}
	return Observation{}, a.refusal()
}

// accepted asks the acceptors. One that cannot be evaluated on a 2xx is an error;
// a refusal or an error page need not have what it asks for.
func (p *Probe) accepted(ctx context.Context, w known, a *answer) (o Observation, fits bool, err error) {
	for _, c := range p.accept {
		yes, err := c.when.holds(ctx, a)
		if err != nil && a.isOK() {
			return Observation{}, false, a.cannotTell(err)
		}
		if !yes {
			continue
		}
		message := ""
		if c.message != nil {
			if v, err := c.message.value(ctx, a); err == nil { // an answer that fits counts, whatever there is to say of it
				message, _ = v.(string)
			}
		}
		o := a.observation(succeeded)
		if a.status == http.StatusNotModified {
			o = a.asBefore(w, succeeded)
		}
		o.Message = a.request.secrets.scrub(message)
		switch c.state {
		case Retry:
			o.State = pending
		case Failure:
			if message = o.Message; message == "" {
				message = c.when.text
			}
			return Observation{}, true, &FailureError{Message: message, Observation: o}
		}
		o.Unchanged = o.Unchanged && c.state == Retry
		return o, true, nil
	}
	return Observation{}, false, nil
}

// cannotTell is the error of a condition; what it cites must not be a secret.
func (a *answer) cannotTell(err error) error {
	if ce, ok := errors.AsType[*ConditionError](err); ok {
		ce.Reason = a.request.secrets.scrub(ce.Reason)
	}
	return err
}

// asBefore is the last observation, once more.
func (a *answer) asBefore(w known, state string) Observation {
	o := w.last
	o.State, o.Status, o.Unchanged, o.FetchedAt = state, a.status, true, a.at
	return o
}

// result fetches what a 303 points to.
func (p *Probe) result(ctx context.Context, a *answer, location string) (Observation, error) {
	next, err := a.request.redirected(a.status, location)
	if err != nil {
		return Observation{}, err
	}
	for _, name := range []string{"If-None-Match", "If-Modified-Since"} { // of the status, not of this
		next.header.Del(name)
	}
	got, err := p.fetch(ctx, next)
	switch {
	case err != nil:
		return Observation{}, err
	case !got.isOK():
		early := got.status == http.StatusNotFound || got.status == http.StatusConflict || got.status == http.StatusTooEarly
		refusal := got.refusal()
		outcome, _ := wait.Judge(refusal)
		return Observation{}, &ResultError{Transient: early || outcome != wait.Failed, Err: refusal}
	case got.truncated:
		return Observation{}, &BodyTooLargeError{URL: next.place(), Limit: p.spec.MaxBody}
	}
	return got.observation(succeeded), nil
}

// refusal is the answer as an error.
func (a *answer) refusal() error {
	err := wait.CheckResponse(&http.Response{StatusCode: a.status, Header: a.header, Body: io.NopCloser(bytes.NewReader(a.data))})
	e, ok := errors.AsType[*wait.ResponseError](err)
	if !ok { // a 303 that leads nowhere
		return &RedirectError{URL: a.request.place(), Reason: "answers " + http.StatusText(a.status) + " without saying where"}
	}
	e.Method, e.URL, e.Body = a.request.method, a.request.place(), a.request.secrets.scrub(e.Body)
	if ms := a.nextPoll(); ms > 0 && e.Hint.After == 0 {
		e.Hint.After, e.Hint.Source = ms, nextPollField
	}
	return e
}

// told is what the answer says to whoever plans the next check.
func (a *answer) told(seen bide.Observation) bide.Observation {
	o := bide.Observation{Hint: wait.ParseHint(a.status, a.header, a.at)}
	if a.isOK() || a.status == http.StatusNotModified {
		o.ETag, o.LastModified = a.header.Get("ETag"), a.header.Get("Last-Modified")
	}
	if a.status == http.StatusNotModified && o.ETag == "" {
		o.ETag = seen.ETag
	}
	if a.status == http.StatusNotModified && o.LastModified == "" {
		o.LastModified = seen.LastModified
	}
	if ms := a.nextPoll(); ms > 0 && (!o.Hint.Hard || o.Hint.After == 0) {
		o.Hint.After, o.Hint.Source = ms, nextPollField
	}
	return o
}

const nextPollField = "next_poll_ms"

// nextPoll is what the body says of when to ask again: as Retry-After, but finer.
func (a *answer) nextPoll() time.Duration {
	var body map[string]json.RawMessage
	var ms uint32
	if json.Unmarshal(a.data, &body) != nil || json.Unmarshal(body[nextPollField], &ms) != nil {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

// tell reports the progress that the answer names, and returns its ETA.
func (p *Probe) tell(ctx context.Context, a *answer) (eta time.Time) {
	if p.progress != nil {
		if v, err := p.progress.value(ctx, a); err == nil {
			if n, ok := percent(v); ok {
				_ = bide.Progress(ctx, n, "") // it may be that nobody asks
			}
		}
	}
	if p.eta != nil {
		if v, err := p.eta.value(ctx, a); err == nil {
			eta = moment(v, a.at)
		}
	}
	return eta
}
