package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/postgres"
)

// wire is a network that can be frozen, cut and listened in to.
type wire struct {
	mu    sync.RWMutex // locked: frozen
	cutMu sync.Mutex
	sent  atomic.Int64
	cut   string                       // what happens to the next that is sent: "lost", or "unanswered"
	gone  atomic.Pointer[atomic.Bool]  // whether the lines of this era are forgotten
	heard atomic.Pointer[func([]byte)] // is called with what is to be sent
}

func (w *wire) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	w.gone.CompareAndSwap(nil, &atomic.Bool{})
	return &line{Conn: c, wire: w, gone: w.gone.Load()}, err
}

// era begins another era. forget lets nothing through, without a word, on the lines
// that are made in it, as a firewall does that has lost its table.
func (w *wire) era() (forget func()) {
	gone := &atomic.Bool{}
	w.gone.Store(gone)
	return func() { gone.Store(true) }
}

// before calls fn with all that is to be sent from now on.
func (w *wire) before(fn func([]byte)) { w.heard.Store(&fn) }

// freeze lets nothing be sent while fn runs.
func (w *wire) freeze(fn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fn()
}

func (w *wire) cutNext(how string) {
	w.cutMu.Lock()
	defer w.cutMu.Unlock()
	w.cut = how
}

type line struct {
	net.Conn
	*wire
	deaf bool
	gone *atomic.Bool
}

var errCut = errors.New("the test has cut the line")

func (l *line) Write(p []byte) (int, error) {
	if fn := l.heard.Load(); fn != nil {
		(*fn)(p)
	}
	if l.gone.Load() {
		return len(p), nil
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	l.cutMu.Lock()
	l.sent.Add(1)
	how := l.cut
	l.cut = ""
	l.cutMu.Unlock()
	switch how {
	case "lost":
		_ = l.Conn.Close()
		return 0, errCut
	case "unanswered":
		n, err := l.Conn.Write(p)
		l.deaf = true
		return n, err
	}
	return l.Conn.Write(p)
}

// Read reads an answer that is to be lost, so that what was asked is done.
func (l *line) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	for err == nil && l.gone.Load() {
		n, err = l.Conn.Read(p)
	}
	if l.deaf {
		_ = l.Conn.Close()
		return 0, errCut
	}
	return n, err
}

// TestCut cuts the connection before and after the database has a commit: what
// Commit says is the truth, and each record is there once.
func TestCut(t *testing.T) {
	w := &wire{}
	s := open(t, newSchema(), postgres.Dial(w.dial), postgres.NoNotify())
	t.Cleanup(func() { _ = s.Close() })
	known(t, s, asks("w", time.Hour))
	create(t, s, newRun("r"))
	c := claim(t, s, asks("w", time.Hour))
	n := 0
	for i := range 6 {
		w.cutNext([]string{"lost", "unanswered"}[i%2])
		n++
		commit(t, s, c.Lease, bide.Batch{Records: []bide.Record{step(fmt.Sprint(n))}})
		h, err := s.History(t.Context(), "r", 0, 0)
		if err != nil || len(h) != n {
			t.Fatalf("%d records after %d commits: %v", len(h), n, err)
		}
	}
	w.cutNext("unanswered")
	create(t, s, newRun("next"))
	if got := claim(t, s, asks("w", time.Hour)); got.Lease.Run != "next" {
		t.Errorf("got %+v", got)
	}
	commit(t, s, c.Lease, bide.Batch{Next: bide.Parked{}})
	w.cutNext("unanswered") // of the claim, whose answer has the run in it
	if _, err := s.Signal(t.Context(), "r", bide.Message{Name: "m"}); err != nil {
		t.Fatal(err)
	}
	w.cutNext("unanswered")
	if got := claim(t, s, asks("w", time.Hour)); got.Lease.Run != "r" || len(got.Inbox) != 1 || got.Interrupted {
		t.Errorf("got %+v", got)
	}
}

// TestIdle lets a worker wait for an hour with nothing to do: alone, and beside
// another process, to which it gives signs of life.
func TestIdle(t *testing.T) {
	t.Run("alone", func(t *testing.T) { idle(t, "", 0, 0.01) })
	t.Run("beside", func(t *testing.T) {
		idle(t, `INSERT INTO %s.member (k, expires, process) VALUES (1, clock_timestamp() + interval '1 hour', 'another')`, 0.09, 0.2)
	})
}

func idle(t *testing.T, before string, least, most float64) {
	synctest.Test(t, func(t *testing.T) {
		w, schema := &wire{}, newSchema()
		if before != "" {
			if err := open(t, schema, postgres.Alone()).Close(); err != nil {
				t.Fatal(err)
			}
			exec(t, fmt.Sprintf(before, schema))
		}
		s := open(t, schema, postgres.Dial(w.dial), postgres.Alone())
		defer s.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		go func() { // as a worker does
			for beat := time.Tick(10 * time.Second); ctx.Err() == nil; {
				select {
				case <-beat:
					_ = s.Commit(ctx, bide.Lease{Worker: "w"}, bide.Batch{})
				case <-ctx.Done():
				}
			}
		}()
		if got, err := s.Claim(ctx, asks("w", 30*time.Second)); err == nil {
			t.Fatalf("got %+v", got)
		}
		if n := float64(w.sent.Load()) / 3600; n < least || n > most {
			t.Errorf("%.3f queries a second, want from %.2f to %.2f", n, least, most)
		}
	})
}

// TestManyWaits has a thousand wait for results: they share the connections of one
// process.
func TestManyWaits(t *testing.T) {
	schema := newSchema()
	conn := connect(t)
	before := countConns(t, conn)
	s, other := open(t, schema), open(t, schema)
	defer s.Close()
	defer other.Close()
	const waits = 1000
	woken := make(chan struct{}, waits)
	for i := range waits {
		ch, stop := s.Wake(fmt.Sprint(i), true)
		defer stop()
		<-ch // it may have ended before
		go func() { <-ch; woken <- struct{}{} }()
	}
	create(t, s, newRun("makes it known"))
	create(t, other, newRun("0"))
	for i := range waits {
		if i > 0 {
			create(t, other, newRun(fmt.Sprint(i)))
		}
		if err := other.Control(t.Context(), fmt.Sprint(i), bide.Command{Op: bide.OpTerminate}); err != nil {
			t.Fatal(err)
		}
	}
	late := time.After(patience)
	for i := range waits {
		select {
		case <-woken:
		case <-late:
			t.Fatalf("%d of %d were woken", i, waits)
		}
	}
	// Of each: one that writes, one that listens, and maybe one that reads.
	if n := countConns(t, conn) - before; n > 6 {
		t.Errorf("%d connections", n)
	}
}

func countConns(t *testing.T, conn *pgx.Conn) (n int) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
