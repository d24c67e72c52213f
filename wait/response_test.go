package wait_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/bide-dev/bide/wait"
)

func TestCheckResponse(t *testing.T) {
	for _, c := range []struct {
		status int
		lines  []string
		want   wait.Outcome // 0: no error
		delay  time.Duration
	}{
		{200, nil, 0, 0},
		{202, []string{"Retry-After: 5"}, 0, 0},
		{204, nil, 0, 0},
		{303, nil, 0, 0},
		{304, nil, 0, 0},
		{302, nil, wait.Transient, 0},
		{400, nil, wait.Failed, 0},
		{401, nil, wait.Failed, 0},
		{403, nil, wait.Failed, 0},
		{403, []string{"Retry-After: 5"}, wait.Throttled, 5 * second},
		{403, []string{"X-RateLimit-Remaining: 0"}, wait.Throttled, 0},
		{404, []string{"Retry-After: 5"}, wait.Failed, 5 * second},
		{408, nil, wait.Transient, 0},
		{410, nil, wait.Failed, 0},
		{422, nil, wait.Failed, 0},
		{425, nil, wait.Transient, 0},
		{429, nil, wait.Throttled, 0},
		{429, []string{"Retry-After: 5"}, wait.Throttled, 5 * second},
		{500, nil, wait.Transient, 0},
		{501, nil, wait.Failed, 0},
		{502, []string{"Retry-After: 5"}, wait.Transient, 5 * second},
		{503, nil, wait.Transient, 0},
		{503, []string{"retry-after-ms: 250"}, wait.Throttled, 250 * time.Millisecond},
		{504, nil, wait.Transient, 0},
	} {
		err := wait.CheckResponse(&http.Response{StatusCode: c.status, Header: header(c.lines...)})
		if c.want == 0 {
			if err != nil {
				t.Errorf("%d: %v", c.status, err)
			}
			continue
		}
		var e *wait.ResponseError
		if !errors.As(err, &e) || e.Status != c.status || e.Code() != fmt.Sprintf("http_%d", c.status) {
			t.Fatalf("%d: %v", c.status, err)
		}
		outcome, hint := wait.Judge(fmt.Errorf("asking: %w", err))
		delay, ok := e.NextRetryDelay()
		if outcome != c.want || hint != e.Hint || delay != c.delay || ok != (c.delay > 0) {
			t.Errorf("%d %v: %v, %+v, next in %v (%v); want %v, %v", c.status, c.lines, outcome, hint, delay, ok, c.want, c.delay)
		}
		if hint.Hard != (c.want == wait.Throttled) {
			t.Errorf("%d %v: hard %v", c.status, c.lines, hint.Hard)
		}
	}
}

func TestResponseErrorKeepsSecretsAndBody(t *testing.T) {
	u, err := url.Parse("https://ann:secret@example.com/v1/jobs/a%2Fb?token=secret#secret")
	if err != nil {
		t.Fatal(err)
	}
	body := strings.Repeat("x", 511) + "é, and more"
	closed := false
	resp := &http.Response{StatusCode: 503, Header: header("Retry-After: 7"), Request: &http.Request{URL: u},
		Body: closer{strings.NewReader(body), &closed}}
	var e *wait.ResponseError
	if !errors.As(wait.CheckResponse(resp), &e) {
		t.Fatal("no error")
	}
	if want := "GET https://example.com/v1/jobs/a%2Fb: 503 Service Unavailable (Retry-After: 7s)"; e.Error() != want {
		t.Errorf("%q, want %q", e.Error(), want)
	}
	if e.Body != strings.Repeat("x", 511) { // and no half of a letter
		t.Errorf("body %q", e.Body)
	}
	if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != body {
		t.Errorf("of the body is left %q, %v", rest, err)
	}
	if closed {
		t.Error("the body was closed, which is the caller's to do")
	}
	if err := resp.Body.Close(); err != nil || !closed {
		t.Error("Close does not reach the body")
	}
	if got := (&wait.ResponseError{Status: 599}).Error(); got != "599" {
		t.Errorf("of nothing but a status: %q", got)
	}
}

type closer struct {
	io.Reader
	closed *bool
}

func (c closer) Close() error {
	*c.closed = true
	return nil
}

func TestCheckResponseOfAServer(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	resp, err := server.Client().Get(server.URL + "/jobs?key=secret")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var e *wait.ResponseError
	if !errors.As(wait.CheckResponse(resp), &e) || e.URL != server.URL+"/jobs" || e.Method != "GET" || e.Body != "404 page not found\n" {
		t.Errorf("%+v", e)
	}
}
