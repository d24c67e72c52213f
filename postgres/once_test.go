package postgres_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/postgres"
)

// paid makes a table and returns what writes a row of it and what counts them.
func paid(t *testing.T, schema string) (pay func(pgx.Tx) ([]byte, error), count func() int) {
	t.Helper()
	exec(t, `CREATE TABLE `+schema+`.paid (n int)`)
	conn := connect(t)
	return func(tx pgx.Tx) ([]byte, error) {
			_, err := tx.Exec(context.Background(), `INSERT INTO `+schema+`.paid VALUES (1)`)
			return []byte(`1`), err
		}, func() (n int) {
			if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM `+schema+`.paid`).Scan(&n); err != nil {
				t.Error(err)
			}
			return n
		}
}

// TestTxStepCut cuts the connection before and after the database has the commit.
func TestTxStepCut(t *testing.T) {
	for _, how := range []string{"lost", "unanswered"} {
		t.Run(how, func(t *testing.T) {
			w, schema := &wire{}, newSchema()
			s := open(t, schema, postgres.Dial(w.dial))
			t.Cleanup(func() { _ = s.Close() })
			pay, count := paid(t, schema)
			var once sync.Once
			w.before(func(p []byte) {
				if bytes.Contains(p, []byte("commit")) {
					once.Do(func() { w.cutNext(how) })
				}
			})
			recalled := ""
			err := s.Once(t.Context(), "key", pay, func(data []byte) error { recalled = string(data); return nil })
			if err != nil || count() != 1 || how == "unanswered" && recalled != "1" {
				t.Errorf("%v, %d rows, recalled %q", err, count(), recalled)
			}
		})
	}
}

// TestTxStepGivesWay has a transaction that has to give way to others: it is done again.
func TestTxStepGivesWay(t *testing.T) {
	schema := newSchema()
	s := open(t, schema)
	t.Cleanup(func() { _ = s.Close() })
	pay, count := paid(t, schema)
	for _, code := range []string{"40001", "40P01"} {
		calls := 0
		err := s.Once(t.Context(), code, func(tx pgx.Tx) ([]byte, error) {
			if calls++; calls == 1 {
				_, _ = pay(tx)
				_, err := tx.Exec(t.Context(), `DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '`+code+`'; END $$`)
				return nil, fmt.Errorf("wrapped: %w", err)
			}
			return pay(tx)
		}, nil)
		if err != nil || calls != 2 {
			t.Errorf("%s: %v after %d calls", code, err, calls)
		}
	}
	if n := count(); n != 2 {
		t.Errorf("%d rows", n)
	}
}

// TestTxStepsTakeTurns has as many steps under way as there are connections for them:
// claims and reads go on.
func TestTxStepsTakeTurns(t *testing.T) {
	s := open(t, newSchema())
	t.Cleanup(func() { _ = s.Close() })
	known(t, s, asks("w", time.Hour))
	release := make(chan struct{})
	var started, ended sync.WaitGroup
	for i := range 8 {
		started.Add(1)
		ended.Go(func() {
			err := s.Once(context.Background(), fmt.Sprint(i), func(pgx.Tx) ([]byte, error) { started.Done(); <-release; return nil, nil }, nil)
			if err != nil {
				t.Error(err)
			}
		})
	}
	started.Wait()
	create(t, s, newRun("r"))
	c := claim(t, s, asks("w", time.Hour))
	commit(t, s, c.Lease, bide.Batch{Records: []bide.Record{step("1")}, Next: bide.Parked{WakeAt: time.Now()}})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := s.Claim(ctx, asks("w", time.Hour)); err != nil {
		t.Errorf("a claim: %v", err)
	}
	if _, err := s.Run(ctx, "r"); err != nil {
		t.Errorf("a read: %v", err)
	}
	close(release)
	ended.Wait()
}

// TestTxStepStopped says that the database ends the transaction of a process that is
// stopped in it.
func TestTxStepStopped(t *testing.T) {
	for dsn, want := range map[string]string{dsn: "1min", dsn + "&idle_in_transaction_session_timeout=5000": "5s"} {
		s, err := postgres.Open(t.Context(), dsn, postgres.Schema(newSchema()))
		if err != nil {
			t.Fatal(err)
		}
		var got string
		err = s.Once(t.Context(), "key", func(tx pgx.Tx) ([]byte, error) {
			return nil, tx.QueryRow(t.Context(), `SHOW idle_in_transaction_session_timeout`).Scan(&got)
		}, nil)
		if err != nil || got != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
		_ = s.Close()
	}
}
