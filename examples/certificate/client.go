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

// client speaks to a certificate authority, in the manner of ACME (RFC 8555), and
// to the DNS of our domains.
type client struct {
	url  string
	http *http.Client
}

func (c *client) order(ctx context.Context, domain string) (o order, err error) {
	_, err = c.do(ctx, "POST", "/orders", map[string]string{"domain": domain}, &o)
	return o, err
}

// publish sets what stands in the DNS at _acme-challenge; "" takes it away.
func (c *client) publish(ctx context.Context, domain, txt string) error {
	_, err := c.do(ctx, "PUT", "/dns/"+domain, txt, nil)
	return err
}

// status tells the poll, too, when the authority wants to be asked again: an answer
// "not yet" has a Retry-After like a refusal.
func (c *client) status(ctx context.Context, id string) (o order, err error) {
	hint, err := c.do(ctx, "GET", "/orders/"+id, nil, &o)
	if err == nil {
		err = bide.Observe(ctx, bide.Observation{Hint: hint})
	}
	return o, err
}

func (c *client) download(ctx context.Context, id string) (pem string, err error) {
	_, err = c.do(ctx, "GET", "/orders/"+id+"/certificate", nil, &pem)
	return pem, err
}

func (c *client) do(ctx context.Context, method, path string, in, out any) (hint wait.Hint, err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return hint, bide.Permanent(err)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return hint, bide.Permanent(err)
	}
	req.Header.Set("Idempotency-Key", bide.IdempotencyKey(ctx))
	resp, err := c.http.Do(req)
	if err != nil {
		return hint, err
	}
	defer resp.Body.Close()
	// An error says of itself what it means: a 503 is worth another try, after its
	// Retry-After; a 403 is not.
	if err := wait.CheckResponse(resp); err != nil {
		return hint, err
	}
	if out != nil {
		err = json.NewDecoder(resp.Body).Decode(out)
	}
	return wait.ParseHint(resp.StatusCode, resp.Header, time.Now()), err
}
