package remote_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/storetest"
)

// TestUnreliableStore is the suite again over a network that loses requests and
// answers, sends requests twice, takes its time and cuts streams.
func TestUnreliableStore(t *testing.T) {
	seed := rand.Uint64()
	if s := os.Getenv("BIDE_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("BIDE_SEED=%d", seed)
	storetest.Run(t, storetest.Door{Open: func(t *testing.T) bide.Store {
		return open(t, ":memory:", false, func(inner http.RoundTripper) http.RoundTripper {
			return &unreliable{inner: inner, rng: rand.New(rand.NewPCG(seed, 1)), spare: map[string]bool{}}
		})
	}})
}

// unreliable is a way on which much goes wrong, but not all: what is cut gets
// through when it is tried again at once, so that no time passes on the test's
// clock, which the suite looks at.
type unreliable struct {
	inner http.RoundTripper

	mu    sync.Mutex
	rng   *rand.Rand
	spare map[string]bool // paths of which the last request was cut
}

// happens is true n times of 100.
func (u *unreliable) happens(n int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.rng.IntN(100) < n
}

// fate is how a request is cut, if at all.
func (u *unreliable) fate(path string) (lost, answerLost, answerCut bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.spare[path] {
		u.spare[path] = false
		return false, false, false
	}
	n := u.rng.IntN(10)
	if n == 2 && path == wakePath { // the hint after that is one that the suite does not count on
		n = 9
	}
	u.spare[path] = n < 3
	return n == 0, n == 1, n == 2
}

func (u *unreliable) upTo(n int) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.rng.IntN(n)
}

const wakePath = "/bide.v1.Store/Wake"

var errCut = errors.New("test: the way is cut")

func (u *unreliable) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	again := func() (*http.Response, error) {
		r := req.Clone(req.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
		return u.inner.RoundTrip(r)
	}
	lost, answerLost, answerCut := u.fate(req.URL.Path)
	u.delay()
	if lost {
		return nil, errCut
	}
	if req.URL.Path != wakePath && u.happens(10) { // a duplicate, at any time
		go func() {
			u.delay()
			if resp, err := again(); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		}()
	}
	resp, err := again()
	if err != nil {
		return nil, err
	}
	u.delay()
	if answerLost {
		_ = resp.Body.Close()
		return nil, errCut
	}
	if answerCut {
		resp.Body = &cutBody{resp.Body, u.upTo(200)}
	}
	return resp, nil
}

// delay lets others overtake.
func (u *unreliable) delay() {
	if u.happens(20) {
		for range u.upTo(50) {
			runtime.Gosched()
		}
	}
}

// cutBody ends after so many bytes.
type cutBody struct {
	io.ReadCloser
	left int
}

func (b *cutBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, errCut
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// silent lets the first request of each kind go unanswered, as on a connection that has
// died without a word.
type silent struct {
	inner http.RoundTripper
	mu    sync.Mutex
	heard map[string]bool
}

func (s *silent) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	again := s.heard[req.URL.Path]
	s.heard[req.URL.Path] = true
	s.mu.Unlock()
	if !again {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	return s.inner.RoundTrip(req)
}

// Whatever is asked, a connection that has died without a word is given up in time.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var way *silent
		store := open(t, ":memory:", true, func(inner http.RoundTripper) http.RoundTripper {
			way = &silent{inner: inner, heard: map[string]bool{}}
			return way
		})
		defer store.Close()
		ctx := t.Context()
		ask := func(name string, call func() error) {
			began := time.Now()
			if err := call(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(began); took < time.Second || took > 16*time.Second {
				t.Errorf("%s took %v", name, took)
			}
		}
		ask("Create", func() error {
			_, err := store.Create(ctx, []bide.NewRun{{ID: "a", Workflow: "w", Queue: "q"}})
			return err
		})
		ask("Claim", func() error {
			_, err := store.Claim(ctx, bide.Claim{Worker: "x", Queues: []string{"q"}, Workflows: []string{"w"}, Max: 1, TTL: time.Minute})
			return err
		})
		ask("Run", func() error { _, err := store.Run(ctx, "a"); return err })
		ask("Runs", func() error { _, err := store.Runs(ctx, bide.Query{}); return err })
		ask("History", func() error { _, err := store.History(ctx, "a", 0, 0); return err })
		ask("Chunks", func() error { _, err := store.Chunks(ctx, "a", 0, 0); return err })
		ask("Facts", func() error { _, err := store.Facts(ctx, "k"); return err })
		ask("Status", func() error { _, err := store.Status(ctx); return err })
		ask("Wake", func() error {
			changes, stop := store.Wake("a", true)
			defer stop()
			if err := store.Control(ctx, "a", bide.Command{Op: bide.OpTerminate}); err != nil {
				return err
			}
			<-changes
			return nil
		})
	})
}
