package server

import (
	"net/http"
	"strings"
	"time"
)

// writeTimeout is how long one write to a client may take. There is none for the
// whole answer: a stream of events is one that may last for days.
const writeTimeout = 30 * time.Second

// response is what handlers write to. It bounds each write, and notes what the
// logs and metrics tell of the answer.
//
// HTTP/2 is left to the timeouts of its connection (see [Server.httpServer]): its
// write deadline is one of the stream, and resets it while nothing is written.
type response struct {
	http.ResponseWriter
	control *http.ResponseController
	bounded bool // HTTP/1
	status  int
	stream  bool
	done    bool // what is still written is nothing to the client

	server *Server
	path   string // as it was asked for, with the prefix
	began  time.Time
	gone   bool // it is made elsewhere, see Detach

	// Set by the guards, see [Server.guard].
	caller *caller
	inner  *http.Request // as the handler got it, with the pattern and path values of its mux
}

func (s *Server) newResponse(w http.ResponseWriter, r *http.Request) *response {
	return &response{ResponseWriter: w, control: http.NewResponseController(w), bounded: r.ProtoMajor < 2, server: s, path: r.URL.EscapedPath(), began: time.Now(), inner: r}
}

func (w *response) bound() {
	if w.bounded {
		_ = w.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // a test's recorder has none
	}
}

// WriteHeader implements [http.ResponseWriter].
func (w *response) WriteHeader(status int) {
	if w.status == 0 && status >= 400 && strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		w.instead(status)
		return
	}
	if w.status == 0 && status >= 200 {
		w.status = status
		if strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream") && status == http.StatusOK {
			w.stream = true
			w.server.meter.streamBegins()
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// instead answers with a problem document in the place of what [http.Error] would
// write: the handlers of libraries do not know of ours.
func (w *response) instead(status int) {
	code := "invalid-input"
	switch {
	case status == http.StatusNotFound:
		code = "not-found"
	case status == http.StatusMethodNotAllowed:
		code = "method-not-allowed"
	case status >= 500:
		code = "internal"
	}
	w.Header().Del("Content-Length")
	problem(w, status, code, http.StatusText(status), 0)
	w.done = true
}

// Write implements [http.ResponseWriter].
func (w *response) Write(p []byte) (int, error) {
	if w.done {
		return len(p), nil
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.bound()
	return w.ResponseWriter.Write(p)
}

// Flush implements [http.Flusher].
func (w *response) Flush() { _ = w.FlushError() }

// FlushError is what [http.ResponseController] calls.
func (w *response) FlushError() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.bound()
	return w.control.Flush()
}

// Unwrap is for [http.ResponseController].
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }
