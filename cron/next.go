package cron

import (
	"time"

	"github.com/adhocore/gronx"
)

// lastYear ends the search, and the calendar of those who write years in four
// digits.
const lastYear = 9999

// Next returns the first time strictly after the given one at which e is due, in
// e's time zone, or the zero time if there is none. It takes microseconds, and a
// few milliseconds for what is never due.
//
// Wall-clock times are kept as times in UTC, since gronx computes right where
// clocks do not change: across a change it can name the same instant as before,
// or one that does not fit.
func (e Expr) Next(after time.Time) time.Time {
	if e.loc == nil || after.Year() > lastYear {
		return time.Time{}
	}
	p := periodOf(after, e.loc)
	from := p.wall(after)
	if !e.allDay {
		// Of an hour that comes twice the first has counted.
		from = later(from, p.begin.Add(-time.Second))
	}
	due, ok := e.nextWall(from)
	for ok && due.Year() <= lastYear {
		if p.end.IsZero() || due.Before(p.wall(p.end)) {
			return later(due.Add(-p.offset), p.start).In(e.loc)
		}
		p = periodOf(p.end, e.loc)
		if e.allDay {
			due, ok = e.nextWall(p.wall(p.start).Add(-time.Second))
		}
	}
	return time.Time{}
}

// nextWall returns the first wall-clock time strictly after another.
func (e Expr) nextWall(after time.Time) (time.Time, bool) {
	next, err := gronx.NextTickAfter(e.expr, after, false)
	return next, err == nil && next.After(after)
}

// period is a stretch of time during which a zone has one offset from UTC.
type period struct {
	start, end time.Time     // instants; zero: for ever
	offset     time.Duration // of the wall clock
	begin      time.Time     // what the wall clock would show at start, had it not been changed
}

func periodOf(t time.Time, loc *time.Location) period {
	t = t.In(loc)
	start, end := t.ZoneBounds()
	if !end.IsZero() && !end.After(t) {
		// Past a zone's table ZoneBounds gives leap years 365 days. A period that
		// ends with the year, though the offset stays, does no harm.
		end = time.Date(t.UTC().Year()+1, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	p := period{start: start, end: end, offset: offsetAt(t)}
	if !start.IsZero() {
		p.begin = start.UTC().Add(offsetAt(start.Add(-time.Second)))
	}
	return p
}

func offsetAt(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}

// wall returns what the clock on the wall shows at an instant, to the second.
func (p period) wall(t time.Time) time.Time { return t.UTC().Truncate(time.Second).Add(p.offset) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
