package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

// service is a certificate authority and the DNS in one. What it knows is in a
// file, and where an order stands follows from the time, so both go on while it is
// down.
type service struct {
	http.ServeMux
	file  string
	takes time.Duration // from the challenge's publication to the verdict
	pace  time.Duration // between two looks at an order that it bears

	mu    sync.Mutex
	state struct {
		Orders map[string]*issued   `json:"orders"`
		DNS    map[string]challenge `json:"dns"` // what stands at _acme-challenge
	}
	asked []time.Time // for the state of orders
}

type issued struct {
	Domain string `json:"domain"`
	order
	ValidAt time.Time `json:"valid_at,omitzero"`
}

type challenge struct {
	TXT   string    `json:"txt"`
	Since time.Time `json:"since"`
}

func openService(file string, takes, pace time.Duration) (*service, error) {
	s := &service{file: file, takes: takes, pace: pace}
	s.state.Orders, s.state.DNS = map[string]*issued{}, map[string]challenge{}
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &s.state)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	s.HandleFunc("POST /orders", s.take)
	s.HandleFunc("GET /orders/{id}", s.show)
	s.HandleFunc("GET /orders/{id}/certificate", s.download)
	s.HandleFunc("PUT /dns/{domain}", s.publish)
	return s, nil
}

// take begins an order; the same key is the same order.
func (s *service) take(w http.ResponseWriter, r *http.Request) {
	var o issued
	key := r.Header.Get("Idempotency-Key")
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || len(key) < 8 {
		http.Error(w, "want an Idempotency-Key and a JSON body", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := "order-" + key[:8]
	if s.state.Orders[id] == nil {
		o.order = order{ID: id, Status: "pending", TXT: "proof-" + key[8:16]}
		s.state.Orders[id] = &o
	}
	s.answerLocked(w, s.state.Orders[id].order)
}

func (s *service) publish(w http.ResponseWriter, r *http.Request) {
	var txt string
	if err := json.NewDecoder(r.Body).Decode(&txt); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	domain := r.PathValue("domain")
	switch {
	case txt == "":
		delete(s.state.DNS, domain)
	case s.state.DNS[domain].TXT != txt:
		s.state.DNS[domain] = challenge{txt, time.Now()}
	}
	s.answerLocked(w, nil)
}

// show tells where an order stands and when to ask again. Each third request it is
// busy, and to be left alone for four times as long.
func (s *service) show(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.state.Orders[r.PathValue("id")]
	if o == nil {
		http.Error(w, "no such order", http.StatusNotFound)
		return
	}
	s.asked = append(s.asked, time.Now())
	if len(s.asked)%3 == 0 {
		w.Header().Set("Retry-After", seconds(4*s.pace))
		http.Error(w, "busy", http.StatusServiceUnavailable)
		return
	}
	if found := s.state.DNS[o.Domain]; found.TXT == o.TXT && (o.Status == "pending" || o.Status == "processing") {
		switch {
		case time.Since(found.Since) < s.takes:
			o.Status = "processing"
		case o.Domain == "forbidden.example":
			o.Status, o.Reason = "invalid", "its CAA record names another authority"
		default:
			o.Status, o.ValidAt = "valid", time.Now()
		}
	}
	w.Header().Set("Retry-After", seconds(s.pace))
	s.answerLocked(w, o.order)
}

// download hands out the certificate, which is there a moment after the order is
// valid.
func (s *service) download(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.state.Orders[r.PathValue("id")]
	switch {
	case o == nil || o.Status != "valid":
		http.Error(w, "no such certificate", http.StatusNotFound)
	case time.Since(o.ValidAt) < s.pace:
		w.Header().Set("Retry-After", seconds(s.pace))
		http.Error(w, "being signed", http.StatusServiceUnavailable)
	default:
		s.answerLocked(w, "-----BEGIN CERTIFICATE-----\n"+o.Domain+"\n-----END CERTIFICATE-----\n")
	}
}

func (s *service) answerLocked(w http.ResponseWriter, answer any) {
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
	json.NewEncoder(w).Encode(answer)
}

// seconds is a duration as Retry-After has it.
func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }
