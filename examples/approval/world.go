package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"sync"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/wait"
)

type mail struct {
	To      string `json:"to"`
	Subject string `json:"subject"`
	Link    string `json:"link,omitempty"`
}

// mailer speaks to the mail server.
type mailer struct {
	url  string
	http *http.Client
}

func (m *mailer) send(ctx context.Context, l mail) error {
	body, err := json.Marshal(l)
	if err != nil {
		return bide.Permanent(err)
	}
	req, err := http.NewRequestWithContext(ctx, "POST", m.url+"/mail", bytes.NewReader(body))
	if err != nil {
		return bide.Permanent(err)
	}
	req.Header.Set("Idempotency-Key", bide.IdempotencyKey(ctx))
	resp, err := m.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return wait.CheckResponse(resp)
}

// mailServer keeps what it has sent in a file, and shows it on out. A mail with a
// key that it knows is not sent again.
type mailServer struct {
	file string
	out  io.Writer

	mu   sync.Mutex
	sent []sentMail
}

type sentMail struct {
	Key string `json:"key"`
	mail
}

func openMailServer(file string, out io.Writer) (*mailServer, error) {
	s := &mailServer{file: file, out: out}
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &s.sent)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return s, err
}

func (s *mailServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m := sentMail{Key: r.Header.Get("Idempotency-Key")}
	if err := json.NewDecoder(r.Body).Decode(&m.mail); err != nil || m.Key == "" {
		http.Error(w, "want an Idempotency-Key and a JSON body", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, old := range s.sent {
		if old.Key == m.Key {
			return
		}
	}
	if err := s.keep(append(s.sent, m)); err != nil {
		http.Error(w, err.Error(), http.StatusInsufficientStorage)
		return
	}
	fmt.Fprintf(s.out, "\nMail to %s: %s\n", m.To, m.Subject)
	if m.Link != "" {
		fmt.Fprintf(s.out, "  curl %s -d '{\"approved\":true,\"by\":%q}'\n", m.Link, m.To)
	}
}

func (s *mailServer) keep(sent []sentMail) error {
	data, err := json.MarshalIndent(sent, "", "\t")
	if err == nil {
		err = os.WriteFile(s.file+".new", data, 0o644)
	}
	if err == nil {
		err = os.Rename(s.file+".new", s.file)
	}
	if err == nil {
		s.sent = sent
	}
	return err
}

// subjects lists what was sent, "ann: reminder" and so on.
func (s *mailServer) subjects() (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.sent {
		list = append(list, m.To+": "+m.Subject)
	}
	return list
}
