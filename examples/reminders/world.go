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

// mail is what stands in the mail server's file.
type mail struct {
	To      string `json:"to"`
	Subject string `json:"subject"`
}

// mailer speaks to the mail server.
type mailer struct {
	url  string
	http *http.Client
}

func (m *mailer) send(ctx context.Context, to, subject string) error {
	body, err := json.Marshal(mail{to, subject})
	if err != nil {
		return bide.Permanent(err)
	}
	req, err := http.NewRequestWithContext(ctx, "POST", m.url+"/mail", bytes.NewReader(body))
	if err != nil {
		return bide.Permanent(err)
	}
	resp, err := m.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return wait.CheckResponse(resp)
}

// mailServer sends each mail that it is given, twice if it is given twice. It keeps
// them in a file and shows them on out.
type mailServer struct {
	file string
	out  io.Writer
	slow func() // what sending takes

	mu   sync.Mutex
	sent []mail
}

func openMailServer(file string, out io.Writer) (*mailServer, error) {
	s := &mailServer{file: file, out: out, slow: func() {}}
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
	var m mail
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.sent = append(s.sent, m)
	data, err := json.MarshalIndent(s.sent, "", "\t")
	if err == nil {
		err = os.WriteFile(s.file+".new", data, 0o644)
	}
	if err == nil {
		err = os.Rename(s.file+".new", s.file)
	}
	s.mu.Unlock()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInsufficientStorage)
		return
	}
	fmt.Fprintf(s.out, "\nMail to %s: %s\n", m.To, m.Subject)
	s.slow()
}

// subjects lists what was sent.
func (s *mailServer) subjects() (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.sent {
		list = append(list, m.Subject)
	}
	return list
}
