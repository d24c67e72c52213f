package bide_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/wait"
	"github.com/bide-dev/bide/webhook"
)

const hookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="

// sign sets the headers of a delivery as a sender that follows Standard Webhooks.
func (o *outside) sign(id, body string) {
	o.Helper()
	h, err := webhook.SignStandard(hookSecret, id, time.Now(), []byte(body))
	if err != nil {
		o.Fatal(err)
	}
	o.headers = h
}

func standard(t *testing.T) webhook.Verifier {
	v, err := webhook.Standard(hookSecret)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// signed runs a workflow that completes a poll by a signed webhook.
func signed(o *outside, opts ...bide.WebhookOption) *bide.Workflow[string, renderStatus] {
	return bide.Define("signed", func(ctx bide.Context, name string) (renderStatus, error) {
		hook, err := bide.NewWebhook[renderStatus](ctx, "ready", opts...)
		if err != nil {
			return renderStatus{}, err
		}
		if err := o.tell(ctx, name, hook.URL()); err != nil {
			return renderStatus{}, err
		}
		return bide.Poll(ctx, "render", func(context.Context) (renderStatus, error) { return renderStatus{File: "by the poll"}, nil },
			func(s renderStatus) bool { return s.Done }, bide.Every(time.Hour), bide.Timeout(100*time.Hour), bide.CompleteOn(hook))
	})
}

// What a signature does not hold for leaves the wait as it was; a message counts
// once however often it is sent; a value that the condition is false for is only a
// reason to look.
func TestWebhookSigned(t *testing.T) {
	inBubble(t, func(e *env) {
		o := e.outside(webhook.Config{Verifiers: map[string]webhook.Verifier{"renderer": standard(t)}})
		flow := signed(o, bide.VerifiedBy("renderer"))
		e.workAs(e.public(), flow)
		h, err := flow.Start(e.Context(), e.client, "film", bide.ID("film"))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		url := o.url("film")
		o.wantSent("POST", url, `{"done":true,"file":"forged"}`, 401, "bad-signature")
		o.sign("msg_1", `{"done":true,"file":"other"}`)
		o.wantSent("POST", url, `{"done":true,"file":"forged"}`, 401, "bad-signature")
		if r := e.get("film"); r.State != bide.Waiting || r.Waiting[0].Attempt != 1 {
			t.Errorf("after two forgeries: %v %v", r.State, r.Waiting)
		}
		o.sign("msg_1", `{"done":false}`)
		o.wantSent("POST", url, `{"done":false}`, 202, "{}")
		time.Sleep(time.Second / 2)
		if r := e.get("film"); r.Waiting[0].Attempt != 2 { // it was looked at, and the check does not see it
			t.Errorf("after a delivery that is not done: %v", r.Waiting)
		}
		time.Sleep(time.Hour)
		o.sign("msg_1", `{"done":false}`) // signed anew, as senders do
		o.wantSent("POST", url, `{"done":false}`, 200, `"duplicate":true`)
		o.sign("msg_2", `{"done":true,"file":"a.mp4"}`)
		o.wantSent("POST", url, `{"done":true,"file":"a.mp4"}`, 202, "{}")
		s, err := h.Result(e.Context())
		if err != nil || s.File != "a.mp4" {
			t.Errorf("%+v, %v", s, err)
		}
		records, err := e.client.History(e.Context(), "film", 0)
		if last := records[len(records)-1]; err != nil || last.Kind != bide.KindPoll || last.By != "webhook" {
			t.Errorf("the poll ended by %q, %v", last.By, err)
		}
	})
}

// An id that is not signed proves nothing: behind a verifier the body stands in.
func TestWebhookUnsignedID(t *testing.T) {
	inBubble(t, func(e *env) {
		v := webhook.VerifierFunc(func(http.Header, []byte, time.Time) (webhook.Delivery, error) { return webhook.Delivery{}, nil })
		o := e.outside(webhook.Config{Verifiers: map[string]webhook.Verifier{"v": v}})
		flow := signed(o, bide.VerifiedBy("v"))
		e.workAs(e.public(), flow)
		if _, err := flow.Start(e.Context(), e.client, "film"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		for i, want := range []int{202, 200} {
			o.headers.Set("Webhook-Id", fmt.Sprint("replayed-", i))
			o.wantSent("POST", o.url("film"), `{"done":false}`, want, "")
		}
	})
}

// A webhook that anyone may post to does not complete a poll by itself.
func TestWebhookCompleteNeedsSignature(t *testing.T) {
	inBubble(t, func(e *env) {
		flow := signed(e.outside(webhook.Config{}))
		e.workAs(e.public(), flow)
		h, err := flow.Start(e.Context(), e.client, "film")
		if err != nil {
			t.Fatal(err)
		}
		_, err = h.Result(e.Context())
		if invalid, ok := errors.AsType[*bide.InvalidError](err); !ok || invalid.Field != "CompleteOn" {
			t.Errorf("%v", err)
		}
	})
}

// What cannot be kept now is for the sender to send again.
func TestWebhookTrouble(t *testing.T) {
	inBubble(t, func(e *env) {
		o := e.outside(webhook.Config{Verifiers: map[string]webhook.Verifier{}})
		flow := signed(o, bide.VerifiedBy("unheard of"))
		e.workAs(e.public(), flow)
		if _, err := flow.Start(e.Context(), e.client, "film"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		url := o.url("film")
		o.wantSent("POST", url, `{}`, 503, "overloaded")
		o.wantSent("POST", url, strings.Repeat("x", webhook.MaxBody+1), 503, "overloaded")
		o.handler = webhook.NewHandler(e.store, webhook.Config{Logger: e.config().Logger, Verifiers: map[string]webhook.Verifier{"unheard of": standard(t)}})
		o.wantSent("POST", url, strings.Repeat("x", webhook.MaxBody+1), 413, "payload-too-large")
		o.handler = webhook.NewHandler(closedStore{e.store}, webhook.Config{Logger: e.config().Logger})
		o.wantSent("POST", url, `{}`, 503, "overloaded")
	})
}

// closedStore cannot be read.
type closedStore struct{ bide.Store }

func (closedStore) Facts(context.Context, string, ...string) ([]bide.Fact, error) {
	return nil, bide.ErrClosed
}

// The store keeps a hash of the token, which is at least 128 bits.
func TestWebhookTokenIsHashed(t *testing.T) {
	inBubble(t, func(e *env) {
		o := e.outside(webhook.Config{})
		flow := bide.Define("flow", func(ctx bide.Context, name string) (string, error) {
			hook, err := bide.NewWebhook[string](ctx, "ready")
			if err != nil {
				return "", err
			}
			o.note(name, hook.URL())
			return hook.Receive(ctx)
		})
		e.workAs(e.public(), flow)
		for _, name := range []string{"one", "two"} {
			if _, err := flow.Start(e.Context(), e.client, name, bide.ID(name)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		token := strings.TrimPrefix(o.url("one"), "https://bide.test/v1/hooks/")
		if len(token) < 22 || o.url("one") == o.url("two") { // base64, six bits a character
			t.Errorf("URLs %s and %s", o.url("one"), o.url("two"))
		}
		facts, err := e.store.Facts(e.Context(), "webhook")
		if err != nil || len(facts) != 2 {
			t.Fatalf("%d facts, %v", len(facts), err)
		}
		h, err := e.client.History(e.Context(), "one", 0)
		if err != nil {
			t.Fatal(err)
		}
		kept, err := json.Marshal([]any{facts, h, e.get("one")})
		if err != nil || strings.Contains(string(kept), token) {
			t.Errorf("the store tells the token: %s, %v", kept, err)
		}
	})
}

// One fixed URL for all jobs: what comes is kept a day until someone asks for its
// key, goes to the run that asked, and is never refused with 410.
func TestEndpoint(t *testing.T) {
	inBubble(t, func(e *env) {
		key := func(body []byte) (string, error) {
			var event struct{ Job string }
			err := json.Unmarshal(body, &event)
			return event.Job, err
		}
		o := e.outside(webhook.Config{Endpoints: map[string]webhook.Endpoint{"renderer": {Verify: standard(t), Key: key}}})
		flow := bide.Define("flow", func(ctx bide.Context, job string) (int, error) {
			sum := 0
			for range 2 {
				event, err := bide.ReceiveEvent[struct{ N int }](ctx, "renderer", job, bide.Timeout(48*time.Hour))
				if err != nil {
					return sum, err
				}
				sum += event.N
			}
			return sum, nil
		})
		e.work(flow)
		const url = "/v1/endpoints/renderer"
		n := 0
		post := func(body string, status int, answer string) {
			t.Helper()
			n++
			o.sign(fmt.Sprint("msg_", n), body)
			o.wantSent("POST", url, body, status, answer)
		}
		start := func(job string) *bide.Handle[int] {
			h, err := flow.Start(e.Context(), e.client, job)
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		want := func(h *bide.Handle[int], sum int) {
			t.Helper()
			if got, err := h.Result(e.Context()); err != nil || got != sum {
				t.Errorf("%d, %v, want %d", got, err, sum)
			}
		}
		post(`{"job":"early","n":1}`, 202, "{}")
		time.Sleep(23 * time.Hour)
		early := start("early")
		time.Sleep(time.Minute)
		post(`{"job":"early","n":2}`, 202, "{}")
		want(early, 3)
		post(`{"job":"early","n":4}`, 202, "{}") // nobody asks any more: kept for the next
		post(`{"job":"early","n":8}`, 202, "{}")
		want(start("early"), 12)

		post(`{"job":"old","n":1}`, 202, "{}")
		time.Sleep(25 * time.Hour)
		old := start("old")
		if _, err := old.Result(e.Context()); !errors.Is(err, bide.ErrTimeout) {
			t.Errorf("an event of yesterday: %v", err)
		}
		o.wantSent("POST", "/v1/endpoints/other", `{}`, 404, "not-found")
		o.wantSent("POST", url, `{"job":"x"}`, 401, "bad-signature")
		post(`not json`, 422, "invalid-input")
		post(`{"job":""}`, 422, "invalid-input")
		for i := range 101 {
			status := 202
			if i == 100 {
				status = 503
			}
			post(`{"job":"flood"}`, status, "")
		}
	})
}

// A service that has refused for an hour is not asked before, however often
// somebody posts to the webhook.
func TestWebhookHeedsHardFloor(t *testing.T) {
	inBubble(t, func(e *env) {
		o := e.outside(webhook.Config{})
		checks := newClock()
		flow := bide.Define("flow", func(ctx bide.Context, name string) (bool, error) {
			hook, err := bide.NewWebhook[int](ctx, "ready")
			if err != nil {
				return false, err
			}
			if err := o.tell(ctx, name, hook.URL()); err != nil {
				return false, err
			}
			return bide.Poll(ctx, "job", func(context.Context) (bool, error) {
				if checks.tick(); len(checks.ticks()) > 1 {
					return true, nil
				}
				return false, &wait.ResponseError{Status: 429, Hint: wait.Hint{After: time.Hour, Hard: true, Source: "Retry-After"}}
			}, func(b bool) bool { return b }, bide.Every(10*time.Second), bide.Timeout(24*time.Hour), bide.WakeOn(hook), bide.Exact{})
		})
		e.workAs(e.public(), flow)
		h, err := flow.Start(e.Context(), e.client, "job")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			time.Sleep(10 * time.Second)
			o.wantSent("POST", o.url("job"), fmt.Sprint(i), 202, "")
		}
		if _, err := h.Result(e.Context()); err != nil {
			t.Error(err)
		}
		checks.want(e, "checks", 0, time.Hour)
	})
}

// Two polls that give up are not the webhook's end: what comes between them is
// there for the second.
func TestWebhookOutlivesTimeout(t *testing.T) {
	inBubble(t, func(e *env) {
		o := e.outside(webhook.Config{Verifiers: map[string]webhook.Verifier{"renderer": standard(t)}})
		flow := bide.Define("flow", func(ctx bide.Context, name string) (string, error) {
			hook, err := bide.NewWebhook[renderStatus](ctx, "ready", bide.VerifiedBy("renderer"))
			if err != nil {
				return "", err
			}
			if err := o.tell(ctx, name, hook.URL()); err != nil {
				return "", err
			}
			for {
				s, err := bide.Poll(ctx, "render", func(context.Context) (renderStatus, error) { return renderStatus{}, nil },
					func(s renderStatus) bool { return s.Done }, bide.Every(time.Minute), bide.Timeout(time.Hour), bide.CompleteOn(hook))
				if !errors.Is(err, bide.ErrPollTimeout) {
					return s.File, err
				}
				if err := bide.Sleep(ctx, time.Hour); err != nil {
					return "", err
				}
			}
		})
		e.workAs(e.public(), flow)
		h, err := flow.Start(e.Context(), e.client, "film")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(90 * time.Minute)
		o.sign("msg_1", `{"done":true,"file":"a.mp4"}`)
		o.wantSent("POST", o.url("film"), `{"done":true,"file":"a.mp4"}`, 202, "")
		start := time.Now()
		if file, err := h.Result(e.Context()); err != nil || file != "a.mp4" || time.Since(start).Round(time.Minute) != 30*time.Minute {
			t.Errorf("%q, %v after %v", file, err, time.Since(start))
		}
	})
}

// A delivery is consumed with what came of it: a commit of another branch while the
// condition looks at it, and then a crash, do not take it away.
func TestWebhookConsumedWithRecord(t *testing.T) {
	inBubble(t, func(e *env) {
		o := e.outside(webhook.Config{Verifiers: map[string]webhook.Verifier{"renderer": standard(t)}})
		flow := bide.Define("flow", func(ctx bide.Context, name string) (renderStatus, error) {
			hook, err := bide.NewWebhook[renderStatus](ctx, "ready", bide.VerifiedBy("renderer"))
			if err != nil {
				return renderStatus{}, err
			}
			if err := o.tell(ctx, name, hook.URL()); err != nil {
				return renderStatus{}, err
			}
			beside := bide.Go(ctx, "beside", func(ctx bide.Context) (bool, error) {
				return bide.Step(ctx, "beside", func(context.Context) (bool, error) {
					time.Sleep(15 * time.Second)
					return true, nil
				})
			})
			s, err := bide.Poll(ctx, "render", func(context.Context) (renderStatus, error) { return renderStatus{}, nil },
				func(s renderStatus) bool {
					if s.Done { // the step ends meanwhile
						time.Sleep(10 * time.Second)
					}
					return s.Done
				}, bide.Every(time.Hour), bide.Timeout(24*time.Hour), bide.CompleteOn(hook))
			if err != nil {
				return s, err
			}
			_, err = beside.Get(ctx)
			return s, err
		})
		first := e.workAs(e.public(), flow)
		h := start(e, flow, "film")
		time.Sleep(10 * time.Second)
		o.sign("msg_1", `{"done":true,"file":"a.mp4"}`)
		o.wantSent("POST", o.url("film"), `{"done":true,"file":"a.mp4"}`, 202, "")
		time.Sleep(7 * time.Second)
		if records := e.history(h.ID()); records[len(records)-1].Name != "beside" {
			t.Fatalf("nothing was committed meanwhile: %v", records)
		}
		first.crash()
		crashed := time.Now()
		e.workAs(e.public(), flow)
		if s, err := result(e, h); err != nil || s.File != "a.mp4" || time.Since(crashed) > time.Minute {
			t.Errorf("%v, %v after %v", s, err, time.Since(crashed))
		}
	})
}
