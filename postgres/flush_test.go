package postgres_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/postgres"
)

// TestBigBatch has commits of more bytes gather than a transaction should have.
func TestBigBatch(t *testing.T) {
	schema := newSchema()
	s, conn := open(t, schema), connect(t)
	t.Cleanup(func() { _ = s.Close() })
	known(t, s, asks("w", time.Hour))
	create(t, s, newRun("r"))
	c := claim(t, s, asks("w", time.Hour))
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT FROM `+schema+`.member FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	before := s.Transactions()
	data := json.RawMessage(`"` + strings.Repeat("x", 2<<20) + `"`)
	var wg sync.WaitGroup
	const commits = 12
	for i := range commits {
		wg.Go(func() {
			r := step(fmt.Sprint(i))
			if r.Data = data; i == 0 {
				r.Data = nil
			}
			commit(t, s, c.Lease, bide.Batch{Records: []bide.Record{r}})
		})
		if i == 0 {
			blocked(t, connect(t), 1) // what comes now is one batch
		}
	}
	blocked(t, connect(t), 1) // they are queued by now, but for a very slow machine
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if n := s.Transactions() - before; n < 3 {
		t.Errorf("%d transactions, want one, and two of at most 16 MiB", n)
	}
	h, err := s.History(t.Context(), "r", 0, 0)
	if err != nil || len(h) != commits {
		t.Errorf("%d records: %v", len(h), err)
	}
	// A single call that is too big is refused before anything is done.
	runs := make([]bide.NewRun, 130)
	for i := range runs {
		runs[i] = newRun("")
		runs[i].Input = data
	}
	var invalid *bide.InvalidError
	if _, err := s.Create(t.Context(), runs); !errors.As(err, &invalid) {
		t.Errorf("260 MiB in one call: %v", err)
	}
	create(t, s, newRun("another"))
}

// TestOutrun has others change what a process holds each time before it can commit:
// it gets its turn.
func TestOutrun(t *testing.T) {
	w, schema := &wire{}, newSchema()
	a, b := open(t, schema, postgres.Dial(w.dial), postgres.NoNotify()), open(t, schema, postgres.NoNotify())
	t.Cleanup(func() { _ = a.Close(); _ = b.Close() })
	known(t, a, asks("w", time.Hour))
	create(t, a, newRun("r"))
	c := claim(t, a, asks("w", time.Hour))
	var sending sync.WaitGroup
	rounds := 0
	w.before(func(p []byte) {
		if !bytes.Contains(p, []byte("SET batch = $2")) {
			return
		}
		rounds++
		sent := make(chan struct{})
		sending.Go(func() {
			defer close(sent)
			if _, err := b.Signal(context.Background(), "r", bide.Message{Name: "m"}); err != nil {
				t.Error(err)
			}
		})
		select {
		case <-sent:
		case <-time.After(500 * time.Millisecond): // it is made to wait
		}
	})
	err := a.Commit(t.Context(), c.Lease, bide.Batch{Records: []bide.Record{step("1")}})
	w.before(func([]byte) {})
	sending.Wait()
	if err != nil || rounds < 3 || rounds > 10 {
		t.Errorf("after %d rounds: %v", rounds, err)
	}
	for got := 0; got < rounds; { // or claims gives up
		for _, c := range claims(t, a, asks("w", time.Hour)) {
			got += len(c.Inbox)
		}
	}
}

// TestLockTimeout has a row be locked for longer than the role may wait.
func TestLockTimeout(t *testing.T) {
	schema := newSchema()
	exec(t, `CREATE ROLE `+schema+` SUPERUSER LOGIN`)
	exec(t, `ALTER ROLE `+schema+` SET lock_timeout = '20ms'`)
	s, conn := openAs(t, schema), connect(t)
	create(t, s, newRun("r"))
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT FROM `+schema+`.member FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() { create(t, s, newRun(fmt.Sprint(i))) })
	}
	looks := connect(t)
	for range 3 { // it comes again
		blocked(t, looks, 1)
		for n := 1; n > 0; {
			if err := looks.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE usename = $1 AND wait_event_type = 'Lock'", schema).Scan(&n); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
}

// What fails for a reason of the database's own is not tried op by op.
func TestOwnFault(t *testing.T) {
	for code, want := range map[string]bool{"22021": true, "23505": true, "54000": true, "P0001": true,
		"57014": false, "55P03": false, "53100": false, "53300": false, "25006": false, "40P01": false, "22012": false} {
		if got := postgres.OwnFault(fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: code})); got != want {
			t.Errorf("%s: %v", code, got)
		}
	}
	if postgres.OwnFault(errors.New("no connection")) {
		t.Error("an error that is not of the database")
	}
}

// Those who are cut off at one moment do not come back at one moment.
func TestJitter(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 100 {
		d := postgres.Jittered(time.Second)
		if d < time.Second/2 || d >= 3*time.Second/2 {
			t.Fatal(d)
		}
		seen[d] = true
	}
	if len(seen) < 50 {
		t.Errorf("%d waits of 100 differ", len(seen))
	}
}
