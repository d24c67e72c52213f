package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"log"
	"net/http"
	"os"
	"sync"
	"time"
)

// service is a deep-research API. It shares the process, but hears of us by HTTP
// only. Its jobs are in a file, and go on while it is down, as they would in a
// real one.
type service struct {
	http.ServeMux
	file  string
	takes time.Duration // what a new job takes
	hooks *http.Client  // tells whoever asked to be told

	mu   sync.Mutex
	jobs map[string]*task
}

// task is an order that was taken.
type task struct {
	order
	Started time.Time     `json:"started"`
	Takes   time.Duration `json:"takes_ns"`
	Told    bool          `json:"told"`
}

func openService(file string, takes time.Duration, hooks *http.Client) (*service, error) {
	s := &service{file: file, takes: takes, hooks: hooks, jobs: map[string]*task{}}
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &s.jobs)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for id, o := range s.jobs {
		s.tellLater(id, o)
	}
	s.HandleFunc("POST /v1/jobs", s.submit)
	s.HandleFunc("GET /v1/jobs/{id}", s.status)
	return s, nil
}

// submit takes an order; the same key is the same job.
func (s *service) submit(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || len(key) < 8 {
		http.Error(w, "want an Idempotency-Key and a JSON body", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := "job_" + key[:8]
	if s.jobs[id] == nil {
		s.jobs[id] = &task{order: o, Started: time.Now(), Takes: s.takes}
		s.saveLocked()
		s.tellLater(id, s.jobs[id])
	}
	json.NewEncoder(w).Encode(s.viewLocked(id))
}

func (s *service) status(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id := r.PathValue("id"); s.jobs[id] != nil {
		json.NewEncoder(w).Encode(s.viewLocked(id))
		return
	}
	http.Error(w, "no such job", http.StatusNotFound)
}

func (s *service) viewLocked(id string) job {
	o := s.jobs[id]
	percent := 100 * float64(time.Since(o.Started)) / float64(o.Takes)
	if percent < 100 {
		return job{ID: id, State: "running", Percent: percent}
	}
	return job{ID: id, State: "completed", Percent: 100, Findings: "What only deep research finds on " + o.Topic + "."}
}

// tellLater calls the webhook when the job is done, once.
func (s *service) tellLater(id string, o *task) {
	if o.Told {
		return
	}
	time.AfterFunc(time.Until(o.Started.Add(o.Takes)), func() {
		s.mu.Lock()
		body, _ := json.Marshal(s.viewLocked(id))
		s.mu.Unlock()
		resp, err := s.hooks.Post(o.Callback, "application/json", bytes.NewReader(body))
		if err != nil {
			return // a lazy sender: it does not try again
		}
		resp.Body.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		o.Told = true
		s.saveLocked()
	})
}

func (s *service) saveLocked() {
	data, err := json.MarshalIndent(s.jobs, "", "\t")
	if err == nil {
		err = os.WriteFile(s.file+".new", data, 0o644)
	}
	if err == nil {
		err = os.Rename(s.file+".new", s.file)
	}
	if err != nil {
		log.Panicf("the service cannot keep its jobs: %v", err)
	}
}
