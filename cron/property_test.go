package cron_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bide-dev/bide/cron"
)

// calendar is an expression of five fields as sets, read here once more and in
// another way: what Next must agree with.
type calendar struct {
	set    [5][60]bool
	either bool // a day that fits day of month or weekday
	rhythm bool // every hour: follows real time
}

var bounds = [5][2]int{{0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 7}}

func read(expr string) calendar {
	var c calendar
	fields := strings.Fields(expr)
	for i, f := range fields {
		for item := range strings.SplitSeq(f, ",") {
			span, by, _ := strings.Cut(item, "/")
			step := max(1, atoi(by))
			low, high := bounds[i][0], bounds[i][1]
			if first, last, ok := strings.Cut(span, "-"); ok {
				low, high = atoi(first), atoi(last)
			} else if span != "*" {
				low, high = atoi(span), atoi(span)
			} else if i == 4 {
				high = 6
			}
			for v := low; v <= high; v += step {
				c.set[i][v] = true
			}
		}
	}
	c.set[4][0] = c.set[4][0] || c.set[4][7]
	c.either = fields[2][0] != '*' && fields[4][0] != '*'
	c.rhythm = !slices.Contains(c.set[1][:24], false)
	return c
}

func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

func (c *calendar) dayDue(t time.Time) bool {
	day, weekday := c.set[2][t.Day()], c.set[4][t.Weekday()]
	return c.set[3][t.Month()] && (day && weekday || c.either && (day || weekday))
}

func (c *calendar) due(wall time.Time) bool {
	return c.set[0][wall.Minute()] && c.set[1][wall.Hour()] && c.dayDue(wall)
}

// times goes minute by minute from one instant to another, and watches the clock
// on the wall: a time of day is due when the clock reaches it, or passes it, for
// the first time; a rhythm whenever the clock shows it.
func (c *calendar) times(from, to time.Time, loc *time.Location) []time.Time {
	shown := func(t time.Time) time.Time {
		_, offset := t.In(loc).Zone()
		return t.UTC().Add(time.Duration(offset) * time.Second)
	}
	var times []time.Time
	reached := shown(from.Add(-3 * time.Hour))
	for t := from.Add(-3 * time.Hour); !t.After(to); t = t.Add(time.Minute) {
		wall, due := shown(t), false
		if c.rhythm {
			due = c.due(wall)
		} else {
			for ; reached.Before(wall); reached = reached.Add(time.Minute) {
				due = due || c.due(reached.Add(time.Minute))
			}
		}
		if due && t.After(from) {
			times = append(times, t)
		}
	}
	return times
}

// randomField writes a field: often *, as people do.
func randomField(rng *rand.Rand, i int) string {
	low, high := bounds[i][0], bounds[i][1]
	n := func() int { return low + rng.IntN(high-low+1) }
	switch rng.IntN(8) {
	case 0, 1, 2:
		return "*"
	case 3:
		return fmt.Sprintf("*/%d", 1+rng.IntN(high-low))
	case 4:
		return strconv.Itoa(n())
	case 5:
		a, b := n(), n()
		return fmt.Sprintf("%d-%d/%d", min(a, b), max(a, b), 1+rng.IntN(7))
	case 6:
		return fmt.Sprintf("%d-%d", low, high)
	default:
		return fmt.Sprintf("%d,%d,%d", n(), n(), n())
	}
}

func randomExpr(rng *rand.Rand) string {
	var fields []string
	for i := range bounds {
		fields = append(fields, randomField(rng, i))
	}
	return strings.Join(fields, " ")
}

// Next gives each time that the calendar has, in its order, and no other, from
// whatever instant it is asked: through both changes of the clocks, minute by
// minute, over two weeks about each.
func TestNextSkipsNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, c := range []struct{ zone, from string }{
		{"UTC", "2026-02-20T00:00:00Z"},
		{"Asia/Kathmandu", "2028-02-22T00:00:00Z"},
		{"Europe/Berlin", "2026-03-22T13:00:00Z"},
		{"Europe/Berlin", "2026-10-18T13:00:00Z"},
		{"America/New_York", "2026-03-01T13:00:00Z"},
		{"America/New_York", "2026-10-25T13:00:00Z"},
		{"Australia/Lord_Howe", "2026-03-29T13:00:00Z"},
		{"Australia/Lord_Howe", "2026-09-27T13:00:00Z"},
		{"America/Havana", "2026-10-25T13:00:00Z"},
		{"Pacific/Apia", "2011-12-22T13:00:00Z"},
		{"Africa/Casablanca", "2026-02-08T13:00:00Z"},
	} {
		loc, from := zone(t, c.zone), at(t, c.from)
		to := from.Add(14 * 24 * time.Hour)
		for range 8 {
			text := randomExpr(rng)
			e, sets := cron.MustParse(text, cron.In(loc)), read(text)
			want := sets.times(from, to, loc)
			var got []time.Time
			for next := e.Next(from); !next.IsZero() && !next.After(to); next = e.Next(next) {
				got = append(got, next)
				if len(got) > len(want)+1 {
					break
				}
			}
			if i, ok := differ(got, want); ok {
				t.Fatalf("%q in %s from %s: the %d-th of %d and %d times: %v", text, c.zone, c.from, i, len(got), len(want),
					[]any{got[min(i, len(got)):min(i+1, len(got))], want[min(i, len(want)):min(i+1, len(want))]})
			}
			for range 20 {
				after := from.Add(time.Duration(rng.Int64N(int64(to.Sub(from)))))
				i := slices.IndexFunc(want, func(w time.Time) bool { return w.After(after) })
				if next := e.Next(after); i >= 0 && !next.Equal(want[i]) {
					t.Fatalf("%q in %s after %v: %v, want %v", text, c.zone, after, next, want[i])
				}
			}
		}
	}
}

func differ(got, want []time.Time) (int, bool) {
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || !got[i].Equal(want[i]) {
			return i, true
		}
	}
	return 0, false
}

// What is rare is found, however far away, and what is never due is known to be.
func TestNextFarAway(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	never := 0
	for range 300 {
		day, month, weekday := randomField(rng, 2), randomField(rng, 3), randomField(rng, 4)
		if rng.IntN(2) == 0 {
			day, month = strconv.Itoa(28+rng.IntN(4)), []string{"2", "2", "4", "2,6"}[rng.IntN(4)]
		}
		text := fmt.Sprintf("%d %d %s %s %s", rng.IntN(60), rng.IntN(24), day, month, weekday)
		sets := read(text)
		after := time.Date(2000+rng.IntN(120), time.Month(1+rng.IntN(12)), 1+rng.IntN(28), 23, 59, 0, 0, time.UTC)
		var want time.Time
		for d := 1; d < 366*42 && want.IsZero(); d++ {
			if date := after.AddDate(0, 0, d); sets.dayDue(date) {
				want = time.Date(date.Year(), date.Month(), date.Day(), slices.Index(sets.set[1][:], true), slices.Index(sets.set[0][:], true), 0, 0, time.UTC)
			}
		}
		if got := cron.MustParse(text).Next(after); !got.Equal(want) {
			t.Fatalf("%q after %v: %v, want %v", text, after, got, want)
		}
		if want.IsZero() {
			never++
		}
	}
	if never < 3 {
		t.Errorf("only %d expressions are never due", never)
	}
}

// FuzzNext reads any text and asks for any time: none panics, none takes long,
// and the times rise.
func FuzzNext(f *testing.F) {
	zones := []*time.Location{time.UTC, zone(f, "Europe/Berlin"), zone(f, "Australia/Lord_Howe"), zone(f, "Pacific/Apia"), time.FixedZone("", 20_000)}
	for i, expr := range []string{"* * * * *", "*/20 0-59/7 2 * * *", "0 0 29 2 */7", "0 0 30 2 *", "0 0 L,15W * 5L,1#2", "@daily", "59 59 23 31 12 7", "* 2 * 3,10 SUN"} {
		f.Add(expr, int64(1761350400+i*1_000_000), int64(i), uint8(i))
	}
	f.Fuzz(func(t *testing.T, text string, seconds, nanos int64, zone uint8) {
		e, err := cron.Parse(text, cron.In(zones[int(zone)%len(zones)]))
		if err != nil {
			return
		}
		began, after := time.Now(), time.Unix(seconds, nanos)
		first := e.Next(after)
		if d := time.Since(began); d > 2*time.Second {
			t.Fatalf("%q after %v: took %v", text, after, d)
		}
		if first.IsZero() {
			return
		}
		if !first.After(after) || first.Nanosecond() != 0 {
			t.Fatalf("%q after %v: %v", text, after, first)
		}
		if again := e.Next(first.Add(-1)); !again.Equal(first) {
			t.Fatalf("%q: %v after %v, but %v just before it", text, first, after, again)
		}
		if second := e.Next(first); !second.IsZero() && !second.After(first) {
			t.Fatalf("%q after %v: %v", text, first, second)
		}
	})
}

func BenchmarkNext(b *testing.B) {
	berlin := zone(b, "Europe/Berlin")
	after := at(b, "2026-10-24T12:00:00Z")
	for _, expr := range []string{"*/15 * * * *", "30 2 * * *", "0 9 * * 1-5", "0 0 29 2 */7", "0 0 30 2 *", "* * 30 2 */2"} {
		e := cron.MustParse(expr, cron.In(berlin))
		b.Run(strings.ReplaceAll(expr, " ", "_"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				e.Next(after)
			}
		})
	}
}
