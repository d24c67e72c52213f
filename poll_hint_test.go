package bide_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/wait"
)

// A refusal that names a time is a hard floor: no check comes before, and jitter
// only ever adds to it, a tenth at most.
func TestPollThrottledIsHardFloor(t *testing.T) {
	busy := refused(429, "Retry-After", "40")
	poll(t, []answer{busy, isThere}, exactly(bide.Every(time.Second), bide.NoTimeout{}), func(a *asking) {
		a.wantAt(0, 40)
		if c := a.checks[0]; c.Floor != 40*time.Second || c.FloorFrom != "Retry-After" || c.Base != time.Second {
			a.Errorf("%+v", c)
		}
	})
	script := slices.Repeat([]answer{busy}, 30)
	spread := false
	poll(t, append(script, isThere), []bide.PollOption{bide.Every(time.Second), bide.NoTimeout{}}, func(a *asking) {
		at := a.at()
		for i := 1; i < len(at); i++ {
			d := at[i] - at[i-1]
			if d < 40*time.Second || d > 44*time.Second+time.Millisecond {
				a.Errorf("pause %d is %v", i, d)
			}
			spread = spread || d > 42*time.Second
		}
	})
	if !spread {
		t.Error("thirty floors got no jitter")
	}
}

// A refusal that names no time has the back-off as its floor, which grows.
func TestPollThrottledWithoutHint(t *testing.T) {
	poll(t, []answer{refused(429), refused(429), refused(429), pending, isThere}, exactly(bide.Every(time.Second), bide.NoTimeout{}), func(a *asking) {
		a.wantAt(0, 1, 3, 7, 8)
	})
	// It is a hard one: it moves the check past the deadline, and so there is none.
	poll(t, []answer{refused(429), refused(429), refused(429), isThere}, exactly(bide.Every(10*time.Second), bide.Timeout(35*time.Second)), func(a *asking) {
		if e := wantErr[*bide.PollTimeoutError](a.env, a.err); e.Reason != bide.ReasonRetryAfter {
			a.Errorf("%+v", e)
		}
		a.wantAt(0, 10, 30)
	})
}

// The check at the deadline yields to a hard floor beyond it: there is none, and
// the poll says why when its time is over, not before.
func TestPollFinalCheckYieldsToHardFloor(t *testing.T) {
	for name, refusal := range map[string]answer{
		"429":              refused(429, "Retry-After", "60"),
		"503":              refused(503, "Retry-After", "60"),
		"an hour and more": refused(429, "Retry-After", "86400"),
		"no quota left":    {status: 202, header: map[string]string{"RateLimit": `"default";r=0;t=60`}},
		"a 200, no quota": {body: "no", header: map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "946684870",
			"Date": "Sat, 01 Jan 2000 00:00:10 GMT"}},
	} {
		t.Run(name, func(t *testing.T) {
			poll(t, []answer{pending, refusal, isThere}, exactly(bide.Every(10*time.Second), bide.Timeout(50*time.Second)), func(a *asking) {
				e := wantErr[*bide.PollTimeoutError](a.env, a.err)
				if e.Reason != bide.ReasonRetryAfter || e.Attempts != 2 || e.Elapsed != 50*time.Second || errors.Is(a.err, context.DeadlineExceeded) {
					a.Errorf("%+v", e)
				}
				if !a.checks[1].NextAt.IsZero() {
					a.Errorf("OnCheck tells of a check at %v that does not come", a.checks[1].NextAt)
				}
				a.wantAt(0, 10)
			})
		})
	}
	// A hard floor that ends before the deadline leaves room for the last check.
	poll(t, []answer{pending, refused(429, "Retry-After", "39"), isThere}, exactly(bide.Every(10*time.Second), bide.Timeout(50*time.Second)), func(a *asking) {
		a.wantDone()
		a.wantAt(0, 10, 49)
	})
}

// A wish is no refusal: the check at the deadline is made all the same.
func TestPollSoftFloorYieldsToFinalCheck(t *testing.T) {
	for name, wish := range map[string]answer{
		"Retry-After of a 202":   refused(202, "Retry-After", "600"),
		"of a 200":               {body: "no", header: map[string]string{"Retry-After": "600"}},
		"X-Poll-Interval":        refused(304, "X-Poll-Interval", "600"),
		"some of the quota left": refused(202, "Retry-After", "600", "X-RateLimit-Remaining", "1"),
	} {
		t.Run(name, func(t *testing.T) {
			poll(t, []answer{pending, wish, isThere}, exactly(bide.Every(10*time.Second), bide.Timeout(50*time.Second)), func(a *asking) {
				a.wantDone()
				a.wantAt(0, 10, 50)
				if c := a.checks[2]; c.Trigger != bide.TriggerFinal {
					a.Errorf("%+v", c)
				}
			})
		})
	}
	// So is the delay of an error of one's own.
	at, got, _, err := polled(t, func(n int) (int, error) {
		if n == 1 {
			return 0, bide.RetryAfter(errors.New("later"), time.Hour)
		}
		return 7, nil
	}, exactly(bide.Every(time.Second), bide.Timeout(time.Minute))...)
	if got != 7 || err != nil || len(at) != 2 || at[1] != time.Minute {
		t.Errorf("checks at %v: %d, %v", at, got, err)
	}
}

// A hint is of the answer that it came with, not of those after it, be the poll
// in memory or not.
func TestPollHintIsOfOneAnswer(t *testing.T) {
	poll(t, []answer{refused(202, "Retry-After", "30"), refused(500), pending, isThere}, exactly(bide.Every(time.Second), bide.NoTimeout{}), func(a *asking) {
		a.wantAt(0, 30, 31, 32)
		if c := a.checks[1]; c.Floor != 0 || c.FloorFrom != "" {
			a.Errorf("%+v", c)
		}
		if c := a.checks[3]; c.Base != 0 || c.Floor != 0 || !c.NextAt.IsZero() {
			a.Errorf("the last check tells of a next one: %+v", c)
		}
	})
}

// X-Poll-Interval holds for all further checks until there is another, also
// after errors and when it came with a 304.
func TestPollStickyInterval(t *testing.T) {
	script := []answer{refused(304, "X-Poll-Interval", "30"), pending, refused(500), pending, refused(202, "X-Poll-Interval", "5"), pending, isThere}
	poll(t, script, exactly(bide.Every(time.Second), bide.NoTimeout{}), func(a *asking) {
		a.wantDone()
		a.wantAt(0, 30, 60, 90, 120, 125, 130)
		for i, c := range a.checks[:6] {
			if c.FloorFrom != "X-Poll-Interval" {
				a.Errorf("the floor of check %d is %v, from %q", i+1, c.Floor, c.FloorFrom)
			}
		}
	})
	poll(t, []answer{refused(202, "X-Poll-Interval", "30"), refused(429, "Retry-After", "10"), refused(202, "Retry-After", "60"), isThere},
		exactly(bide.Every(time.Second), bide.NoTimeout{}), func(a *asking) { a.wantAt(0, 30, 60, 120) })
}

// A wish puts a check off by an hour at most; a refusal is honoured whatever it
// says.
func TestPollMaxServerDelay(t *testing.T) {
	for name, c := range map[string]struct {
		first answer
		at    float64
	}{
		"wish":         {refused(202, "Retry-After", "86400"), 3600},
		"own interval": {refused(202, "X-Poll-Interval", "86400"), 3600},
		"refusal":      {refused(429, "Retry-After", "86400"), 86400},
		"no quota":     {refused(202, "RateLimit", `"a";r=0;t=86400`), 86400},
	} {
		t.Run(name, func(t *testing.T) {
			poll(t, []answer{c.first, isThere}, exactly(bide.Every(time.Second), bide.NoTimeout{}), func(a *asking) { a.wantAt(0, c.at) })
		})
	}
}

// What says when to ask again, in each of its forms, by its rank; what makes no
// sense is as if it were not there. The service's clock need not be ours.
func TestPollRetryAfterForms(t *testing.T) {
	date := func(s int) string {
		return time.Date(2000, 1, 1, 0, 0, s, 0, time.UTC).Format(http.TimeFormat)
	}
	for name, c := range map[string]struct {
		header []string
		at     float64
	}{
		"seconds":                             {[]string{"Retry-After", "17"}, 17},
		"a date":                              {[]string{"Retry-After", date(17)}, 17},
		"a date by the service's clock":       {[]string{"Retry-After", "Mon, 05 Mar 2007 10:00:17 GMT", "Date", "Mon, 05 Mar 2007 10:00:00 GMT"}, 17},
		"a date that is past":                 {[]string{"Retry-After", "Fri, 31 Dec 1999 23:00:00 GMT"}, 1},
		"a date that is past there":           {[]string{"Retry-After", date(17), "Date", date(18)}, 1},
		"milliseconds before seconds":         {[]string{"Retry-After", "17", "Retry-After-Ms", "2500"}, 2.5},
		"the other milliseconds too":          {[]string{"Retry-After", "17", "X-Ms-Retry-After-Ms", "2500"}, 2.5},
		"both milliseconds":                   {[]string{"X-Ms-Retry-After-Ms", "9000", "Retry-After-Ms", "2500"}, 2.5},
		"malformed milliseconds":              {[]string{"Retry-After", "17", "Retry-After-Ms", "2500x"}, 17},
		"before RateLimit":                    {[]string{"Retry-After", "17", "RateLimit", `"a";r=0;t=5`}, 17},
		"RateLimit":                           {[]string{"RateLimit", `"a";r=0;t=5`}, 5},
		"RateLimit with some left":            {[]string{"RateLimit", `"a";r=1;t=5`}, 1},
		"X-RateLimit":                         {[]string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "946684825"}, 25},
		"X-RateLimit by the service's clock":  {[]string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "946684825", "Date", date(20)}, 5},
		"X-RateLimit with some left":          {[]string{"X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "946684825"}, 1},
		"malformed":                           {[]string{"Retry-After", "soon"}, 1},
		"negative":                            {[]string{"Retry-After", "-5"}, 1},
		"a fraction, which the grammar lacks": {[]string{"Retry-After", "2.5"}, 1},
		"zero":                                {[]string{"Retry-After", "0"}, 1},
		"too long a number":                   {[]string{"Retry-After", strings.Repeat("9", 400)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			poll(t, []answer{refused(202, c.header...), isThere}, exactly(bide.Every(time.Second), bide.NoTimeout{}), func(a *asking) { a.wantAt(0, c.at) })
		})
	}
}

// With a 304 the kept value stands and the condition is not asked again; the
// validators go out byte for byte as they came, also when the 304 does not repeat
// them and after an error.
func TestPollETag304KeepsValue(t *testing.T) {
	full := answer{body: "half", header: map[string]string{"ETag": `W/"a b"`, "Last-Modified": "Fri, 31 Dec 1999 23:59:59 GMT"}}
	script := []answer{full, refused(304), refused(500, "ETag", `"of-the-error-page"`), refused(304, "ETag", `W/"a b"`), refused(304), {body: "other"}, isThere}
	poll(t, script, exactly(bide.Every(time.Second), bide.NoTimeout{}), func(a *asking) {
		a.wantDone()
		for i, r := range a.requests() {
			etag, date := r.header.Get("If-None-Match"), r.header.Get("If-Modified-Since")
			if sent := i > 0 && i < 6; sent != (etag == `W/"a b"`) || sent != (date == "Fri, 31 Dec 1999 23:59:59 GMT") || !sent && etag+date != "" {
				a.Errorf("request %d: If-None-Match %q, If-Modified-Since %q", i+1, etag, date)
			}
		}
		for i, c := range a.checks[:5] {
			if string(c.Value) != `"half"` || c.Changed != (i == 0) {
				a.Errorf("after check %d the value is %s, changed %v", i+1, c.Value, c.Changed)
			}
		}
		if n := len(a.record.Poll.Values); n != 3 || a.record.Attempt != 7 || a.record.Poll.Counts["pending"] != 5 {
			a.Errorf("%s", jsonOf(a, a.record))
		}
	})
	inBubble(t, func(e *env) {
		conditions, calls := 0, 0
		w := bide.Define("unchanged", func(ctx bide.Context, _ none) (int, error) {
			return bide.Poll(ctx, "job", func(ctx context.Context) (int, error) {
				calls++
				if calls < 5 {
					return 0, bide.Observe(ctx, bide.Observation{Unchanged: calls > 1})
				}
				return calls, nil
			}, func(n int) bool { conditions++; return n == 5 }, bide.Every(time.Second), bide.NoTimeout{})
		})
		n, err := run(e, w, none{})
		if n != 5 || err != nil || conditions != 2 {
			e.Errorf("%d, %v; the condition was asked %d times", n, err, conditions)
		}
	})
}

// said is a value that says for itself what a check may observe.
type said struct {
	After time.Duration
	Due   time.Time
	Done  bool
}

func (s said) WaitHint() wait.Hint { return wait.Hint{After: s.After, Source: "next_poll_ms"} }
func (s said) ETA() time.Time      { return s.Due }

// A value's own hint is a floor as good as a header.
func TestPollValueHint(t *testing.T) {
	inBubble(t, func(e *env) {
		c := newClock()
		w := bide.Define("hints", func(ctx bide.Context, _ none) (said, error) {
			return bide.Poll(ctx, "job", func(context.Context) (said, error) {
				c.tick()
				return said{After: 20 * time.Second, Done: len(c.ticks()) == 3}, nil
			}, func(s said) bool { return s.Done }, bide.Every(time.Second), bide.NoTimeout{}, bide.Exact{})
		})
		_, err := run(e, w, none{})
		e.ok(err)
		c.want(e, "checks", 0, 20*time.Second, 40*time.Second)
	})
}
