package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/server"
)

// watched is a service that probe loops ask, in the place of the network.
type watched struct {
	takes time.Duration // for each answer

	mu       sync.Mutex
	asked    map[string][]time.Time // by URL
	inFlight map[string]int
	overlaps int
}

// RoundTrip implements [http.RoundTripper].
func (x *watched) RoundTrip(r *http.Request) (*http.Response, error) {
	url := r.URL.String()
	x.mu.Lock()
	if x.asked == nil {
		x.asked, x.inFlight = map[string][]time.Time{}, map[string]int{}
	}
	x.asked[url] = append(x.asked[url], time.Now())
	if x.inFlight[url]++; x.inFlight[url] > 1 {
		x.overlaps++
	}
	x.mu.Unlock()
	defer func() {
		x.mu.Lock()
		x.inFlight[url]--
		x.mu.Unlock()
	}()
	select {
	case <-time.After(x.takes):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	rec := httptest.NewRecorder()
	_, _ = io.WriteString(rec, `{"ok":true}`)
	return rec.Result(), nil
}

// times is how often a URL was asked so far.
func (x *watched) times(url string) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.asked[url])
}

// probing starts a server in a bubble whose probe loops ask the service.
func probing(t *testing.T, store bide.Store, x http.RoundTripper, cfg server.Config) *bubble {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	srv, err := server.New(store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if x != nil {
		srv.SendBy(x)
	}
	return serveOn(t, store, srv)
}

// call makes a request, and checks the status of the answer.
func (b *bubble) call(status int, method, path, body string, headers ...string) (http.Header, string) {
	b.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, "http://localhost:7433"+path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := b.client(false).Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status {
		b.Fatalf("%s %s: %s, not %d: %s %v", method, path, resp.Status, status, data, err)
	}
	return resp.Header, string(data)
}

// workers is how many workers the store knows.
func (b *bubble) workers() int {
	b.Helper()
	status, err := b.store.(bide.Admin).Status(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return len(status.Workers)
}

const (
	newsURL = "https://example.org/news"
	mailURL = "https://example.org/mail"
)

func specOf(url string, rest ...string) string {
	return `{"url":"` + url + `","every":"30s","exact":true` + strings.Join(rest, "") + `}`
}

// A loop that is put runs at once, by another spec from the next iteration on, over
// restarts, until it is deleted; then it can be put again.
func TestProbeLoopRuns(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		x := &watched{}
		b := probing(t, openStoreIn(t, dir), x, server.Config{})
		time.Sleep(time.Minute)
		before := b.workers()

		tags, _ := b.call(201, "PUT", "/v1/loops/news", specOf(newsURL, `,"run_immediately":true`))
		time.Sleep(time.Second)
		if n := x.times(newsURL); n != 1 {
			t.Errorf("asked %d times in the first second", n)
		}
		if n := b.workers(); n != before+1 {
			t.Errorf("%d workers, before there was a loop %d", n, before)
		}
		time.Sleep(60 * time.Second)
		if n := x.times(newsURL); n != 3 {
			t.Errorf("asked %d times after 61 s", n)
		}
		if _, body := b.call(200, "GET", "/v1/loops/news", ""); !strings.Contains(body, `"iterations":3`) || !strings.Contains(body, `"interval_ms":30000`) {
			t.Error(body)
		}
		if _, body := b.call(200, "GET", "/v1/runs/loop:news", ""); !strings.Contains(body, `"body":{"ok":true}`) {
			t.Error(body)
		}

		b.call(200, "PUT", "/v1/loops/news", specOf(mailURL), "If-Match", tags.Get("ETag"))
		time.Sleep(30 * time.Second)
		if news, mail := x.times(newsURL), x.times(mailURL); news != 3 || mail != 1 {
			t.Errorf("after the change %d of the old, %d of the new", news, mail)
		}
		b.call(200, "PUT", "/v1/loops/news", strings.Replace(specOf(mailURL), "30s", "10s", 1))
		time.Sleep(31 * time.Second)
		if mail := x.times(mailURL); mail != 4 {
			t.Errorf("asked %d times with another interval", mail)
		}

		b.close()
		time.Sleep(time.Hour)
		if mail := x.times(mailURL); mail != 4 {
			t.Errorf("asked %d times by a server that is stopped", mail)
		}
		b = probing(t, openStoreIn(t, dir), x, server.Config{})
		time.Sleep(15 * time.Second)
		if mail := x.times(mailURL); mail != 6 {
			t.Errorf("asked %d times 15 s after the restart", mail)
		}

		_, body := b.call(202, "DELETE", "/v1/loops/news", "")
		if !strings.Contains(body, `"stopped":true`) {
			t.Error(body)
		}
		mail := x.times(mailURL)
		time.Sleep(time.Minute)
		if n := x.times(mailURL); n != mail {
			t.Errorf("asked %d times after the end", n-mail)
		}
		if n := b.workers(); n != before {
			t.Errorf("%d workers, with no loop %d", n, before)
		}
		b.call(201, "PUT", "/v1/loops/news", specOf(newsURL, `,"run_immediately":true`), "If-None-Match", "*")
		time.Sleep(35 * time.Second)
		if n := x.times(newsURL); n != 5 {
			t.Errorf("asked %d times, with those before 5 are due", n)
		}
		b.close()
	})
}

// Of many that are put at once each runs, and an iteration in flight is let finish.
func TestProbeLoopsComeTogether(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		x := &watched{takes: 8 * time.Second}
		b := probing(t, openStoreIn(t, dir), x, server.Config{})
		defer b.close()
		const n = 25
		for i := range n {
			b.call(201, "PUT", fmt.Sprint("/v1/loops/l", i), specOf(fmt.Sprint(newsURL, i), `,"run_immediately":true`))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(20 * time.Second)
		_, body := b.call(200, "GET", "/v1/loops", "")
		if got := strings.Count(body, `"outcomes":"c"`); got != n {
			t.Errorf("%d of %d have made their one iteration: %s", got, n, body)
		}
		// A spec of a newer server is left alone, and holds up no other.
		err := b.store.Commit(t.Context(), bide.Lease{}, bide.Batch{Facts: []bide.Fact{{Kind: "probeloop", Key: "new", Value: json.RawMessage(`{"unheard":1}`)}}})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := x.times(newsURL + "0"); got != 3 || x.overlaps != 0 {
			t.Errorf("asked %d times, %d overlaps", got, x.overlaps)
		}
	})
}

// Two servers on one database make single iterations, and the one goes on when the
// other ends.
func TestProbeLoopOnTwoServers(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		x := &watched{takes: 5 * time.Second}
		store := openStoreIn(t, dir)
		a := probing(t, store, x, server.Config{})
		b := probing(t, store, x, server.Config{})
		time.Sleep(3 * time.Second)
		a.call(201, "PUT", "/v1/loops/news", specOf(newsURL, `,"run_immediately":true`))
		time.Sleep(20 * time.Minute)
		if n := x.times(newsURL); n != 1200/35+1 || x.overlaps != 0 {
			t.Errorf("asked %d times, %d overlaps", n, x.overlaps)
		}
		// Whichever has it, the change holds from the next iteration after ten seconds.
		b.call(200, "PUT", "/v1/loops/news", specOf(mailURL))
		time.Sleep(11 * time.Second)
		before := x.times(newsURL)
		time.Sleep(2 * time.Minute)
		if news, mail := x.times(newsURL)-before, x.times(mailURL); news != 0 || mail < 3 {
			t.Errorf("after the change %d of the old, %d of the new", news, mail)
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		before = x.times(mailURL)
		time.Sleep(71 * time.Second)
		if n := x.times(mailURL) - before; n < 2 || x.overlaps != 0 {
			t.Errorf("asked %d times by the server that is left, %d overlaps", n, x.overlaps)
		}
		b.call(202, "DELETE", "/v1/loops/news", "")
		before = x.times(mailURL)
		time.Sleep(2 * time.Minute)
		if n := x.times(mailURL) - before; n != 0 {
			t.Errorf("asked %d times after the end", n)
		}
		b.close()
	})
}

// A server that finds one of its loops taken by something else keeps trying.
func TestProbeLoopsBeginAgain(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		x := &watched{}
		b := probing(t, openStoreIn(t, dir), x, server.Config{})
		defer b.close()
		_, err := b.store.Create(t.Context(), []bide.NewRun{{ID: "loop:news", Workflow: "other", Queue: "default", Input: json.RawMessage(`1`)}})
		if err != nil {
			t.Fatal(err)
		}
		spec := json.RawMessage(specOf(newsURL, `,"run_immediately":true`))
		if err := b.store.Commit(t.Context(), bide.Lease{}, bide.Batch{Facts: []bide.Fact{{Kind: "probeloop", Key: "news", Value: spec}}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n := x.times(newsURL); n != 0 {
			t.Errorf("asked %d times", n)
		}
		if err := bide.NewClient(b.store).Terminate(t.Context(), "loop:news", ""); err != nil {
			t.Fatal(err)
		}
		if err := b.store.(bide.Admin).Purge(t.Context(), "loop:news"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n := x.times(newsURL); n < 2 {
			t.Errorf("asked %d times in the minute after", n)
		}
	})
}
