package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/api"
	"github.com/bide-dev/bide/sqlite"
)

// here is where the page is.
const here = "http://localhost"

// service is the whole of it in a bubble of virtual time, without a network.
type service struct {
	*testing.T
	handler http.Handler
	model   *model
}

func inBubble(t *testing.T, fn func(*service)) {
	synctest.Test(t, func(t *testing.T) {
		store, err := sqlite.Open(":memory:")
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		m := &model{perWord: 40 * time.Millisecond}
		workflow := newWorkflow(projects{"owl": {Outline: "an owl"}, "fox": {}}, m)
		worker := bide.NewWorker(store, bide.WorkerConfig{})
		worker.Register(workflow)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- worker.Run(ctx) }()
		bideAPI := api.NewHandler(store, api.Config{})
		fn(&service{t, newHandler(bide.NewClient(store), workflow, m, bideAPI), m})
		bideAPI.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (s *service) call(method, path, body string) (int, map[string]any) {
	s.Helper()
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, httptest.NewRequest(method, here+path, strings.NewReader(body)))
	var answer map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		s.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
	return w.Code, answer
}

func (s *service) begin(body string) (id string) {
	s.Helper()
	code, answer := s.call("POST", "/stories", body)
	if code != http.StatusAccepted {
		s.Fatalf("POST /stories %s: %d %v", body, code, answer)
	}
	return answer["id"].(string)
}

// A story is followed to its end: 4 + 3×60 words at 40 ms.
func TestStory(t *testing.T) {
	inBubble(t, func(s *service) {
		id := s.begin(`{"project":"owl","chapters":3}`)
		time.Sleep(3700 * time.Millisecond) // in the second chapter
		code, run := s.call("GET", "/v1/runs/"+id, "")
		progress, _ := run["progress"].(map[string]any)
		if code != 200 || run["state"] != "running" || progress["percent"] != 33. || progress["message"] != "Writing chapter 2 of 3" {
			s.Errorf("on the way: %d %v", code, run)
		}
		_, run = s.call("GET", "/v1/runs/"+id+"?wait=60", "")
		for run["state"] == "running" {
			_, run = s.call("GET", "/v1/runs/"+id+"?wait=60", "")
			time.Sleep(time.Second)
		}
		result, _ := run["result"].(map[string]any)
		if run["state"] != "succeeded" || len(strings.Fields(result["text"].(string))) != 180 {
			s.Errorf("at the end: %v", run)
		}
	})
}

// What a story needs first is told in the request, as a 400 with the reason.
func TestPrerequisite(t *testing.T) {
	inBubble(t, func(s *service) {
		for body, want := range map[string]string{
			`{"project":"fox","chapters":3}`:         `project "fox" has no outline yet; write one before you ask for its story`,
			`{"project":"cat","chapters":3}`:         `project "cat" is not known; there are owl and fox`,
			`{"project":"owl","chapters":0}`:         `chapters is 0; it must be from 1 to 20`,
			`{"project":"owl","chapter":3}`:          `body is not the JSON of a request: json: unknown field "chapter"`,
			`{"project":"owl","chapters":"several"}`: "body is not the JSON of a request",
		} {
			code, answer := s.call("POST", "/stories", body)
			if detail, _ := answer["detail"].(string); code != 400 || !strings.HasPrefix(detail, want) {
				s.Errorf("%s: %d %v, want 400 %s", body, code, answer, want)
			}
		}
	})
}

// A cancel stops the model in the middle of a chapter: no word is written after it.
func TestCancelStopsTheWork(t *testing.T) {
	inBubble(t, func(s *service) {
		id := s.begin(`{"project":"owl","chapters":20}`)
		time.Sleep(5 * time.Second)
		if s.model.busy.Load() != 1 {
			s.Fatal("nobody is writing")
		}
		if code, run := s.call("DELETE", "/v1/runs/"+id, ""); code != http.StatusAccepted && code != http.StatusOK {
			s.Errorf("cancel: %d %v", code, run)
		}
		synctest.Wait()
		words := s.model.words.Load()
		if s.model.busy.Load() != 0 {
			s.Error("the model writes on")
		}
		time.Sleep(time.Minute)
		if s.model.words.Load() != words {
			s.Errorf("%d words after the cancel", s.model.words.Load()-words)
		}
		if _, run := s.call("GET", "/v1/runs/"+id, ""); run["state"] != "canceled" {
			s.Errorf("canceled, the run is %v", run["state"])
		}
	})
}

// A page of another site in a browser on this machine gets nothing done here.
func TestOtherSites(t *testing.T) {
	for _, c := range []struct {
		name, host, origin, site string
		want                     int
	}{
		{"our page", "127.0.0.1:7080", "http://127.0.0.1:7080", "same-origin", 202},
		{"our page by name", "localhost:7080", "http://localhost:7080", "same-origin", 202},
		{"our page by IPv6", "[::1]:7080", "http://[::1]:7080", "", 202},
		{"curl", "localhost:7080", "", "", 202},
		{"another site", "127.0.0.1:7080", "http://evil.example", "cross-site", 403},
		{"another site, older browser", "127.0.0.1:7080", "http://evil.example", "", 403},
		{"another port", "127.0.0.1:7080", "http://127.0.0.1:9999", "same-site", 403},
		{"a name that was rebound", "evil.example", "http://evil.example", "same-origin", 421},
		{"a name that was rebound, with port", "evil.example:7080", "http://evil.example:7080", "", 421},
		{"a name like ours", "localhost.evil.example", "", "", 421},
		{"no host", "", "", "", 421},
	} {
		inBubble(t, func(s *service) {
			for _, path := range []string{"/stories", "/v1/runs"} {
				r := httptest.NewRequest("POST", path, strings.NewReader(`{"project":"owl","chapters":1}`))
				if path == "/v1/runs" {
					r = httptest.NewRequest("POST", path, strings.NewReader(`{"workflow":"story","input":{"project":"owl","chapters":1}}`))
				}
				r.Host = c.host
				r.Header.Set("Content-Type", "application/json")
				for name, value := range map[string]string{"Origin": c.origin, "Sec-Fetch-Site": c.site} {
					if value != "" {
						r.Header.Set(name, value)
					}
				}
				w := httptest.NewRecorder()
				s.handler.ServeHTTP(w, r)
				if w.Code != c.want {
					s.Errorf("%s, %s: %d %s, want %d", c.name, path, w.Code, w.Body, c.want)
				}
			}
			r := httptest.NewRequest("GET", "/model", nil) // to read is refused to a rebound name too
			r.Host = c.host
			w := httptest.NewRecorder()
			if s.handler.ServeHTTP(w, r); (w.Code == 421) != (c.want == 421) {
				s.Errorf("%s: GET %d", c.name, w.Code)
			}
		})
	}
}
