package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/wait"
)

// platform speaks to what our software runs on.
type platform struct {
	url  string
	http *http.Client
}

// task is one phase as the platform shows it.
type task struct {
	ID     string    `json:"id"`
	State  string    `json:"state"` // running, done, failed, rolled back
	DoneAt time.Time `json:"done_at"`
	Reason string    `json:"reason,omitempty"`
}

// ETA lets a poll go by it.
func (t task) ETA() time.Time { return t.DoneAt }

func (p *platform) start(ctx context.Context, phase, version string) (task, error) {
	return p.do(ctx, "POST", "/tasks/"+phase, version)
}

func (p *platform) task(ctx context.Context, id string) (task, error) {
	return p.do(ctx, "GET", "/tasks/"+id, nil)
}

// rollBack takes a phase back. Doing so twice, or when it was never begun, is no
// error.
func (p *platform) rollBack(ctx context.Context, phase string) error {
	_, err := p.do(ctx, "DELETE", "/tasks/"+phase, nil)
	return err
}

func (p *platform) do(ctx context.Context, method, path string, in any) (t task, err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return t, bide.Permanent(err)
	}
	req, err := http.NewRequestWithContext(ctx, method, p.url+path, bytes.NewReader(body))
	if err != nil {
		return t, bide.Permanent(err)
	}
	req.Header.Set("Idempotency-Key", bide.IdempotencyKey(ctx))
	resp, err := p.http.Do(req)
	if err != nil {
		return t, err
	}
	defer resp.Body.Close()
	if err := wait.CheckResponse(resp); err != nil {
		return t, err
	}
	err = json.NewDecoder(resp.Body).Decode(&t)
	return t, err
}
