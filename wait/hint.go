package wait

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Hint is what a server has said about when to ask again.
type Hint struct {
	After time.Duration `json:"after_ns,omitempty"` // not before, from the answer on; 0: nothing said
	// Hard: it has refused an answer, or will refuse the next. A check at a
	// deadline yields to a hard floor, not to a soft one. Hard without After is a
	// refusal that does not say for how long.
	Hard bool `json:"hard,omitempty"`
	// Interval is the least interval of all further checks (X-Poll-Interval); 0:
	// nothing said, the last one holds.
	Interval time.Duration `json:"interval_ns,omitempty"`
	Source   string        `json:"source,omitempty"` // the header that said it
}

// ParseHint reads the headers of an answer: retry-after-ms and
// x-ms-retry-after-ms before Retry-After (RFC 9110 §10.2.3: seconds or a date),
// before RateLimit (r=0 and t), before X-RateLimit-Remaining: 0 with
// X-RateLimit-Reset; and X-Poll-Interval. A date counts from the answer's own
// Date, now stands in where it has none. What is malformed, past or zero is no
// hint. A hint is hard on an answer that [Throttles], and on any when the quota
// is used up.
func ParseHint(status int, h http.Header, now time.Time) Hint {
	var hint Hint
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	if s, ok := digits(h.Get("X-Poll-Interval")); ok {
		hint.Interval = times(time.Second, s)
	}
	quota, spent := spentQuota(h, now)
	for _, source := range []func() (time.Duration, string){
		func() (time.Duration, string) { return milliseconds(h, "Retry-After-Ms") },
		func() (time.Duration, string) { return milliseconds(h, "X-Ms-Retry-After-Ms") },
		func() (time.Duration, string) {
			d, _ := retryAfter(h, now)
			return d, "Retry-After"
		},
		func() (time.Duration, string) { return quota.After, quota.Source },
	} {
		if after, name := source(); after > 0 {
			hint.After, hint.Source = after, name
			break
		}
	}
	hint.Hard = hint.After > 0 && spent || Throttles(status, h)
	return hint
}

// Throttles reports whether the answer refuses because of how often it is asked:
// a 429, or a 403 or 503 that says for how long or that the quota is used up.
func Throttles(status int, h http.Header) bool {
	switch status {
	case http.StatusTooManyRequests:
		return true
	case http.StatusForbidden, http.StatusServiceUnavailable:
		for _, name := range []string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
			if _, ok := digits(h.Get(name)); ok {
				return true
			}
		}
		_, asked := retryAfter(h, time.Time{})
		_, spent := spentQuota(h, time.Time{})
		return asked || spent
	}
	return false
}

func milliseconds(h http.Header, name string) (time.Duration, string) {
	ms, _ := digits(h.Get(name))
	return times(time.Millisecond, ms), name
}

// retryAfter reports false for a Retry-After that is absent or malformed; one
// that is past is 0.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if s, ok := digits(v); ok {
		return times(time.Second, s), true
	}
	date, err := http.ParseTime(v)
	return since(now, date), err == nil
}

// spentQuota reports whether a quota is used up, and for how long if that is
// said. Of several the longest counts.
func spentQuota(h http.Header, now time.Time) (hint Hint, spent bool) {
	for _, item := range splitOutsideQuotes(strings.Join(h.Values("RateLimit"), ","), ',') {
		left, reset := 1.0, 0.0
		for i, param := range splitOutsideQuotes(item, ';') {
			key, value, _ := strings.Cut(strings.TrimSpace(param), "=")
			n, ok := digits(value)
			switch {
			case i == 0 || !ok: // the name of the policy
			case key == "r":
				left = n
			case key == "t":
				reset = n
			}
		}
		if left == 0 {
			spent = true
			if after := times(time.Second, reset); after > hint.After {
				hint.After, hint.Source = after, "RateLimit"
			}
		}
	}
	if left, ok := digits(h.Get("X-RateLimit-Remaining")); ok && left == 0 {
		spent = true
		if reset, ok := digits(h.Get("X-RateLimit-Reset")); ok && hint.After == 0 && reset <= math.MaxUint32 {
			if hint.After = since(now, time.Unix(int64(reset), 0)); hint.After > 0 {
				hint.Source = "X-RateLimit-Reset"
			}
		}
	}
	return hint, spent
}

// splitOutsideQuotes splits a list of structured fields, whose strings may hold
// the separator.
func splitOutsideQuotes(s string, separator rune) []string {
	quoted, escaped := false, false
	return strings.FieldsFunc(s, func(r rune) bool {
		switch {
		case escaped:
			escaped = false
		case quoted && r == '\\':
			escaped = true
		case r == '"':
			quoted = !quoted
		}
		return r == separator && !quoted
	})
}

// digits reads a number as the standards have it: no sign, no fraction.
func digits(s string) (float64, bool) {
	s = strings.TrimSpace(s)
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil
}
