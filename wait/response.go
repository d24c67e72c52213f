package wait

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// ResponseError is an HTTP response that is not the one wanted.
type ResponseError struct {
	Status int    `json:"status"`
	Method string `json:"method,omitempty"`
	URL    string `json:"url,omitempty"` // without user, query and fragment, where secrets are
	Hint   Hint   `json:"hint,omitzero"`
	Body   string `json:"body,omitempty"` // its first 512 bytes
}

const errorBody = 512

// CheckResponse returns a [*ResponseError] unless the response is one to go on
// with: a 2xx, 304 (as before) or 303 (it is elsewhere). What that error means is
// for [Judge] to tell. The body of the response can still be read from its
// beginning, and it is still the caller's to close.
func CheckResponse(resp *http.Response) error {
	status := resp.StatusCode
	if status >= 200 && status < 300 || status == http.StatusSeeOther || status == http.StatusNotModified {
		return nil
	}
	e := &ResponseError{Status: status, Hint: ParseHint(status, resp.Header, time.Now())}
	if r := resp.Request; r != nil {
		e.Method = r.Method
		if e.Method == "" {
			e.Method = http.MethodGet
		}
		if r.URL != nil {
			e.URL = (&url.URL{Scheme: r.URL.Scheme, Opaque: r.URL.Opaque, Host: r.URL.Host, Path: r.URL.Path, RawPath: r.URL.RawPath}).String()
		}
	}
	if resp.Body != nil {
		// An error of the body comes again to whoever reads on.
		head, _ := io.ReadAll(io.LimitReader(resp.Body, errorBody))
		e.Body = strings.ToValidUTF8(string(head), "")
		resp.Body = &reread{io.MultiReader(bytes.NewReader(head), resp.Body), resp.Body}
	}
	return e
}

// reread is a body whose beginning has been read already.
type reread struct {
	io.Reader
	io.Closer
}

func (e *ResponseError) Error() string {
	s := strings.TrimSpace(e.Method + " " + e.URL)
	if s != "" {
		s += ": "
	}
	s += strings.TrimSpace(strconv.Itoa(e.Status) + " " + http.StatusText(e.Status))
	if e.Hint.After > 0 {
		s += fmt.Sprintf(" (%s: %v)", e.Hint.Source, e.Hint.After)
	}
	return s
}

// Code returns "http_" and the status.
func (e *ResponseError) Code() string { return "http_" + strconv.Itoa(e.Status) }

// Permanent reports whether the same request would be refused again: for a 4xx,
// but for 408, 425 and those that are [ResponseError.Throttled]; and for 501.
func (e *ResponseError) Permanent() bool {
	switch e.Status {
	case http.StatusRequestTimeout, http.StatusTooEarly:
		return false
	case http.StatusNotImplemented:
		return true
	}
	return e.Status >= 400 && e.Status < 500 && !e.Throttled()
}

// Throttled reports whether the response refuses because of how often it is asked
// for; see [Throttles].
func (e *ResponseError) Throttled() bool {
	switch e.Status {
	case http.StatusTooManyRequests:
		return true
	case http.StatusForbidden, http.StatusServiceUnavailable:
		return e.Hint.Hard
	}
	return false
}

// WaitHint returns Hint.
func (e *ResponseError) WaitHint() Hint { return e.Hint }

// NextRetryDelay returns what the server asked for, and whether it did.
func (e *ResponseError) NextRetryDelay() (time.Duration, bool) {
	return e.Hint.After, e.Hint.After > 0
}
