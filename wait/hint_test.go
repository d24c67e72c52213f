package wait_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bide-dev/bide/wait"
)

// header makes a header of "name: value" lines.
func header(lines ...string) http.Header {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return h
}

func TestParseHint(t *testing.T) {
	const s = time.Second
	at := func(d time.Duration) string { return day.Add(d).Format(http.TimeFormat) }
	epoch := func(d time.Duration) string { return fmt.Sprint(day.Add(d).Unix()) }
	for _, c := range []struct {
		name   string
		status int
		lines  []string
		want   wait.Hint
	}{
		{"nothing", 200, nil, wait.Hint{}},
		{"seconds", 202, []string{"Retry-After: 120"}, wait.Hint{After: 120 * s, Source: "Retry-After"}},
		{"spaces", 202, []string{"Retry-After:  7 "}, wait.Hint{After: 7 * s, Source: "Retry-After"}},
		{"date by the answer's own clock", 202, []string{"Retry-After: " + at(time.Hour+30*s), "Date: " + at(time.Hour)}, wait.Hint{After: 30 * s, Source: "Retry-After"}},
		{"date by our clock", 202, []string{"Retry-After: " + at(30*s)}, wait.Hint{After: 30 * s, Source: "Retry-After"}},
		{"date by our clock, since theirs is malformed", 202, []string{"Retry-After: " + at(30*s), "Date: noon"}, wait.Hint{After: 30 * s, Source: "Retry-After"}},
		{"past date", 202, []string{"Retry-After: " + at(-s)}, wait.Hint{}},
		{"zero", 202, []string{"Retry-After: 0"}, wait.Hint{}},
		{"negative", 202, []string{"Retry-After: -5"}, wait.Hint{}},
		{"fraction", 202, []string{"Retry-After: 1.5"}, wait.Hint{}},
		{"words", 202, []string{"Retry-After: soon"}, wait.Hint{}},
		{"beyond a Duration", 202, []string{"Retry-After: 99999999999999999999"}, wait.Hint{After: forever, Source: "Retry-After"}},
		{"beyond a float", 202, []string{"Retry-After: " + strings.Repeat("9", 400)}, wait.Hint{}},

		{"milliseconds first", 202, []string{"Retry-After: 9", "retry-after-ms: 250"}, wait.Hint{After: 250 * time.Millisecond, Source: "Retry-After-Ms"}},
		{"their other name", 202, []string{"Retry-After: 9", "x-ms-retry-after-ms: 250"}, wait.Hint{After: 250 * time.Millisecond, Source: "X-Ms-Retry-After-Ms"}},
		{"malformed milliseconds", 202, []string{"Retry-After: 9", "retry-after-ms: 2e3"}, wait.Hint{After: 9 * s, Source: "Retry-After"}},

		{"429", 429, []string{"Retry-After: 9"}, wait.Hint{After: 9 * s, Source: "Retry-After", Hard: true}},
		{"429 without a time", 429, nil, wait.Hint{Hard: true}},
		{"503", 503, []string{"Retry-After: 9"}, wait.Hint{After: 9 * s, Source: "Retry-After", Hard: true}},
		{"503 without a time", 503, nil, wait.Hint{}},
		{"503 with nonsense", 503, []string{"Retry-After: soon"}, wait.Hint{}},
		{"403", 403, []string{"Retry-After: 9"}, wait.Hint{After: 9 * s, Source: "Retry-After", Hard: true}},
		{"403, and now again", 403, []string{"Retry-After: 0"}, wait.Hint{Hard: true}},
		{"500", 500, []string{"Retry-After: 9"}, wait.Hint{After: 9 * s, Source: "Retry-After"}},

		{"quota", 200, []string{`RateLimit: "default";r=0;t=30`}, wait.Hint{After: 30 * s, Source: "RateLimit", Hard: true}},
		{"quota left", 200, []string{`RateLimit: "default";r=1;t=30`}, wait.Hint{}},
		{"the longest of the spent quotas", 200, []string{`RateLimit: "a";r=0;t=30, "b";t=60;r=0`, `RateLimit: "c";r=5;t=90`}, wait.Hint{After: 60 * s, Source: "RateLimit", Hard: true}},
		{"quota of a name with separators", 200, []string{`RateLimit: "a;r=1,\"";r=0;t=30`}, wait.Hint{After: 30 * s, Source: "RateLimit", Hard: true}},
		{"malformed quota", 200, []string{`RateLimit: "a";r=none;t=30`}, wait.Hint{}},
		{"spent quota without a time", 200, []string{`RateLimit: "a";r=0`}, wait.Hint{}},
		{"Retry-After before the quota", 200, []string{`RateLimit: "a";r=0;t=30`, "Retry-After: 5"}, wait.Hint{After: 5 * s, Source: "Retry-After", Hard: true}},
		{"429 with a quota left", 429, []string{`RateLimit: "a";r=3;t=30`}, wait.Hint{Hard: true}},

		{"reset", 200, []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: " + epoch(time.Minute)}, wait.Hint{After: time.Minute, Source: "X-RateLimit-Reset", Hard: true}},
		{"reset by the answer's own clock", 403, []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: " + epoch(time.Hour), "Date: " + at(59*time.Minute)}, wait.Hint{After: time.Minute, Source: "X-RateLimit-Reset", Hard: true}},
		{"reset is past", 403, []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: " + epoch(-s)}, wait.Hint{Hard: true}},
		{"reset of a quota that is left", 200, []string{"X-RateLimit-Remaining: 10", "X-RateLimit-Reset: " + epoch(time.Minute)}, wait.Hint{}},
		{"the other quota first", 200, []string{`RateLimit: "a";r=0;t=30`, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: " + epoch(time.Minute)}, wait.Hint{After: 30 * s, Source: "RateLimit", Hard: true}},

		{"sticky", 304, []string{"X-Poll-Interval: 60"}, wait.Hint{Interval: 60 * s}},
		{"both", 200, []string{"X-Poll-Interval: 60", "Retry-After: 5"}, wait.Hint{After: 5 * s, Source: "Retry-After", Interval: 60 * s}},
		{"malformed sticky", 200, []string{"X-Poll-Interval: 60s"}, wait.Hint{}},
	} {
		if got := wait.ParseHint(c.status, header(c.lines...), day); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	if got := wait.ParseHint(200, nil, day); got != (wait.Hint{}) {
		t.Errorf("no header: %+v", got)
	}
}

func TestThrottles(t *testing.T) {
	for _, c := range []struct {
		status int
		line   string
		want   bool
	}{
		{429, "", true},
		{403, "", false},
		{503, "", false},
		{403, "Retry-After: 5", true},
		{503, "Retry-After: Sat, 21 Nov 2026 08:00:00 GMT", true},
		{503, "Retry-After: tomorrow", false},
		{503, "retry-after-ms: 5", true},
		{503, "x-ms-retry-after-ms: 5", true},
		{403, "X-RateLimit-Remaining: 0", true},
		{403, "X-RateLimit-Remaining: 1", false},
		{503, `RateLimit: "a";r=0`, true},
		{401, "Retry-After: 5", false},
		{500, "Retry-After: 5", false},
		{200, "X-RateLimit-Remaining: 0", false},
	} {
		if got := wait.Throttles(c.status, header(c.line)); got != c.want {
			t.Errorf("%d with %q: %v", c.status, c.line, got)
		}
	}
}

func FuzzParseHint(f *testing.F) {
	f.Add(429, "120", "", "", "", "", "", "")
	f.Add(200, "Sat, 21 Nov 2026 08:00:00 GMT", "Sat, 21 Nov 2026 07:59:00 GMT", "5", `"a";r=0;t=9, "b`, "0", "1795244400", "60")
	f.Add(403, "99999999999999999999", "x", strings.Repeat("9", 400), `;;r=0;"\`, "00", "99999999999", "-1")
	f.Fuzz(func(t *testing.T, status int, retryAfter, date, ms, quota, remaining, reset, interval string) {
		h := http.Header{}
		for name, value := range map[string]string{"Retry-After": retryAfter, "Date": date, "Retry-After-Ms": ms,
			"Ratelimit": quota, "X-Ratelimit-Remaining": remaining, "X-Ratelimit-Reset": reset, "X-Poll-Interval": interval} {
			if value != "" {
				h[name] = []string{value}
			}
		}
		got := wait.ParseHint(status, h, day)
		switch {
		case got.After < 0 || got.Interval < 0:
			t.Fatalf("into the past: %+v", got)
		case (got.After > 0) != (got.Source != ""):
			t.Fatalf("a time and its source go together: %+v", got)
		case wait.Throttles(status, h) && !got.Hard:
			t.Fatalf("throttled, and not hard: %+v", got)
		case got.Hard && got.After == 0 && !wait.Throttles(status, h):
			t.Fatalf("hard for nothing: %+v", got)
		}
	})
}
