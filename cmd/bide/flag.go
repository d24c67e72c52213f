package main

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/bide-dev/bide"
)

// flagError adds how to mend it to what pflag says of a flag.
func flagError(err error) error {
	mend := ""
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		switch invalid.GetFlag().Value.Type() {
		case "duration":
			mend = "; durations are written 500ms, 10s, 5m or 1h30m"
		case "int", "int64":
			mend = "; it is a whole number"
		}
	}
	return usage("%w%s", err, mend)
}

// flagOf is where on the command line a field of a Spec, or an option of a poll,
// is said.
var flagOf = map[string]string{
	"url":            "URL",
	"method":         "--method",
	"body":           "--data",
	"until":          "--until",
	"accept[0].when": "--fail-when",
	"progress":       "--progress",
	"eta":            "--eta",
	"timeout":        "--request-timeout",
	"id":             "--id",
	"headers":        "--header",
}

// inFlags names the flag in the place of the field.
func inFlags(err error) error {
	invalid, ok := errors.AsType[*bide.InvalidError](err)
	if !ok {
		return err
	}
	flag, known := flagOf[invalid.Field]
	if name, ok := strings.CutPrefix(invalid.Field, "headers."); ok {
		flag = "--header " + strconv.Quote(name)
	} else if !known {
		flag = invalid.Field
	}
	return usage("%s: %s", flag, invalid.Reason)
}

// reason is what is wrong with a field, without its name.
func reason(err error) string {
	if invalid, ok := errors.AsType[*bide.InvalidError](err); ok {
		return invalid.Reason
	}
	return err.Error()
}

// parseHeaders reads headers as curl has them, 'Name: value'.
func parseHeaders(lines []string) (map[string]string, error) {
	headers := map[string]string{}
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, usage("--header %q: write it 'Name: value'", line)
		}
		if _, twice := headers[name]; twice {
			return nil, usage("--header %q: is given twice", name)
		}
		headers[name] = strings.TrimSpace(value)
	}
	return headers, nil
}

// short is a duration for people: "850ms", "7.2s", "4m10s".
func short(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	s := d.Round(time.Second).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
