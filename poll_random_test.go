package bide_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/bide-dev/bide"
)

// TestPollOverRandomServices holds polls of services that say anything to what is
// true of all polls, and to this: that one which stays in memory, one which parks
// each time and one whose worker is replaced again and again ask at the same times
// and end alike.
func TestPollOverRandomServices(t *testing.T) {
	rounds := 150
	if short() {
		rounds = 30
	}
	for seed := range uint64(rounds) {
		rng := rand.New(rand.NewPCG(seed, 7))
		script, opts, deadline := randomService(rng), []bide.PollOption{bide.Exact{}}, time.Duration(0)
		switch rng.IntN(3) {
		case 0:
			opts = append(opts, bide.Every(time.Duration(1+rng.IntN(30))*time.Second))
		case 1:
			opts = append(opts, bide.Elapsed{Share: 0.3, Max: 20 * time.Second})
		}
		if rng.IntN(3) == 0 {
			opts = append(opts, bide.MaxAttempts(1+rng.IntN(15)))
		} else {
			deadline = time.Duration(20+rng.IntN(200)) * time.Second
			opts = append(opts, bide.Timeout(deadline))
		}
		if rng.IntN(4) == 0 {
			opts = append(opts, bide.MaxConsecutiveErrors(1+rng.IntN(4)))
		}
		ends := map[string]string{}
		for _, mode := range []string{"warm", "parked", "restarted"} {
			inBubble(t, func(e *env) {
				s := serve(e.T, script...)
				w := bide.Define("random", func(ctx bide.Context, _ none) (string, error) {
					return bide.Poll(ctx, "job", s.ask, isDone, opts...)
				})
				cfg := e.config()
				if cfg.WarmFor = time.Hour; mode == "parked" {
					cfg.MaxWarm = -1
				}
				hand := e.workAs(cfg, w)
				h := start(e, w, none{}, bide.ID("the-run"))
				if mode == "restarted" {
					pauses := rand.New(rand.NewPCG(seed, 8))
					for range 20 {
						time.Sleep(time.Duration(pauses.IntN(15_000)) * time.Millisecond)
						e.ok(hand.stop())
						hand = e.workAs(cfg, w)
					}
				}
				_, err := result(e, h)
				text := fmt.Sprint(err)
				if x, ok := errors.AsType[*bide.PollTimeoutError](err); ok {
					text = fmt.Sprint(x.Reason, " ", x.Attempts, " ", x.Elapsed)
				}
				r := e.history(h.ID())[0]
				ends[mode] = fmt.Sprint(s.at(), text, r.Poll.Counts)
				counted := 0
				for _, n := range r.Poll.Counts {
					counted += n
				}
				if asked := len(s.requests()); r.Attempt != asked || counted != asked {
					e.Errorf("seed %d, %s: %d requests, %d attempts, counted %v", seed, mode, asked, r.Attempt, r.Poll.Counts)
				}
				checkAsked(e, seed, s, deadline, err)
			})
		}
		if ends["warm"] != ends["parked"] || ends["warm"] != ends["restarted"] {
			t.Fatalf("seed %d:\nwarm      %s\nparked    %s\nrestarted %s", seed, ends["warm"], ends["parked"], ends["restarted"])
		}
	}
}

// checkAsked checks the times of a poll's requests against what its service said.
func checkAsked(e *env, seed uint64, s *service, deadline time.Duration, err error) {
	e.Helper()
	at := s.at()
	for i := range at[1:] {
		said := s.script[min(i, len(s.script)-1)]
		ended := at[i] + said.delay
		pause := at[i+1] - ended
		floor, _ := strconv.Atoi(said.header["Retry-After"])
		late := deadline > 0 && at[i+1] >= deadline
		if pause < 10*time.Millisecond && !late {
			e.Errorf("seed %d: request %d came %v after the answer before", seed, i+2, pause)
		}
		if pause < time.Duration(floor)*time.Second && (said.status == 429 || !late) {
			e.Errorf("seed %d: request %d came after %v, though %+v", seed, i+2, pause, said)
		}
		if late && i+2 < len(at) {
			e.Errorf("seed %d: request %d came at %v, the deadline was %v, and there was another", seed, i+2, at[i+1], deadline)
		}
	}
	last := at[len(at)-1]
	x, gaveUp := errors.AsType[*bide.PollTimeoutError](err)
	switch {
	case !gaveUp:
	case x.Reason == bide.ReasonTotalTimeout && last < deadline:
		e.Errorf("seed %d: the last request came at %v, the deadline is %v", seed, last, deadline)
	case x.Reason == bide.ReasonRetryAfter && (last >= deadline || s.script[min(len(at), len(s.script))-1].status != 429):
		e.Errorf("seed %d: %v after a request at %v", seed, x, last)
	}
}

// randomService is a script of anything.
func randomService(rng *rand.Rand) []answer {
	var script []answer
	for range 1 + rng.IntN(25) {
		a := answer{status: []int{200, 200, 202, 202, 304, 408, 429, 429, 500, 503, 410}[rng.IntN(10+rng.IntN(20)/19)], header: map[string]string{}}
		if rng.IntN(3) == 0 {
			a.delay = time.Duration(rng.IntN(9000)) * time.Millisecond // below the grace of a stopping worker
		}
		if a.status == 200 {
			a.body = strconv.Itoa(rng.IntN(5))
			a.header["ETag"] = `"` + a.body + `"`
		}
		if rng.IntN(4) == 0 && a.status != 503 { // with which it would be throttled
			a.header["Retry-After"] = strconv.Itoa(rng.IntN(60))
		}
		if rng.IntN(10) == 0 && a.status < 400 {
			a.header["X-Poll-Interval"] = strconv.Itoa(rng.IntN(40))
		}
		script = append(script, a)
	}
	if rng.IntN(2) == 0 {
		script = append(script, isThere)
	}
	return script
}
