package server_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/server"
	"github.com/bide-dev/bide/webhook"
)

const hookSecret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="

// delivery is an attempt as the receiver saw it.
type delivery struct {
	at     time.Time
	header http.Header
	body   string
	url    string
}

// receiver answers attempts in the order of its answers, the last for good. An
// answer of 0 is a connection that fails.
type receiver struct {
	answers []int
	headers http.Header

	mu   sync.Mutex
	seen []delivery
}

// RoundTrip implements [http.RoundTripper].
func (x *receiver) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	answer := x.answers[min(len(x.seen), len(x.answers)-1)]
	x.seen = append(x.seen, delivery{time.Now(), r.Header.Clone(), string(body), r.URL.String()})
	if answer == 0 {
		return nil, errors.New("connection refused")
	}
	rec := httptest.NewRecorder()
	maps.Copy(rec.Header(), x.headers)
	rec.WriteHeader(answer)
	return rec.Result(), nil
}

var pay = bide.Define("pay", func(ctx bide.Context, in map[string]any) (any, error) {
	if in["fail"] == true {
		return nil, errors.New("no money")
	}
	return in["result"], nil
})

// deliver runs a workflow that tells of its end, in a bubble, and returns the run
// and the one that delivered.
func deliver(t *testing.T, x *receiver, in string) (run, sent bide.Run) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		store := openStoreIn(t, dir)
		srv, err := server.New(store, server.Config{PublicURL: "https://bide.example.com/", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		srv.SendBy(x)
		b := serveOn(t, store, srv)
		defer b.close()
		worker := bide.NewWorker(srv.Store(), bide.WorkerConfig{})
		worker.Register(pay)
		ctx, cancel := context.WithCancel(t.Context())
		worked := make(chan error, 1)
		go func() { worked <- worker.Run(ctx) }()
		client := b.client(false)
		resp, err := client.Post("http://localhost:7433/v1/runs", "application/json",
			strings.NewReader(`{"workflow":"pay","id":"order-1","input":`+in+`,"webhook":{"url":"https://shop.example.com/hook?k=1","secret":"`+hookSecret+`"}}`))
		if err != nil {
			t.Fatal(err)
		}
		answer, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != 202 {
			t.Fatalf("%s %s", resp.Status, answer)
		}
		time.Sleep(48 * time.Hour)
		if run, err = store.Run(t.Context(), "order-1"); err != nil {
			t.Fatal(err)
		}
		page, err := store.Runs(t.Context(), bide.Query{Queue: "bide"})
		if err != nil || len(page) != 1 || page[0].Parent != "order-1" {
			t.Fatalf("%+v %v", page, err)
		}
		if sent, err = store.Run(t.Context(), page[0].ID); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := <-worked; err != nil {
			t.Error(err)
		}
	})
	return run, sent
}

// A receiver cannot make the server read headers without end.
func TestDeliveryHeadersAreBounded(t *testing.T) {
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		size, _ := strconv.Atoi(r.URL.RawQuery)
		w.Header().Set("X-Long", strings.Repeat("x", size))
	}))
	defer far.Close()
	for size, want := range map[int]bool{1 << 10: true, 100 << 10: false} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, far.URL+"/?"+strconv.Itoa(size), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := server.Outward().RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		if (err == nil) != want {
			t.Errorf("headers of %d bytes: %v", size, err)
		}
	}
}

// A receiver that fails at first hears of the run in the end: each time with the
// same id and body, and a signature of that moment.
func TestDelivery(t *testing.T) {
	x := &receiver{answers: []int{500, 0, 302, 204}, headers: http.Header{"Location": {"https://elsewhere.example.com/"}}}
	run, sent := deliver(t, x, `{"secret":"of the input","result":{"paid":true,"html":"<b>"}}`)
	if run.State != bide.Succeeded || sent.State != bide.Succeeded || string(sent.Result) != `{"status":204}` {
		t.Fatalf("%v; %v %s %+v", run.State, sent.State, sent.Result, sent.Error)
	}
	if len(x.seen) != 4 {
		t.Fatalf("%d attempts", len(x.seen))
	}
	verifier, err := webhook.Standard(hookSecret)
	if err != nil {
		t.Fatal(err)
	}
	pauses := []time.Duration{5 * time.Second, 5 * time.Minute, 30 * time.Minute}
	for i, d := range x.seen {
		v, err := verifier.Verify(d.header, []byte(d.body), d.at)
		if err != nil || v.ID != sent.ID || v.At.Unix() != d.at.Unix() {
			t.Errorf("attempt %d: %+v %v", i, v, err)
		}
		if d.body != x.seen[0].body || d.url != "https://shop.example.com/hook?k=1" || d.header.Get("Content-Type") != "application/json" {
			t.Errorf("attempt %d: %+v", i, d)
		}
		if i > 0 {
			if pause := d.at.Sub(x.seen[i-1].at); pause < pauses[i-1] || pause > pauses[i-1]*11/10+time.Second {
				t.Errorf("attempt %d came after %v", i, pause)
			}
		}
	}
	var body struct {
		Type      string
		Timestamp time.Time
		Data      struct {
			ID     string
			State  string
			Input  json.RawMessage
			Result struct {
				Paid bool
				HTML string
			}
			Links struct{ Self string }
		}
	}
	if err := json.Unmarshal([]byte(x.seen[0].body), &body); err != nil {
		t.Fatal(err)
	}
	d := body.Data
	if !strings.HasPrefix(body.Type, "run.") || !body.Timestamp.Equal(run.EndedAt) || d.ID != "order-1" || d.State != "succeeded" || !d.Result.Paid || d.Result.HTML != "<b>" ||
		d.Links.Self != "https://bide.example.com/v1/runs/order-1" {
		t.Errorf("%s", x.seen[0].body)
	}
	if strings.Contains(x.seen[0].body, "of the input") {
		t.Error("the input is sent")
	}
}

func TestDeliveryOfFailure(t *testing.T) {
	x := &receiver{answers: []int{200}}
	run, sent := deliver(t, x, `{"fail":true}`)
	if run.State != bide.Failed || sent.State != bide.Succeeded || !strings.Contains(x.seen[0].body, "no money") || !strings.Contains(x.seen[0].body, `"failed"`) {
		t.Errorf("%v %v %+v", run.State, sent.State, x.seen)
	}
}

func TestDeliveryLeavesOutLargeResult(t *testing.T) {
	x := &receiver{answers: []int{200}}
	_, sent := deliver(t, x, `{"result":"`+strings.Repeat("x", 100<<10)+`"}`)
	if sent.State != bide.Succeeded || len(x.seen) != 1 || len(x.seen[0].body) > 4<<10 {
		t.Errorf("%v, %d attempts", sent.State, len(x.seen))
	}
}

func TestDeliveryGivesUp(t *testing.T) {
	for name, c := range map[string]struct {
		receiver *receiver
		attempts int
		least    time.Duration
	}{
		"down":       {&receiver{answers: []int{0}}, 8, 27*time.Hour + 35*time.Minute},
		"410":        {&receiver{answers: []int{500, 410}}, 2, 5 * time.Second},
		"come later": {&receiver{answers: []int{429, 429, 410}, headers: http.Header{"Retry-After": {"7200"}}}, 3, 4 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			_, sent := deliver(t, c.receiver, `{}`)
			if sent.State != bide.Failed || len(c.receiver.seen) != c.attempts {
				t.Fatalf("%v %+v after %d attempts", sent.State, sent.Error, len(c.receiver.seen))
			}
			took := c.receiver.seen[c.attempts-1].at.Sub(c.receiver.seen[0].at)
			if took < c.least || took > c.least*11/10+time.Minute {
				t.Errorf("given up after %v", took)
			}
			if text := fmt.Sprintf("%+v", sent.Error); strings.Contains(text, "k=1") {
				t.Errorf("the URL is in the error: %s", text)
			}
		})
	}
}

// A URL that leads inside is not asked, unless that is allowed.
func TestDeliveryInside(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		var asked atomic.Int32
		inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
		defer inside.Close()
		store := openStore(t)
		start(t, store, server.Config{AllowPrivate: allowed})
		input, _ := json.Marshal(map[string]string{"url": inside.URL, "secret": "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32))})
		created, err := store.Create(t.Context(), []bide.NewRun{{ID: "r", Workflow: "nobody", Queue: "default", Input: []byte("1"),
			OnEnd: &bide.NewRun{ID: "tell", Workflow: "bide.webhook", Queue: "bide", Input: input, Detached: true}}})
		if err != nil || created[0].Err != nil {
			t.Fatal(created, err)
		}
		client := bide.NewClient(store)
		if err := client.Terminate(t.Context(), "r", "enough"); err != nil {
			t.Fatal(err)
		}
		var end bide.Run
		for {
			if end, err = store.Run(t.Context(), "tell"); err == nil {
				break
			}
			if !errors.Is(err, bide.ErrNotFound) {
				t.Fatal(err)
			}
		}
		for end, err = range client.Watch(t.Context(), "tell") {
			if err != nil {
				t.Fatal(err)
			}
		}
		want, times := bide.Failed, int32(0)
		if allowed {
			want, times = bide.Succeeded, 1
		}
		if end.State != want || asked.Load() != times {
			t.Errorf("allowed %v: %v %+v, asked %d times", allowed, end.State, end.Error, asked.Load())
		}
		if !allowed && strings.Contains(fmt.Sprintf("%+v", end.Error), "127.0.0.1") {
			t.Errorf("the error tells what the name leads to: %+v", end.Error)
		}
	}
}
