package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/bide-dev/bide"
)

// client speaks to the service. It knows nothing of workflows, but it does tell
// a retrying caller which of its errors are worth another try.
type client struct {
	url  string
	http *http.Client
}

// call is the body of every request that costs money.
type call struct {
	Name  string `json:"name"` // for the bill
	Input string `json:"input"`
}

type answer struct {
	Text string `json:"text"`
}

type job struct {
	ID       string  `json:"id"`
	State    string  `json:"state"` // queued, running, completed
	Percent  float64 `json:"percent"`
	Findings string  `json:"findings,omitempty"`
}

func (c *client) complete(ctx context.Context, name, prompt string) (string, error) {
	var a answer
	err := c.do(ctx, "POST", "/v1/complete", call{name, prompt}, &a)
	return a.Text, err
}

func (c *client) search(ctx context.Context, name, query string) (string, error) {
	var a answer
	err := c.do(ctx, "POST", "/v1/search", call{name, query}, &a)
	return a.Text, err
}

func (c *client) submit(ctx context.Context, name, topic string) (job, error) {
	var j job
	err := c.do(ctx, "POST", "/v1/jobs", call{name, topic}, &j)
	return j, err
}

func (c *client) job(ctx context.Context, id string) (job, error) {
	var j job
	err := c.do(ctx, "GET", "/v1/jobs/"+id, nil, &j)
	return j, err
}

func (c *client) do(ctx context.Context, method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return bide.Permanent(err)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return bide.Permanent(err)
	}
	// The same for every attempt of a step, in this process or the next: should we
	// die between the service's answer and its record, asking again is free.
	req.Header.Set("Idempotency-Key", bide.IdempotencyKey(ctx))
	resp, err := c.http.Do(req)
	if err != nil {
		return err // the network: worth another try
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return json.NewDecoder(resp.Body).Decode(out)
	}
	return failure(resp)
}

// failure says what a refusal means for the next attempt.
func failure(resp *http.Response) error {
	err := fmt.Errorf("%s %s: %s", resp.Request.Method, resp.Request.URL.Path, resp.Status)
	switch code := resp.StatusCode; {
	case code == http.StatusTooManyRequests:
		if seconds, bad := strconv.Atoi(resp.Header.Get("Retry-After")); bad == nil {
			return bide.RetryAfter(err, time.Duration(seconds)*time.Second)
		}
		return err
	case code >= 500, code == http.StatusRequestTimeout, code == http.StatusTooEarly:
		return err
	}
	return bide.Permanent(err) // our own mistake: it stays one
}
