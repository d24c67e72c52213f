package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"hash/fnv"
	"io"
	"net/http"
	"time"

	"github.com/bide-dev/bide"
)

// part is a run at one of its verbs.
type part struct {
	*cast
	ctx   bide.Context
	job   job
	place string
	story story
}

func (p *part) tell(place, made string) { p.story.Calls = append(p.story.Calls, call{place, made}) }

// within is a duration between the two, always the same at one place of a run.
func (p *part) within(from, to time.Duration) time.Duration {
	h := fnv.New64a()
	_, _ = io.WriteString(h, p.job.ID+" "+p.place) // never fails
	return from + time.Duration(h.Sum64()%uint64(to-from))
}

// act does the work of a step, as the witness sees it.
func (p *part) act(ctx context.Context, e event, work func(context.Context, event) error) (string, error) {
	e.What, e.Job, e.Call = begin, p.job.ID, nonce()
	e.Attempt, e.Key = bide.AttemptNumber(ctx), bide.IdempotencyKey(ctx)
	if _, err := p.post(ctx, e); err != nil {
		return "", err
	}
	if err := pause(ctx, 2*time.Millisecond); err != nil {
		return "", err
	}
	var failed error
	if work != nil {
		failed = work(ctx, e)
	}
	e.What = end
	if _, err := p.post(ctx, e); err != nil {
		return "", err
	}
	return e.Call, failed
}

// call is a step of which the witness hears.
func (p *part) call(ctx bide.Context, e event, work func(context.Context, event) error, opts ...bide.StepOption) (string, error) {
	return bide.Step(ctx, e.Place, func(ctx context.Context) (string, error) { return p.act(ctx, e, work) }, opts...)
}

// step is one that the story tells of.
func (p *part) step(place string, opts ...bide.StepOption) error {
	return p.stepOf(event{Place: place}, nil, opts...)
}

// stepAt is the step after a timer.
func (p *part) stepAt(due time.Time) error {
	return p.stepOf(event{Place: p.place, Due: due}, nil, soon)
}

// ask is a step that has the world outside do what the verb of its place needs.
func (p *part) ask(url string) error {
	return p.stepOf(event{Place: p.place + ".ask", Ask: p.place, URL: url}, nil, soon)
}

func (p *part) stepOf(e event, work func(context.Context, event) error, opts ...bide.StepOption) error {
	e.Prev = p.story.last()
	got, err := p.call(p.ctx, e, work, opts...)
	if err == nil {
		p.tell(e.Place, got)
	}
	return err
}

// post tells the witness, and returns what it answers.
func (c *cast) post(ctx context.Context, e event) (ready bool, err error) {
	e.Node, e.Sent = c.node, time.Now()
	body, err := json.Marshal(e)
	if err != nil {
		return false, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.witness, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&ready); err != nil {
		return false, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return ready, err
}

func nonce() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
