package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// service is the platform. Its tasks are in a file, and go on while it is down.
type service struct {
	http.ServeMux
	file  string
	takes map[string]time.Duration // what a phase takes

	mu    sync.Mutex
	state struct {
		Tasks map[string]*begun `json:"tasks"` // by phase
		Log   []string          `json:"log"`
	}
}

type begun struct {
	Key     string    `json:"key"`
	Version string    `json:"version"`
	DoneAt  time.Time `json:"done_at"`
}

func openService(file string, takes map[string]time.Duration) (*service, error) {
	s := &service{file: file, takes: takes}
	s.state.Tasks = map[string]*begun{}
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &s.state)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	s.HandleFunc("POST /tasks/{phase}", s.start)
	s.HandleFunc("GET /tasks/{phase}", s.show)
	s.HandleFunc("DELETE /tasks/{phase}", s.rollBack)
	return s, nil
}

// start begins a phase; the same key is the same task.
func (s *service) start(w http.ResponseWriter, r *http.Request) {
	var version string
	if err := json.NewDecoder(r.Body).Decode(&version); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	phase, key := r.PathValue("phase"), r.Header.Get("Idempotency-Key")
	if b := s.state.Tasks[phase]; b == nil || b.Key != key {
		s.state.Tasks[phase] = &begun{Key: key, Version: version, DoneAt: time.Now().Add(s.takes[phase])}
		s.state.Log = append(s.state.Log, phase+" "+version)
	}
	s.answerLocked(w, phase)
}

func (s *service) show(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	phase := r.PathValue("phase")
	if s.state.Tasks[phase] == nil {
		http.Error(w, "no such task", http.StatusNotFound)
		return
	}
	s.answerLocked(w, phase)
}

func (s *service) rollBack(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	phase := r.PathValue("phase")
	if s.state.Tasks[phase] != nil {
		delete(s.state.Tasks, phase)
		s.state.Log = append(s.state.Log, phase+" rolled back")
	}
	s.answerLocked(w, phase)
}

// answerLocked shows a task. Versions that begin with "bad" fail when they get
// traffic.
func (s *service) answerLocked(w http.ResponseWriter, phase string) {
	data, err := json.MarshalIndent(s.state, "", "\t")
	if err == nil {
		err = os.WriteFile(s.file+".new", data, 0o644)
	}
	if err == nil {
		err = os.Rename(s.file+".new", s.file)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInsufficientStorage)
		return
	}
	t := task{ID: phase, State: "rolled back"}
	if b := s.state.Tasks[phase]; b != nil {
		t.State, t.DoneAt = "running", b.DoneAt
		if !time.Now().Before(b.DoneAt) {
			t.State = "done"
			if phase == "traffic" && strings.HasPrefix(b.Version, "bad") {
				t.State, t.Reason = "failed", "one request of two fails"
			}
		}
	}
	json.NewEncoder(w).Encode(t)
}
