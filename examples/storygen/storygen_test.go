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
	s.handler.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
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
