package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/wait"
)

// cloud speaks to the cloud's API, and to machines. It knows nothing of workflows.
type cloud struct {
	url  string
	http *http.Client
	// machines reaches the machines by their addresses. In earnest this is
	// golang.org/x/crypto/ssh; here a machine takes a command by HTTP.
	machines *http.Client
}

// server is how the API shows one.
type server struct {
	ID    string    `json:"id"`
	State string    `json:"state"` // building, running, error
	IP    string    `json:"ip,omitempty"`
	Ready time.Time `json:"ready_at"` // when the cloud expects it to have an address
}

// ETA lets a poll go by it.
func (s server) ETA() time.Time { return s.Ready }

func (c *cloud) order(ctx context.Context, name string) (s server, err error) {
	body, err := json.Marshal(map[string]string{"name": name})
	if err != nil {
		return s, bide.Permanent(err)
	}
	data, err := send(ctx, c.http, "POST", c.url+"/servers", body)
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	return s, err
}

func (c *cloud) server(ctx context.Context, id string) (s server, err error) {
	data, err := send(ctx, c.http, "GET", c.url+"/servers/"+id, nil)
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	return s, err
}

// ssh runs a command on a machine and returns what it says.
func (c *cloud) ssh(ctx context.Context, ip, command string) (string, error) {
	data, err := send(ctx, c.machines, "POST", "http://"+ip+"/", []byte(command))
	return strings.TrimSpace(string(data)), err
}

func send(ctx context.Context, by *http.Client, method, url string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, bide.Permanent(err)
	}
	req.Header.Set("Idempotency-Key", bide.IdempotencyKey(ctx)) // a second server is not ordered
	resp, err := by.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if err := wait.CheckResponse(resp); err != nil {
		return nil, err
	}
	return io.ReadAll(resp.Body)
}
