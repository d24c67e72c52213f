package probe

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bide-dev/bide/wait"
)

func TestPlainRateLimit(t *testing.T) {
	for _, c := range []struct {
		name   string
		header http.Header
		after  time.Duration
		hard   bool
	}{
		{"left", http.Header{"Ratelimit": {`"default";r=50;t=30`}}, 0, false},
		{"spent", http.Header{"Ratelimit": {`"default";r=0;t=30`}}, 30 * time.Second, true},
		{"a token", http.Header{"Ratelimit": {`default;r=0;t=30`}}, 30 * time.Second, true},
		{"other parameters", http.Header{"Ratelimit": {`"a";t=30;pk=:cGs=:;r=0`}}, 30 * time.Second, true},
		{"without a time", http.Header{"Ratelimit": {`"default";r=0`}}, 0, false},
		{"the longest", http.Header{"Ratelimit": {`"a";r=0;t=3, "b";r=0;t=40`, `"c";r=9;t=99`}}, 40 * time.Second, true},
		{"an old draft", http.Header{"Ratelimit": {`limit=100, remaining=0, reset=7`}}, 7 * time.Second, true},
		{"an old draft, left", http.Header{"Ratelimit": {`limit=100, remaining=1, reset=7`}}, 0, false},
		{"one number a header", http.Header{"Ratelimit-Remaining": {"0"}, "Ratelimit-Reset": {"7"}}, 7 * time.Second, true},
		{"the new form first", http.Header{"Ratelimit": {`"a";r=1;t=5`}, "Ratelimit-Remaining": {"0"}, "Ratelimit-Reset": {"7"}}, 0, false},
		{"Retry-After first", http.Header{"Ratelimit": {`"a";r=0;t=5`}, "Retry-After": {"2"}}, 2 * time.Second, true},

		{"an open string", http.Header{"Ratelimit": {`"default;r=0;t=30`}}, 0, false},
		{"a fraction", http.Header{"Ratelimit": {`"default";r=0.5;t=30`}}, 0, false},
		{"a string for a number", http.Header{"Ratelimit": {`"default";r="0";t=30`}}, 0, false},
		{"a time that is none", http.Header{"Ratelimit": {`"default";r=0;t=soon`}}, 0, false},
		{"below 0", http.Header{"Ratelimit": {`"default";r=-1;t=30`}}, 0, false},
		{"one malformed of two", http.Header{"Ratelimit": {`"a";r=0;t=30, "b";r=;t=1`}}, 0, false},
		{"without what is left", http.Header{"Ratelimit": {`"default";t=30`}}, 0, false},
		{"an inner list", http.Header{"Ratelimit": {`("a";r=0;t=30)`}}, 0, false},
		{"empty", http.Header{"Ratelimit": {``}}, 0, false},
		{"malformed numbers", http.Header{"Ratelimit-Remaining": {"none"}, "Ratelimit-Reset": {"7"}}, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			plainRateLimit(c.header)
			got := wait.ParseHint(200, c.header, time.Now())
			if got.After != c.after || got.Hard != c.hard {
				t.Errorf("%v says after %v, hard %v; want %v, %v", c.header, got.After, got.Hard, c.after, c.hard)
			}
		})
	}
}

// What is left of any header is in the plain form, and stays as it is.
func FuzzPlainRateLimit(f *testing.F) {
	for _, seed := range []string{`"default";r=0;t=30`, `limit=100, remaining=0, reset=7`, `a;r=1,b;r=2;t=999999999999999`, `"`, `();r=1`, "\x00"} {
		f.Add(seed, "0", "7")
	}
	f.Fuzz(func(t *testing.T, value, remaining, reset string) {
		h := http.Header{"Ratelimit": {value}, "Ratelimit-Remaining": {remaining}, "Ratelimit-Reset": {reset}}
		plainRateLimit(h)
		once := strings.Join(h.Values("RateLimit"), ",")
		hint := wait.ParseHint(200, h, time.Unix(0, 0))
		if hint.After < 0 || hint.Hard && once == "" {
			t.Fatalf("%q became %q, which says %+v", value, once, hint)
		}
		plainRateLimit(h)
		if again := strings.Join(h.Values("RateLimit"), ","); once != "" && again != once {
			t.Fatalf("%q became %q, and then %q", value, once, again)
		}
	})
}
