package bide

import (
	"context"
	"iter"
	"unicode/utf8"
)

const (
	streamAt = 4 << 10  // bytes that are written at once, without waiting for more
	chunkMax = 64 << 10 // the most bytes of a chunk
)

// StreamWriter is the stream of a step's attempt, see [Stream]. It is safe for
// concurrent use.
type StreamWriter struct{ a *attempt }

// Stream returns a writer for what a step produces bit by bit, a model's tokens
// say: what is written can be read with [Client.Stream] while the step runs, and
// after. It takes the context that a step's function is given.
//
// Writes are gathered for up to 50 ms or 4 KiB, then kept with the run; text is
// never cut within a character. Each attempt of a step begins a segment of its
// own. What a step has streamed is kept at the latest with its result, which it
// does not take the place of: a stream is for those who look on.
func Stream(ctx context.Context) *StreamWriter {
	a := attemptOf(ctx)
	if a != nil && a.step == nil {
		a = nil
	}
	return &StreamWriter{a}
}

// Write implements [io.Writer]. It returns the context's error when the attempt
// is over, a [MisuseError] outside a step.
func (s *StreamWriter) Write(p []byte) (int, error) {
	a := s.a
	if a == nil {
		return 0, &MisuseError{Verb: "Stream", Reason: "needs the context that a step's function is given"}
	}
	t := a.v.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := a.overLocked(); err != nil {
		return 0, err
	}
	a.stream = append(a.stream, p...)
	t.changes++
	if len(a.stream) < streamAt {
		t.flushLate(progressAfter)
		return len(p), nil
	}
	t.flushLocked()
	return len(p), a.overLocked()
}

// WriteString implements [io.StringWriter].
func (s *StreamWriter) WriteString(text string) (int, error) { return s.Write([]byte(text)) }

// overLocked is why nothing more can come of the attempt, nil if it can.
func (a *attempt) overLocked() error {
	switch t := a.v.t; {
	case a.err != nil:
		return a.err
	case a.over, t.ending != open && t.ending != parking:
		return context.Canceled
	}
	return nil
}

// cutLocked makes chunks of what the attempt has streamed; at its end of all,
// before that of whole characters.
func (a *attempt) cutLocked(end bool) {
	n := len(a.stream)
	if !end {
		n = wholeRunes(a.stream)
	}
	for n > 0 {
		size := n
		if size > chunkMax {
			size = max(wholeRunes(a.stream[:chunkMax]), 1)
		}
		a.v.t.chunks = append(a.v.t.chunks, Chunk{Path: a.v.path, Name: a.v.name, Attempt: a.number, Data: a.stream[:size:size], At: a.v.t.now()})
		a.stream = a.stream[size:]
		n -= size
	}
	if len(a.stream) == 0 {
		a.stream = nil
	}
}

// wholeRunes is how many bytes of b come before a character that its end cuts.
func wholeRunes(b []byte) int {
	for back := 1; back < utf8.UTFMax && back <= len(b); back++ {
		if at := len(b) - back; utf8.RuneStart(b[at]) {
			if !utf8.FullRune(b[at:]) {
				return at
			}
			break
		}
	}
	return len(b)
}

// Stream yields what the run's steps stream, after the chunk with the given Seq
// (0: from the beginning), as it comes, and ends when the run has ended and all
// was yielded, or with an error: [ErrNotFound], that of ctx, those of the store.
func (c *Client) Stream(ctx context.Context, id string, after int64) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		wake, stop := c.wake(id, false)
		defer stop()
		for {
			run, err := c.store.Run(ctx, id) // before its chunks: none comes after its end
			for more := true; more && err == nil; {
				var chunks []Chunk
				chunks, err = c.store.Chunks(ctx, id, after, streamPage)
				for _, chunk := range chunks {
					if !yield(chunk, nil) {
						return
					}
					after = chunk.Seq
				}
				more = len(chunks) == streamPage
			}
			if err == nil && run.State.Ended() {
				return
			}
			if err == nil {
				select {
				case <-wake:
					continue
				case <-ctx.Done():
					err = ctx.Err()
				}
			}
			yield(Chunk{}, err)
			return
		}
	}
}

const streamPage = 1000 // chunks
