package bide_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/wait"
)

// Ten thousand attempts leave one record in the history; what is kept of them
// meanwhile and after stays small, however they went.
func TestPollOneRecord(t *testing.T) {
	many := 10_000
	if short() {
		many = 1000
	}
	for name, c := range map[string]struct {
		attempts int
		check    func(n int) (int, error)
	}{
		"all alike":     {many, func(int) (int, error) { return 1, nil }},
		"values change": {500, func(n int) (int, error) { return 1000 + n, nil }},
		"errors between": {500, func(n int) (int, error) {
			if n%2 == 0 {
				return 0, fmt.Errorf("error %d", 1000+n)
			}
			return 1000 + n, nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(e *env) {
				n, most := 0, 0
				w := bide.Define("long", func(ctx bide.Context, _ none) (int, error) {
					return bide.Poll(ctx, "job", func(context.Context) (int, error) {
						if n++; n == c.attempts {
							return -1, nil
						}
						return c.check(n)
					}, func(n int) bool { return n < 0 }, bide.Every(time.Minute), bide.NoTimeout{})
				})
				cfg := e.config()
				cfg.MaxWarm = -1
				cfg.Logger = nil
				hand := e.workAs(cfg, w)
				hand.gate.mu.Lock()
				hand.gate.onCommit = func(b bide.Batch) error {
					if b.Waiting != nil && len(*b.Waiting) > 0 {
						most = max(most, len(jsonOf(e, *b.Waiting)))
					}
					return nil
				}
				hand.gate.mu.Unlock()
				h := start(e, w, none{})
				out, err := result(e, h)
				records := e.history(h.ID())
				if out != -1 || err != nil || len(records) != 1 || records[0].Attempt != c.attempts {
					e.Fatalf("%d, %v; %d records", out, err, len(records))
				}
				kept := len(jsonOf(e, records[0]))
				e.Logf("the wait was at most %d bytes of JSON, the record is %d", most, kept)
				if most >= 8<<10 || kept >= 8<<10 || most == 0 {
					e.Errorf("the wait was %d bytes, the record is %d; want less than 8 KiB each", most, kept)
				}
				counted := 0
				for _, n := range records[0].Poll.Counts {
					counted += n
				}
				if counted != c.attempts {
					e.Errorf("%v", records[0].Poll.Counts)
				}
			})
		})
	}
}

// The log keeps the last 50 changes of the value, none twice; a value above 1 KiB
// is a line without it.
func TestPollLogValues(t *testing.T) {
	values := []string{"a", "a", "a", strings.Repeat("x", 2000), strings.Repeat("x", 2000), "b"}
	var script []answer
	for _, v := range values {
		script = append(script, answer{body: v})
	}
	poll(t, append(script, isThere), exactly(bide.Every(time.Second), bide.NoTimeout{}), func(a *asking) {
		var got []string
		for _, v := range a.record.Poll.Values {
			got = append(got, fmt.Sprint(v.At.Sub(a.began), " ", string(v.Value)))
		}
		if want := []string{`0s "a"`, `3s `, `5s "b"`, `6s "done"`}; !slices.Equal(got, want) {
			a.Errorf("kept %q, want %q", got, want)
		}
	})
	script = nil
	for i := range 70 {
		script = append(script, answer{body: fmt.Sprint(i)})
	}
	poll(t, append(script, isThere), exactly(bide.Every(time.Second), bide.NoTimeout{}), func(a *asking) {
		if v := a.record.Poll.Values; len(v) != 50 || string(v[0].Value) != `"21"` || string(v[49].Value) != `"done"` {
			a.Errorf("%d lines, %s to %s", len(v), v[0].Value, v[len(v)-1].Value)
		}
	})
}

// Checks that went alike are one line, with how many and when the last was; of
// lines the last 50 are kept, and an error's text is cut.
func TestPollLogChecks(t *testing.T) {
	down := answer{status: 500}
	script := append(slices.Repeat([]answer{pending}, 5), down, down, refused(502), refused(429), pending, isThere)
	poll(t, script, exactly(bide.Every(time.Second), bide.NoTimeout{}), func(a *asking) {
		var got []string
		for _, c := range a.record.Poll.Checks {
			last := c.Last
			if c.Count == 0 {
				last = c.At
			}
			_, text, _ := strings.Cut(c.Error, "job: ")
			got = append(got, strings.TrimSpace(fmt.Sprint(c.At.Sub(a.began), " ", last.Sub(a.began), " ", c.Count, " ", c.Outcome, " ", text)))
		}
		want := []string{"0s 4s 5 pending", "5s 6s 2 transient 500 Internal Server Error", "8s 8s 0 transient 502 Bad Gateway",
			"12s 12s 0 throttled 429 Too Many Requests", "20s 20s 0 pending", "21s 21s 0 succeeded"}
		if !slices.Equal(got, want) {
			a.Errorf("kept %q, want %q", got, want)
		}
		if c := a.record.Poll.Counts; fmt.Sprint(c) != "map[pending:6 succeeded:1 throttled:1 transient:3]" {
			a.Errorf("counted %v", c)
		}
	})
	_, _, records, _ := polled(t, func(n int) (int, error) {
		if n == 200 {
			return 7, nil
		}
		return 0, fmt.Errorf("%d: %s", n, strings.Repeat("é", 500))
	}, bide.Every(time.Second), bide.NoTimeout{})
	lines := records[0].Poll.Checks
	if len(lines) != 50 || lines[0].Error[:4] != "151:" || lines[49].Outcome != wait.Succeeded {
		t.Errorf("%d lines, the first %q", len(lines), lines[0].Error)
	}
	if text := lines[0].Error; len(text) > 200+len("…") || !strings.HasSuffix(text, "é…") || strings.ContainsRune(text, '�') {
		t.Errorf("the text of an error is %q", text)
	}
}

// OnCheck tells of each check how it went and what comes next, and a panic of it
// is none of the poll's business.
func TestPollOnCheck(t *testing.T) {
	script := []answer{{status: 202, body: "half", delay: 2 * time.Second}, refused(429, "Retry-After", "30"), {status: 202, body: "half"}, isThere}
	poll(t, script, exactly(bide.Every(10*time.Second), bide.Timeout(time.Hour)), func(a *asking) {
		var got []string
		for _, c := range a.checks {
			next := "none"
			if !c.NextAt.IsZero() {
				next = c.NextAt.Sub(a.began).String()
			}
			got = append(got, fmt.Sprint(c.Poll, c.Attempt, " due ", c.DueAt.Sub(a.began), " ", c.StartedAt.Sub(a.began), "-", c.EndedAt.Sub(a.began), " ", c.Outcome, " ",
				c.Err != nil, " ", string(c.Value), " ", c.Changed, " ", c.Base, " ", c.Floor, " ", c.FloorFrom, " next ", next))
		}
		want := []string{
			`job1 due 0s 0s-2s pending false "half" true 10s 0s  next 12s`,
			`job2 due 12s 12s-12s throttled true "half" false 10s 30s Retry-After next 42s`,
			`job3 due 42s 42s-42s pending false "half" false 10s 0s  next 52s`,
			`job4 due 52s 52s-52s succeeded false "done" true 0s 0s  next none`}
		if !slices.Equal(got, want) {
			a.Errorf("told\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
	at, got, _, err := polled(t, doneAt(3), bide.Every(time.Second), bide.NoTimeout{}, bide.OnCheck(func(bide.Check) { panic("ouch") }))
	if got != 7 || err != nil || len(at) != 3 {
		t.Errorf("%d, %v after %d checks", got, err, len(at))
	}
}

// The wait says while it lasts what is waited for: the API, the list and the
// dashboard show nothing else.
func TestPollWaitTells(t *testing.T) {
	inBubble(t, func(e *env) {
		s := serve(e.T, answer{body: "half", header: map[string]string{"ETag": `"1"`}}, refused(503), refused(429, "Retry-After", "600"))
		w := bide.Define("tells", func(ctx bide.Context, _ none) (string, error) {
			return bide.Poll(ctx, "job", s.ask, isDone, bide.Every(time.Minute), bide.Timeout(time.Hour), bide.Exact{})
		})
		e.work(w)
		h := start(e, w, none{})
		time.Sleep(150 * time.Second)
		k := e.waitOf(h.ID(), bide.KindPoll)
		if k.Name != "job" || !k.Since.Equal(s.began) || k.Until.Sub(s.began) != time.Hour || k.NextAt.Sub(s.began) != 12*time.Minute || k.Attempt != 3 || k.Streak != 1 ||
			string(k.LastValue) != `"half"` || wantErr[*wait.ResponseError](e, k.LastError.Err()).Status != 429 || k.LastErrAt.Sub(s.began) != 2*time.Minute {
			e.Errorf("%s", jsonOf(e, k))
		}
		if p := k.Poll; p.Floor != 10*time.Minute || p.Source != "Retry-After" || p.NotBefore.Sub(s.began) != 12*time.Minute || p.Seen.ETag != `"1"` || p.Throttled != 1 {
			e.Errorf("%s", jsonOf(e, k))
		}
		e.ok(e.client.Cancel(e.Context(), h.ID(), ""))
		_, err := result(e, h)
		if !errors.Is(err, bide.ErrCanceled) {
			e.Errorf("%v", err)
		}
	})
}

// When the next check comes is drawn once: restarts at any time, graceful or not,
// move it neither forth nor back.
func TestPollNextAtDrawnOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 5 {
		inBubble(t, func(e *env) {
			s := serve(e.T, pending, pending, refused(202, "Retry-After", "1200"), isThere)
			w := bide.Define("drawn", func(ctx bide.Context, _ none) (string, error) {
				return bide.Poll(ctx, "job", s.ask, isDone, bide.Every(20*time.Minute), bide.NoTimeout{})
			})
			hand := e.work(w)
			h := start(e, w, none{})
			var due []time.Duration
			for range 3 {
				time.Sleep(time.Second)
				next := e.waitOf(h.ID(), bide.KindPoll).NextAt
				due = append(due, next.Sub(s.began))
				for range 3 {
					time.Sleep(time.Duration(1+rng.IntN(300)) * time.Second)
					if rng.IntN(2) == 0 {
						hand.crash()
					} else {
						e.ok(hand.stop())
					}
					hand = e.work(w)
					time.Sleep(2 * testLease)
					if now := e.waitOf(h.ID(), bide.KindPoll); !now.NextAt.Equal(next) || now.Attempt != len(due) {
						e.Errorf("a restart moved the next check from %v to %v", next, now)
					}
				}
				time.Sleep(time.Until(next))
			}
			_, err := result(e, h)
			e.ok(err)
			if got := s.at()[1:]; len(got) != 3 || got[0] != due[0] || got[1] != due[1] || got[2] != due[2] {
				e.Errorf("asked at %v, due at %v", got, due)
			}
		})
	}
}

// A check that a crash cut short counts as an attempt and as an error of its own
// kind, and the next one comes at once; its late answer is dropped.
func TestPollInterruptedCountsAsAttempt(t *testing.T) {
	inBubble(t, func(e *env) {
		s := serve(e.T, pending, answer{body: "late", delay: 20 * time.Second}, pending, isThere)
		w := bide.Define("crashes", func(ctx bide.Context, _ none) (string, error) {
			return bide.Poll(ctx, "job", s.ask, isDone, bide.Every(time.Minute), bide.MaxAttempts(4), bide.Exact{})
		})
		hand := e.work(w)
		h := start(e, w, none{})
		time.Sleep(65 * time.Second) // in the middle of the second check
		hand.gate.set(dead)
		hand.cancel()
		e.work(w)
		out, err := result(e, h)
		r := e.history(h.ID())[0]
		if out != "done" || err != nil || r.Attempt != 4 || fmt.Sprint(r.Poll.Counts) != "map[interrupted:1 pending:2 succeeded:1]" {
			e.Errorf("%q, %v: %s", out, err, jsonOf(e, r))
		}
		c := r.Poll.Checks[1]
		if c.Outcome != wait.Interrupted || c.Trigger != bide.TriggerResume || c.At.Sub(s.began) > 80*time.Second || s.at()[2] != c.At.Sub(s.began) {
			e.Errorf("asked at %v, %+v", s.at(), c)
		}
		for _, v := range r.Poll.Values {
			if string(v.Value) == `"late"` {
				e.Error("the late answer was taken")
			}
		}
	})
	// When that one is cut short as well, the next is kept at a distance.
	inBubble(t, func(e *env) {
		s := serve(e.T, answer{hang: true}, answer{hang: true}, isThere)
		w := bide.Define("crashes", func(ctx bide.Context, _ none) (string, error) {
			return bide.Poll(ctx, "job", s.ask, isDone, bide.Every(time.Minute), bide.NoTimeout{}, bide.Exact{})
		})
		hand := e.work(w)
		h := start(e, w, none{})
		for range 2 {
			time.Sleep(4 * testLease)
			hand.gate.set(dead)
			hand.cancel()
			hand = e.work(w)
		}
		_, err := result(e, h)
		e.ok(err)
		if at := s.at(); len(at) != 3 || at[1] > 5*testLease+time.Second || at[2] < 8*testLease+time.Minute {
			e.Errorf("asked at %v", at)
		}
	})
	// With the attempts used up by it, that is the end.
	inBubble(t, func(e *env) {
		s := serve(e.T, answer{hang: true})
		w := bide.Define("crashes", func(ctx bide.Context, _ none) (string, error) {
			return bide.Poll(ctx, "job", s.ask, isDone, bide.MaxAttempts(1))
		})
		hand := e.work(w)
		h := start(e, w, none{})
		time.Sleep(time.Second)
		hand.gate.set(dead)
		hand.cancel()
		e.work(w)
		_, err := result(e, h)
		if x := wantErr[*bide.PollTimeoutError](e, err); x.Reason != bide.ReasonMaxAttempts || !errors.Is(x.LastErr, bide.ErrInterrupted) || len(s.requests()) != 1 {
			e.Errorf("asked %d times: %+v", len(s.requests()), x)
		}
	})
}

// A worker that dies while a poll merely waits, for a deadline that the server
// forbids to check at, has interrupted nothing.
func TestPollInterruptedWhileRefused(t *testing.T) {
	inBubble(t, func(e *env) {
		s := serve(e.T, refused(429, "Retry-After", "600"))
		w := bide.Define("crashes", func(ctx bide.Context, _ none) (string, error) {
			return bide.Poll(ctx, "job", s.ask, isDone, bide.Timeout(time.Minute))
		})
		cfg := e.config()
		cfg.WarmFor = time.Hour
		hand := e.workAs(cfg, w)
		h := start(e, w, none{})
		time.Sleep(59 * time.Second)
		hand.crash()
		time.Sleep(time.Minute)
		e.work(w)
		_, err := result(e, h)
		if x := wantErr[*bide.PollTimeoutError](e, err); x.Reason != bide.ReasonRetryAfter || x.Attempts != 1 {
			e.Errorf("%+v", x)
		}
	})
}

// A worker that stops, or a run that is paused, lets the check in flight end and
// begins no other, though one is due: what has been counted is kept.
func TestPollStoppingBeginsNoCheck(t *testing.T) {
	for _, pause := range []bool{false, true} {
		inBubble(t, func(e *env) {
			s := serve(e.T, pending, answer{status: 202, body: "slow", delay: 8 * time.Second}, answer{status: 202, delay: 5 * time.Second})
			w := bide.Define("stops", func(ctx bide.Context, _ none) (string, error) {
				return bide.Poll(ctx, "job", s.ask, isDone, bide.Every(10*time.Second), bide.Timeout(15*time.Second), bide.Exact{})
			})
			hand := e.work(w)
			h := start(e, w, none{})
			time.Sleep(12 * time.Second) // in the second check, which outlasts the deadline
			if pause {
				e.ok(e.client.Pause(e.Context(), h.ID()))
			} else {
				e.ok(hand.stop())
			}
			time.Sleep(time.Minute)
			if got := s.at(); len(got) != 2 {
				e.Errorf("pause %v: asked at %v", pause, got)
			}
			if k := e.waitOf(h.ID(), bide.KindPoll); k.Attempt != 2 || string(k.LastValue) != `"slow"` {
				e.Errorf("pause %v: %s", pause, jsonOf(e, k))
			}
			if pause {
				e.ok(e.client.Resume(e.Context(), h.ID()))
			} else {
				e.work(w)
			}
			_, err := result(e, h)
			if x := wantErr[*bide.PollTimeoutError](e, err); x.Attempts != 3 || len(s.requests()) != 3 {
				e.Errorf("pause %v: asked at %v: %+v", pause, s.at(), x)
			}
		})
	}
}

// A check that follows at once and kills its process does not take the one before
// it along.
func TestPollCrashKeepsCheckBefore(t *testing.T) {
	inBubble(t, func(e *env) {
		s := serve(e.T, answer{status: 202, body: "slow", delay: 8 * time.Second}, answer{hang: true}, isThere)
		w := bide.Define("crashes", func(ctx bide.Context, _ none) (string, error) {
			return bide.Poll(ctx, "job", s.ask, isDone, bide.Timeout(5*time.Second))
		})
		hand := e.work(w)
		h := start(e, w, none{})
		time.Sleep(9 * time.Second) // in the last check
		hand.gate.set(dead)
		hand.cancel()
		e.work(w)
		_, err := result(e, h)
		if x := wantErr[*bide.PollTimeoutError](e, err); x.Attempts != 2 || string(x.LastValue) != `"slow"` || !errors.Is(x.LastErr, bide.ErrInterrupted) {
			e.Errorf("asked at %v: %+v", s.at(), x)
		}
	})
}
