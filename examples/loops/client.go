package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/wait"
)

// client speaks to the service.
type client struct {
	url  string
	http *http.Client
}

// get asks for what is at the path, and tells the loop what the server has said of
// it: when to ask again, and the tag to ask with.
func (c *client) get(ctx context.Context, path string) (text string, changed bool, err error) {
	req, err := http.NewRequestWithContext(ctx, "GET", c.url+path, nil)
	if err != nil {
		return "", false, bide.Permanent(err)
	}
	if tag := bide.LastObservation(ctx).ETag; tag != "" {
		req.Header.Set("If-None-Match", tag)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return "", false, err
	}
	defer resp.Body.Close()
	if err := wait.CheckResponse(resp); err != nil {
		return "", false, err
	}
	seen := bide.Observation{
		Hint:      wait.ParseHint(resp.StatusCode, resp.Header, time.Now()),
		ETag:      resp.Header.Get("ETag"),
		Unchanged: resp.StatusCode == http.StatusNotModified,
	}
	if err := bide.Observe(ctx, seen); err != nil || seen.Unchanged {
		return "", false, err
	}
	body, err := io.ReadAll(resp.Body)
	return strings.TrimSpace(string(body)), true, err
}

func (c *client) mail(ctx context.Context, text string) error {
	req, err := http.NewRequestWithContext(ctx, "POST", c.url+"/mail", strings.NewReader(text))
	if err != nil {
		return bide.Permanent(err)
	}
	req.Header.Set("Idempotency-Key", bide.IdempotencyKey(ctx))
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return wait.CheckResponse(resp)
}
