package cron_test

import (
	"errors"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/bide-dev/bide/cron"
)

// next lists the times after one, as long as the layout tells them apart.
func next(e cron.Expr, after time.Time, n int) []string {
	var times []string
	for range n {
		after = e.Next(after)
		if after.IsZero() {
			return append(times, "never")
		}
		times = append(times, after.Format("2006-01-02T15:04:05Z07:00"))
	}
	return times
}

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func at(t testing.TB, s string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestNext(t *testing.T) {
	for _, c := range []struct {
		expr, zone, after string
		want              string // times, divided by spaces
	}{
		// Strictly after, and to the second.
		{"0 9 * * *", "UTC", "2026-01-01T09:00:00Z", "2026-01-02T09:00:00Z"},
		{"0 9 * * *", "UTC", "2026-01-01T08:59:59.999999999Z", "2026-01-01T09:00:00Z"},
		{"0 9 * * *", "UTC", "2026-01-01T09:00:00.000000001Z", "2026-01-02T09:00:00Z"},
		{"* * * * * *", "UTC", "2026-01-01T00:00:00.5Z", "2026-01-01T00:00:01Z 2026-01-01T00:00:02Z"},
		{"*/20 30 9 * * *", "UTC", "2026-01-01T00:00:00Z", "2026-01-01T09:30:00Z 2026-01-01T09:30:20Z 2026-01-01T09:30:40Z 2026-01-02T09:30:00Z"},
		{"0 0 1 1 *", "UTC", "0001-01-01T00:00:00Z", "0002-01-01T00:00:00Z"},

		// Lists, ranges, steps, names.
		{"10-40/15,50 9,17 * * *", "UTC", "2026-01-01T09:10:00Z", "2026-01-01T09:25:00Z 2026-01-01T09:40:00Z 2026-01-01T09:50:00Z 2026-01-01T17:10:00Z"},
		{"0 9 * * mon-Fri", "UTC", "2026-01-02T09:00:00Z", "2026-01-05T09:00:00Z"},
		{"0 0 1 JAN,jul *", "UTC", "2026-01-02T00:00:00Z", "2026-07-01T00:00:00Z 2027-01-01T00:00:00Z"},
		{"0 0 * * 7", "UTC", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z 2026-01-11T00:00:00Z"},
		{"0 0 * * 5-7", "UTC", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z 2026-01-03T00:00:00Z 2026-01-04T00:00:00Z 2026-01-09T00:00:00Z"},

		// Day of month and weekday: either, unless one begins with *.
		{"0 0 13 * 5", "UTC", "2026-02-07T00:00:00Z", "2026-02-13T00:00:00Z 2026-02-20T00:00:00Z 2026-02-27T00:00:00Z 2026-03-06T00:00:00Z"},
		{"0 0 1,15 * 1", "UTC", "2026-01-01T00:00:00Z", "2026-01-05T00:00:00Z 2026-01-12T00:00:00Z 2026-01-15T00:00:00Z 2026-01-19T00:00:00Z"},
		{"0 0 ? * 5", "UTC", "2026-02-07T00:00:00Z", "2026-02-13T00:00:00Z 2026-02-20T00:00:00Z"},
		{"0 0 13 * ?", "UTC", "2026-02-07T00:00:00Z", "2026-02-13T00:00:00Z 2026-03-13T00:00:00Z"},

		// Months of all lengths.
		{"0 0 31 * *", "UTC", "2026-01-31T00:00:00Z", "2026-03-31T00:00:00Z 2026-05-31T00:00:00Z 2026-07-31T00:00:00Z 2026-08-31T00:00:00Z"},
		{"0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z 2032-02-29T00:00:00Z"},
		{"0 0 29 2 *", "UTC", "2096-02-29T00:00:00Z", "2104-02-29T00:00:00Z"},
		{"0 0 29 2 *", "UTC", "1896-02-29T00:00:00Z", "1904-02-29T00:00:00Z"},
		{"0 0 29 2 */7", "UTC", "2088-02-29T00:00:00Z", "2128-02-29T00:00:00Z"}, // a Sunday: 40 years
		{"0 0 L * *", "UTC", "2028-01-31T00:00:00Z", "2028-02-29T00:00:00Z 2028-03-31T00:00:00Z"},
		{"0 0 L * *", "UTC", "2026-02-01T00:00:00Z", "2026-02-28T00:00:00Z"},
		{"0 0 1W * *", "UTC", "2026-07-15T00:00:00Z", "2026-08-03T00:00:00Z"},
		{"0 0 * * FRIL", "UTC", "2026-01-01T00:00:00Z", "2026-01-30T00:00:00Z 2026-02-27T00:00:00Z"},
		{"0 0 * * 1#5", "UTC", "2026-01-01T00:00:00Z", "2026-03-30T00:00:00Z 2026-06-29T00:00:00Z"},
		{"0 0 30 2 *", "UTC", "2026-01-01T00:00:00Z", "never"},
		{"0 0 31 4,6,9,11 *", "UTC", "2026-01-01T00:00:00Z", "never"},

		{"@hourly", "UTC", "2026-01-01T00:00:01Z", "2026-01-01T01:00:00Z"},
		{" @Daily ", "UTC", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"},
		{"@midnight", "UTC", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"},
		{"@weekly", "UTC", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"},
		{"@monthly", "UTC", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"},
		{"@yearly", "UTC", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"@annually", "UTC", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"},

		// Zones: the day is the zone's, and odd offsets count.
		{"0 9 * * *", "Europe/Berlin", "2026-07-01T00:00:00Z", "2026-07-01T09:00:00+02:00"},
		{"0 0 1 * *", "Asia/Kathmandu", "2026-01-31T18:14:59Z", "2026-02-01T00:00:00+05:45 2026-03-01T00:00:00+05:45"},
		{"*/30 * * * *", "Asia/Kathmandu", "2026-01-01T00:00:00Z", "2026-01-01T06:00:00+05:45 2026-01-01T06:30:00+05:45"},

		// The gap of spring: once, at its end.
		{"30 2 * * *", "Europe/Berlin", "2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00 2026-03-30T02:30:00+02:00"},
		{"*/15 2 * * *", "Europe/Berlin", "2026-03-28T02:45:00+01:00", "2026-03-29T03:00:00+02:00 2026-03-30T02:00:00+02:00"},
		{"0 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00+01:00", "2026-03-29T03:00:00+02:00 2026-03-30T02:00:00+02:00"},
		{"30 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00+01:00", "2026-03-29T03:00:00+02:00 2026-03-29T03:30:00+02:00"},
		{"0 2 * * 0", "America/New_York", "2026-03-07T00:00:00-05:00", "2026-03-08T03:00:00-04:00 2026-03-15T02:00:00-04:00"},
		{"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T02:15:00+10:30", "2026-10-04T02:30:00+11:00 2026-10-05T02:15:00+11:00"},
		{"0 0 * * *", "America/Santiago", "2026-09-05T00:00:00-04:00", "2026-09-06T01:00:00-03:00 2026-09-07T00:00:00-03:00"},
		{"0 12 * * *", "Pacific/Apia", "2011-12-29T12:00:00-10:00", "2011-12-31T00:00:00+14:00 2011-12-31T12:00:00+14:00"}, // 30 December was not
		{"45 1 * * *", "Europe/Berlin", "2026-03-28T12:00:00+01:00", "2026-03-29T01:45:00+01:00 2026-03-30T01:45:00+02:00"},

		// The fold of autumn: once, the first time; also when asked from within.
		{"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00+02:00", "2026-10-25T02:30:00+02:00 2026-10-26T02:30:00+01:00"},
		{"30 2 * * *", "Europe/Berlin", "2026-10-25T02:10:00+01:00", "2026-10-26T02:30:00+01:00"},
		{"30 1 * * *", "America/New_York", "2026-10-31T12:00:00-04:00", "2026-11-01T01:30:00-04:00 2026-11-02T01:30:00-05:00"},
		{"0,30 1-2 * * *", "America/New_York", "2026-11-01T00:00:00-04:00", "2026-11-01T01:00:00-04:00 2026-11-01T01:30:00-04:00 2026-11-01T02:00:00-05:00"},
		{"45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00+11:00", "2026-04-05T01:45:00+11:00 2026-04-06T01:45:00+10:30"},
		{"0 0 * * *", "America/Havana", "2026-10-31T12:00:00-04:00", "2026-11-01T00:00:00-04:00 2026-11-02T00:00:00-05:00"},

		// Where rules stand for a table that has ended, on the last day of a leap year.
		{"0 12 * * *", "Europe/Berlin", "2040-12-30T12:00:00+01:00", "2040-12-31T12:00:00+01:00 2041-01-01T12:00:00+01:00"},
		{"0 2 25-31 3 0", "Europe/Berlin", "2040-12-31T12:00:00+01:00", "2041-03-03T02:00:00+01:00"},
		{"0 */12 29 2 *", "Australia/Lord_Howe", "2040-12-31T12:00:00+11:00", "2044-02-29T00:00:00+11:00"},
		{"59 * 31 12 *", "America/New_York", "2040-12-31T23:00:00-05:00", "2040-12-31T23:59:00-05:00 2041-12-31T00:59:00-05:00"},

		// A rhythm follows real time through both.
		{"*/15 * * * *", "Europe/Berlin", "2026-03-29T01:40:00+01:00", "2026-03-29T01:45:00+01:00 2026-03-29T03:00:00+02:00 2026-03-29T03:15:00+02:00"},
		{"*/30 * * * *", "Europe/Berlin", "2026-10-25T02:00:00+02:00", "2026-10-25T02:30:00+02:00 2026-10-25T02:00:00+01:00 2026-10-25T02:30:00+01:00 2026-10-25T03:00:00+01:00"},
		{"30 * * * *", "Europe/Berlin", "2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00"},
		{"30 0-23 * * *", "Europe/Berlin", "2026-10-25T02:00:00+02:00", "2026-10-25T02:30:00+02:00 2026-10-25T02:30:00+01:00 2026-10-25T03:30:00+01:00"},
		{"*/15 * * * *", "Australia/Lord_Howe", "2026-04-05T01:45:00+11:00", "2026-04-05T01:30:00+10:30 2026-04-05T01:45:00+10:30 2026-04-05T02:00:00+10:30"},
		{"*/15 * * * *", "Australia/Lord_Howe", "2026-10-04T01:45:00+10:30", "2026-10-04T02:30:00+11:00 2026-10-04T02:45:00+11:00"},
	} {
		want := strings.Fields(c.want)
		got := next(cron.MustParse(c.expr, cron.In(zone(t, c.zone))), at(t, c.after), len(want))
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%q in %s after %s:\n got %v\nwant %v", c.expr, c.zone, c.after, got, want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ expr, reason string }{
		{"", "has 0 fields"},
		{"* * * *", "has 4 fields; want 5"},
		{"* * * * * * *", "has 7 fields"},
		{"@every 5m", "has 2 fields"},
		{"@reboot", "is not one of @hourly"},
		{"CRON_TZ=Europe/Berlin 0 9 * * *", "give it as cron.In"},
		{"60 * * * *", `minute "60" has 60, which is outside 0 to 59`},
		{"5,99 * * * *", `minute "5,99" has 99, which is outside 0 to 59`},
		{"* 24 * * *", `hour "24" has 24`},
		{"* * 0 * *", `day of month "0" has 0, which is outside 1 to 31`},
		{"* * 32W * *", `day of month "32W" has 32`},
		{"* * * 13 *", `month "13" has 13`},
		{"* * * * 8", `weekday "8" has 8`},
		{"60 * * * * *", `second "60" has 60`},
		{"*/90 * * * *", `minute "*/90" has a step that is not a number from 1 to 60`},
		{"*/0 * * * *", "has a step"},
		{"*/+5 * * * *", "has a step"},
		{"*/ * * * *", "has a step"},
		{"5/15 * * * *", "write 5-59/15"},
		{"1/2/3 * * * *", "has a step after one value"},
		{"*/2/3 * * * *", "has a step"},
		{"0 22-6 * * *", `hour "22-6" has a range that runs backwards`},
		{"0 0 * * FRI-MON", "runs backwards"},
		{"5- * * * *", `has "", which is not a number`},
		{"-5 * * * *", `has "", which is not a number`},
		{"+5 * * * *", `has "+5"`},
		{"005 * * * *", `has "005"`},
		{"1, * * * *", `has ""`},
		{"? * * * *", `minute "?" has "?"`},
		{"0 0 ?,1 * *", `day of month "?,1" has "?"`},
		{"0 0 1JAN * *", `day of month "1JAN" has "1JAN"`},
		{"0 0 * MON *", `month "MON" has "MON", which is neither a number nor one of JAN to DEC`},
		{"0 0 * * JAN", "neither a number nor one of SUN to SAT"},
		{"0 0 * * SUNDAY", `has "SUNDAY"`},
		{"0 0 * * L", `weekday "L" has ""`},
		{"0 0 * * 1#6", "has a # without a number from 1 to 5"},
		{"0 0 * * 9#1", "has 9"},
		{"0 0 W * *", `has ""`},
		{"0 0 LW * *", `has "L"`},
		{"0 0 1-5W * *", "has"},
		{"0 0 1 1 * 2050", "has"},
		{"0 0 * * ٣", "has"},
		{strings.Repeat("1,", 300) + "1 * * * *", "is longer than 600 bytes"},
	} {
		e, err := cron.Parse(c.expr)
		var bad *cron.ParseError
		if !errors.As(err, &bad) || bad.Code() != "invalid_cron" || !strings.Contains(bad.Reason, c.reason) || !strings.Contains(bad.Error(), c.reason) {
			t.Errorf("%q: %v, want a ParseError with %q", c.expr, err, c.reason)
		}
		if e != (cron.Expr{}) || len(err.Error()) > 300 {
			t.Errorf("%q: %+v, %v", c.expr, e, err)
		}
	}
	if _, err := cron.Parse("* * * * *", cron.In(nil)); err == nil || !strings.Contains(err.Error(), "no time zone") {
		t.Error(err)
	}
	defer func() {
		if r := recover(); r == nil {
			t.Error("MustParse did not panic")
		}
	}()
	cron.MustParse("x")
}

func TestExpr(t *testing.T) {
	if got := cron.MustParse(" @daily").String(); got != " @daily" {
		t.Errorf("String: %q", got)
	}
	now := at(t, "2026-01-01T00:00:00Z")
	if got := (cron.Expr{}).Next(now); !got.IsZero() {
		t.Errorf("the zero Expr is due at %v", got)
	}
	if got := cron.MustParse("* * * * *").Next(at(t, "9999-12-31T23:59:30Z")); !got.IsZero() {
		t.Errorf("after the last year: %v", got)
	}
	if got := cron.MustParse("* * * * *").Next(now).Location(); got != time.UTC {
		t.Errorf("in %v", got)
	}
}
