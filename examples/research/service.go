package main

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// service is the world outside: a model, a search engine and a deep-research
// API in one. It shares a process with the agent so that you need to start only
// one thing, and nothing else: it hears of the agent by HTTP only. What it must
// not forget is in its ledger.
type service struct {
	http.ServeMux
	ledger *ledger
	job    time.Duration // how long a new job takes
	think  time.Duration // how long a call takes
	looks  atomic.Int64  // at jobs
}

func newService(l *ledger, job time.Duration) *service {
	s := &service{ledger: l, job: job, think: min(job/10, 800*time.Millisecond)}
	s.Handle("POST /v1/complete", s.paid(3, func(_, prompt string) any { return answer{complete(prompt)} }))
	s.Handle("POST /v1/search", s.paid(1, func(_, query string) any { return answer{"- a finding on " + query} }))
	s.Handle("POST /v1/jobs", s.paid(250, func(key, topic string) any {
		return startedJob{ID: "job_" + key[:8], Topic: topic, Started: time.Now(), Takes: s.job}
	}))
	s.HandleFunc("GET /v1/jobs/{id}", s.status)
	return s
}

// moods are what three of ten requests get before anybody looks at them, by
// their number over the life of the ledger.
var moods = [10]int{3: http.StatusServiceUnavailable, 5: http.StatusTooManyRequests, 9: http.StatusServiceUnavailable}

// paid serves a call that costs money. It is billed by its Idempotency-Key:
// asked again with the same key, the answer of the first time is given for free.
func (s *service) paid(cents int, work func(key, input string) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var c call
		key := r.Header.Get("Idempotency-Key")
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil || len(key) < 8 {
			http.Error(w, "want an Idempotency-Key and a JSON body", http.StatusBadRequest)
			return
		}
		number := s.ledger.write(entry{Event: requested, Key: key, Call: c.Name})
		if mood := moods[number%len(moods)]; mood != 0 {
			s.ledger.write(entry{Event: refused, Key: key, Call: c.Name, Status: mood})
			w.Header().Set("Retry-After", "1")
			http.Error(w, "not now", mood)
			return
		}
		kept := s.ledger.answer(key)
		if kept == nil {
			if !pause(r.Context(), s.think) {
				return // the caller has gone
			}
			kept = s.ledger.bill(key, c.Name, cents, work(key, c.Input))
		}
		w.Write(kept)
	}
}

// startedJob is the answer to a new job. It holds all that its progress hangs
// on, so a job goes on while the service is down, as it would in a real one.
type startedJob struct {
	ID      string        `json:"id"`
	Topic   string        `json:"topic"`
	Started time.Time     `json:"started"`
	Takes   time.Duration `json:"takes_ns"`
}

func (s *service) status(w http.ResponseWriter, r *http.Request) {
	if s.looks.Add(1)%4 == 0 {
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	}
	started, found := s.ledger.job(r.PathValue("id"))
	if !found {
		http.Error(w, "no such job", http.StatusNotFound)
		return
	}
	j := job{ID: started.ID, State: "running", Percent: 100 * float64(time.Since(started.Started)) / float64(started.Takes)}
	switch {
	case j.Percent < 10:
		j.State, j.Percent = "queued", 0
	case j.Percent >= 100:
		j.State, j.Percent, j.Findings = "completed", 100, "- what only deep research finds on "+started.Topic
	}
	json.NewEncoder(w).Encode(j)
}

// complete is a language model of few words.
func complete(prompt string) string {
	if topic, ok := strings.CutPrefix(prompt, "Search queries for: "); ok {
		return topic + " history\n" + topic + " today\n" + topic + " risks\n" + topic + " outlook"
	}
	title, notes, _ := strings.Cut(strings.TrimPrefix(prompt, "Write a report on "), " from these notes:\n")
	return "# " + title + "\n\n" + notes + "\n"
}

// pause waits and reports whether the caller is still there.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
