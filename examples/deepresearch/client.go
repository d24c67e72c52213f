package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/wait"
)

// client speaks to the deep-research service.
type client struct {
	url  string
	http *http.Client
}

// job is how the service shows one.
type job struct {
	ID       string  `json:"id"`
	State    string  `json:"state"` // running, completed
	Percent  float64 `json:"percent"`
	Findings string  `json:"findings,omitempty"`
}

// Progress makes the job's progress that of the run which polls it.
func (j job) Progress() (float64, string) { return j.Percent, "deep research is " + j.State }

// order is the body of a submission.
type order struct {
	Topic    string `json:"topic"`
	Callback string `json:"callback"` // told when the job is done
}

func (c *client) submit(ctx context.Context, topic, callback string) (job, error) {
	return c.do(ctx, "POST", "/v1/jobs", order{topic, callback})
}

func (c *client) job(ctx context.Context, id string) (job, error) {
	return c.do(ctx, "GET", "/v1/jobs/"+id, nil)
}

func (c *client) do(ctx context.Context, method, path string, in any) (j job, err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return j, bide.Permanent(err)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return j, bide.Permanent(err)
	}
	req.Header.Set("Idempotency-Key", bide.IdempotencyKey(ctx))
	resp, err := c.http.Do(req)
	if err != nil {
		return j, err // the network: worth another try
	}
	defer resp.Body.Close()
	if err := wait.CheckResponse(resp); err != nil {
		return j, err // which says of itself whether it is worth one
	}
	err = json.NewDecoder(resp.Body).Decode(&j)
	return j, err
}
