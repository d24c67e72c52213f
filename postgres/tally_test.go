package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/postgres"
)

// The counts are right whoever has made the runs, in however many queues: processes
// side by side, transactions of the user's, and processes of which nothing is left.
func TestTally(t *testing.T) {
	ctx, schema := context.Background(), newSchema()
	a, b := open(t, schema), open(t, schema)
	defer a.Close()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	exec := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(ctx, strings.ReplaceAll(sql, "bide.", schema+".")); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]int64{}
	check := func(when string) {
		t.Helper()
		status, err := a.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int64{}
		for _, c := range status.Counts {
			got[c.Queue+" "+c.State.String()] = c.Runs
		}
		if fmt.Sprint(got) != fmt.Sprint(want) { // in the order of the keys
			t.Errorf("%s: got %v\nwant %v", when, got, want)
		}
	}
	for i := range 200 {
		s := []*postgres.Store{a, b}[i%2]
		n := bide.NewRun{ID: fmt.Sprint(i), Workflow: "w", Queue: fmt.Sprintf("q%02d", i%60), Input: []byte(`1`)}
		if i%5 == 4 {
			tx, err := conn.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.StartTx(ctx, tx, n); err != nil {
				t.Fatal(err)
			}
			if i%10 == 9 {
				if err := tx.Rollback(ctx); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if err := tx.Commit(ctx); err != nil {
				t.Fatal(err)
			}
		} else if _, err := s.Create(ctx, []bide.NewRun{n}); err != nil {
			t.Fatal(err)
		}
		if i%3 > 0 {
			want[n.Queue+" queued"]++
			continue
		}
		want[n.Queue+" terminated"]++
		if err := []*postgres.Store{b, a}[i%2].Control(ctx, n.ID, bide.Command{Op: bide.OpTerminate}); err != nil {
			t.Fatal(err)
		}
	}
	check("at work")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	check("one has gone")
	exec(`UPDATE bide.member SET expires = clock_timestamp() - interval '2 days' WHERE dead`)
	exec(postgres.Forget)
	check("it is forgotten")
	var rows int
	if err := conn.QueryRow(ctx, `SELECT count(*) FROM `+schema+`.member`).Scan(&rows); err != nil || rows != 1 {
		t.Errorf("%d members, %v", rows, err)
	}
	exec(strings.ReplaceAll(postgres.FoldTally, "10000", "1"))
	check("folded")
	if err := conn.QueryRow(ctx, `SELECT count(*) FROM `+schema+`.tally`).Scan(&rows); err != nil || rows > 120 {
		t.Errorf("%d rows, %v", rows, err)
	}
}
