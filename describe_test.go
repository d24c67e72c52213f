package bide_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/wait"
)

func TestDescribe(t *testing.T) {
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.FixedZone("CET", 3600))
	in := func(d time.Duration) time.Time { return now.Add(d).UTC() }
	failure := &bide.Failure{Message: "503 Service\nUnavailable"}
	percent := &bide.PollState{State: wait.State{Percent: 62.4, PercentAt: now}}
	for _, c := range []struct {
		wait bide.Wait
		want string
	}{
		{bide.Wait{Kind: bide.KindSleep, Until: in(7 * time.Second)}, "asleep until 08:00:07"},
		{bide.Wait{Kind: bide.KindSleep, Until: in(time.Hour)}, "asleep until 09:00"},
		{bide.Wait{Kind: bide.KindSleep, Until: in(25 * time.Hour)}, "asleep until Sunday 09:00"},
		{bide.Wait{Kind: bide.KindSleep, Until: in(40 * 24 * time.Hour)}, "asleep until 2026-12-31 08:00"},
		{bide.Wait{Kind: bide.KindPoll, Name: "job", NextAt: in(0)}, "poll job, checks now"},
		{bide.Wait{Kind: bide.KindPoll, Name: "job", Attempt: 14, NextAt: in(7 * time.Second), Until: in(10 * time.Minute),
			LastValue: json.RawMessage(`{ "state": "running" }`), LastError: failure, Poll: percent},
			`poll job, attempt 14, next in 7 s, gives up in 10 min, last: {"state":"running"} 62 %`},
		{bide.Wait{Kind: bide.KindPoll, Name: "job", Attempt: 2, NextAt: in(time.Minute), Streak: 1, LastError: failure},
			"poll job, attempt 2, next in 1 min, last error: 503 Service Unavailable"},
		{bide.Wait{Kind: bide.KindPoll, Name: "job", Attempt: 2, NextAt: in(time.Minute), Poll: percent},
			"poll job, attempt 2, next in 1 min, last: 62 %"},
		{bide.Wait{Kind: bide.KindReceive, Name: "approval", Since: in(-48 * time.Hour), Until: in(22 * time.Hour)},
			"waits for signal approval since 2 d, gives up in 22 h"},
		{bide.Wait{Kind: bide.KindWebhook, Name: "done", Since: in(-90 * time.Second)}, "waits for webhook done since 1 min 30 s"},
		{bide.Wait{Kind: bide.KindChild, Name: "run_7", Since: in(-300 * time.Millisecond)}, "waits for child run_7 since 300 ms"},
		{bide.Wait{Kind: bide.KindRetry, Name: "charge", Attempt: 2, NextAt: in(12 * time.Second), LastError: failure},
			"step charge, try 3 in 12 s, last error: 503 Service Unavailable"},
		{bide.Wait{Kind: bide.KindRetry, Name: "charge", Attempt: 2, NextAt: in(-time.Second)}, "step charge, try 3 now"},
		{bide.Wait{Kind: bide.KindRetry, Name: "charge"}, "step charge, try 1 is under way"},
		{bide.Wait{Kind: bide.KindQueue, Name: "gpu", Since: in(-26 * time.Hour)}, "waits for a worker of queue gpu since 1 d 2 h"},
		{bide.Wait{Kind: bide.KindPause}, "paused"},
		{bide.Wait{Kind: bide.KindStuck, Name: "order", Since: in(-20 * time.Minute), NextAt: in(5 * time.Minute), LastError: failure},
			"stuck in the code of order since 20 min, tried again in 5 min, last error: 503 Service Unavailable"},
		{bide.Wait{Kind: bide.KindLoop, Name: "news", NextAt: in(20 * time.Second), LastError: failure,
			Loop: &bide.LoopState{}}, "loop news, next in 20 s"},
		{bide.Wait{Kind: bide.KindLoop, Name: "news", NextAt: in(4 * time.Minute), LastError: failure,
			Loop: &bide.LoopState{Effective: 4 * time.Minute, PaceState: wait.PaceState{Failures: 3}}},
			"loop news, next in 4 min, interval 4 min after 3 failures, last error: 503 Service Unavailable"},
		{bide.Wait{Kind: bide.KindLoop, Name: "news", Loop: &bide.LoopState{InFlight: in(-2 * time.Second)}}, "loop news, at work since 2 s"},
		{bide.Wait{Kind: bide.KindJoin, Name: "left"}, "waits for join left"},
	} {
		if got := c.wait.Describe(now); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// Whatever a service has answered, the sentence stays one line that can be read.
func TestDescribeIsShort(t *testing.T) {
	w := bide.Wait{Kind: bide.KindPoll, Name: "job", LastValue: json.RawMessage(`"` + strings.Repeat("ä ", 5000) + `"`)}
	if got := w.Describe(time.Now()); len(got) > 200 || !strings.HasSuffix(got, "…") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
	w.Streak, w.LastError = 1, &bide.Failure{Message: strings.Repeat("line\n", 5000)}
	if got := w.Describe(time.Now()); len(got) > 300 || strings.Contains(got, "\n") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}
