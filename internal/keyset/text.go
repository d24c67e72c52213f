package keyset

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// After is a text that is above all that begin with the prefix, and the first such
// in the order of bytes if there is one. It is UTF-8 if the prefix is.
func After(prefix string) string {
	for rest := prefix; rest != ""; {
		r, size := utf8.DecodeLastRuneInString(rest)
		before, last := rest[:len(rest)-size], rest[len(rest)-1]
		switch {
		case r == utf8.RuneError && size == 1 && last < 0xff: // no UTF-8
			return before + string([]byte{last + 1})
		case r == utf8.RuneError && size == 1:
		case r == 0xd7ff: // what follows is for UTF-16
			return before + string(rune(0xe000))
		case r < utf8.MaxRune:
			return before + string(r+1)
		}
		rest = before
	}
	return prefix + strings.Repeat(string(utf8.MaxRune), 256) // above what anyone writes
}

// Spans are the numbers, up to 1<<57, that, written to base 32, begin with the digits: each from
// its first up to, but not including, its last.
func Spans(digits string) (spans [][2]int64) {
	v, err := strconv.ParseInt(digits, 32, 64)
	if err != nil || v <= 0 || strconv.FormatInt(v, 32) != digits {
		return nil
	}
	for from, to := v, v+1; ; from, to = from<<5, to<<5 {
		spans = append(spans, [2]int64{from, to})
		if to > 1<<57 {
			return spans
		}
	}
}
