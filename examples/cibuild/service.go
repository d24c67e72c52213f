package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"log"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// service is a CI. It shares the process, but hears of us by HTTP only. Its builds
// are in a file, and go on while it is down, as they would in a real one.
type service struct {
	http.ServeMux
	file   string
	takes  time.Duration // what a new build takes
	secret string        // signs its webhooks, as GitHub does
	hooks  *http.Client

	mu     sync.Mutex
	builds map[string]*record
}

type record struct {
	order
	Started time.Time     `json:"started"`
	Takes   time.Duration `json:"takes_ns"`
	Told    bool          `json:"told"`
}

func openService(file string, takes time.Duration, secret string, hooks *http.Client) (*service, error) {
	s := &service{file: file, takes: takes, secret: secret, hooks: hooks, builds: map[string]*record{}}
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &s.builds)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for id, r := range s.builds {
		s.tellLater(id, r)
	}
	s.HandleFunc("POST /builds", s.start)
	s.HandleFunc("GET /builds/{id}", s.status)
	return s, nil
}

// start begins a build; the same key is the same build.
func (s *service) start(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || len(key) < 8 {
		http.Error(w, "want an Idempotency-Key and a JSON body", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := "build_" + key[:8]
	if s.builds[id] == nil {
		s.builds[id] = &record{order: o, Started: time.Now(), Takes: s.takes}
		s.saveLocked()
		s.tellLater(id, s.builds[id])
	}
	json.NewEncoder(w).Encode(s.viewLocked(id))
}

func (s *service) status(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id := r.PathValue("id"); s.builds[id] != nil {
		json.NewEncoder(w).Encode(s.viewLocked(id))
		return
	}
	http.Error(w, "no such build", http.StatusNotFound)
}

// viewLocked shows a build. Commits that begin with "bad" fail in the middle.
func (s *service) viewLocked(id string) build {
	r := s.builds[id]
	bad := strings.HasPrefix(r.Commit, "bad")
	b := build{ID: id, Commit: r.Commit, Status: "in_progress", Percent: 100 * float64(time.Since(r.Started)) / float64(r.Takes)}
	switch {
	case b.Percent >= 50 && bad:
		b.Status, b.Conclusion, b.Percent, b.Log = "completed", "failure", 50, "--- FAIL: TestTea (0.21s)"
	case b.Percent >= 100:
		b.Status, b.Conclusion, b.Percent = "completed", "success", 100
	}
	return b
}

// tellLater calls the webhook when the build is completed, once.
func (s *service) tellLater(id string, r *record) {
	if r.Told {
		return
	}
	takes := r.Takes
	if strings.HasPrefix(r.Commit, "bad") {
		takes /= 2
	}
	time.AfterFunc(time.Until(r.Started.Add(takes)), func() { s.tell(id, r) })
}

func (s *service) tell(id string, r *record) {
	s.mu.Lock()
	body, _ := json.Marshal(s.viewLocked(id))
	s.mu.Unlock()
	req, err := http.NewRequest("POST", r.Hook, bytes.NewReader(body))
	if err != nil {
		return
	}
	mac := hmac.New(sha256.New, []byte(s.secret))
	mac.Write(body)
	req.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	resp, err := s.hooks.Do(req)
	if err != nil {
		return // GitHub does not try again either
	}
	resp.Body.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Told = true
	s.saveLocked()
}

func (s *service) saveLocked() {
	data, err := json.MarshalIndent(s.builds, "", "\t")
	if err == nil {
		err = os.WriteFile(s.file+".new", data, 0o644)
	}
	if err == nil {
		err = os.Rename(s.file+".new", s.file)
	}
	if err != nil {
		log.Panicf("the CI cannot keep its builds: %v", err)
	}
}
