package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"time"
)

// world is what the agent acts upon. It notes each act in a file, synced, as a
// mail server would have sent the mail: there is no taking it back.
type world struct {
	file *os.File
	pace time.Duration
}

// effect is one act that did take place.
type effect struct {
	PID  int    `json:"pid"`
	Step string `json:"step"`
}

func openWorld(path string, pace time.Duration) (*world, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	return &world{file, pace}, nil
}

func (w *world) Close() error { return w.file.Close() }

// act takes its time, then has its effect.
func (w *world) act(ctx context.Context, step, input string) (string, error) {
	select {
	case <-time.After(w.pace):
	case <-ctx.Done():
		return "", ctx.Err()
	}
	line, err := json.Marshal(effect{os.Getpid(), step})
	if err != nil {
		return "", err
	}
	if _, err := w.file.Write(append(line, '\n')); err != nil {
		return "", err
	}
	return step + " follows " + firstWord(input), w.file.Sync()
}

func firstWord(s string) string {
	word, _, _ := strings.Cut(s, " ")
	return word
}

// effects reads all acts back, those of earlier processes too.
func (w *world) effects() (list []effect, err error) {
	data, err := os.ReadFile(w.file.Name())
	for line := range bytes.Lines(data) {
		var e effect
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, err
}
