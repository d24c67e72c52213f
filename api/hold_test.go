package api

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
)

func TestConditionalGet(t *testing.T) {
	inBubble(t, func(s *site) {
		s.work(patient)
		a := s.call("POST", "/v1/runs", `{"workflow":"patient","id":"p"}`, "Prefer: wait=1").want(202, `"state":"waiting"`)
		tag := a.header.Get("ETag")
		s.call("GET", "/v1/runs/p", "", "If-None-Match: "+tag).want(304).head("ETag", tag).head("Retry-After", "1").head("Cache-Control", "private, no-cache")
		s.call("GET", "/v1/runs/p", "", `If-None-Match: "x", W/`+tag).want(304)
		s.call("GET", "/v1/runs/p", "", `If-None-Match: "v1"`).want(200).head("ETag", tag)
		s.call("HEAD", "/v1/runs/p", "").want(200).head("ETag", tag)
		s.call("POST", "/v1/runs/p/signal/go", `"on"`)
		s.call("GET", "/v1/runs/p/result?wait=9", "").want(200, `"on"`)
		done := s.call("GET", "/v1/runs/p?wait=9", "", "If-None-Match: "+tag).want(200, `"succeeded"`).head("Retry-After", "")
		s.call("GET", "/v1/runs/p?wait=9", "", "If-None-Match: "+done.header.Get("ETag")).want(304).head("Retry-After", "")
		s.call("GET", "/v1/runs/p/result", "", "If-None-Match: "+done.header.Get("ETag")).want(304)
		for _, path := range []string{"", "/result", "/history", "/events", "/stream"} {
			s.call("GET", "/v1/runs/none"+path, "").refused(404, "not-found")
		}
		for _, wait := range []string{"-1", "x", "1.5", "1s", "99999999999999999999"} {
			s.call("GET", "/v1/runs/p?wait="+wait, "").refused(400, "invalid-input", `"field":"wait"`)
		}
	})
}

// What changes without a commit changes the tag too: a worker has taken the run.
func TestTagTellsStates(t *testing.T) {
	inBubble(t, func(s *site) {
		release := make(chan struct{})
		busy := bide.Define("busy", func(ctx bide.Context, _ any) (any, error) {
			return nil, bide.Do(ctx, "work", func(context.Context) error { <-release; return nil })
		})
		queued := s.call("POST", "/v1/runs", `{"workflow":"busy","id":"b"}`).want(202, `"queued"`)
		s.work(busy)
		time.Sleep(time.Second)
		s.call("GET", "/v1/runs/b", "", "If-None-Match: "+queued.header.Get("ETag")).want(200, `"running"`)
		close(release)
		s.call("GET", "/v1/runs/b/result?wait=9", "").want(200, "null")
	})
}

func TestLongPoll(t *testing.T) {
	inBubble(t, func(s *site) {
		s.work(patient)
		tag := s.call("POST", "/v1/runs", `{"workflow":"patient","id":"p"}`, "Prefer: wait=1").header.Get("ETag")
		took := func(want time.Duration, fn func()) {
			t.Helper()
			began := time.Now()
			if fn(); time.Since(began).Round(100*time.Millisecond) != want {
				t.Errorf("took %v, want %v", time.Since(began), want)
			}
		}
		took(7*time.Second, func() { s.call("GET", "/v1/runs/p?wait=7", "", "If-None-Match: "+tag).want(304).head("ETag", tag) })
		took(7*time.Second, func() { s.call("GET", "/v1/runs/p?wait=7", "").want(200) })
		took(time.Minute, func() {
			s.call("GET", "/v1/runs/p", "", "Prefer: wait=3600").want(200).head("Preference-Applied", "wait=60")
		})
		took(0, func() { s.call("GET", "/v1/runs/p?wait=7", "", `If-None-Match: "v1"`).want(200) })
		took(0, func() { s.call("GET", "/v1/runs/p", "", `Prefer: wait=often`).want(200) })
		took(0, func() { s.call("GET", "/v1/runs/none?wait=7", "").refused(404, "not-found") })
		took(4*time.Second, func() { s.call("GET", "/v1/runs/p/result?wait=4", "").want(202) })
		s.after(2*time.Second, func() { s.call("POST", "/v1/runs/p/signal/go", `"on"`) })
		took(2*time.Second, func() {
			for a := (*answer)(nil); a == nil || a.run().State != "succeeded"; tag = a.header.Get("ETag") { // by way of running
				a = s.call("GET", "/v1/runs/p?wait=30", "", "If-None-Match: "+tag).want(200)
			}
		})
		synctest.Wait()
		if n := s.h.held.Load(); n != 0 {
			t.Errorf("%d requests are still held", n)
		}
		if len(s.h.feeds.feeds) != 0 {
			t.Error("a feed has outlived its readers")
		}
	})
}

// A reader that goes away is not held on to.
func TestLongPollDisconnect(t *testing.T) {
	inBubble(t, func(s *site) {
		s.call("POST", "/v1/runs", `{"workflow":"patient","id":"p"}`)
		for _, path := range []string{"/v1/runs/p?wait=60", "/v1/runs/p/events", "/v1/runs/p/stream", "/v1/events?runs=p", "/v1/events"} {
			ctx, cancel := context.WithCancel(s.Context())
			req := s.request("GET", path, "", "Accept: text/event-stream").WithContext(ctx)
			gone := make(chan error)
			go func() {
				resp, err := s.http.Do(req)
				if err == nil {
					_, err = resp.Body.Read(make([]byte, 1<<16))
					for err == nil {
						_, err = resp.Body.Read(make([]byte, 1<<16))
					}
					resp.Body.Close()
				}
				gone <- err
			}()
			synctest.Wait()
			if s.h.held.Load() != 1 {
				t.Errorf("%s is not held", path)
			}
			cancel()
			<-gone
			synctest.Wait()
			if s.h.held.Load() != 0 || len(s.h.feeds.feeds) != 0 {
				t.Errorf("%s: %d held, %d feeds", path, s.h.held.Load(), len(s.h.feeds.feeds))
			}
		}
	})
}

// The server's own deadlines, which are for short answers, end no wait; and they
// are not left changed for the connection's next request.
func TestHoldOutlivesDeadlines(t *testing.T) {
	inBubble(t, func(s *site) {
		s = serve(s.T, s.store, Config{}, 2*time.Second)
		s.call("POST", "/v1/runs", `{"workflow":"patient","id":"p"}`)
		s.call("GET", "/v1/runs/p?wait=40", "").want(200)
		time.Sleep(time.Minute)
		s.call("GET", "/v1/runs/p", "").want(200)
		l := s.listen("/v1/runs/p/events")
		s.after(time.Minute, func() {
			s.work(patient)
			s.call("POST", "/v1/runs/p/signal/go", `"on"`)
		})
		l.upTo("end")
	})
}

func TestTooManyWaiters(t *testing.T) {
	inBubbleWith(t, Config{MaxWaiters: 1}, func(s *site) {
		s.call("POST", "/v1/runs", `{"workflow":"patient","id":"p"}`)
		l := s.listen("/v1/runs/p/events")
		l.next()
		for _, path := range []string{"/v1/runs/p?wait=1", "/v1/runs/p/result?wait=1"} {
			s.call("GET", path, "").refused(503, "overloaded", `"retryable":true`, `"retry_after_ms":5000`).head("Retry-After", "5")
		}
		for _, path := range []string{"/v1/runs/p/events", "/v1/runs/p/stream", "/v1/events"} {
			s.call("GET", path, "", "Accept: text/event-stream").refused(503, "overloaded")
		}
		s.call("GET", "/v1/runs/p", "").want(200, `"next_poll_ms":4000`)           // four times as long, the server being full
		s.call("POST", "/v1/runs", `{"workflow":"w"}`, "Prefer: wait=5").want(202) // it is there, so it is no error
	})
}

// Close answers those who wait; what is short is served as before.
func TestClose(t *testing.T) {
	inBubble(t, func(s *site) {
		s.call("POST", "/v1/runs", `{"workflow":"patient","id":"p"}`)
		streams := []*listener{s.listen("/v1/runs/p/events"), s.listen("/v1/events?runs=p"), s.listen("/v1/events"), s.listen("/v1/runs/p/stream")}
		held := make(chan *answer)
		go func() { held <- s.call("GET", "/v1/runs/p?wait=60", "") }()
		synctest.Wait()
		began := time.Now()
		s.h.Close()
		s.h.Close()
		(<-held).want(200, `"queued"`)
		retries := map[string]bool{}
		for _, l := range streams {
			l.upTo("closing")
			if e := l.next(); e.name != "" {
				t.Errorf("after closing: %+v", e)
			}
			if d, err := time.ParseDuration(l.retry + "ms"); err != nil || d < time.Second || d > 10*time.Second {
				t.Errorf("retry %q", l.retry)
			}
			retries[l.retry] = true
		}
		if time.Since(began) != 0 || len(retries) < 2 {
			t.Errorf("took %v, retries %v", time.Since(began), retries)
		}
		s.call("GET", "/v1/runs/p", "").want(200)
		s.call("GET", "/v1/runs/p?wait=5", "").want(200)
		s.call("GET", "/v1/runs/none?wait=5", "").refused(404, "not-found")
		for _, path := range []string{"/v1/runs/p/events", "/v1/events?runs=p", "/v1/events", "/v1/runs/p/stream"} {
			if e := s.listen(path).next(); e.name != "closing" {
				t.Errorf("%s: %+v", path, e)
			}
		}
		if time.Since(began) > time.Second {
			t.Errorf("took %v", time.Since(began))
		}
	})
}

// counted counts what is read, and lets a test act between the subscription and
// the read.
type counted struct {
	bide.Store
	reads  atomic.Int64
	before func()
	after  func(error) error
}

func (c *counted) Run(ctx context.Context, id string) (bide.Run, error) {
	c.reads.Add(1)
	if c.before != nil {
		c.before()
	}
	run, err := c.Store.Run(ctx, id)
	if c.after != nil {
		err = c.after(err)
	}
	return run, err
}

func (c *counted) Wake(id string, ends bool) (<-chan *bide.Run, func()) {
	return c.Store.(bide.Waker).Wake(id, ends)
}

// However many wait for a run, it is read a few times, not once for each.
func TestReadersShareTheirReads(t *testing.T) {
	inBubble(t, func(s *site) {
		c := &counted{Store: s.store}
		shared := serve(s.T, c, Config{})
		s.work(patient)
		s.call("POST", "/v1/runs", `{"workflow":"patient","id":"p"}`, "Prefer: wait=1")
		const readers = 200
		statuses := make(chan int)
		for i := range readers {
			go func() {
				if i%2 == 0 {
					statuses <- shared.call("GET", "/v1/runs/p?wait=30", "").status
					return
				}
				l := shared.listen("/v1/runs/p/events")
				l.upTo("end")
				statuses <- l.resp.StatusCode
			}()
		}
		synctest.Wait()
		before := c.reads.Load()
		s.call("POST", "/v1/runs/p/signal/go", `"on"`)
		for range readers {
			if status := <-statuses; status != http.StatusOK {
				t.Errorf("status %d", status)
			}
		}
		if n := c.reads.Load() - before; n > 5 {
			t.Errorf("a change was read %d times", n)
		}
		if before > readers/2 {
			t.Errorf("%d reads for %d readers that came", before, readers)
		}
	})
}

// A run that ends after the subscription and before the read is seen to have ended;
// so is one that ends right after the read.
func TestNoLostWake(t *testing.T) {
	for _, late := range []bool{false, true} {
		inBubble(t, func(s *site) {
			ended := false
			end := func() {
				if !ended {
					ended = true
					if err := s.store.Control(s.Context(), "p", bide.Command{Op: bide.OpTerminate}); err != nil {
						t.Error(err)
					}
				}
			}
			c := &counted{Store: s.store}
			if late {
				c.after = func(err error) error { end(); return err }
			} else {
				c.before = end
			}
			s.call("POST", "/v1/runs", `{"workflow":"patient","id":"p"}`)
			shared := serve(s.T, c, Config{})
			began := time.Now()
			shared.call("GET", "/v1/runs/p?wait=30", "").want(200, `"terminated"`)
			if took := time.Since(began); took > time.Second {
				t.Errorf("it was noticed after %v", took)
			}
		})
	}
}

// A store that cannot be read for a while does not end a stream; one who comes
// meanwhile is told to come again.
func TestReadFails(t *testing.T) {
	inBubble(t, func(s *site) {
		var broken atomic.Bool
		c := &counted{Store: s.store, after: func(err error) error {
			if broken.Load() {
				return context.DeadlineExceeded
			}
			return err
		}}
		shared := serve(s.T, c, Config{})
		s.call("POST", "/v1/runs", `{"workflow":"patient","id":"p"}`)
		l := shared.listen("/v1/runs/p/events")
		l.next()
		broken.Store(true)
		s.call("POST", "/v1/runs/p/terminate", "")
		shared.call("GET", "/v1/runs/p?wait=5", "").refused(503, "overloaded")
		time.Sleep(3 * time.Second)
		broken.Store(false)
		l.upTo("end")
	})
}

// A store that wakes nobody is asked again and again.
func TestStoreWithoutWaker(t *testing.T) {
	inBubble(t, func(s *site) {
		plain := serve(s.T, struct{ bide.Store }{s.store}, Config{})
		s.call("POST", "/v1/runs", `{"workflow":"patient","id":"p"}`)
		l := plain.listen("/v1/runs/p/events")
		l.next()
		s.after(time.Second, func() { s.call("POST", "/v1/runs/p/terminate", "") })
		plain.call("GET", "/v1/runs/p?wait=30", "").want(200, `"terminated"`)
		l.upTo("end")
		plain.call("GET", "/v1/status", "").refused(501, "not-supported")
		plain.call("DELETE", "/v1/runs/p?purge=true", "").refused(501, "not-supported")
	})
}
