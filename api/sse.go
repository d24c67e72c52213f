package api

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/bide-dev/bide"
)

// alive is how often a stream that has nothing to tell shows that it lives.
const alive = 15 * time.Second

// sse is an open stream of server-sent events.
type sse struct {
	w       http.ResponseWriter
	control *http.ResponseController
	pending bool
}

// openStream begins a stream, or says that this server's connections cannot have one.
func openStream(w http.ResponseWriter) (*sse, error) {
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-cache, no-transform")
	header.Set("X-Accel-Buffering", "no")
	s := &sse{w: w, control: http.NewResponseController(w)}
	if err := s.control.Flush(); errors.Is(err, http.ErrNotSupported) {
		header.Del("X-Accel-Buffering")
		return nil, refusal(notSupported, "what stands before this server cannot stream; use ?wait=30")
	}
	s.write("retry: " + strconv.Itoa(2500+rand.IntN(1000)) + "\n\n")
	return s, nil
}

// closed tells a client that comes while the server stops to come again; false: it
// does not stop.
func (h *Handler) closed(w http.ResponseWriter) (bool, error) {
	select {
	case <-h.closing:
	default:
		return false, nil
	}
	out, err := openStream(w)
	if err == nil {
		out.farewell()
	}
	return true, err
}

// event puts an event into the buffer; id "" leaves the client's as it is.
func (s *sse) event(id, name string, data []byte) {
	s.pending = true
	if id != "" {
		s.write("id: " + id + "\n")
	}
	s.write("event: " + name + "\ndata: ")
	_, _ = s.w.Write(data) // an error comes again at the flush
	s.write("\n\n")
}

func (s *sse) write(text string) {
	s.pending = true
	_, _ = s.w.Write([]byte(text))
}

// flush sends what is in the buffer.
func (s *sse) flush() error {
	if !s.pending {
		return nil
	}
	s.pending = false
	return s.control.Flush()
}

// begin gives the client so long to read what is written from now on.
func (s *sse) begin() { _ = s.control.SetWriteDeadline(time.Now().Add(writeWithin)) }

// farewell says that the server stops and when to come again: not all at once.
func (s *sse) farewell() {
	s.begin()
	s.write("event: closing\nretry: " + strconv.Itoa(1000+rand.IntN(9000)) + "\ndata: {}\n\n")
	_ = s.flush()
}

// run tells whenever there is news, until tell says that all is told, or the client
// or the server goes.
func (s *sse) run(h *Handler, r *http.Request, news <-chan struct{}, tell func() (over bool, err error)) {
	beat := time.NewTicker(alive)
	defer beat.Stop()
	for {
		s.begin()
		over, err := tell()
		switch {
		case errors.Is(err, bide.ErrClosed): // the store is
			s.farewell()
			return
		case s.flush() != nil || over || err != nil:
			return
		}
		select {
		case <-news:
		case <-beat.C:
			s.write(":\n\n")
		case <-r.Context().Done():
			return
		case <-h.closing:
			s.farewell()
			return
		}
	}
}

// streams reports whether the client wants a stream.
func streams(r *http.Request) bool {
	for _, line := range r.Header.Values("Accept") {
		for media := range strings.SplitSeq(line, ",") {
			media, _, _ = strings.Cut(media, ";")
			if strings.EqualFold(strings.TrimSpace(media), "text/event-stream") {
				return true
			}
		}
	}
	return false
}

// lastEvent is the id of the last event that the client has seen, "" for none.
func lastEvent(r *http.Request) string {
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		return id
	}
	return r.URL.Query().Get("last_event_id")
}

// lastSeq is lastEvent where ids are sequence numbers; -1 for none.
func lastSeq(r *http.Request) (int64, error) {
	id := lastEvent(r)
	if id == "" {
		return -1, nil
	}
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil || n < 0 {
		return 0, invalid("Last-Event-ID", "must be an id of this stream, a whole number")
	}
	return n, nil
}
