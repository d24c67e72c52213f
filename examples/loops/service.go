package main

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// service is the world: weather and news of one provider, stocks, a mail server.
// What it says follows from the time of day, so it has nothing to keep.
type service struct {
	http.ServeMux
	takes time.Duration // what an answer takes
	// headline tells the news of a time: it changes when there is some.
	headline func(time.Time) string

	mu       sync.Mutex
	asked    map[string][]time.Time // by path
	busy     int                    // requests of the provider in flight
	mostBusy int
	mails    map[string]bool // by key
}

func newService(takes time.Duration, headline func(time.Time) string) *service {
	s := &service{takes: takes, headline: headline, asked: map[string][]time.Time{}, mails: map[string]bool{}}
	s.HandleFunc("GET /weather", s.provided(func(w http.ResponseWriter, r *http.Request, number int) {
		if number%4 == 0 || number%12 == 5 {
			http.Error(w, "not now", http.StatusBadGateway)
			return
		}
		fmt.Fprintf(w, "%d degrees\n", 10+time.Now().Hour()%12)
	}))
	s.HandleFunc("GET /news", s.provided(func(w http.ResponseWriter, r *http.Request, _ int) {
		news := s.headline(time.Now())
		tag := fmt.Sprintf("%q", news)
		w.Header().Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fmt.Fprintln(w, news)
	}))
	s.HandleFunc("GET /stocks", func(w http.ResponseWriter, r *http.Request) {
		s.note(r.URL.Path)
		fmt.Fprintf(w, "TEA %d.%02d\n", 90+time.Now().Minute()%20, time.Now().Second())
	})
	s.HandleFunc("POST /mail", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mails[r.Header.Get("Idempotency-Key")] = true
	})
	return s
}

// provided is an answer of the provider, which takes its time and counts.
func (s *service) provided(answer func(http.ResponseWriter, *http.Request, int)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		number := s.note(r.URL.Path)
		s.count(+1)
		time.Sleep(s.takes)
		s.count(-1)
		answer(w, r, number)
	}
}

func (s *service) note(path string) (number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[path] = append(s.asked[path], time.Now())
	return len(s.asked[path])
}

func (s *service) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy += n
	s.mostBusy = max(s.mostBusy, s.busy)
}
