package api

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bide-dev/bide"
)

var greet = bide.Define("greet", func(ctx bide.Context, name string) (string, error) {
	return bide.Step(ctx, "write", func(context.Context) (string, error) { return "hello " + name, nil })
})

// patient waits for a signal for as long as it is let.
var patient = bide.Define("patient", func(ctx bide.Context, _ any) (string, error) {
	return bide.Receive[string](ctx, "go", bide.Timeout(time.Hour))
})

// Start, look, wait, fetch: what most who come do.
func TestStartToResult(t *testing.T) {
	inBubble(t, func(s *site) {
		first := s.call("POST", "/v1/runs", `{"workflow":"greet","input":"ann"}`).want(202, `"state":"queued"`)
		run := first.run()
		first.head("Location", "/v1/runs/"+run.ID)
		s.call("GET", run.Links.Self, "").want(200, `"kind":"queue"`)
		s.call("GET", run.Links.Result, "").want(202, `"state":"queued"`)
		l := s.listen(run.Links.Events)
		l.next()
		s.work(greet)
		l.upTo("end")
		s.call("GET", run.Links.Self, "").want(200, `"state":"succeeded"`, `"hello ann"`, `"next_poll_ms":null`, `"completed_by":"workflow"`)
		s.call("GET", run.Links.Result, "").want(200, `"hello ann"`)
		s.call("POST", "/v1/runs", `{"workflow":"greet","input":"bob"}`, "Prefer: respond-async, wait=10").
			want(200, `"hello bob"`).head("Preference-Applied", "wait=10")
	})
}

func TestStartOptions(t *testing.T) {
	inBubbleWith(t, Config{Prefix: "/bide/"}, func(s *site) {
		a := s.call("POST", "/v1/runs", ` {"workflow":"w", "id":"a/b?c", "queue":"slow", "timeout":"2h", "delay":"1h",
			"labels":{"team":"blue"}, "input":{"n": 12345678901234567890.10, "h":"<&>"}}`,
			"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		a.want(202, `"queue":"slow"`, `"team":"blue"`, `"trace":"00-0af7`, `12345678901234567890.10`, `"name":"delay"`).
			head("Location", "/bide/v1/runs/a%2Fb%3Fc")
		if got := a.run(); got.Links.Self != "/bide/v1/runs/a%2Fb%3Fc" || got.State != "waiting" {
			t.Errorf("%+v", got)
		}
		run, err := s.store.Run(s.Context(), "a/b?c")
		if err != nil || !run.Deadline.Equal(time.Now().Add(2*time.Hour)) || string(run.Input) != `{"n":12345678901234567890.10,"h":"<&>"}` {
			t.Errorf("%v %s, %v", run.Deadline, run.Input, err)
		}
		s.call("GET", "/v1/runs/a%2Fb%3Fc", "").want(200)
		s.call("POST", "/v1/runs", `{"workflow":"w","id":"a/b?c","queue":"slow","input":1}`).refused(409, "conflict", `"id":"a/b?c"`)
		s.call("POST", "/v1/runs", `{"workflow":"w"}`, "traceparent: nonsense").want(202, `"input":null`)
	})
}

// A run's end is told by a run of the server's own; who reads it learns no secret.
func TestStartWithWebhook(t *testing.T) {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	inBubble(t, func(s *site) {
		s.call("POST", "/v1/runs", `{"workflow":"greet","id":"g","input":"ann","webhook":{"url":"https://example.com/x","secret":"`+secret+`"}}`).want(202)
		s.work(greet)
		s.call("GET", "/v1/runs/g?wait=10", "")
		runs, err := s.store.Runs(s.Context(), bide.Query{Workflow: WebhookWorkflow, Parent: "g"})
		if err != nil || len(runs) != 1 || runs[0].Queue != WebhookQueue {
			t.Fatalf("%+v, %v", runs, err)
		}
		run, err := s.store.Run(s.Context(), runs[0].ID)
		var in WebhookInput
		if json.Unmarshal(run.Input, &in) != nil || in != (WebhookInput{"https://example.com/x", secret}) {
			t.Errorf("%s, %v", run.Input, err)
		}
		for _, path := range []string{"", "/events", "/history", "/result"} {
			if a := s.call("GET", "/v1/runs/"+run.ID+path, ""); strings.Contains(string(a.body), secret) {
				t.Errorf("%s shows the secret", path)
			}
		}
		g, _ := s.store.Run(s.Context(), "g")
		body, err := WebhookBody(g, "https://bide.test")
		if err != nil || !strings.Contains(string(body), `"type":"run.ended"`) || !strings.Contains(string(body), `"self":"https://bide.test/v1/runs/g"`) {
			t.Errorf("%s, %v", body, err)
		}
	})
}

func TestIdempotency(t *testing.T) {
	inBubble(t, func(s *site) {
		const body = `{"workflow":"greet","input":{"a":1,"b":[1.0]}}`
		first := s.call("POST", "/v1/runs", body, "Idempotency-Key: k").want(202).head("Idempotency-Replayed", "")
		again := s.call("POST", "/v1/runs", `{ "input": {"b":[1.0],"a":1}, "workflow": "greet" }`, `Idempotency-Key: "k"`).
			want(202).head("Idempotency-Replayed", "true")
		if first.run().ID != again.run().ID {
			t.Error("two runs of one key")
		}
		s.call("POST", "/v1/runs", `{"workflow":"greet","input":{"a":1,"b":[1]}}`, "Idempotency-Key: k").
			refused(422, "idempotency-key-reused", first.run().ID)
		s.call("POST", "/v1/runs", body, "Idempotency-Key: other").want(202).head("Idempotency-Replayed", "")
		s.call("POST", "/v1/runs", `{"workflow":""}`, "Idempotency-Key: mended").refused(400, "invalid-input")
		s.call("POST", "/v1/runs", body, "Idempotency-Key: mended").want(202).head("Idempotency-Replayed", "") // what failed was not kept
		s.call("POST", "/v1/runs/"+first.run().ID+"/cancel", "")
		for _, key := range []string{"", strings.Repeat("k", 256), `"open`, "ümlaut", "tab\there", `"a", "b"`} {
			s.call("POST", "/v1/runs", body, "Idempotency-Key: "+key).refused(400, "invalid-input", `"field":"Idempotency-Key"`)
		}
		s.call("POST", "/v1/runs", body, "Idempotency-Key: a", "Idempotency-Key: b").refused(400, "invalid-input")
	})
	inBubbleWith(t, Config{RequireKey: true}, func(s *site) {
		s.call("POST", "/v1/runs", `{"workflow":"greet"}`).refused(400, "idempotency-key-missing")
	})
}

// However many ask at once, there is one run.
func TestIdempotencyInParallel(t *testing.T) {
	inBubble(t, func(s *site) {
		var mu sync.Mutex
		ids, fresh := map[string]bool{}, 0
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				a := s.call("POST", "/v1/runs", `{"workflow":"greet"}`, "Idempotency-Key: one").want(202)
				mu.Lock()
				defer mu.Unlock()
				ids[a.run().ID] = true
				if a.header.Get("Idempotency-Replayed") == "" {
					fresh++
				}
			})
		}
		all.Wait()
		runs, err := s.store.Runs(s.Context(), bide.Query{})
		if len(ids) != 1 || fresh != 1 || len(runs) != 1 || err != nil {
			t.Errorf("ids %v, %d of them new; %d runs, %v", ids, fresh, len(runs), err)
		}
	})
}

func TestStartRefuses(t *testing.T) {
	inBubble(t, func(s *site) {
		hook := func(url, secret string) string {
			return fmt.Sprintf(`{"workflow":"w","webhook":{"url":%q,"secret":%q}}`, url, secret)
		}
		const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
		for body, field := range map[string]string{
			``:                                            "workflow",
			`null`:                                        "body",
			`[]`:                                          "body",
			`"x"`:                                         "body",
			`{`:                                           "body",
			`{} {}`:                                       "body",
			"{\"workflow\":\"\xff\"}":                     "body",
			`{}`:                                          "workflow",
			`{"workflow":null}`:                           "workflow",
			`{"workflow":7}`:                              "workflow",
			`{"workflow":"\u0000"}`:                       "workflow",
			`{"workflow":"loop:x"}`:                       "workflow",
			`{"workflow":"bide.webhook"}`:                 "workflow",
			`{"Workflow":"w"}`:                            "Workflow",
			`{"workflow":"w","inputs":1}`:                 "inputs",
			`{"workflow":"w","id":""}`:                    "id",
			`{"workflow":"w","id":"a b"}`:                 "id",
			`{"workflow":"w","id":"."}`:                   "id",
			`{"workflow":"w","id":".."}`:                  "id",
			`{"workflow":"w","id":"/"}`:                   "id",
			`{"workflow":"w","id":"run_1"}`:               "id",
			`{"workflow":"w","id":"loop:x"}`:              "id",
			`{"workflow":"w","id":7}`:                     "id",
			`{"workflow":"w","queue":{}}`:                 "queue",
			`{"workflow":"w","queue":"a\nb"}`:             "queue",
			`{"workflow":"w","timeout":90}`:               "timeout",
			`{"workflow":"w","timeout":"90"}`:             "timeout",
			`{"workflow":"w","timeout":"0s"}`:             "timeout",
			`{"workflow":"w","timeout":"-1s"}`:            "timeout",
			`{"workflow":"w","delay":"soon"}`:             "delay",
			`{"workflow":"w","delay":"-1s"}`:              "delay",
			`{"workflow":"w","labels":[]}`:                "labels",
			`{"workflow":"w","labels":{"a":1}}`:           "labels",
			`{"workflow":"w","labels":{"":"x"}}`:          "labels",
			`{"workflow":"w","labels":{"a:b":"x"}}`:       "labels",
			`{"workflow":"w","webhook":"https://a"}`:      "webhook",
			`{"workflow":"w","webhook":{"uri":"x"}}`:      "webhook.uri",
			hook("ftp://example.com", secret):             "webhook.url",
			hook("https://u:p@example.com", secret):       "webhook.url",
			hook("http://127.0.0.1/x", secret):            "webhook.url",
			hook("http://[::1]:80/x", secret):             "webhook.url",
			hook("http://localhost/x", secret):            "webhook.url",
			hook("http://169.254.169.254/latest", secret): "webhook.url",
			hook("https://example.com", "secret"):         "webhook.secret",
			hook("https://example.com", "whsec_YQ=="):     "webhook.secret",
		} {
			a := s.call("POST", "/v1/runs", body, "Content-Type: application/json").refused(400, "invalid-input")
			var p problem
			if a.into(&p); p.Field != field || p.Retryable || p.Instance != "/v1/runs" || a.header.Get("Retry-After") != "" {
				t.Errorf("%s: %+v, want field %q", body, p, field)
			}
		}
		labels := `"x":"y"`
		for i := range 32 {
			labels += fmt.Sprintf(`,"k%d":""`, i)
		}
		s.call("POST", "/v1/runs", `{"workflow":"w","labels":{`+labels+`}}`).refused(400, "invalid-input", `"field":"labels"`)
		s.call("POST", "/v1/runs", `{"workflow":"w"}`, "Content-Type: application/x-www-form-urlencoded").refused(415, "unsupported-media-type", "--json")
		s.call("POST", "/v1/runs", `{"workflow":"w","input":"`+strings.Repeat("x", bide.MaxPayload)+`"}`).refused(413, "payload-too-large", `"field":"input"`)
		s.call("POST", "/v1/runs", `{"workflow":"`+strings.Repeat("x", bide.MaxPayload+64<<10)+`"}`).refused(413, "payload-too-large")
		if runs, err := s.store.Runs(s.Context(), bide.Query{}); len(runs) > 0 || err != nil {
			t.Errorf("something was made: %v, %v", runs, err)
		}
	})
	inBubbleWith(t, Config{AllowPrivate: true}, func(s *site) {
		s.call("POST", "/v1/runs", `{"workflow":"w","webhook":{"url":"http://127.0.0.1:80/","secret":"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}}`).want(202)
	})
}

// Prefer wait holds a start until the run has ended, or the time is over.
func TestStartAndWait(t *testing.T) {
	inBubble(t, func(s *site) {
		s.work(patient)
		began := time.Now()
		s.call("POST", "/v1/runs", `{"workflow":"patient","id":"p"}`, "Prefer: wait=5").want(202, `"kind":"signal"`).head("Preference-Applied", "wait=5")
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("took %v", took)
		}
		var sent sync.WaitGroup
		sent.Go(func() {
			time.Sleep(3 * time.Second)
			s.call("POST", "/v1/runs/p/signal/go", `"on"`).want(202, `"duplicate":false`)
		})
		defer sent.Wait()
		s.call("POST", "/v1/runs", `{"workflow":"patient","id":"p"}`, `Prefer: wait="600"`).want(200, `"result":"on"`).head("Preference-Applied", "wait=60")
	})
}
