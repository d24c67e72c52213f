package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/bide-dev/bide"
)

// chunk is a piece of what a run's step has streamed.
type chunk struct {
	Seq     int64
	Path    string
	Place   string
	Attempt int
	Text    string
}

const words = 8

// word is the n-th line that a call streams.
func word(call string, n int) string { return fmt.Sprintf("%s – ½ ☃ %d\n", call, n) }

// whole is all that a call streams.
func whole(call string) string {
	var b strings.Builder
	for n := range words {
		b.WriteString(word(call, n))
	}
	return b.String()
}

// stream is a step that streams; the first attempt may break off.
func (p *part) stream() error {
	at := p.story.last()
	got, err := bide.Step(p.ctx, p.place, func(ctx context.Context) (string, error) {
		return p.act(ctx, event{Place: p.place, Prev: at}, func(ctx context.Context, e event) error {
			out := bide.Stream(ctx)
			for n := range words {
				if _, err := out.WriteString(word(e.Call, n)); err != nil {
					return err
				}
				if err := pause(ctx, 20*time.Millisecond); err != nil {
					return err
				}
				if e.Attempt == 1 && n == words/2 && p.within(0, 3) == 0 {
					return errors.New("lost the thread")
				}
			}
			return nil
		})
	}, soon)
	p.tell(p.place, got)
	return err
}

// streams reports whether what the run streams is all there in the end: continued
// as new, it has forgotten what it did before.
func streams(j job) bool { return len(j.Rounds) == 1 && j.uses("stream") }

// follow reads what a run streams while it does, taking up again where it was cut off.
func (p *patrons) follow(o *outcome, rng *rand.Rand) {
	var all []chunk
	after := int64(0)
	for p.ctx.Err() == nil {
		var err error
		for c, cerr := range p.any(rng).Stream(p.ctx, o.Run, after) {
			if err = cerr; err == nil {
				all, after = append(all, chunkOf(c)), c.Seq
			}
		}
		if run, gerr := p.client.Get(p.ctx, o.Run); err == nil && gerr == nil && p.over(o, run.State) {
			break
		}
		_ = pause(p.ctx, 200*time.Millisecond)
	}
	o.Live = all
	close(o.followed)
}

// readStream reads what a run that has ended has streamed.
func (p *patrons) readStream(ctx context.Context, run string) (all []chunk, err error) {
	for c, err := range p.client.Stream(ctx, run, 0) {
		if err != nil {
			return all, err
		}
		all = append(all, chunkOf(c))
	}
	return all, nil
}

func chunkOf(c bide.Chunk) chunk { return chunk{c.Seq, c.Path, c.Name, c.Attempt, string(c.Data)} }
