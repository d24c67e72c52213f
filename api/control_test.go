package api

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/bide-dev/bide"
)

func TestCancel(t *testing.T) {
	inBubble(t, func(s *site) {
		// It takes a second to clean up: the answer to a cancel does not race its end.
		s.work(bide.Define("tidy", func(ctx bide.Context, _ any) (string, error) {
			text, err := bide.Receive[string](ctx, "go")
			return text, errors.Join(err, bide.Sleep(bide.WithoutCancel(ctx), time.Second))
		}))
		for _, id := range []string{"a", "b", "c"} {
			s.call("POST", "/v1/runs", `{"workflow":"tidy","id":"`+id+`"}`, "Prefer: wait=1")
		}
		s.call("DELETE", "/v1/runs/a", "").want(202, `"canceling"`)
		s.call("GET", "/v1/runs/a/result?wait=5", "").refused(409, "run-canceled")
		s.call("DELETE", "/v1/runs/a", "").want(200, `"canceled"`, `"completed_by":"cancel"`)
		s.call("POST", "/v1/runs/b/cancel", `{"reason":"no need"}`).want(202)
		s.call("GET", "/v1/runs/b/events", "").want(200)
		s.call("GET", "/v1/runs/b/result?wait=5", "").refused(409, "run-canceled")
		s.call("POST", "/v1/runs/b/cancel", "").want(200)
		s.call("POST", "/v1/runs/c/terminate", `{"reason":"at once"}`).want(200, `"terminated"`, `"at once"`, `"code":"run-canceled"`)
		s.call("POST", "/v1/runs/c/terminate", "").want(200, `"at once"`)
		s.call("DELETE", "/v1/runs/none", "").refused(404, "not-found")
		s.call("POST", "/v1/runs/a/cancel", `{"because":1}`).refused(400, "invalid-input", `"field":"because"`)
		s.call("POST", "/v1/runs/a/cancel", `[]`).refused(400, "invalid-input")
	})
}

func TestPurge(t *testing.T) {
	inBubble(t, func(s *site) {
		s.call("POST", "/v1/runs", `{"workflow":"w","id":"a"}`)
		s.call("DELETE", "/v1/runs/a?purge=true", "").refused(409, "conflict", "the run")
		s.call("DELETE", "/v1/runs/a?purge=false", "").want(202, `"canceling"`)
		s.call("DELETE", "/v1/runs/a?purge=perhaps", "").refused(400, "invalid-input", `"field":"purge"`)
		s.call("POST", "/v1/runs/a/terminate", "")
		s.call("DELETE", "/v1/runs/a?purge=true", "").want(204)
		s.call("DELETE", "/v1/runs/a?purge=true", "").refused(404, "not-found")
	})
}

func TestPauseResumeRetry(t *testing.T) {
	inBubble(t, func(s *site) {
		tries := 0
		flaky := bide.Define("flaky", func(ctx bide.Context, _ any) (string, error) {
			return bide.Step(ctx, "try", func(context.Context) (string, error) {
				if tries++; tries == 1 {
					return "", bide.Permanent(errors.New("out of order"))
				}
				return "mended", nil
			})
		})
		s.work(flaky, patient)
		s.call("POST", "/v1/runs", `{"workflow":"patient","id":"p"}`, "Prefer: wait=1")
		s.call("POST", "/v1/runs/p/pause", "").want(202, `"paused"`)
		s.call("POST", "/v1/runs/p/pause", "").want(202)
		s.call("POST", "/v1/runs/p/retry", "").refused(409, "conflict", "paused")
		s.call("POST", "/v1/runs/p/resume", "").want(202)
		s.call("POST", "/v1/runs/p/resume", "").refused(409, "conflict", "not paused")
		s.call("POST", "/v1/runs", `{"workflow":"flaky","id":"f"}`, "Prefer: wait=9").
			want(200, `"failed"`, `"detail":"out of order"`, `"code":"run-failed"`)
		s.call("GET", "/v1/runs/f/result", "").refused(422, "run-failed", `"detail":"out of order"`, `"failure"`)
		s.call("POST", "/v1/runs/f/pause", "").refused(409, "conflict", "ended")
		s.call("POST", "/v1/runs/f/signal/x", "").refused(409, "conflict", "ended")
		s.call("POST", "/v1/runs/f/retry", "").want(202)
		s.call("GET", "/v1/runs/f/result?wait=9", "").want(200, `"mended"`)
		s.call("POST", "/v1/runs/f/retry", "").refused(409, "conflict")
		s.call("POST", "/v1/runs", `{"workflow":"patient","id":"late","timeout":"5s"}`, "Prefer: wait=9").want(200, `"timed_out"`, `"completed_by":"deadline"`)
		s.call("GET", "/v1/runs/late/result", "").refused(422, "run-failed", "timed out")
	})
}

func TestSignal(t *testing.T) {
	inBubble(t, func(s *site) {
		s.call("POST", "/v1/runs", `{"workflow":"patient","id":"p"}`)
		s.call("POST", "/v1/runs/p/signal/go", `"one"`, "Idempotency-Key: k").want(202, `"duplicate":false`)
		s.call("POST", "/v1/runs/p/signal/go", ` "one" `, "Idempotency-Key: k").want(202, `"duplicate":true`)
		s.call("POST", "/v1/runs/p/signal/go", `"two"`, "Idempotency-Key: k").refused(422, "idempotency-key-reused")
		s.call("POST", "/v1/runs/p/signal/other", `"x"`, "Idempotency-Key: k").want(202, `"duplicate":false`)
		s.call("POST", "/v1/runs/p/signal/bide:webhook:1", `"forged"`).refused(400, "invalid-input", "bide's own")
		s.call("POST", "/v1/runs/p/signal/go", `{`).refused(400, "invalid-input")
		s.call("POST", "/v1/runs/p/signal/go", `"`+strings.Repeat("x", bide.MaxPayload)+`"`).refused(413, "payload-too-large")
		s.call("POST", "/v1/runs/none/signal/go", "").refused(404, "not-found")
		s.work(patient)
		s.call("GET", "/v1/runs/p/result?wait=9", "").want(200, `"one"`)
	})
}

func TestWaits(t *testing.T) {
	inBubble(t, func(s *site) {
		checks := 0
		polls := bide.Define("polls", func(ctx bide.Context, _ any) (int, error) {
			return bide.Poll(ctx, "job/1", func(context.Context) (int, error) { checks++; return checks, nil },
				func(int) bool { return false }, bide.Every(time.Hour), bide.Timeout(10*time.Hour))
		})
		s.work(polls)
		for _, id := range []string{"a", "b"} {
			s.call("POST", "/v1/runs", `{"workflow":"polls","id":"`+id+`"}`, "Prefer: wait=1").want(202, `"kind":"poll"`, `"attempt":1`, `"last_value":`)
		}
		s.call("GET", "/v1/runs/a", "").head("Retry-After", "60") // the next check is an hour away
		s.call("POST", "/v1/runs/a/waits/job%2F1/check", "").want(202)
		time.Sleep(time.Second)
		s.call("GET", "/v1/runs/a", "").want(200, `"attempt":2`)
		until := func() string { return s.call("GET", "/v1/runs/a", "").run().Waiting[0]["until"].(string) }
		before := until()
		s.call("POST", "/v1/runs/a/waits/1/extend", `{"by":"90m"}`).want(202)
		time.Sleep(time.Second)
		if after := until(); after <= before {
			t.Errorf("until %s, before %s", after, before)
		}
		for _, body := range []string{``, `{}`, `{"by":"0s"}`, `{"by":90}`, `{"by":"1h","to":1}`} {
			s.call("POST", "/v1/runs/a/waits/1/extend", body).refused(400, "invalid-input")
		}
		s.call("POST", "/v1/runs/a/waits/other/check", "").refused(422, "invalid-input", "is not live", "job/1")
		s.call("POST", "/v1/runs/none/waits/other/check", "").refused(404, "not-found")
		s.call("POST", "/v1/runs/a/waits/job%2F1/complete", `42`).want(202)
		s.call("GET", "/v1/runs/a/result?wait=9", "").want(200, `42`)
		s.call("POST", "/v1/runs/b/waits/job%2F1/fail", `{"reason":"given up"}`).want(202)
		s.call("GET", "/v1/runs/b/result?wait=9", "").refused(422, "run-failed", "given up")
		s.call("GET", "/v1/runs/b/history", "").want(200, `"by":"fail"`, `"poll":{`)
		s.call("POST", "/v1/runs/b/waits/job%2F1/complete", `42`).refused(409, "conflict")
	})
}

func TestLoops(t *testing.T) {
	inBubble(t, func(s *site) {
		n := 0
		pulse := bide.Loop("pulse", func(context.Context) (bide.Result, error) {
			switch n++; n {
			case 2:
				return bide.LoopChanged, nil
			case 3:
				return bide.LoopSkip, nil
			case 4:
				return 0, errors.New("no answer")
			}
			return bide.LoopOK, nil
		}, bide.Every(time.Minute), bide.Exact{}, bide.Breaker{})
		s.call("GET", "/v1/loops", "").want(200, `{"loops":[]}`)
		s.call("GET", "/v1/loops/pulse", "").refused(404, "not-found", "loop")
		s.call("POST", "/v1/loops/pulse/trigger", "").refused(404, "not-found", "loop")
		s.work(pulse)
		time.Sleep(4*time.Minute + time.Second)
		s.call("GET", "/v1/loops", "").want(200, `"name":"pulse"`)
		s.call("GET", "/v1/loops/pulse", "").want(200, `"failures":1`, `"multiplier":2`, `"interval_ms":60000`, `"effective_ms":120000`,
			`"outcomes":"sc-f"`, `"message":"no answer"`, `"breaker":"closed"`)
		s.call("GET", "/v1/loops/pulse/iterations", "").want(200,
			`[{"iteration":1,"outcome":"succeeded"},{"iteration":2,"outcome":"changed"},{"iteration":null,"outcome":"skipped"},{"iteration":3,"outcome":"failed"}]`)
		s.call("POST", "/v1/loops/pulse/reset-backoff", "").want(202)
		time.Sleep(time.Second)
		s.call("GET", "/v1/loops/pulse", "").want(200, `"failures":0`, `"effective_ms":60000`)
		s.call("POST", "/v1/loops/pulse/trigger", "").want(202, `{"iteration":4,"coalesced":false}`)
		time.Sleep(time.Second)
		s.call("POST", "/v1/loops/pulse/pause", `{"abort":true}`).want(202, `"paused":true`)
		s.call("POST", "/v1/loops/pulse/trigger", "").refused(409, "conflict", "paused")
		s.call("POST", "/v1/loops/pulse/trigger", `{"force":true}`).want(202, `"iteration":5`)
		time.Sleep(time.Second)
		s.call("GET", "/v1/loops/pulse", "").want(200, `"iterations":5`, `"paused":true`, `"next_at":null`)
		s.call("POST", "/v1/loops/pulse/resume", "").want(202, `"paused":false`)
		s.call("POST", "/v1/loops/pulse/resume", "").refused(409, "conflict", "not paused")
		s.call("POST", "/v1/loops/pulse/trigger", `{"force":1}`).refused(400, "invalid-input")
		s.call("POST", "/v1/loops/pulse/pause", `{"abort":"x"}`).refused(400, "invalid-input")
		s.call("POST", "/v1/loops/pulse/pause", `{"x":true}`).refused(400, "invalid-input")
		s.call("POST", "/v1/loops/pulse/trigger", `{"x":true}`).refused(400, "invalid-input")
		s.call("GET", "/v1/runs/loop:pulse", "").want(200, `"kind":"loop"`)
		s.call("DELETE", "/v1/loops/pulse", "").want(202)
		time.Sleep(time.Second)
		s.call("GET", "/v1/loops/pulse", "").want(200, `"stopped":true`)
		s.call("DELETE", "/v1/loops/pulse", "").want(202, `"stopped":true`)
		s.call("POST", "/v1/loops/pulse/pause", "").refused(409, "conflict", "stopped")
		s.call("DELETE", "/v1/loops/none", "").refused(404, "not-found")
		s.call("GET", "/v1/loops/none/iterations", "").refused(404, "not-found")
	})
}

func TestStatus(t *testing.T) {
	inBubble(t, func(s *site) {
		s.call("GET", "/v1/status", "").want(200, `"counts":[]`, `"workers":[]`)
		s.call("GET", "/v1/queues", "").want(200, `{"queues":[]}`)
		s.call("GET", "/v1/workers", "").want(200, `{"workers":[]}`)
		s.call("POST", "/v1/runs", `{"workflow":"nobody","queue":"slow"}`)
		s.work(patient)
		s.call("POST", "/v1/runs", `{"workflow":"patient"}`, "Prefer: wait=1")
		s.call("GET", "/v1/status", "").want(200, `"workflow":"nobody"`, `"waiters":0`)
		s.call("GET", "/v1/queues", "").want(200, `{"name":"default","runs":{"waiting":1},"workers":1,"oldest":null}`, `{"name":"slow","runs":{"queued":1},"workers":0`)
		s.call("GET", "/v1/workers", "").want(200, `"workflows":["patient"]`)
		s.call("GET", "/openapi.yaml", "").want(200, "openapi: 3.1.0")
	})
}

func TestUnknown(t *testing.T) {
	inBubbleWith(t, Config{Prefix: "/bide"}, func(s *site) {
		for _, path := range []string{"/", "/v1", "/v1/run", "/v1/runs/", "/v1/runs//result", "/v1/../v1/runs", "/v1/runs/a/b/c", "/v1/runs/a/./result",
			"/v1/runs/%00", "/v1/runs/a%ff/history", "/v1/loops/%00"} {
			s.call("GET", path, "").refused(404, "not-found")
		}
		s.call("PUT", "/v1/runs", "").refused(405, "method-not-allowed", `"instance":"/bide/v1/runs"`).head("Allow", "GET, HEAD, POST")
		s.call("PATCH", "/v1/runs/a", "").refused(405, "method-not-allowed").head("Allow", "DELETE, GET, HEAD")
		s.call("GET", "/v1/runs/a/cancel", "").refused(405, "method-not-allowed").head("Allow", "POST")
		s.call("OPTIONS", "/v1/runs/a/cancel", "").refused(405, "method-not-allowed")
		s.call("POST", "/v1/runs", `{"workflow":"w"}`, "Content-Type: text/plain").refused(415, "unsupported-media-type")
		s.call("GET", "/v1/runs", "").head("X-Content-Type-Options", "nosniff")
	})
}
