package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"sync"
	"time"
)

// event is a side effect, as the outside world has seen it.
type event struct {
	What  string `json:"what"`  // see the constants
	Job   string `json:"job"`   // of whose run; the loop's name
	Place string `json:"place"` // in the workflow: "0.3.sleep"
	Lane  string `json:"lane,omitempty"`
	Call  string `json:"call"` // differs for every call of the function
	// Prev is the call whose kept result the workflow had before it came here: that
	// it is named proves that the store had acknowledged it.
	Prev    string    `json:"prev,omitempty"`
	Attempt int       `json:"attempt,omitempty"`
	Node    string    `json:"node"`            // the process, with how often it was started: "w1#2"
	Sent    time.Time `json:"sent"`            // when the caller did it, by the machine's clock
	Due     time.Time `json:"due,omitzero"`    // when a timer before it was due; the time of an iteration
	URL     string    `json:"url,omitempty"`   // of a webhook; what is looked at or pleaded for
	Ask     string    `json:"ask,omitempty"`   // what the world outside shall do: a verb
	Key     string    `json:"key,omitempty"`   // the step's idempotency key
	Drawn   string    `json:"drawn,omitempty"` // what must be the same on every replay
	At      time.Time `json:"at,omitzero"`     // when the witness heard of it, or who did it of its success
}

// What an event is.
const (
	begin = "begin" // a step's function is called
	end   = "end"   // and has done its work
	look  = "look"  // a check of a poll, of what comes by itself
	plea  = "plea"  // one of what comes when it is granted
	beat  = "beat"  // an iteration of the loop begins
	ebb   = "ebb"   // and ends

	// What patrons do is noted too: it was asked for at Sent, and acknowledged at At.
	pauses   = "pauses"
	resumes  = "resumes"
	triggers = "triggers"
)

// witness is the outside world: it records what is done to it and answers checks.
type witness struct {
	url  string
	hook func(event) // told of each call that asks for something

	mu      sync.Mutex
	events  []event
	seen    map[string]bool      // calls, by what: a request may be sent twice by its client
	begun   map[string]time.Time // by job and place, the last time
	asked   map[string]time.Time // by what a poll asks for
	granted map[string]bool      // by what was pleaded for
}

// ripe is how long what a poll asks for takes.
const ripe = 700 * time.Millisecond

func newWitness(ctx context.Context, hook func(event)) (*witness, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &witness{url: listener.Addr().String(), hook: hook, seen: map[string]bool{},
		begun: map[string]time.Time{}, asked: map[string]time.Time{}, granted: map[string]bool{}}
	srv := &http.Server{Handler: w, ReadHeaderTimeout: time.Minute}
	go func() { _ = srv.Serve(listener) }()
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	return w, nil
}

// ServeHTTP takes an event down. It is answered once it has been; a look is told
// whether what it asks for is there.
func (w *witness) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	var e event
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	e.At = time.Now()
	w.mu.Lock()
	if key := e.What + " " + e.Call; !w.seen[key] {
		w.seen[key] = true
		w.events = append(w.events, e)
	}
	ready := e.What == plea && w.granted[e.URL]
	switch e.What {
	case begin, beat:
		w.begun[e.Job+" "+e.Place] = e.Sent
	case look:
		since, known := w.asked[e.URL]
		if !known {
			since, w.asked[e.URL] = e.At, e.At
		}
		ready = e.At.Sub(since) >= ripe
	}
	w.mu.Unlock()
	if e.What == begin && e.Ask != "" {
		w.hook(e)
	}
	_ = json.NewEncoder(rw).Encode(ready)
}

// note takes down what was done to the cluster from outside.
func (w *witness) note(what, job, place string, sent time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, event{What: what, Job: job, Place: place, Sent: sent, At: time.Now()})
}

// grant gives what is pleaded for.
func (w *witness) grant(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.granted[what] = true
}

// saw is when a run has come to a step, or begun an iteration, for the last time.
func (w *witness) saw(job, place string) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.begun[job+" "+place]
}

// history is what was seen so far.
func (w *witness) history() []event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]event(nil), w.events...)
}
