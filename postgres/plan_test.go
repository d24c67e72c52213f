package postgres_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/bide-dev/bide/postgres"
)

// Whatever lists and counts ask for goes by the index that is meant for it, with
// statistics and without, before and after the plan is made for all arguments alike.
func TestPlans(t *testing.T) {
	ctx, schema := context.Background(), newSchema()
	if err := open(t, schema).Close(); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	do := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(ctx, strings.ReplaceAll(sql, "bide.", schema+".")); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	do(`INSERT INTO bide.route SELECT 1 + i, 'q' || i, 'w' FROM generate_series(0, 3) AS i`)
	do(`INSERT INTO bide.run (k, route, ver, wake, holder, created, state, id, parent)
		SELECT k, 1 + k % 4, k, CASE WHEN k % 10 < 3 THEN k END, CASE WHEN k % 100 = 3 THEN k % 7 END, k, CASE WHEN k % 10 < 5 THEN 3 WHEN k % 5000 = 5 THEN 7 ELSE 6 END,
			CASE WHEN k % 3 = 0 THEN 'id' || k END, CASE WHEN k % 9 = 0 THEN 'p' || k % 50 ELSE '' END FROM generate_series(1, 50000) AS k`)
	do(`INSERT INTO bide.label SELECT substr(sha256(('a=' || k % 5)::bytea), 1, 8), k FROM generate_series(1, 50000) AS k`)
	do(`INSERT INTO bide.worker SELECT k, 1, k::text, '{}', '{}', 1 FROM generate_series(0, 6) AS k`)
	for _, analyze := range []string{"", "ANALYZE bide.run; ANALYZE bide.label"} {
		do(analyze)
		do(postgres.AtOneMoment)
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			do("SET LOCAL plan_cache_mode = " + mode)
			for i, q := range postgres.PlannedQueries() {
				name := fmt.Sprintf("q%d", i)
				types, args := "("+q.Types+")", "("+q.Args+")"
				if q.Types == "" {
					types, args = "", ""
				}
				do("PREPARE " + name + types + " AS " + q.SQL)
				rows, err := conn.Query(ctx, "EXPLAIN (COSTS OFF) EXECUTE "+name+args, pgx.QueryExecModeSimpleProtocol)
				if err != nil {
					t.Fatalf("%s: %v", q.SQL, err)
				}
				lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
				if err != nil {
					t.Fatalf("%s: %v", q.SQL, err)
				}
				plan := strings.Join(lines, "\n")
				uses := regexp.MustCompile(`(Index|Index Only) Scan( Backward)? using (\w+)`).FindAllStringSubmatch(plan, -1)
				found := map[string]bool{}
				for _, u := range uses {
					found[u[3]] = true
				}
				for want := range strings.FieldsSeq(q.Indexes) {
					if !found[want] {
						t.Errorf("%q, %s: no %s\n%s\n%s", analyze, mode, want, q.SQL, plan)
					}
					delete(found, want)
				}
				for _, not := range []string{"run_pkey", "run_due", "run_state", "run_held", "run_id", "run_parent", "run_mute"} {
					if found[not] {
						t.Errorf("%q, %s: uses %s\n%s\n%s", analyze, mode, not, q.SQL, plan)
					}
				}
				if strings.Contains(plan, "Seq Scan on run") || strings.Contains(plan, "Bitmap") {
					t.Errorf("%q, %s:\n%s\n%s", analyze, mode, q.SQL, plan)
				}
				do("DEALLOCATE " + name)
			}
		}
		do("ROLLBACK")
	}
}
