package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/wait"
)

// client speaks to the CI.
type client struct {
	url  string
	http *http.Client
}

// order is the body of a start.
type order struct {
	Commit string `json:"commit"`
	Hook   string `json:"hook"` // is told when the build is completed
}

func (c *client) start(ctx context.Context, commit, hook string) (build, error) {
	return c.do(ctx, "POST", "/builds", order{commit, hook})
}

func (c *client) build(ctx context.Context, id string) (build, error) {
	return c.do(ctx, "GET", "/builds/"+id, nil)
}

func (c *client) do(ctx context.Context, method, path string, in any) (b build, err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return b, bide.Permanent(err)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return b, bide.Permanent(err)
	}
	req.Header.Set("Idempotency-Key", bide.IdempotencyKey(ctx))
	resp, err := c.http.Do(req)
	if err != nil {
		return b, err // the network: worth another try
	}
	defer resp.Body.Close()
	if err := wait.CheckResponse(resp); err != nil {
		return b, err // which says of itself whether it is worth one
	}
	err = json.NewDecoder(resp.Body).Decode(&b)
	return b, err
}
