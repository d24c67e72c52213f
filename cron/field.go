package cron

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// field is one kind of field of an expression. gronx reads leniently: "1JAN" is
// the 11th to it, and MON a month. So what it gets is checked here.
type field struct {
	name     string
	min, max int
	names    []string // of min and on
	day      bool     // takes ?
}

// kinds are the fields in their order.
var kinds = [...]field{
	{name: "second", max: 59},
	{name: "minute", max: 59},
	{name: "hour", max: 23},
	{name: "day of month", min: 1, max: 31, day: true},
	{name: "month", min: 1, max: 12, names: []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}},
	{name: "weekday", max: 7, names: []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}, day: true},
}

// fault says what is wrong with the text of a field, or "".
func (f field) fault(text string) string {
	if text == "?" && f.day {
		return ""
	}
	for item := range strings.SplitSeq(text, ",") {
		if reason := f.itemFault(item); reason != "" {
			return reason
		}
	}
	return ""
}

// itemFault says what is wrong with one item of a list, or "".
func (f field) itemFault(item string) string {
	if known, reason := f.specialFault(item); known {
		return reason
	}
	span, step, stepped := strings.Cut(item, "/")
	first, last, ranged := strings.Cut(span, "-")
	if stepped {
		if span != "*" && !ranged {
			return fmt.Sprintf("has a step after one value; write %s-%d/%s", first, f.max, step)
		}
		n, ok := number(step)
		if size := f.max - f.min + 1; !ok || n < 1 || n > size {
			return fmt.Sprintf("has a step that is not a number from 1 to %d; a step counts within the field and begins anew with it", size)
		}
	}
	if span == "*" {
		return ""
	}
	low, reason := f.value(first)
	if reason != "" || !ranged {
		return reason
	}
	high, reason := f.value(last)
	if reason == "" && low > high {
		return "has a range that runs backwards; write two, up to the end and from the beginning"
	}
	return reason
}

// specialFault judges the items that only days have: L, 15W, 5L and 5#2.
func (f field) specialFault(item string) (known bool, reason string) {
	switch f.name {
	case "day of month":
		if item == "L" {
			return true, ""
		}
		if day, ok := strings.CutSuffix(item, "W"); ok {
			_, reason := f.value(day)
			return true, reason
		}
	case "weekday":
		if day, ok := strings.CutSuffix(item, "L"); ok {
			_, reason := f.value(day)
			return true, reason
		}
		if day, nth, ok := strings.Cut(item, "#"); ok {
			if n, ok := number(nth); !ok || n < 1 || n > 5 {
				return true, "has a # without a number from 1 to 5 after it"
			}
			_, reason := f.value(day)
			return true, reason
		}
	}
	return false, ""
}

// value reads a number or a name.
func (f field) value(text string) (int, string) {
	if i := slices.Index(f.names, text); i >= 0 {
		return f.min + i, ""
	}
	n, ok := number(text)
	if !ok {
		if f.names != nil {
			return 0, fmt.Sprintf("has %q, which is neither a number nor one of %s to %s", text, f.names[0], f.names[len(f.names)-1])
		}
		return 0, fmt.Sprintf("has %q, which is not a number", text)
	}
	if n < f.min || n > f.max {
		return 0, fmt.Sprintf("has %d, which is outside %d to %d", n, f.min, f.max)
	}
	return n, ""
}

// number reads one or two digits.
func number(text string) (int, bool) {
	if text == "" || len(text) > 2 || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(text)
	return n, err == nil
}
