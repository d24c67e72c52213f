package bide_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/webhook"
)

type renderStatus struct {
	Done bool   `json:"done"`
	File string `json:"file,omitempty"`
}

// outside is the world beyond a handler: it knows the URLs that workflows gave it.
type outside struct {
	*env
	handler http.Handler
	mu      sync.Mutex
	urls    map[string]string
	headers http.Header
}

func (e *env) outside(cfg webhook.Config) *outside {
	cfg.Logger = e.config().Logger
	return &outside{env: e, handler: webhook.NewHandler(e.store, cfg), urls: map[string]string{}, headers: http.Header{}}
}

// tell is a step that gives the world the URL.
func (o *outside) tell(ctx bide.Context, name, url string) error {
	_, err := bide.Step(ctx, "submit "+name, func(context.Context) (string, error) {
		o.note(name, url)
		return name, nil
	})
	return err
}

func (o *outside) note(name, url string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.urls[name] = url
}

// url returns the URL that a workflow has told.
func (o *outside) url(name string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.urls[name]
}

// send makes a request of a handler's URL and returns status and body.
func (o *outside) send(method, url, body string) (int, string) {
	o.Helper()
	r := httptest.NewRequestWithContext(o.Context(), method, strings.TrimPrefix(url, "https://bide.test"), strings.NewReader(body))
	r.Header = o.headers.Clone()
	w := httptest.NewRecorder()
	o.handler.ServeHTTP(w, r)
	data, _ := io.ReadAll(w.Body)
	return w.Code, strings.TrimSpace(string(data))
}

func (o *outside) wantSent(method, url, body string, status int, answer string) {
	o.Helper()
	if code, got := o.send(method, url, body); code != status || !strings.Contains(got, answer) {
		o.Errorf("%s %s: %d %s, want %d %s", method, body, code, got, status, answer)
	}
}

func (e *env) public() bide.WorkerConfig {
	cfg := e.config()
	cfg.PublicURL = "https://bide.test/"
	return cfg
}

// A delivery lets the poll check at once; what the check says is true.
func TestWebhookWakesPoll(t *testing.T) {
	inBubble(t, func(e *env) {
		o := e.outside(webhook.Config{})
		var done atomic.Bool
		checks := newClock()
		render := bide.Define("render", func(ctx bide.Context, _ string) (string, error) {
			hook, err := bide.NewWebhook[renderStatus](ctx, "ready")
			if err != nil {
				return "", err
			}
			if err := o.tell(ctx, "render", hook.URL()); err != nil {
				return "", err
			}
			s, err := bide.Poll(ctx, "render", func(context.Context) (renderStatus, error) {
				checks.tick()
				return renderStatus{Done: done.Load(), File: "a.mp4"}, nil
			}, func(s renderStatus) bool { return s.Done }, bide.Every(10*time.Minute), bide.Timeout(time.Hour), bide.WakeOn(hook), bide.Exact{})
			return s.File, err
		})
		e.workAs(e.public(), render)
		h, err := render.Start(e.Context(), e.client, "film", bide.ID("r"))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		o.wantSent("GET", o.url("render"), "", 405, "")
		o.wantSent("POST", o.url("render"), `{"done":true}`, 202, "{}") // thin: what the check says counts
		time.Sleep(time.Second / 2)
		checks.want(e, "checks", 0, time.Minute)
		time.Sleep(2200 * time.Millisecond) // checks come close together for a while
		if at := checks.ticks(); len(at) < 4 {
			t.Errorf("checks at %v, want them close together", at)
		}
		done.Store(true)
		o.wantSent("POST", o.url("render"), `{"done":true}`, 200, `"duplicate":true`)
		if file, err := h.Result(e.Context()); err != nil || file != "a.mp4" {
			t.Errorf("result %q, %v", file, err)
		}
		o.wantSent("POST", o.url("render"), `{"done":"again"}`, 200, `"late":true`)
		o.wantSent("POST", "/v1/hooks/nonsense", `{}`, 404, "not-found")
	})
}

// A delivery that comes before anyone waits is kept; the loser of a race says that
// it is late; a canceled run is gone.
func TestWebhookReceive(t *testing.T) {
	inBubble(t, func(e *env) {
		o := e.outside(webhook.Config{})
		flow := bide.Define("flow", func(ctx bide.Context, mode string) (string, error) {
			hook, err := bide.NewWebhook[renderStatus](ctx, "ready")
			if err != nil {
				return "", err
			}
			if err := o.tell(ctx, mode, hook.URL()); err != nil {
				return "", err
			}
			switch mode {
			case "early":
				if err := bide.Sleep(ctx, time.Hour); err != nil {
					return "", err
				}
			case "race":
				winner, _, err := bide.Race(ctx,
					bide.Branch("hook", func(ctx bide.Context) (renderStatus, error) { return hook.Receive(ctx) }),
					bide.Branch("clock", func(ctx bide.Context) (renderStatus, error) {
						return renderStatus{}, bide.Sleep(ctx, time.Minute)
					}))
				if err != nil {
					return "", err
				}
				return winner, bide.Sleep(ctx, time.Hour)
			}
			s, err := hook.Receive(ctx, bide.Timeout(24*time.Hour))
			return s.File, err
		})
		e.workAs(e.public(), flow)
		handles := map[string]*bide.Handle[string]{}
		for _, mode := range []string{"early", "race", "late", "gone"} {
			h, err := flow.Start(e.Context(), e.client, mode, bide.ID(mode))
			if err != nil {
				t.Fatal(err)
			}
			handles[mode] = h
		}
		time.Sleep(2 * time.Minute)
		o.wantSent("POST", o.url("early"), `{"file":"early.txt"}`, 202, "{}")
		o.wantSent("POST", o.url("race"), `{"file":"x"}`, 200, `"late":true`)
		e.restart(flow) // without a PublicURL: what is made stays
		o.wantSent("POST", o.url("late"), `{"file":"late.txt"}`, 202, "{}")
		if err := e.client.Cancel(e.Context(), "gone", "no need"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		o.wantSent("POST", o.url("gone"), `{}`, 410, "gone")
		time.Sleep(2 * time.Hour)
		for mode, want := range map[string]string{"early": "early.txt", "race": "clock", "late": "late.txt"} {
			if got, err := handles[mode].Result(e.Context()); err != nil || got != want {
				t.Errorf("%s: %q, %v, want %q", mode, got, err, want)
			}
		}
		if _, err := handles["gone"].Result(e.Context()); !errors.Is(err, bide.ErrCanceled) {
			t.Errorf("gone: %v", err)
		}
	})
}

// A webhook that is made and not used does not keep its run from ending, and is
// forgotten in time.
func TestWebhookUnused(t *testing.T) {
	inBubble(t, func(e *env) {
		o := e.outside(webhook.Config{})
		var url string
		flow := bide.Define("flow", func(ctx bide.Context, _ int) (int, error) {
			hook, err := bide.NewWebhook[int](ctx, "ready")
			if err == nil {
				url = hook.URL()
			}
			return 7, err
		})
		e.workAs(e.public(), flow)
		h, err := flow.Start(e.Context(), e.client, 1)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := h.Result(e.Context()); err != nil || v != 7 {
			t.Fatalf("%d, %v", v, err)
		}
		o.wantSent("POST", url, `1`, 200, `"late":true`)
		time.Sleep(80 * time.Hour)
		o.wantSent("POST", url, `1`, 404, "not-found")
	})
}

// A run that begins anew does not hear of the webhooks that it had before.
func TestWebhookOfContinuedRun(t *testing.T) {
	inBubble(t, func(e *env) {
		o := e.outside(webhook.Config{})
		flow := bide.Define("flow", func(ctx bide.Context, n int) (string, error) {
			hook, err := bide.NewWebhook[string](ctx, "ready")
			if err != nil {
				return "", err
			}
			if err := o.tell(ctx, fmt.Sprint("url", n), hook.URL()); err != nil {
				return "", err
			}
			if n == 0 {
				return "", bide.ContinueAsNew(ctx, 1)
			}
			return hook.Receive(ctx)
		})
		e.workAs(e.public(), flow)
		h := start(e, flow, 0)
		time.Sleep(time.Second)
		if o.url("url0") == o.url("url1") {
			t.Error("both have one URL")
		}
		o.wantSent("POST", o.url("url0"), `"old"`, 200, `"late":true`)
		o.wantSent("POST", o.url("url1"), `"new"`, 202, "{}")
		if got, err := result(e, h); err != nil || got != "new" {
			t.Errorf("%q, %v", got, err)
		}
	})
}
