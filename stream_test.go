package bide_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bide-dev/bide"
)

func (e *env) chunks(id string) []bide.Chunk {
	e.Helper()
	chunks, err := e.store.Chunks(e.Context(), id, 0, 0)
	e.ok(err)
	return chunks
}

// texts joins the chunks of each attempt.
func texts(chunks []bide.Chunk) (byAttempt []string) {
	for i, c := range chunks {
		if i == 0 || c.Attempt != chunks[i-1].Attempt || c.Path != chunks[i-1].Path {
			byAttempt = append(byAttempt, fmt.Sprintf("%s %s #%d: ", c.Path, c.Name, c.Attempt))
		}
		byAttempt[len(byAttempt)-1] += string(c.Data)
	}
	return byAttempt
}

func TestStreamIsReadWhileItIsWritten(t *testing.T) {
	inBubble(t, func(e *env) {
		const text = "Es war einmal ein Bär, der wartete. "
		began := time.Now()
		story := bide.Define("story", func(ctx bide.Context, n int) (int, error) {
			return bide.Step(ctx, "tell", func(ctx context.Context) (int, error) {
				w := bide.Stream(ctx)
				for range n {
					if _, err := io.WriteString(w, text); err != nil {
						return 0, err
					}
					time.Sleep(20 * time.Millisecond)
				}
				return n, nil
			})
		})
		e.work(story)
		h := start(e, story, 100)
		var got strings.Builder
		var first, last time.Duration
		chunks := 0
		for c, err := range e.client.Stream(e.Context(), h.ID(), 0) {
			e.ok(err)
			if chunks++; chunks == 1 {
				first = time.Since(began)
			}
			if late := time.Since(c.At); late > time.Millisecond {
				t.Errorf("chunk %d came %v after it was cut", chunks, late)
			}
			last = time.Since(began)
			got.Write(c.Data)
		}
		if got.String() != strings.Repeat(text, 100) {
			t.Errorf("read %q", got.String())
		}
		if first > 100*time.Millisecond || last < 1900*time.Millisecond {
			t.Errorf("the first chunk came after %v, the last after %v; want them as they are written, over 2 s", first, last)
		}
		if chunks < 20 || chunks > 50 { // 2 s at 50 ms
			t.Errorf("%d chunks; writes within 50 ms share one", chunks)
		}
		all := e.chunks(h.ID())
		var rest []bide.Chunk
		for c, err := range e.client.Stream(e.Context(), h.ID(), all[len(all)-3].Seq) {
			e.ok(err)
			rest = append(rest, c)
		}
		if len(rest) != 2 || rest[1].Seq != all[len(all)-1].Seq {
			t.Errorf("resumed with %d chunks, want the last 2", len(rest))
		}
	})
}

func TestStreamBatches(t *testing.T) {
	inBubble(t, func(e *env) {
		big := strings.Repeat("é", 100_000) // 200,000 bytes
		wf := bide.Define("wf", func(ctx bide.Context, _ int) (int, error) {
			return bide.Step(ctx, "s", func(ctx context.Context) (int, error) {
				w := bide.Stream(ctx)
				for i := range len(big) / 1000 { // cuts characters now and then
					_, err := w.Write([]byte(big[i*1000+i%2 : (i+1)*1000+(i+1)%2]))
					if err != nil {
						return 0, err
					}
				}
				_, err := w.WriteString(big)
				return 0, err
			})
		})
		e.work(wf)
		h := start(e, wf, 0)
		_, err := result(e, h)
		e.ok(err)
		var got strings.Builder
		for _, c := range e.chunks(h.ID()) {
			if len(c.Data) > 64<<10 || len(c.Data) == 0 {
				t.Errorf("a chunk of %d bytes", len(c.Data))
			}
			if strings.ContainsRune(string(c.Data), '�') {
				t.Errorf("a chunk cuts a character: %q … %q", c.Data[:2], c.Data[len(c.Data)-2:])
			}
			got.Write(c.Data)
		}
		if got.String() != big+big {
			t.Errorf("%d bytes came of %d", got.Len(), 2*len(big))
		}
	})
}

func TestStreamNewAttemptNewSegment(t *testing.T) {
	inBubble(t, func(e *env) {
		wf := bide.Define("wf", func(ctx bide.Context, _ int) (string, error) {
			return bide.Step(ctx, "tell", func(ctx context.Context) (string, error) {
				n := bide.AttemptNumber(ctx)
				_, _ = fmt.Fprintf(bide.Stream(ctx), "try %d", n)
				if n < 3 {
					return "", errors.New("cut off")
				}
				return "told", nil
			})
		})
		e.work(wf)
		h := start(e, wf, 0)
		_, err := result(e, h)
		e.ok(err)
		want := []string{"1 tell #1: try 1", "1 tell #2: try 2", "1 tell #3: try 3"}
		if got := texts(e.chunks(h.ID())); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestStreamOfACrashedWorker(t *testing.T) {
	inBubble(t, func(e *env) {
		var mu sync.Mutex
		calls := 0
		wf := bide.Define("wf", func(ctx bide.Context, _ int) (int, error) {
			return bide.Step(ctx, "tell", func(ctx context.Context) (int, error) {
				mu.Lock()
				calls++
				n := calls
				mu.Unlock()
				w := bide.Stream(ctx)
				_, _ = fmt.Fprintf(w, "call %d. ", n)
				time.Sleep(time.Second)
				_, err := fmt.Fprintf(w, "end of %d.", n)
				return n, err
			}, bide.RetryPolicy{NoJitter: true})
		})
		hand := e.work(wf)
		h := start(e, wf, 0)
		time.Sleep(500 * time.Millisecond)
		hand.crash()
		hand = e.work(wf)
		for len(e.chunks(h.ID())) < 2 { // the second call has said something
			time.Sleep(50 * time.Millisecond)
		}
		hand.crash()
		e.work(wf)
		_, err := result(e, h)
		e.ok(err)
		want := []string{"1 tell #1: call 1. ", "1 tell #2: call 2. ", "1 tell #3: call 3. end of 3."}
		if got := texts(e.chunks(h.ID())); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %q, want %q: what was kept of the first, and nothing of it after its lease", got, want)
		}
	})
}

func TestStreamElsewhere(t *testing.T) {
	inBubble(t, func(e *env) {
		if _, err := bide.Stream(e.Context()).WriteString("x"); err == nil {
			t.Error("a stream outside a step was written to")
		} else {
			wantErr[*bide.MisuseError](e, err)
		}
		late := make(chan error, 1)
		wf := bide.Define("wf", func(ctx bide.Context, _ int) (int, error) {
			return bide.Step(ctx, "s", func(ctx context.Context) (int, error) {
				w := bide.Stream(ctx)
				go func() {
					<-ctx.Done()
					_, err := w.WriteString("late")
					late <- err
				}()
				return 1, nil
			})
		})
		e.work(wf)
		h := start(e, wf, 0)
		_, err := result(e, h)
		e.ok(err)
		if err := <-late; !errors.Is(err, context.Canceled) {
			t.Errorf("a late write: %v, want context.Canceled", err)
		}
		if got := e.chunks(h.ID()); len(got) != 0 {
			t.Errorf("a late write left %q", texts(got))
		}
		for _, err := range e.client.Stream(e.Context(), "none", 0) {
			if !errors.Is(err, bide.ErrNotFound) {
				t.Errorf("stream of no run: %v", err)
			}
		}
	})
}
