package main

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"
)

// world is a database that comes up: first nobody listens, then it takes
// connections and does not answer, then it is migrated step by step. Where it
// stands follows from when it was started, which is in a file.
type world struct {
	file string
	up   time.Duration // from the start until it listens
	hang time.Duration // from then until it answers
	step time.Duration // what a migration takes
	last int           // the last migration

	mu      sync.Mutex
	refused int // connections, while nobody listened
	state   struct {
		Started  time.Time `json:"started"`
		Sessions []string  `json:"sessions"`
	}
}

const password = "correct horse"

func (w *world) open() error {
	data, err := os.ReadFile(w.file)
	if err == nil {
		return json.Unmarshal(data, &w.state)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	w.state.Started = time.Now()
	return w.keep()
}

func (w *world) keep() error {
	data, err := json.MarshalIndent(w.state, "", "\t")
	if err == nil {
		err = os.WriteFile(w.file+".new", data, 0o644)
	}
	if err == nil {
		err = os.Rename(w.file+".new", w.file)
	}
	return err
}

// listens is when there is somebody to connect to.
func (w *world) listens() time.Time { return w.state.Started.Add(w.up) }

func (w *world) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	if wait := time.Until(w.listens().Add(w.hang)); wait > 0 {
		select {
		case <-time.After(wait):
		case <-r.Context().Done():
			return
		}
	}
	if _, given, _ := r.BasicAuth(); given != password {
		http.Error(out, "wrong password", http.StatusUnauthorized)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch r.URL.Path {
	case "/status":
		done := int(time.Since(w.listens().Add(w.hang)) / w.step)
		json.NewEncoder(out).Encode(status{Migration: min(done, w.last)})
	case "/sessions":
		name, err := io.ReadAll(r.Body)
		if err == nil && !slices.Contains(w.state.Sessions, string(name)) {
			w.state.Sessions = append(w.state.Sessions, string(name))
			err = w.keep()
		}
		if err != nil {
			http.Error(out, err.Error(), http.StatusInternalServerError)
		}
	default:
		http.NotFound(out, r)
	}
}
