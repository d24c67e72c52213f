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
	After time.Duration // not before, from the answer on; 0: nothing said
	// Hard: it has refused an answer, or will refuse the next. A check at a
	// deadline yields to a hard floor, not to a soft one.
	Hard bool
	// Interval is the least interval of all further checks (X-Poll-Interval); 0:
	// nothing said, the last one holds.
	Interval time.Duration
	Source   string // the header that said it
}

// ParseHint reads the headers of an answer: retry-after-ms and
// x-ms-retry-after-ms before Retry-After (RFC 9110 §10.2.3: seconds or a date),
// before X-RateLimit-Remaining: 0 with X-RateLimit-Reset; and X-Poll-Interval. A
// date counts from the answer's own Date, now stands in where it has none. What
// is malformed, past or zero is no hint. A hint is hard on a 429 and, with a
// remaining quota of 0, on any status, and on a 403 or 503 that names a time.
func ParseHint(status int, h http.Header, now time.Time) Hint {
	var hint Hint
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	if s, ok := number(h.Get("X-Poll-Interval")); ok {
		hint.Interval = seconds(s)
	}
	for _, name := range []string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
		if ms, ok := number(h.Get(name)); ok && ms > 0 && hint.After == 0 {
			hint.After, hint.Source = times(time.Millisecond, ms), name
		}
	}
	if v := strings.TrimSpace(h.Get("Retry-After")); v != "" && hint.After == 0 {
		if s, ok := number(v); ok {
			hint.After = seconds(s)
		} else if date, err := http.ParseTime(v); err == nil {
			hint.After = since(now, date)
		}
		if hint.After > 0 {
			hint.Source = "Retry-After"
		}
	}
	spent := strings.TrimSpace(h.Get("X-RateLimit-Remaining")) == "0"
	if reset, ok := number(h.Get("X-RateLimit-Reset")); spent && ok && hint.After == 0 && reset < math.MaxInt32*2 {
		if hint.After = since(now, time.Unix(int64(reset), 0)); hint.After > 0 {
			hint.Source = "X-RateLimit-Reset"
		}
	}
	hint.Hard = hint.After > 0 && (spent || Throttles(status, h))
	return hint
}

// Throttles reports whether the answer refuses because of how often it is asked:
// a 429, or a 403 or 503 that says for how long or that the quota is used up.
func Throttles(status int, h http.Header) bool {
	switch status {
	case http.StatusTooManyRequests:
		return true
	case http.StatusForbidden, http.StatusServiceUnavailable:
		return h.Get("Retry-After") != "" || h.Get("Retry-After-Ms") != "" || h.Get("X-Ms-Retry-After-Ms") != "" ||
			strings.TrimSpace(h.Get("X-RateLimit-Remaining")) == "0"
	}
	return false
}

// number reads digits, as the standards have it: no sign, no fraction.
func number(s string) (float64, bool) {
	s = strings.TrimSpace(s)
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil && f >= 0
}

func seconds(s float64) time.Duration { return times(time.Second, s) }
