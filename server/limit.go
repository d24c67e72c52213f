package server

import (
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	maxHeader   = 32 << 10 // bytes, all of them
	headTimeout = 10 * time.Second
	idleTimeout = 2 * time.Minute
	bodyTimeout = 30 * time.Second // for the whole of a body
)

// limitBody refuses a body above the limit, which says so to whoever reads it
// with a [*http.MaxBytesError], and one that takes too long to come. A deadline
// for reading that stood for longer would end a stream of events: it also holds
// for the watch that the server keeps for clients that leave.
func limitBody(w *response, r *http.Request, a access) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	b := &body{ReadCloser: http.MaxBytesReader(w.ResponseWriter, r.Body, a.maxBody), w: w, timed: w.bounded || !a.patient}
	if b.timed {
		_ = w.control.SetReadDeadline(time.Now().Add(bodyTimeout)) // a test's recorder has none
	}
	r.Body = b
}

type body struct {
	io.ReadCloser
	w     *response
	timed bool
	over  atomic.Bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF && b.timed && b.over.CompareAndSwap(false, true) {
		_ = b.w.control.SetReadDeadline(time.Time{})
	}
	return n, err
}
