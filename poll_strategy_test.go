package bide_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/bide-dev/bide"
)

// gaps are the pauses between what happened.
func gaps(at []time.Duration) []time.Duration {
	var out []time.Duration
	for i := 1; i < len(at); i++ {
		out = append(out, at[i]-at[i-1])
	}
	return out
}

// Jitter comes after the cap: it never exceeds it, and never goes below what the
// strategy's kind allows nor below MinInterval. Each wait draws its own.
func TestPollJitterBounds(t *testing.T) {
	for name, c := range map[string]struct {
		opt       bide.PollOption
		low, high time.Duration // of the pauses once they have grown
	}{
		"fixed: a tenth less":       {bide.Every(10 * time.Second), 9 * time.Second, 10 * time.Second},
		"exponential: half to all":  {bide.Exponential{Max: 8 * time.Second}, 4 * time.Second, 8 * time.Second},
		"elapsed: a tenth, cut":     {bide.Elapsed{Share: 1, Max: 10 * time.Second}, 9 * time.Second, 10 * time.Second},
		"not below the least":       {bide.Exponential{Max: 8 * time.Second}, 4 * time.Second, 8 * time.Second},
		"the engine's own least":    {bide.Every(10 * time.Millisecond), 10 * time.Millisecond, 10 * time.Millisecond},
		"a least above the pause":   {bide.Every(time.Second), 3 * time.Second, 3 * time.Second},
		"a coefficient that is one": {bide.Exponential{Interval: 4 * time.Second, Coefficient: 1}, 2 * time.Second, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			opts := []bide.PollOption{c.opt, bide.NoTimeout{}}
			if name == "a least above the pause" {
				opts = append(opts, bide.MinInterval(3*time.Second))
			}
			at, _, _, _ := polled(t, doneAt(60), opts...)
			seen := map[time.Duration]bool{}
			for i, d := range gaps(at)[12:] {
				if d < c.low-time.Millisecond || d > c.high+time.Millisecond {
					t.Errorf("pause %d is %v, want %v to %v", i+12, d, c.low, c.high)
				}
				seen[d] = true
			}
			if c.low != c.high && len(seen) < 20 {
				t.Errorf("only %d different pauses", len(seen))
			}
		})
	}
}

// Pauses that overflow are the longest one.
func TestPollOverflowIsMax(t *testing.T) {
	at, _, _, err := polled(t, doneAt(40), bide.Exponential{Interval: time.Second, Coefficient: 1e300, Max: time.Minute}, bide.NoTimeout{}, bide.Exact{})
	if want := slices.Repeat([]time.Duration{time.Minute}, 38); err != nil || !slices.Equal(gaps(at)[1:], want) {
		t.Errorf("checks at %v, %v", at, err)
	}
	at, _, _, err = polled(t, doneAt(3), bide.Exponential{Coefficient: math.Inf(1)}, bide.NoTimeout{}, bide.Exact{})
	if err != nil || fmt.Sprint(at) != offsets(0, 1, 31) {
		t.Errorf("checks at %v, %v", at, err)
	}
}

// The defaults are an exponential row from a second by halves to half a minute.
func TestPollDefaultStrategy(t *testing.T) {
	at, _, _, err := polled(t, doneAt(12), bide.NoTimeout{}, bide.Exact{})
	if err != nil {
		t.Error(err)
	}
	want := float64(time.Second)
	for i, d := range gaps(at) {
		if math.Abs(float64(d)-want) > float64(2*time.Millisecond) {
			t.Errorf("pause %d is %v, want %v", i, d, time.Duration(want))
		}
		want = min(want*1.5, float64(30*time.Second))
	}
}

// Errors back off by a row of their own, to a minute or the strategy's longest;
// the strategy's row stands still meanwhile.
func TestPollErrorBackoff(t *testing.T) {
	down := refused(500)
	row := exactly(bide.Exponential{Interval: 2 * time.Second, Coefficient: 2, Max: 90 * time.Second}, bide.NoTimeout{})
	poll(t, []answer{pending, down, down, down, down, down, down, down, down, pending, isThere}, row, func(a *asking) {
		got := gaps(a.at())
		want := []time.Duration{2, 2, 4, 8, 16, 32, 64, 90, 90, 4}
		for i := range want {
			want[i] *= time.Second
		}
		if !slices.Equal(got, want) {
			a.Errorf("pauses %v, want %v", got, want)
		}
	})
	poll(t, append(slices.Repeat([]answer{down}, 9), isThere), exactly(bide.Every(100*time.Millisecond), bide.NoTimeout{}), func(a *asking) {
		if got := fmt.Sprint(gaps(a.at())); got != "[1s 2s 4s 8s 16s 32s 1m0s 1m0s 1m0s]" {
			a.Errorf("pauses %v", got)
		}
	})
}

// Elapsed finds out late by at most its share of what the wait took.
func TestPollElapsedStrategy(t *testing.T) {
	for _, takes := range []time.Duration{20 * time.Second, 3 * time.Minute, 9 * time.Minute} {
		inBubble(t, func(e *env) {
			began := time.Now()
			w := bide.Define("elapsed", func(ctx bide.Context, _ none) (bool, error) {
				return bide.Poll(ctx, "job", func(context.Context) (bool, error) { return time.Since(began) >= takes, nil },
					func(ok bool) bool { return ok }, bide.Elapsed{}, bide.NoTimeout{})
			})
			_, err := run(e, w, none{})
			if late := time.Since(began) - takes; err != nil || late > takes/9 || late < 0 {
				e.Errorf("%v were found out %v late (%v)", takes, late, err)
			}
		})
	}
}

// far is a job's state: how far it is, and when it will be done.
type far struct {
	Percent float64 `json:"-"` // which may be no number
	Due     time.Time
	Done    bool
}

func (f far) Progress() (float64, string) { return f.Percent, "so far" }
func (f far) ETA() time.Time              { return f.Due }

// watchFar polls a job whose state is a function of the time it has had.
func watchFar(t *testing.T, at func(passed time.Duration) far, look func(e *env, c *clock, id string, err error), opts ...bide.PollOption) {
	t.Helper()
	inBubble(t, func(e *env) {
		c := newClock()
		w := bide.Define("far", func(ctx bide.Context, _ none) (far, error) {
			return bide.Poll(ctx, "job", func(context.Context) (far, error) {
				c.tick()
				return at(time.Since(c.began)), nil
			}, func(f far) bool { return f.Done }, append(opts, bide.Exact{})...)
		})
		cfg := e.config()
		cfg.MaxWarm = -1
		e.workAs(cfg, w)
		h := start(e, w, none{})
		_, err := result(e, h)
		look(e, c, h.ID(), err)
	})
}

// ETA goes four fifths of the way to when the job says that it will be done, then
// closer, and again further apart the longer it is overdue.
func TestPollETAStrategy(t *testing.T) {
	job := func(due, takes time.Duration) func(time.Duration) far {
		began := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
		return func(passed time.Duration) far { return far{Due: began.Add(due), Done: passed >= takes} }
	}
	wants := func(seconds ...float64) func(e *env, c *clock, id string, err error) {
		return func(e *env, c *clock, _ string, err error) {
			e.Helper()
			var got []string
			for _, at := range c.ticks() {
				got = append(got, fmt.Sprintf("%.2f", at.Seconds()))
			}
			var want []string
			for _, s := range seconds {
				want = append(want, fmt.Sprintf("%.2f", s))
			}
			if err != nil || !slices.Equal(got, want) {
				e.Errorf("checks at %v, want %v (%v)", got, want, err)
			}
		}
	}
	opts := []bide.PollOption{bide.ETA{}, bide.NoTimeout{}}
	t.Run("on time", func(t *testing.T) {
		watchFar(t, job(50*time.Second, 50*time.Second), wants(0, 40, 48, 49.6, 50.6), opts...)
	})
	t.Run("far off", func(t *testing.T) {
		watchFar(t, job(200*time.Second, 130*time.Second), wants(0, 60, 120, 180), opts...)
	})
	t.Run("overdue", func(t *testing.T) {
		watchFar(t, job(10*time.Second, 30*time.Second), wants(0, 8, 9.6, 10.6, 11.6, 12.6, 13.6, 14.6, 15.75, 17.19, 18.98, 21.23, 24.04, 27.55, 31.93), opts...)
	})
	t.Run("unknown", func(t *testing.T) {
		watchFar(t, func(passed time.Duration) far { return far{Done: passed > 12*time.Second} },
			wants(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12.1), opts...)
	})
	// Without an ETA the rate of progress says when: after two rises and 5 %.
	t.Run("by rate", func(t *testing.T) {
		watchFar(t, func(passed time.Duration) far {
			return far{Percent: min(100*passed.Seconds()/100, 100), Done: passed >= 100*time.Second}
		}, func(e *env, c *clock, _ string, err error) {
			at := c.ticks()
			if err != nil || len(at) > 16 || at[len(at)-1] > 102*time.Second {
				e.Errorf("checks at %v (%v)", at, err)
			}
			for _, x := range at[1 : len(at)-1] {
				if x >= 8*time.Second && x < 9*time.Second {
					return
				}
			}
		}, opts...)
	})
}

// What the job tells as its progress is the run's, and never goes back.
func TestPollProgressNeverBack(t *testing.T) {
	row := []float64{10, 40, 30, math.NaN(), -5, 60, 250, 20, 100}
	inBubble(t, func(e *env) {
		n, shown := -1, []float64{}
		var told []float64
		w := bide.Define("far", func(ctx bide.Context, _ none) (int, error) {
			return bide.Poll(ctx, "job", func(ctx context.Context) (int, error) {
				if n++; n < len(row) && row[n] == row[n] {
					_ = bide.Progress(ctx, min(max(row[n], 0), 100), "")
				}
				return n, nil
			}, func(int) bool { return n == len(row) }, bide.Every(time.Minute), bide.NoTimeout{}, bide.Exact{},
				bide.OnCheck(func(c bide.Check) { told = append(told, c.Percent) }))
		})
		cfg := e.config()
		cfg.MaxWarm = -1
		e.workAs(cfg, w)
		h := start(e, w, none{})
		for range row {
			time.Sleep(30 * time.Second)
			shown = append(shown, e.get(h.ID()).Progress.Percent)
			time.Sleep(30 * time.Second)
		}
		_, err := result(e, h)
		want := []float64{10, 40, 40, 40, 40, 60, 100, 100, 100}
		if err != nil || !slices.Equal(shown, want) || !slices.Equal(told, append(want, 100)) {
			e.Errorf("shown %v, told %v, want %v (%v)", shown, told, want, err)
		}
	})
	// The same when the value tells it; a percent that is no number is not told.
	watchFar(t, func(passed time.Duration) far {
		i := int(passed / time.Second)
		return far{Percent: row[min(i, len(row)-1)], Done: i == 4}
	}, func(e *env, _ *clock, id string, err error) {
		if p := e.get(id).Progress; err != nil || p.Percent != 40 || p.Message != "so far" {
			e.Errorf("%+v (%v)", p, err)
		}
	}, bide.Every(time.Second), bide.NoTimeout{})
}

// A poll whose progress has not risen for so long has stalled; the check that
// finds it comes when the time is over, however far apart the others are. Where it
// stands says the error. That the service is down says nothing of the job.
func TestPollStall(t *testing.T) {
	stands := func(passed time.Duration) far { return far{Percent: min(passed.Minutes(), 20)} }
	watchFar(t, stands, func(e *env, c *clock, _ string, err error) {
		x := wantErr[*bide.PollStalledError](e, err)
		if at := c.ticks(); at[len(at)-1] != 30*time.Minute || x.Stalled != 10*time.Minute || x.LastProgress.Percent != 20 || x.Attempts != len(at) || bide.Code(x) != "poll_stalled" {
			e.Errorf("checks at %v: %+v", at, x)
		}
	}, bide.Every(5*time.Minute), bide.NoTimeout{}, bide.StallTimeout(10*time.Minute))
	watchFar(t, stands, func(e *env, c *clock, _ string, err error) {
		wantErr[*bide.PollStalledError](e, err)
		c.want(e, "checks", 0, 10*time.Minute, 20*time.Minute, 30*time.Minute)
	}, bide.Every(time.Hour), bide.NoTimeout{}, bide.StallTimeout(10*time.Minute))
	// The least interval holds for the check that finds the stall too.
	watchFar(t, func(time.Duration) far { return far{Percent: 1} }, func(e *env, c *clock, _ string, err error) {
		wantErr[*bide.PollStalledError](e, err)
		c.want(e, "checks", 0, 55*time.Second, 65*time.Second)
	}, bide.Every(55*time.Second), bide.NoTimeout{}, bide.StallTimeout(time.Minute), bide.MinInterval(10*time.Second))
	// Off unless asked for.
	watchFar(t, stands, func(e *env, _ *clock, _ string, err error) { wantErr[*bide.PollTimeoutError](e, err) }, bide.Every(time.Hour), bide.Timeout(48*time.Hour))
	poll(t, append(slices.Repeat([]answer{refused(500)}, 20), isThere), exactly(bide.Every(time.Second), bide.NoTimeout{}, bide.StallTimeout(time.Minute)),
		func(a *asking) { a.wantDone() })
	poll(t, append(slices.Repeat([]answer{refused(500)}, 20), pending), exactly(bide.Every(time.Second), bide.NoTimeout{}, bide.StallTimeout(time.Minute)),
		func(a *asking) { wantErr[*bide.PollStalledError](a.env, a.err) })
}

// held is a service's answer after it held it for so long.
func held(d time.Duration, etag string) answer {
	return answer{status: http.StatusAccepted, delay: d, header: map[string]string{"ETag": etag}}
}

// A server that holds its answers back is asked again at once: within a quarter
// of a second, which MinInterval does not stretch.
func TestPollLongPollHeld(t *testing.T) {
	script := append(slices.Repeat([]answer{held(30*time.Second, `"1"`)}, 20), isThere)
	poll(t, script, []bide.PollOption{bide.Every(time.Minute), bide.LongPoll(30 * time.Second), bide.MinInterval(5 * time.Second), bide.NoTimeout{}}, func(a *asking) {
		a.wantDone()
		for i, d := range gaps(a.at()) {
			if d < 30*time.Second || d > 30*time.Second+251*time.Millisecond {
				a.Errorf("pause %d is %v", i, d-30*time.Second)
			}
		}
	})
}

// Two quick answers in a row, and the strategy that is given besides, in whatever
// order, paces the checks until the server holds one.
func TestPollLongPollNotHeld(t *testing.T) {
	quick, slow := held(0, `"1"`), held(25*time.Second, `"1"`)
	for name, opts := range map[string][]bide.PollOption{
		"strategy first": {bide.Every(20 * time.Second), bide.LongPoll(30 * time.Second)},
		"strategy last":  {bide.LongPoll(30 * time.Second), bide.Every(20 * time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			poll(t, []answer{quick, quick, quick, quick, slow, quick, isThere}, exactly(append(opts, bide.NoTimeout{})...), func(a *asking) {
				a.wantDone()
				got := gaps(a.at())
				for i, least := range []time.Duration{0, 20, 20, 20, 25, 0} {
					least *= time.Second
					most := least
					if i != 1 && i != 2 && i != 3 {
						most += 251 * time.Millisecond
					}
					if got[i] < least || got[i] > most {
						a.Errorf("pause %d is %v, want %v to %v", i+1, got[i], least, most)
					}
				}
			})
		})
	}
}

// Quick answers that bring news say nothing of whether the server holds.
func TestPollLongPollETagChange(t *testing.T) {
	var script []answer
	for i := range 20 {
		script = append(script, held(0, fmt.Sprintf(`"%d"`, i)))
	}
	poll(t, append(script, isThere), exactly(bide.Every(time.Hour), bide.LongPoll(30*time.Second), bide.NoTimeout{}), func(a *asking) {
		a.wantDone()
		if took := a.at()[20]; took > 5*time.Second {
			a.Errorf("it took %v", took)
		}
	})
}

// A long poll may take 10 s longer than it is held, whatever AttemptTimeout says.
func TestPollLongPollAttemptTimeout(t *testing.T) {
	poll(t, []answer{held(64*time.Second, `"1"`), isThere}, exactly(bide.LongPoll(time.Minute), bide.AttemptTimeout(5*time.Second), bide.NoTimeout{}), func(a *asking) {
		a.wantDone()
		if c := a.checks[0]; c.Err != nil {
			a.Errorf("the first check: %v", c.Err)
		}
	})
	poll(t, []answer{{hang: true}, isThere}, exactly(bide.LongPoll(time.Minute), bide.NoTimeout{}), func(a *asking) { a.wantAt(0, 71) })
}
