package keyset_test

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/bide-dev/bide/internal/keyset"
)

func FuzzAfter(f *testing.F) {
	for _, s := range []string{"", "a", "a\xff", "\xff\xff", "\U0010ffff", "a\U0010ffff", "\uffff", "run_", "\xc3", "\xed\x9f\xbf"} {
		for _, rest := range []string{"", "x", "\U0010ffff\U0010ffff", "\xff\xff"} {
			f.Add(s, rest)
		}
	}
	f.Fuzz(func(t *testing.T, prefix, rest string) {
		after := keyset.After(prefix)
		if whole := prefix + rest; whole >= after && utf8.ValidString(whole) {
			t.Errorf("%q is not below %q", whole, after)
		}
		if utf8.ValidString(prefix) && !utf8.ValidString(after) {
			t.Errorf("after %q: %q is no UTF-8", prefix, after)
		}
		if utf8.ValidString(prefix) && strings.TrimRight(prefix, "\U0010ffff") != "" && len(after) > len(prefix)+1 {
			t.Errorf("after %q: %q is far away", prefix, after)
		}
	})
}

func TestSpans(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		k, digits := 1+r.Int64N(1<<(1+r.IntN(57))), strconv.FormatInt(1+r.Int64N(1<<r.IntN(30)), 32)
		if r.IntN(2) == 0 {
			digits = strconv.FormatInt(k, 32)
			digits = digits[:1+r.IntN(len(digits))]
		}
		in := false
		for _, span := range keyset.Spans(digits) {
			in = in || span[0] <= k && k < span[1]
		}
		if want := strings.HasPrefix(strconv.FormatInt(k, 32), digits); in != want {
			t.Errorf("%s begins with %s: %v, want %v", strconv.FormatInt(k, 32), digits, in, want)
		}
	}
	for _, digits := range []string{"", "0", "01", "A", "-1", "w", "+1", strings.Repeat("1", 20)} {
		if got := keyset.Spans(digits); got != nil {
			t.Errorf("%q: %v", digits, got)
		}
	}
}
