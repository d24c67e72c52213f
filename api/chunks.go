package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/bide-dev/bide"
)

// chunkView is a piece of what a step streams, as it is told.
type chunkView struct {
	Seq     int64     `json:"seq"`
	Path    string    `json:"path"`
	Name    string    `json:"name"`
	Attempt int       `json:"attempt"`
	At      time.Time `json:"at"`
	Text    *string   `json:"text,omitempty"`
	Data    []byte    `json:"data,omitempty"`
}

func chunkOf(c *bide.Chunk) chunkView {
	v := chunkView{Seq: c.Seq, Path: c.Path, Name: c.Name, Attempt: c.Attempt, At: c.At}
	if utf8.Valid(c.Data) {
		v.Text = new(string(c.Data))
	} else {
		v.Data = c.Data
	}
	return v
}

// segment is an attempt of a step that streams.
type segment struct {
	Path    string `json:"path"`
	Name    string `json:"name"`
	Attempt int    `json:"attempt"`
}

// stream tells what a run's steps stream.
func (h *Handler) stream(w http.ResponseWriter, r *http.Request) error {
	if !streams(r) {
		return h.chunkPage(w, r)
	}
	after, err := lastSeq(r)
	if err != nil {
		return err
	}
	return h.hold(w, r, func(w http.ResponseWriter, r *http.Request) error { return h.tellChunks(w, r, after) })
}

// tellChunks tells what a run's steps stream after a chunk that the client has seen.
func (h *Handler) tellChunks(w http.ResponseWriter, r *http.Request, after int64) error {
	if over, err := h.closed(w); over {
		return err
	}
	feed := h.feeds.join(r.PathValue("id"), make(chan struct{}, 1))
	defer feed.leave()
	s, err := feed.fresh(r.Context())
	if err != nil {
		return err
	}
	t := &chunkTeller{feed: feed, now: s, seq: max(after, 0), segments: map[string]int{}}
	if t.seq > 0 {
		if err := t.recall(); err != nil {
			return err
		}
	}
	if s.run.State.Ended() && after >= s.run.Version {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if t.out, err = openStream(w); err != nil || r.Method == http.MethodHead {
		return err
	}
	t.out.run(h, r, feed.ch, t.tell)
	return nil
}

// chunkTeller tells the chunks of one run on a stream.
type chunkTeller struct {
	feed     *subscription
	out      *sse
	now      *snapshot      // the first
	seq      int64          // up to which the client has been told
	segments map[string]int // the attempt of each path that the client knows
}

// recall finds out which segments a client that comes again knows of.
func (t *chunkTeller) recall() error {
	for seq := int64(0); ; {
		chunks, err := t.feed.h.store.Chunks(context.Background(), t.feed.id, seq, mostChunks)
		if err != nil {
			return err
		}
		for i := range chunks {
			if seq = chunks[i].Seq; seq > t.seq {
				return nil
			}
			t.segments[chunks[i].Path] = chunks[i].Attempt
		}
		if len(chunks) < mostChunks {
			return nil
		}
	}
}

func (t *chunkTeller) tell() (over bool, err error) {
	s := t.now // the run before its chunks: none comes after its end
	if t.now = nil; s == nil {
		if s, err = t.feed.latest(); err != nil {
			return errors.Is(err, bide.ErrNotFound), passing(err)
		}
	}
	for {
		chunks, more, err := t.feed.chunksAfter(t.seq)
		if err != nil {
			return false, err
		}
		for i := range chunks {
			if err := t.chunk(&chunks[i]); err != nil {
				return false, err
			}
		}
		if !more {
			break
		}
		if err := t.out.flush(); err != nil {
			return false, err
		}
		t.out.begin()
	}
	if !s.run.State.Ended() {
		return false, nil
	}
	data, err := json.Marshal(struct {
		State bide.State `json:"state"`
	}{s.run.State})
	if err == nil {
		t.out.event(strconv.FormatInt(max(t.seq, s.run.Version), 10), "end", data)
	}
	return true, err
}

func (t *chunkTeller) chunk(c *bide.Chunk) error {
	if known, ok := t.segments[c.Path]; !ok || known != c.Attempt {
		t.segments[c.Path] = c.Attempt
		data, err := json.Marshal(segment{c.Path, c.Name, c.Attempt})
		if err != nil {
			return err
		}
		t.out.event("", "segment", data) // told again should the connection end here
	}
	data, err := json.Marshal(chunkOf(c))
	if err != nil {
		return err
	}
	t.out.event(strconv.FormatInt(c.Seq, 10), "chunk", data)
	t.seq = c.Seq
	return nil
}

// mostChunks is how many chunks are read at once, and kept for readers to share.
const mostChunks = 256

// tail is the end of what a run streams, read once for all who follow it.
type tail struct {
	mu     sync.Mutex
	read   int   // the feed's read after which it was read
	from   int64 // it has all chunks after this
	to     int64 // up to this
	chunks []bide.Chunk
}

// chunksAfter returns what the run has streamed after a sequence number; more says
// that there is more to read at once.
func (f *feed) chunksAfter(seq int64) (chunks []bide.Chunk, more bool, err error) {
	f.mu.Lock()
	reads := f.ended
	f.mu.Unlock()
	t := &f.tail
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.read == 0 {
		t.from, t.to = seq, seq
	}
	if seq < t.from || seq > t.to { // far behind, or just come
		chunks, err = f.chunksFrom(seq)
		return chunks, len(chunks) == mostChunks, err
	}
	if t.read < reads {
		got, err := f.chunksFrom(t.to)
		if err != nil {
			return nil, false, err
		}
		if t.chunks = append(t.chunks, got...); len(got) > 0 {
			t.to = got[len(got)-1].Seq
		}
		if more = len(got) == mostChunks; !more {
			t.read = reads
		}
		if old := len(t.chunks) - mostChunks; old > 0 {
			t.from = t.chunks[old-1].Seq
			t.chunks = append([]bide.Chunk(nil), t.chunks[old:]...)
		}
	}
	if seq < t.from {
		chunks, err = f.chunksFrom(seq)
		return chunks, len(chunks) == mostChunks, err
	}
	at, _ := slices.BinarySearchFunc(t.chunks, seq+1, func(c bide.Chunk, seq int64) int { return cmp.Compare(c.Seq, seq) })
	return t.chunks[at:len(t.chunks):len(t.chunks)], more, nil
}

// chunksFrom reads on a stack of its own, see [feed.read].
func (f *feed) chunksFrom(seq int64) ([]bide.Chunk, error) {
	type answer struct {
		chunks []bide.Chunk
		err    error
	}
	done := make(chan answer, 1)
	go func() {
		chunks, err := f.h.store.Chunks(context.Background(), f.id, seq, mostChunks)
		done <- answer{chunks, err}
	}()
	a := <-done
	return a.chunks, a.err
}
