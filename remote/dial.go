package remote

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	mrand "math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/internal/group"
	"github.com/bide-dev/bide/internal/wire"
)

// Store is a store that a bide server keeps. It implements [bide.Store],
// [bide.Waker] and [bide.Admin].
type Store struct {
	url  string
	id   string // of this client, to the server
	http *http.Client
	own  bool // http is
	rpc  wire.StoreClient
	base context.Context // ends with Close
	stop context.CancelFunc
	link link

	group *group.Group[*op]
	slots chan struct{} // requests with writes, under way

	mu      sync.Mutex
	closed  chan struct{}
	number  uint64            // of the newest request with writes
	flying  []uint64          // those under way
	token   string            // what the server calls this client's session
	seats   map[string]*seat  // by worker
	rng     *mrand.Rand       // jitter
	sending sync.WaitGroup    // requests with writes
	watches map[uint64]*watch // what Wake has handed out
	watched uint64            // the newest watch
	wake    wakeStream
}

var (
	_ bide.Store = (*Store)(nil)
	_ bide.Waker = (*Store)(nil)
	_ bide.Admin = (*Store)(nil)
)

// Option is an option of [Dial].
type Option interface{ dial(*config) }

type config struct {
	token string
	http  *http.Client
}

// Token is what the server knows the client by, "bide_…".
type Token string

func (t Token) dial(c *config) { c.token = string(t) }

// HTTPClient makes the requests go through a client of the caller's, for roots of
// trust, a proxy or client certificates of its own. It must not have a Timeout:
// some requests wait for long. Whether it speaks HTTP/2 is up to it;
// if so, let it send pings ([http.HTTP2Config]), else a connection that has died
// without a word is not noticed.
func HTTPClient(c *http.Client) Option { return httpClient{c} }

type httpClient struct{ *http.Client }

func (h httpClient) dial(c *config) { c.http = h.Client }

// Dial returns the store that the bide server at the URL keeps,
// "https://bide.example.com". It does not wait for the server: that it cannot be
// reached shows with the first call. The error is an [bide.InvalidError].
func Dial(rawURL string, opts ...Option) (*Store, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, &bide.InvalidError{Field: "url", Reason: "must be of the form http://host:port or https://host"}
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, &bide.InvalidError{Field: "url", Reason: "must have no user, query or fragment; a token is given with remote.Token"}
	}
	var cfg config
	for _, o := range opts {
		o.dial(&cfg)
	}
	own := cfg.http == nil
	if own {
		cfg.http = &http.Client{Transport: newTransport()}
	}
	if cfg.http.Timeout > 0 {
		return nil, &bide.InvalidError{Field: "HTTPClient", Reason: "has a Timeout; some requests wait for long, so leave it 0"}
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	s := &Store{url: strings.TrimSuffix(u.String(), "/"), id: hex.EncodeToString(id[:]), http: cfg.http, own: own,
		slots: make(chan struct{}, slots), closed: make(chan struct{}), seats: map[string]*seat{},
		rng: mrand.New(mrand.NewPCG(mrand.Uint64(), 0)), watches: map[uint64]*watch{}}
	s.base, s.stop = context.WithCancel(context.Background())
	s.link.down = make(chan struct{})
	s.rpc = wire.NewStoreClient(cfg.http, s.url,
		// What is small and many is not worth the packing.
		connect.WithAcceptCompression("gzip", nil, nil), connect.WithInterceptors(bearer(cfg.token)))
	s.slots <- struct{}{} // for the first flush
	s.group = group.New(s.flush)
	return s, nil
}

// Close waits for queued writes, for at most ten seconds while the server cannot
// be reached, and ends the store here; the server and its store stay. Later calls
// return [bide.ErrClosed].
func (s *Store) Close() error {
	s.mu.Lock()
	if s.isClosed() {
		s.mu.Unlock()
		return nil
	}
	close(s.closed)
	s.mu.Unlock()
	s.group.Close()
	s.sending.Wait()
	s.stop()
	s.dismiss()
	if s.own {
		s.http.CloseIdleConnections()
	}
	return nil
}

func (s *Store) isClosed() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

// bearer is the token that goes with every request.
type bearer string

// WrapUnary implements [connect.Interceptor].
func (b bearer) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	if b == "" {
		return next
	}
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		req.Header().Set("Authorization", "Bearer "+string(b))
		return next(ctx, req)
	}
}

// WrapStreamingClient implements [connect.Interceptor].
func (b bearer) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	if b == "" {
		return next
	}
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		conn.RequestHeader().Set("Authorization", "Bearer "+string(b))
		return conn
	}
}

// WrapStreamingHandler implements [connect.Interceptor].
func (bearer) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// patience is how long a caller waits while the server cannot be reached.
const patience = 10 * time.Second

// pause waits before the n-th further attempt, from 0, and reports whether to make
// it: at once, after 5 ms, then longer, up to half a second.
func (s *Store) pause(ctx context.Context, n int) bool {
	if n == 0 {
		return ctx.Err() == nil
	}
	d := min(5*time.Millisecond<<min(n-1, 10), 500*time.Millisecond)
	s.mu.Lock()
	d = d/2 + time.Duration(s.rng.Int64N(int64(d/2)))
	s.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
