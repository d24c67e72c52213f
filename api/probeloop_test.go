package api

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/sqlite"
)

// asked stands for who runs probe loops.
type asked struct{ changes atomic.Int32 }

func (*asked) Check(name string, spec json.RawMessage) (json.RawMessage, error) {
	if !strings.Contains(string(spec), `"url"`) {
		return nil, &bide.InvalidError{Field: "url", Reason: "is empty"}
	}
	return append(json.RawMessage(`{"name":"`+name+`",`), spec[1:]...), nil
}

func (*asked) Shows(r *http.Request) bool { return r.Header.Get("X-Reader") == "" }
func (a *asked) Changed()                 { a.changes.Add(1) }

const newsSpec = `{"url":"https://example.org/news","every":"30s"}`

// lacks checks that the body has not the text in it.
func (a *answer) lacks(text string) *answer {
	a.Helper()
	if strings.Contains(string(a.body), text) {
		a.Errorf("%q is in: %s", text, a.body)
	}
	return a
}

func inLoopBubble(t *testing.T, fn func(*site, *asked)) {
	t.Helper()
	a := &asked{}
	inBubbleWith(t, Config{Loops: a}, func(s *site) { fn(s, a) })
}

// A probe loop is made, read, changed and removed, each time only if it is the one
// that was meant.
func TestProbeLoop(t *testing.T) {
	inLoopBubble(t, func(s *site, a *asked) {
		put := func(spec string, headers ...string) *answer { return s.call("PUT", "/v1/loops/news", spec, headers...) }
		put(newsSpec, `If-Match: *`).refused(412, "precondition-failed", "there is no such")
		put(newsSpec, `If-Match: "v1"`).refused(412, "precondition-failed")
		s.call("GET", "/v1/loops/news", "").refused(404, "not-found")
		if n := a.changes.Load(); n != 0 {
			t.Errorf("%d changes of nothing", n)
		}

		first := put(newsSpec, `If-None-Match: *`).want(201, `"spec":{"name":"news","url":"https://example.org/news","every":"30s"}`, `"stopped":false`).header.Get("ETag")
		s.call("GET", "/v1/loops/news", "").want(200, `"spec":{`).head("ETag", first)
		s.call("GET", "/v1/loops/news", "", "X-Reader: 1").want(200).head("ETag", "").lacks("example.org")
		s.call("GET", "/v1/loops", "").want(200, `"name":"news"`).lacks("example.org")
		put(newsSpec, `If-None-Match: *`).refused(412, "precondition-failed", strings.ReplaceAll(first, `"`, `\"`)).head("ETag", "")
		put(newsSpec, `If-None-Match: W/`+first).refused(412, "precondition-failed")
		put(newsSpec).want(200).head("ETag", first) // the same again is no change

		other := strings.Replace(newsSpec, "30s", "1m0s", 1)
		put(other, `If-Match: W/`+first).refused(412, "precondition-failed") // a weak one proves nothing
		put(other, `If-Match: "v0", "x`).refused(412, "precondition-failed")
		second := put(other, `If-Match: "x", `+first).want(200, `"every":"1m0s"`).header.Get("ETag")
		if first == "" || second == first {
			t.Errorf("ETag %s, then %s", first, second)
		}
		put(newsSpec, `If-Match: `+first).refused(412, "precondition-failed", "changed meanwhile")
		s.call("DELETE", "/v1/loops/news", "", `If-Match: `+first).refused(412, "precondition-failed")
		s.call("GET", "/v1/loops/news", "").want(200, `"every":"1m0s"`, `"stopped":false`)

		before := a.changes.Load()
		s.call("DELETE", "/v1/loops/news", "", `If-Match: `+second).want(202, `"stopped":true`).head("ETag", "").lacks("spec")
		s.call("DELETE", "/v1/loops/news", "", `If-Match: `+second).refused(412, "precondition-failed")
		s.call("DELETE", "/v1/loops/news", "").want(202, `"stopped":true`) // twice is no error
		if a.changes.Load() == before {
			t.Error("nobody was told of the end")
		}
		third := put(newsSpec, `If-None-Match: *`).want(201, `"stopped":false`).header.Get("ETag")
		if third == first || third == second {
			t.Errorf("ETag %s was there before", third)
		}
	})
}

// What is wrong with a PUT is said, and leaves nothing behind.
func TestProbeLoopRefused(t *testing.T) {
	inLoopBubble(t, func(s *site, a *asked) {
		s.call("PUT", "/v1/loops/x", "").refused(400, "invalid-input", `"field":"url"`)
		s.call("PUT", "/v1/loops/x", `{`).refused(400, "invalid-input", "not JSON")
		s.call("PUT", "/v1/loops/x", `{"every":"1s"}`).refused(400, "invalid-input", `"field":"url"`)
		s.call("PUT", "/v1/loops/x", newsSpec, "Content-Type: text/plain").refused(415, "unsupported-media-type")
		s.call("PUT", "/v1/loops/x", `{"url":"`+strings.Repeat("x", bide.MaxPayload)+`"}`).refused(413, "payload-too-large")
		s.call("PUT", "/v1/loops/x", `{"url":"`+strings.Repeat("x", bide.MaxPayload+64<<10)+`"}`).refused(413, "payload-too-large")
		s.call("PATCH", "/v1/loops/x", newsSpec).refused(405, "method-not-allowed", "PUT")
		s.call("GET", "/v1/loops", "").want(200, `{"loops":[]}`)

		stop := s.work(bide.Loop("pulse", func(context.Context) {}, bide.Every(60e9)))
		time.Sleep(time.Second) // it has registered the loop
		s.call("PUT", "/v1/loops/pulse", newsSpec).refused(409, "conflict", "of a program")
		s.call("PUT", "/v1/loops/pulse", newsSpec, "If-None-Match: *").refused(409, "conflict")
		s.call("DELETE", "/v1/loops/pulse", "", `If-Match: "v1"`).refused(412, "precondition-failed")
		s.call("GET", "/v1/loops/pulse", "").want(200, `"stopped":false`).head("ETag", "").lacks("spec")
		stop()
		for _, r := range []bide.NewRun{{Workflow: "x", Queue: LoopQueue, Input: json.RawMessage(`null`)},
			{Workflow: "loop:mine", Queue: LoopQueue, Input: json.RawMessage(`1`)}, {Workflow: "loop:mine", Queue: "default", Input: json.RawMessage(`null`)}} {
			r.ID = "loop:mine"
			if created, err := s.store.Create(t.Context(), []bide.NewRun{r}); err != nil || created[0].Err != nil {
				t.Fatal(created, err)
			}
			s.call("PUT", "/v1/loops/mine", newsSpec).refused(409, "conflict")
			s.call("POST", "/v1/runs/loop:mine/terminate", "").want(200)
			s.call("PUT", "/v1/loops/mine", newsSpec).refused(409, "conflict")
			s.call("DELETE", "/v1/runs/loop:mine?purge=true", "").want(204)
		}
		if n := a.changes.Load(); n != 0 {
			t.Errorf("%d changes of nothing", n)
		}
	})
	inBubble(t, func(s *site) {
		s.call("PUT", "/v1/loops/x", newsSpec).refused(405, "method-not-allowed")
	})
}

// Whoever puts and deletes at once, in the end there is a live loop if there is a
// spec, and none if there is none.
func TestProbeLoopSettles(t *testing.T) {
	store, err := sqlite.Open(":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	h := NewHandler(store, Config{Loops: &asked{}})
	ask := func(method, body, ifNoneMatch string) int {
		r, w := httptest.NewRequest(method, "/v1/loops/news", strings.NewReader(body)), httptest.NewRecorder()
		r.Header.Set("Content-Type", "application/json")
		if ifNoneMatch != "" {
			r.Header.Set("If-None-Match", ifNoneMatch)
		}
		h.ServeHTTP(w, r)
		return w.Code
	}
	var all sync.WaitGroup
	var created atomic.Int32
	for range 8 {
		all.Go(func() {
			if status := ask("PUT", newsSpec, "*"); status == http.StatusCreated {
				created.Add(1)
			} else if status != http.StatusPreconditionFailed {
				t.Error(status)
			}
		})
	}
	if all.Wait(); created.Load() != 1 {
		t.Errorf("%d have made the one loop", created.Load())
	}
	for range 20 {
		for i := range 8 {
			all.Go(func() {
				var status int
				switch i % 3 {
				case 0:
					status = ask("DELETE", "", "")
				case 1:
					status = ask("PUT", newsSpec, "*")
				default:
					status = ask("PUT", strings.Replace(newsSpec, "30s", "31s", 1), "")
				}
				switch status {
				case http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusPreconditionFailed:
				default:
					t.Error(status)
				}
			})
		}
		all.Wait()
		spec, err := h.loopSpec(t.Context(), "news")
		if err != nil {
			t.Fatal(err)
		}
		run, err := store.Run(t.Context(), "loop:news")
		if live := err == nil && !run.State.Ended(); live != (spec.Version != 0) {
			t.Fatalf("live %v, spec %+v, %v", live, spec, err)
		}
	}
	ask("DELETE", "", "")
	// What a crash may have left between two writes is put right by the next request.
	if ask("PUT", newsSpec, "") != 201 {
		t.Error("no new loop")
	}
	if err := bide.NewClient(store).Terminate(t.Context(), "loop:news", ""); err != nil {
		t.Fatal(err)
	}
	if status := ask("PUT", newsSpec, ""); status != 200 {
		t.Error(status)
	}
	if run, err := store.Run(t.Context(), "loop:news"); err != nil || run.State.Ended() {
		t.Error(run.State, err)
	}
	err = store.Commit(t.Context(), bide.Lease{}, bide.Batch{Facts: []bide.Fact{{Kind: LoopFact, Key: "news", Version: bide.AnyVersion}}})
	if err != nil {
		t.Fatal(err)
	}
	if status := ask("DELETE", "", ""); status != 202 {
		t.Error(status)
	}
	if run, err := store.Run(t.Context(), "loop:news"); err != nil || !run.State.Ended() {
		t.Error(run.State, err)
	}
}

// between lets something happen right before a command.
type between struct {
	bide.Store
	before func()
}

func (b *between) Control(ctx context.Context, id string, c bide.Command) error {
	if do := b.before; do != nil {
		b.before = nil
		do()
	}
	return b.Store.Control(ctx, id, c)
}

// A request that acts on what was so a moment ago puts right what it has done.
func TestProbeLoopSettlesAfterAnother(t *testing.T) {
	for _, c := range []struct{ first, then string }{{"DELETE", "PUT"}, {"PUT", "DELETE"}} {
		store, err := sqlite.Open(":memory:")
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		slow := &between{Store: store}
		ask := func(store bide.Store, method string) {
			r, w := httptest.NewRequest(method, "/v1/loops/news", http.NoBody), httptest.NewRecorder()
			if method == "PUT" {
				r.Body = io.NopCloser(strings.NewReader(newsSpec))
			}
			r.Header.Set("Content-Type", "application/json")
			if NewHandler(store, Config{Loops: &asked{}}).ServeHTTP(w, r); w.Code >= 300 {
				t.Errorf("%s: %d %s", method, w.Code, w.Body)
			}
		}
		ask(store, "PUT")
		if c.first == "PUT" {
			ask(store, "DELETE")
		}
		came := false
		slow.before = func() { came = true; ask(store, c.then) }
		ask(slow, c.first)
		facts, err := store.Facts(t.Context(), LoopFact)
		if err != nil || !came || (len(facts) == 1) != (c.then == "PUT") {
			t.Fatalf("%+v: %v %v %v", c, came, facts, err)
		}
		if run, err := store.Run(t.Context(), "loop:news"); err != nil || run.State.Ended() != (len(facts) == 0) {
			t.Errorf("%+v: %d specs, the run is %v, %v", c, len(facts), run.State, err)
		}
	}
}
