package probe

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// Observation is what one answer has told. What is kept of it is the service's
// own words: the body is as it came, even should it repeat what it was sent.
type Observation struct {
	State   string            `json:"state"` // pending or succeeded
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers,omitempty"` // content-type, etag, last-modified and location
	Body    json.RawMessage   `json:"body,omitempty"`    // if it is JSON
	Text    string            `json:"text,omitempty"`    // if not
	Message string            `json:"message,omitempty"` // of the acceptor that fitted
	// Unchanged: the service said "as before", and the body is the last one known
	// to this process.
	Unchanged bool `json:"unchanged,omitempty"`
	// FetchedAt is when the answer was there. It is not kept: an observation that
	// says the same is to be the same.
	FetchedAt time.Time `json:"-"`
}

const (
	pending   = "pending"
	succeeded = "succeeded"
)

// Done reports whether this is what was waited for.
func (o Observation) Done() bool { return o.State == succeeded }

// Content is the body as it can be printed: JSON or text.
func (o Observation) Content() string {
	if o.Body != nil {
		return string(o.Body)
	}
	return o.Text
}

// answer is one HTTP answer, read.
type answer struct {
	request   *request
	status    int
	header    http.Header
	data      []byte
	truncated bool // there was more
	at        time.Time
	vars      map[string]any
}

func (a *answer) isOK() bool { return a.status >= 200 && a.status < 300 }

// understand reads the body, for conditions.
func (a *answer) understand(attempt int, elapsed time.Duration) {
	headers := map[string]string{}
	for name, values := range a.header {
		headers[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	var body any
	if json.Unmarshal(a.data, &body) != nil {
		body = nil
	}
	a.vars = map[string]any{
		varStatus:    int64(a.status),
		varHeaders:   headers,
		varBody:      body,
		varText:      strings.ToValidUTF8(string(a.data), "\uFFFD"),
		varAttempt:   int64(attempt),
		varElapsed:   elapsed,
		varUnchanged: a.status == http.StatusNotModified,
	}
}

func (a *answer) observation(state string) Observation {
	o := Observation{State: state, Status: a.status, FetchedAt: a.at}
	for _, name := range []string{"content-type", "etag", "last-modified", "location"} {
		if v := a.header.Get(name); v != "" {
			if o.Headers == nil {
				o.Headers = map[string]string{}
			}
			o.Headers[name] = a.request.secrets.scrub(v)
		}
	}
	if json.Valid(a.data) {
		o.Body = a.data
	} else {
		o.Text = strings.ToValidUTF8(string(a.data), "\uFFFD")
	}
	return o
}
