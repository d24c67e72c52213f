// Package cron gives times of the calendar, said as a cron expression, as a
// schedule: an [Expr] has the one method that a schedule needs, Next.
//
// An expression has five fields: minute, hour, day of month, weekday; or
// six, with seconds first. A field is a comma-separated list of *, n, n-m, */s
// and n-m/s. Months and weekdays may be named (JAN, MON); Sunday is 0 and 7. Day
// of month also takes L (the last day) and nW (the weekday of the same month
// nearest to day n); weekday takes nL (the last one of the month) and n#k (the
// k-th). If neither of the two begins with *, a day that fits either is due, as
// in every cron since the first. @hourly, @daily, @weekly, @monthly and @yearly
// stand for expressions.
//
// # When the clocks change
//
// Times are those of the wall clock in one zone, UTC unless [In] says otherwise.
//
// An expression that names hours means times of day, and each comes once a day.
// Those that the clock jumps over in spring are due once, together, at the first
// instant after the gap; in autumn, when an hour comes twice, the first counts.
//
// An expression whose hour is *, or a list of all 24, means a rhythm, and follows
// real time: every 15 minutes stays every 15 minutes through both changes.
package cron

import (
	"fmt"
	"strings"
	"time"

	"github.com/adhocore/gronx"
)

// Expr is a cron expression in a time zone. It is a value, and safe for
// concurrent use. The zero Expr never fires.
type Expr struct {
	text   string // as given
	expr   string // as gronx takes it, with seconds
	loc    *time.Location
	allDay bool // its hours are all 24: it follows real time
}

// Option sets what an expression does not say itself; see [In].
type Option func(*Expr)

// In sets the time zone. The default is UTC. For a zone that the machine may not
// know, import time/tzdata in the main package.
func In(loc *time.Location) Option { return func(e *Expr) { e.loc = loc } }

// ParseError is text that is no cron expression, and why.
type ParseError struct {
	Expr   string `json:"expr"`
	Reason string `json:"reason"`
}

func (e *ParseError) Error() string { return fmt.Sprintf("cron: %q: %s", e.Expr, e.Reason) }

// Code returns "invalid_cron".
func (e *ParseError) Code() string { return "invalid_cron" }

// maxLength is of an expression, in bytes. One that lists every value of every
// field is shorter.
const maxLength = 600

var named = map[string]string{
	"@hourly":   "0 * * * *",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@weekly":   "0 0 * * 0",
	"@monthly":  "0 0 1 * *",
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
}

// Parse reads an expression. It refuses what can only be a mistake, such as */90
// for minutes, with a [*ParseError]; an expression that is well formed and never
// due, such as 30 February, is none.
func Parse(expr string, opts ...Option) (Expr, error) {
	e := Expr{text: expr, loc: time.UTC}
	for _, opt := range opts {
		opt(&e)
	}
	if reason := e.parse(); reason != "" {
		if len(expr) > maxLength {
			expr = expr[:20] + "..."
		}
		return Expr{}, &ParseError{Expr: expr, Reason: reason}
	}
	return e, nil
}

// MustParse is [Parse] for expressions in the program's own text: it panics on an
// error.
func MustParse(expr string, opts ...Option) Expr {
	e, err := Parse(expr, opts...)
	if err != nil {
		panic(err)
	}
	return e
}

// String returns the expression as it was given.
func (e Expr) String() string { return e.text }

// parse reads e.text and says what is wrong with it, or "".
func (e *Expr) parse() string {
	if e.loc == nil {
		return "cron.In was given no time zone"
	}
	if len(e.text) > maxLength {
		return fmt.Sprintf("is longer than %d bytes", maxLength)
	}
	fields := strings.Fields(e.text)
	if len(fields) == 1 && strings.HasPrefix(fields[0], "@") {
		expr, ok := named[strings.ToLower(fields[0])]
		if !ok {
			return "is not one of @hourly, @daily, @weekly, @monthly and @yearly"
		}
		fields = strings.Fields(expr)
	}
	switch {
	case len(fields) > 0 && strings.Contains(fields[0], "TZ="):
		return "has a time zone in it; give it as cron.In"
	case len(fields) == 5:
		fields = append([]string{"0"}, fields...)
	case len(fields) != 6:
		return fmt.Sprintf("has %d fields; want 5: minute, hour, day of month, weekday; or 6, with seconds first", len(fields))
	}
	for i, f := range kinds {
		fields[i] = strings.ToUpper(fields[i])
		if reason := f.fault(fields[i]); reason != "" {
			return fmt.Sprintf("%s %q %s", f.name, fields[i], reason)
		}
	}
	e.expr = strings.Join(fields, " ")
	e.allDay = true
	hours := &gronx.SegmentChecker{}
	for h := range 24 {
		hours.SetRef(time.Date(2000, 1, 1, h, 0, 0, 0, time.UTC))
		due, err := hours.CheckDue(fields[2], 2)
		e.allDay = e.allDay && due && err == nil
	}
	return ""
}
