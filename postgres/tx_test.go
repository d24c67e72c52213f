package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/postgres"
)

func connect(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// TestStartTx starts runs within transactions: one that is rolled back leaves none,
// one that commits wakes a worker.
func TestStartTx(t *testing.T) {
	s := open(t, newSchema())
	t.Cleanup(func() { _ = s.Close() })
	known(t, s, asks("w", time.Hour))
	conn := connect(t)
	for _, commits := range []bool{false, true} {
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n := newRun("r")
		n.Messages = []bide.Message{{Op: bide.OpSignal, Name: "m", Data: json.RawMessage(`1`)}}
		n.Key, n.Print = "k", "p"
		c, err := s.StartTx(t.Context(), tx, n)
		if err != nil || c.Err != nil || !c.New || c.ID != "r" {
			t.Fatalf("got %+v, %v", c, err)
		}
		if _, err := s.Run(t.Context(), "r"); !errors.Is(err, bide.ErrNotFound) {
			t.Errorf("before the commit: %v", err)
		}
		if c, err = s.StartTx(t.Context(), tx, n); err != nil || c.New || c.Err != nil || c.ID != "r" {
			t.Errorf("again: %+v, %v", c, err)
		}
		n.Print = "another"
		var conflict *bide.ConflictError
		if c, err = s.StartTx(t.Context(), tx, n); err != nil || !errors.As(c.Err, &conflict) || conflict.Key != "k" {
			t.Errorf("with another print: %+v, %v", c, err)
		}
		n.Key, n.Input = "", json.RawMessage(`2`)
		if c, err = s.StartTx(t.Context(), tx, n); err != nil || !errors.As(c.Err, &conflict) {
			t.Errorf("with another input: %+v, %v", c, err)
		}
		if !commits {
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Run(t.Context(), "r"); !errors.Is(err, bide.ErrNotFound) {
				t.Errorf("after the rollback: %v", err)
			}
			continue
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := claim(t, s, asks("w", time.Hour)); got.Run.ID != "r" || len(got.Inbox) != 1 {
			t.Errorf("got %+v", got)
		}
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	n := newRun("r")
	n.Conflict = bide.Replace
	var invalid *bide.InvalidError
	if _, err := s.StartTx(t.Context(), tx, n); !errors.As(err, &invalid) {
		t.Errorf("Replace: %v", err)
	}
}

// TestStartTxSnapshot starts a run of an id that another has taken since the
// transaction's snapshot.
func TestStartTxSnapshot(t *testing.T) {
	s := open(t, newSchema())
	t.Cleanup(func() { _ = s.Close() })
	tx, err := connect(t).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), "SELECT 1 FROM pg_class LIMIT 1"); err != nil {
		t.Fatal(err)
	}
	create(t, s, newRun("r"))
	if c, err := s.StartTx(t.Context(), tx, newRun("r")); err != nil || c.Err != nil || c.New || c.ID != "r" {
		t.Errorf("got %+v, %v", c, err)
	}
	other := newRun("r")
	other.Input = json.RawMessage(`2`)
	var conflict *bide.ConflictError
	if c, err := s.StartTx(t.Context(), tx, other); err != nil || !errors.As(c.Err, &conflict) {
		t.Errorf("with another input: %+v, %v", c, err)
	}
	if c, err := s.StartTx(t.Context(), tx, newRun("another")); err != nil || !c.New {
		t.Errorf("the transaction goes on: %+v, %v", c, err)
	}
}

// TestStartTxOfWorkflow starts what a workflow's NewRun made: a worker carries it out,
// with its first signal, once the transaction commits, and never if it does not.
func TestStartTxOfWorkflow(t *testing.T) {
	s := open(t, newSchema())
	t.Cleanup(func() { _ = s.Close() })
	greet := bide.Define("greet", func(ctx bide.Context, greeting string) (string, error) {
		name, err := bide.Receive[string](ctx, "name")
		return greeting + " " + name, err
	})
	conn := connect(t)
	errBack := errors.New("rolled back")
	for id, want := range map[string]error{"kept": nil, "dropped": errBack} {
		n, err := greet.NewRun("hello", bide.ID(id), bide.FirstSignal("name", id))
		if err != nil {
			t.Fatal(err)
		}
		err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			if c, err := s.StartTx(t.Context(), tx, n); err != nil || c.Err != nil || !c.New || c.ID != id {
				t.Errorf("%s: %+v, %v", id, c, err)
			}
			return want
		})
		if !errors.Is(err, want) {
			t.Fatal(err)
		}
	}
	w := bide.NewWorker(s, bide.WorkerConfig{})
	w.Register(greet)
	client := bide.NewClient(s)
	err := w.While(t.Context(), func(ctx context.Context) error {
		if got, err := greet.Handle(client, "kept").Result(ctx); err != nil || got != "hello kept" {
			t.Errorf("got %q, %v", got, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := client.Get(t.Context(), "dropped"); !errors.Is(err, bide.ErrNotFound) {
		t.Errorf("of the transaction that was rolled back: %v", err)
	}
}

// TestTxStep has a step fail after its transaction has committed: its second attempt
// does not do the work again, and a failed one leaves nothing.
func TestTxStep(t *testing.T) {
	schema := newSchema()
	s := open(t, schema)
	t.Cleanup(func() { _ = s.Close() })
	exec(t, `CREATE TABLE `+schema+`.account (n int)`)
	calls := 0
	pay := bide.Define("pay", func(ctx bide.Context, n int) (int, error) {
		return postgres.TxStep(ctx, s, "pay", func(ctx context.Context, tx pgx.Tx) (int, error) {
			calls++
			if _, err := tx.Exec(ctx, `INSERT INTO `+schema+`.account (n) VALUES ($1)`, n); err != nil {
				return 0, err
			}
			if calls == 1 {
				return 0, errors.New("not yet")
			}
			return n + 1, nil
		}, bide.RetryPolicy{InitialInterval: time.Millisecond, MaximumAttempts: 5})
	})
	w := bide.NewWorker(s, bide.WorkerConfig{})
	w.Register(pay)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	defer func() { cancel(); <-done }()
	run, err := pay.Start(t.Context(), bide.NewClient(s), 7)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := run.Result(t.Context()); err != nil || got != 8 {
		t.Fatalf("got %d, %v", got, err)
	}
	var rows int
	if err := connect(t).QueryRow(t.Context(), `SELECT count(*) FROM `+schema+`.account`).Scan(&rows); err != nil || rows != 1 || calls != 2 {
		t.Errorf("%d rows after %d calls: %v", rows, calls, err)
	}
}

// TestTxStepTwice has two attempts at one step at the same moment, as when a worker
// was wrongly taken for dead: one does the work, the other is given its result.
func TestTxStepTwice(t *testing.T) {
	s := open(t, newSchema())
	t.Cleanup(func() { _ = s.Close() })
	type answer struct {
		data string
		did  bool
		err  error
	}
	answers := make(chan answer)
	for range 2 {
		go func() {
			var a answer
			a.err = s.Once(t.Context(), "key", func(pgx.Tx) ([]byte, error) { a.data, a.did = "7", true; return []byte("7"), nil },
				func(data []byte) error { a.data = string(data); return nil })
			answers <- a
		}()
	}
	a, b := <-answers, <-answers
	if a.err != nil || b.err != nil || a.did == b.did || a.data != "7" || b.data != "7" {
		t.Errorf("got %+v and %+v", a, b)
	}
}
