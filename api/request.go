package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/bide-dev/bide"
)

// body reads a request's JSON; nil for none.
func (h *Handler) body(w http.ResponseWriter, r *http.Request) (json.RawMessage, error) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.cfg.MaxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return nil, err
	}
	if err != nil {
		return nil, invalid("body", "cannot be read to its end")
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, nil
	}
	// A form of another site can send neither this type nor ask for leave to.
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" && !strings.HasSuffix(media, "+json") {
		return nil, refusal(unsupportedMedia, "send it with Content-Type: application/json (curl: --json)")
	}
	if !utf8.Valid(data) {
		return nil, invalid("body", "is not UTF-8")
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, data); err != nil {
		return nil, invalid("body", "is not JSON: "+err.Error())
	}
	if name, twice := repeated(compact.Bytes()); twice {
		p := refusal(invalidInput, strconv.Quote(name)+" stands twice in one object: which of them is meant?")
		p.Field = name
		return nil, p
	}
	return compact.Bytes(), nil
}

// repeated finds a member that an object in the JSON has twice. Some readers take the
// first, others the last: whoever looks at a request before us may see another one.
func repeated(data []byte) (name string, twice bool) {
	var open []map[string]bool // nil: an array
	key := false
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '{':
			open, key = append(open, map[string]bool{}), true
		case '[':
			open, key = append(open, nil), false
		case '}', ']':
			open = open[:len(open)-1]
		case ',':
			key = open[len(open)-1] != nil
		case '"':
			begin := i
			for i++; data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
			if !key {
				continue
			}
			key = false
			_ = json.Unmarshal(data[begin:i+1], &name) // it is valid
			names := open[len(open)-1]
			if names[name] {
				return name, true
			}
			names[name] = true
		}
	}
	return "", false
}

// nothing refuses a body in which something is said that would not be heeded.
func (h *Handler) nothing(w http.ResponseWriter, r *http.Request) error {
	o, err := h.object(w, r)
	if err != nil {
		return err
	}
	return o.done()
}

// value reads a request's body as one value, null for none.
func (h *Handler) value(w http.ResponseWriter, r *http.Request, field string) (json.RawMessage, error) {
	data, err := h.body(w, r)
	if err != nil {
		return nil, err
	}
	if data == nil {
		return json.RawMessage("null"), nil
	}
	if len(data) > bide.MaxPayload {
		return nil, &bide.PayloadTooLargeError{Field: field, Size: len(data), Limit: bide.MaxPayload}
	}
	return data, nil
}

// object reads a request's body as an object whose members are told one by one,
// so that each complaint names the member; one that nobody asks for is an error.
type object struct {
	members map[string]json.RawMessage
	err     error
}

func (h *Handler) object(w http.ResponseWriter, r *http.Request) (*object, error) {
	data, err := h.body(w, r)
	if err != nil {
		return nil, err
	}
	return parseObject(data)
}

func parseObject(data json.RawMessage) (*object, error) {
	o := &object{}
	if data == nil {
		return o, nil
	}
	if err := json.Unmarshal(data, &o.members); err != nil || o.members == nil {
		return nil, invalid("body", "must be a JSON object")
	}
	return o, nil
}

// take reads a member, and reports whether it is there; null is as if it were not.
func (o *object) take(name string, into any, what string) bool {
	data, ok := o.members[name]
	delete(o.members, name)
	if !ok || string(data) == "null" || o.err != nil {
		return false
	}
	if err := json.Unmarshal(data, into); err != nil {
		o.err = invalid(name, "must be "+what)
		return false
	}
	return true
}

func (o *object) text(name string) (s string) {
	o.take(name, &s, "a string")
	return s
}

func (o *object) duration(name string) (d time.Duration, given bool) {
	var s string
	if !o.take(name, &s, `a duration, such as "90s" or "72h"`) {
		return 0, false
	}
	d, err := time.ParseDuration(s)
	if err != nil && o.err == nil {
		o.err = invalid(name, `must be a duration, such as "90s" or "72h"`)
	}
	return d, true
}

// done says what is wrong with the object, if anything is.
func (o *object) done() error {
	if o.err != nil {
		return o.err
	}
	for _, name := range slices.Sorted(maps.Keys(o.members)) {
		p := refusal(invalidInput, strconv.Quote(name)+" is not known here; see /openapi.yaml")
		p.Field = name
		return p
	}
	return nil
}

// number reads a query parameter; def if it is not there.
func number(r *http.Request, name string, def, least, most int64) (int64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return def, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, invalid(name, "must be a whole number from "+strconv.FormatInt(least, 10)+" to "+strconv.FormatInt(most, 10))
	}
	return n, nil
}

// preferred is the wait of a Prefer header (RFC 7240), in seconds; what cannot be
// understood is passed over.
func preferred(r *http.Request) (n int64, given bool) {
	for _, line := range r.Header.Values("Prefer") {
		for preference := range strings.SplitSeq(line, ",") {
			token, _, _ := strings.Cut(preference, ";")
			name, text, _ := strings.Cut(token, "=")
			if !strings.EqualFold(strings.TrimSpace(name), "wait") || given {
				continue
			}
			n, err := strconv.ParseInt(strings.Trim(strings.TrimSpace(text), `"`), 10, 32)
			if err == nil && n >= 0 {
				return n, true
			}
		}
	}
	return 0, false
}

// longest is the most seconds that an answer is held.
const longest = 60

// patience is how long an answer is held at most.
type patience struct {
	most      time.Duration // 0: not at all
	preferred bool          // by a Prefer header
}

// holdFor is how long the request asks its answer to be held.
func holdFor(r *http.Request) (patience, error) {
	n, err := number(r, "wait", 0, 0, 1<<31)
	if err != nil {
		return patience{}, err
	}
	p, given := preferred(r)
	if given = given && !r.URL.Query().Has("wait"); given {
		n = p
	}
	return patience{time.Duration(min(n, longest)) * time.Second, given}, nil
}

// heeded says in an answer that was held that the preference was applied.
func (p patience) heeded(w http.ResponseWriter) {
	if p.preferred {
		w.Header().Set("Preference-Applied", "wait="+strconv.FormatInt(int64(p.most/time.Second), 10))
	}
}

// fits reports whether the ETag is among those of an If-None-Match header.
func fits(r *http.Request, tag string) bool {
	for _, line := range r.Header.Values("If-None-Match") {
		for t := range strings.SplitSeq(line, ",") {
			if t = strings.TrimPrefix(strings.TrimSpace(t), "W/"); t == tag || t == "*" {
				return true
			}
		}
	}
	return false
}
