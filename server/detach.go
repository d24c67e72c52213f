package server

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// drainFor is how long [Server.Close] waits for detached answers to be out.
const drainFor = 5 * time.Second

// drain waits until no answer is detached, for so long.
func (s *Server) drain() {
	over := make(chan struct{})
	go func() {
		s.detached.Lock()
		close(over)
		s.detached.Unlock()
	}()
	timer := time.NewTimer(drainFor)
	defer timer.Stop()
	select {
	case <-over:
	case <-timer.C:
	}
}

// handover is a listener with one connection.
type handover struct{ conn net.Conn }

func (l *handover) Accept() (conn net.Conn, err error) {
	if l.conn == nil {
		return nil, net.ErrClosed
	}
	conn, l.conn = l.conn, nil
	return conn, nil
}

func (*handover) Close() error   { return nil }
func (*handover) Addr() net.Addr { return nil }

// Detach has an answer that may wait for long made outside of net/http, which keeps
// more than 20 KB for each request: two stacks and the connection's buffers. For
// the handlers around the request is over then, so that it is done only where all
// of them are known: in [Server.Run]. It reports whether it is done; HTTP/2 shares
// a connection, and goes on as it is.
func (w *response) Detach(r *http.Request, serve http.HandlerFunc) bool {
	s := w.server
	hs, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	if hs == nil || hs.Handler != http.Handler(s) || s.URL() == "" || s.open.Err() != nil ||
		!w.bounded || !r.ProtoAtLeast(1, 1) || r.Method != http.MethodGet || r.ContentLength != 0 || !s.detached.TryRLock() {
		return false
	}
	header := w.Header()
	conn, buffered, err := w.control.Hijack()
	if err != nil {
		s.detached.RUnlock()
		return false
	}
	d := &detached{conn: conn, header: header, last: r.Close || buffered.Reader.Buffered() > 0, quiet: make(chan bool, 1)}
	own := *w
	own.ResponseWriter, own.control = d, http.NewResponseController(d)
	w.gone = true
	ctx, leave := context.WithCancel(context.WithoutCancel(r.Context()))
	go d.watch(leave)
	go func() {
		defer s.detached.RUnlock()
		defer leave()
		func() {
			defer func() { d.cut = recover() != nil || d.cut }() // it was logged
			defer s.answered(&own)
			serve(&own, r.WithContext(ctx))
		}()
		if !d.end(s.open.Err() != nil) {
			_ = conn.Close()
			return
		}
		runtime.Gosched() // to the others first who wait for the same
		next := &handover{conn}
		_ = hs.Serve(next)    // ends with the listener
		if next.conn != nil { // the server has stopped
			_ = conn.Close()
		}
	}()
	return true
}

// detached is an answer by HTTP/1.1 on a connection that was taken out of net/http's
// hands: a stream of events in chunks, with which the connection ends, or one that
// goes out whole in the end.
type detached struct {
	conn   net.Conn
	header http.Header
	status int
	body   []byte    // what has not gone out
	stream bool      // of events
	begun  bool      // the header has gone out
	last   bool      // the connection ends with it
	cut    bool      // it is not whole
	quiet  chan bool // receives when the watch is over: the client has said nothing
}

// watch waits for the client to go. Should it send its next request before it has
// its answer, it is not looked after any more.
func (d *detached) watch(gone func()) {
	var next [1]byte
	n, err := d.conn.Read(next[:])
	stopped := errors.Is(err, os.ErrDeadlineExceeded)
	if n == 0 && !stopped {
		gone()
	}
	d.quiet <- n == 0 && stopped
}

// Header implements [http.ResponseWriter].
func (d *detached) Header() http.Header { return d.header }

// WriteHeader implements [http.ResponseWriter].
func (d *detached) WriteHeader(status int) {
	if d.status == 0 {
		d.status = status
		d.stream = status == http.StatusOK && strings.HasPrefix(d.header.Get("Content-Type"), "text/event-stream")
	}
}

// Write implements [http.ResponseWriter]. The error comes with the flush.
func (d *detached) Write(p []byte) (int, error) {
	d.body = append(d.body, p...)
	return len(p), nil
}

// SetWriteDeadline is what [http.ResponseController] calls.
func (d *detached) SetWriteDeadline(t time.Time) error { return d.conn.SetWriteDeadline(t) }

// FlushError is what [http.ResponseController] calls.
func (d *detached) FlushError() error {
	if !d.stream {
		return nil
	}
	var out []byte
	if !d.begun {
		d.begun, d.last = true, true
		d.header.Set("Transfer-Encoding", "chunked")
		out = d.head()
	}
	if len(d.body) > 0 {
		out = append(append(strconv.AppendInt(out, int64(len(d.body)), 16), "\r\n"...), d.body...)
		out, d.body = append(out, "\r\n"...), nil
	}
	_, err := d.conn.Write(out)
	d.cut = d.cut || err != nil
	return err
}

// head is the status and the headers.
func (d *detached) head() []byte {
	var b bytes.Buffer
	d.header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	if d.last {
		d.header.Set("Connection", "close")
	}
	b.WriteString("HTTP/1.1 " + strconv.Itoa(d.status) + " " + http.StatusText(d.status) + "\r\n")
	_ = d.header.Write(&b) // memory
	b.WriteString("\r\n")
	return b.Bytes()
}

// end sends the rest, and reports whether the connection is good for more.
func (d *detached) end(closing bool) (again bool) {
	if d.begun {
		runtime.Gosched() // what it has told may go to many: to all of them first
	}
	_ = d.conn.SetReadDeadline(time.Unix(1, 0))
	quiet := <-d.quiet
	if d.cut {
		return false
	}
	_ = d.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if d.stream {
		if d.FlushError() == nil {
			_, _ = d.conn.Write([]byte("0\r\n\r\n"))
		}
		return false
	}
	d.last = d.last || !quiet || closing
	if d.status == 0 {
		d.status = http.StatusOK
	}
	if bodiless := d.status == http.StatusNoContent || d.status == http.StatusNotModified; !bodiless {
		d.header.Set("Content-Length", strconv.Itoa(len(d.body)))
	}
	_, err := d.conn.Write(append(d.head(), d.body...))
	_ = d.conn.SetDeadline(time.Time{})
	return err == nil && !d.last
}
