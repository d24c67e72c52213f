package main

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/wait"
)

// database speaks to the database, by HTTP so that the example needs none. It knows
// nothing of workflows.
type database struct {
	url      string
	password string
	http     *http.Client
}

func (db *database) status(ctx context.Context) (s status, err error) {
	resp, err := db.do(ctx, "GET", "/status", "")
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	err = json.NewDecoder(resp.Body).Decode(&s)
	return s, err
}

func (db *database) use(ctx context.Context, service string) error {
	resp, err := db.do(ctx, "POST", "/sessions", service)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func (db *database) do(ctx context.Context, method, path, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, db.url+path, strings.NewReader(body))
	if err != nil {
		return nil, bide.Permanent(err)
	}
	req.SetBasicAuth("app", db.password)
	resp, err := db.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusUnauthorized {
		resp.Body.Close()
		return nil, errPassword
	}
	if err := wait.CheckResponse(resp); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}
