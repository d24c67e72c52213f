package main

import (
	"context"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"
)

// model stands in for a language model: slow, and what it writes comes word by
// word. Like a real one it stops, and stops costing money, when its caller goes.
type model struct {
	perWord time.Duration
	words   atomic.Int64 // written, over all calls
	busy    atomic.Int64 // calls under way
}

var vocabulary = strings.Fields(`owl moon river old wind small door light under waits listens finds a the of
	until morning again quietly never asks stone lantern road keeps whole forest its name`)

// write returns so many words, the same ones for the same prompt, and writes each to
// out as it comes.
func (m *model) write(ctx context.Context, prompt string, words int, out io.Writer) (string, error) {
	m.busy.Add(1)
	defer m.busy.Add(-1)
	h := fnv.New64a()
	_, _ = io.WriteString(h, prompt)
	rng := rand.New(rand.NewPCG(h.Sum64(), 1))
	var text strings.Builder
	tick := time.NewTicker(m.perWord)
	defer tick.Stop()
	for i := range words {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-tick.C:
		}
		m.words.Add(1)
		word := vocabulary[rng.IntN(len(vocabulary))]
		if i == 0 {
			word = strings.ToUpper(word[:1]) + word[1:]
		}
		if i == words-1 {
			word += "."
		} else {
			word += " "
		}
		text.WriteString(word)
		if out != nil {
			if _, err := io.WriteString(out, word); err != nil {
				return "", err
			}
		}
	}
	return text.String(), nil
}
