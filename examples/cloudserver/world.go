package main

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// world is a cloud and the machines in it. They go on while it is down: where each
// stands follows from when it was ordered, which is in a file.
type world struct {
	file  string
	build time.Duration // until a new machine has an address
	boot  time.Duration // from then until it takes connections

	mu      sync.Mutex
	servers map[string]*machine
}

type machine struct {
	Name    string    `json:"name"`
	IP      string    `json:"ip"`
	HasIP   time.Time `json:"has_ip_at"`
	Booted  time.Time `json:"booted_at"`
	History []string  `json:"history,omitempty"` // the commands that were run
}

func openWorld(file string, build, boot time.Duration) (*world, error) {
	w := &world{file: file, build: build, boot: boot, servers: map[string]*machine{}}
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &w.servers)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return w, err
}

// ServeHTTP is the cloud's API.
func (w *world) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := strings.TrimPrefix(r.URL.Path, "/servers/")
	if r.Method == "POST" {
		var wanted machine
		key := r.Header.Get("Idempotency-Key")
		if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil || len(key) < 8 {
			http.Error(out, "want an Idempotency-Key and a JSON body", http.StatusBadRequest)
			return
		}
		id = "srv-" + key[:8] // the same key is the same server
		if w.servers[id] == nil {
			wanted.IP = net.IPv4(10, 0, 0, byte(len(w.servers)+1)).String()
			wanted.HasIP = time.Now().Add(w.build)
			wanted.Booted = wanted.HasIP.Add(w.boot)
			w.servers[id] = &wanted
			w.saveLocked()
		}
	}
	m := w.servers[id]
	if m == nil {
		http.Error(out, "no such server", http.StatusNotFound)
		return
	}
	s := server{ID: id, State: "building", Ready: m.HasIP}
	switch {
	case time.Now().Before(m.HasIP):
	case strings.HasPrefix(m.Name, "bad"):
		s.State = "error"
	default:
		s.State, s.IP = "running", m.IP
	}
	json.NewEncoder(out).Encode(s)
}

// RoundTrip is the network with the machines in it: one that has not booted
// refuses connections.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.servers {
		if m.IP != r.URL.Host || time.Now().Before(m.Booted) {
			continue
		}
		command, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		m.History = append(m.History, string(command))
		w.saveLocked()
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("done\n")), Request: r}, nil
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
}

func (w *world) saveLocked() {
	data, err := json.MarshalIndent(w.servers, "", "\t")
	if err == nil {
		err = os.WriteFile(w.file+".new", data, 0o644)
	}
	if err == nil {
		err = os.Rename(w.file+".new", w.file)
	}
	if err != nil {
		log.Panicf("the cloud cannot keep its servers: %v", err)
	}
}
