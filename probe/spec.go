package probe

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/bide-dev/bide"
)

// Spec says what to ask for and how to judge the answers. It reads the same from
// JSON and YAML. URL, the values of Headers and Body may hold references to
// environment variables, ${env:NAME}, that are resolved for each request and
// never kept.
type Spec struct {
	URL     string            `json:"url" yaml:"url"`                             // http or https
	Method  string            `json:"method,omitempty" yaml:"method,omitempty"`   // GET (the default), HEAD or POST: a check must be an idempotent read
	Headers map[string]string `json:"headers,omitempty" yaml:"headers,omitempty"` // the probe's own, such as If-None-Match, cannot be set
	Body    string            `json:"body,omitempty" yaml:"body,omitempty"`

	// Until is a CEL condition that says of a 2xx whether it is what is waited for.
	// One that asks for status is put to every answer. Without it the status alone
	// says: 202 is pending, any other 2xx is the end.
	Until string `json:"until,omitempty" yaml:"until,omitempty"`
	// Accept are asked before all other rules, in their order.
	Accept []Acceptor `json:"accept,omitempty" yaml:"accept,omitempty"`
	// Progress (CEL, a number from 0 to 100) and ETA (CEL, a timestamp, a duration
	// from now, or a string with a timestamp of RFC 3339) are read from each 2xx.
	// What cannot be read says nothing.
	Progress string `json:"progress,omitempty" yaml:"progress,omitempty"`
	ETA      string `json:"eta,omitempty" yaml:"eta,omitempty"`

	// NotFoundGrace is how long a 404 is pending while no 2xx has come: what was
	// submitted a moment ago may not be there yet. Default 30 s.
	NotFoundGrace Duration `json:"not_found_grace,omitempty" yaml:"not_found_grace,omitempty"`
	Timeout       Duration `json:"timeout,omitempty" yaml:"timeout,omitempty"`             // of one attempt with its redirects; default 30 s
	MaxBody       int64    `json:"max_body,omitempty" yaml:"max_body,omitempty"`           // bytes, decompressed; default, and most, 1 MiB
	MaxRedirects  int      `json:"max_redirects,omitempty" yaml:"max_redirects,omitempty"` // default 5, at most 20
}

// Acceptor gives the answers for which When holds a meaning.
type Acceptor struct {
	State   string `json:"state" yaml:"state"`                         // success, failure or retry
	When    string `json:"when" yaml:"when"`                           // CEL, a bool
	Message string `json:"message,omitempty" yaml:"message,omitempty"` // CEL, a string: what to say of it
}

// The states of an [Acceptor].
const (
	Success = "success"
	Failure = "failure"
	Retry   = "retry"
)

// Duration is a [time.Duration] that is written as "10s" in JSON and YAML.
type Duration time.Duration

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return &bide.InvalidError{Field: "duration", Reason: fmt.Sprintf("%q is none; write 500ms, 10s, 5m or 1h30m", text)}
	}
	*d = Duration(v)
	return nil
}

const (
	mostBody      = 1 << 20
	mostRedirects = 20
	mostText      = 64 << 10 // bytes of all that is sent
)

// filled returns the Spec with its defaults.
func (s Spec) filled() Spec {
	fill := func(d *Duration, v time.Duration) {
		if *d == 0 {
			*d = Duration(v)
		}
	}
	fill(&s.NotFoundGrace, 30*time.Second)
	fill(&s.Timeout, 30*time.Second)
	if s.Method == "" {
		s.Method = http.MethodGet
	}
	if s.MaxBody == 0 {
		s.MaxBody = mostBody
	}
	if s.MaxRedirects == 0 {
		s.MaxRedirects = 5
	}
	return s
}

func invalid(field, format string, args ...any) error {
	return &bide.InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// check says what is wrong with a filled Spec, its CEL left aside.
func (s *Spec) check() error {
	if err := s.checkURL(); err != nil {
		return err
	}
	size := len(s.URL) + len(s.Body)
	for name, value := range s.Headers {
		size += len(name) + len(value)
	}
	switch {
	case !slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodPost}, s.Method):
		return invalid("method", "is %q; a check is an idempotent read: GET, HEAD or POST", s.Method)
	case s.Body != "" && s.Method != http.MethodPost:
		return invalid("body", "is only sent with the method POST, not %s", s.Method)
	case size > mostText:
		return invalid("body", "url, headers and body are %d bytes together, at most %d are sent", size, mostText)
	case s.NotFoundGrace < 0:
		return invalid("not_found_grace", "is negative")
	case s.Timeout < 0:
		return invalid("timeout", "is negative")
	case s.MaxBody < 0 || s.MaxBody > mostBody:
		return invalid("max_body", "is %d; it must be from 1 to %d bytes", s.MaxBody, mostBody)
	case s.MaxRedirects < 0 || s.MaxRedirects > mostRedirects:
		return invalid("max_redirects", "is %d; it must be from 1 to %d", s.MaxRedirects, mostRedirects)
	}
	if err := checkReferences("body", s.Body); err != nil {
		return err
	}
	return s.checkHeaders()
}

// checkURL checks what can be known before references are resolved.
func (s *Spec) checkURL() error {
	if s.URL == "" {
		return invalid("url", "is empty")
	}
	if err := checkReferences("url", s.URL); err != nil {
		return err
	}
	_, err := parseURL(s.placeholders())
	return err
}

// placeholders is the URL with something harmless for each reference.
func (s *Spec) placeholders() string {
	text := reference.ReplaceAllString(s.URL, "x")
	if strings.HasPrefix(s.URL, "${env:") {
		text = "http://" + text
	}
	return text
}

// template is the URL of a Spec that has been checked, before its references are
// resolved.
func (s *Spec) template() *url.URL {
	u, _ := parseURL(s.placeholders())
	return u
}

// parseURL returns an [bide.InvalidError] that does not repeat the URL: there may
// be secrets in it.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, invalid("url", "cannot be parsed; it must be like https://example.org/jobs/7")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, invalid("url", "must begin with http:// or https://")
	case u.Hostname() == "":
		return nil, invalid("url", "names no host")
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}

// ownHeaders are those that the probe or the connection sets.
var ownHeaders = []string{"Accept-Encoding", "Connection", "Content-Length", "If-Modified-Since", "If-None-Match",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade"}

func (s *Spec) checkHeaders() error {
	seen := map[string]bool{}
	for name, value := range s.Headers {
		field := "headers." + name
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case name == "" || strings.ContainsFunc(name, notToken):
			return invalid("headers", "%q is no header name", name)
		case slices.Contains(ownHeaders, canonical):
			return invalid(field, "is set by the probe itself; leave it out")
		case seen[canonical]:
			return invalid(field, "is given twice, in different letters")
		case !fitsHeader(value):
			return invalid(field, "has a control character in its value")
		}
		seen[canonical] = true
		if err := checkReferences(field, value); err != nil {
			return err
		}
	}
	return nil
}

// notToken reports whether a header name must not have the character (RFC 9110
// §5.6.2).
func notToken(r rune) bool {
	letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", r) || r == utf8.RuneError
}

func fitsHeader(value string) bool {
	return !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}
