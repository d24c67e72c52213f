package sqlite_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"

	bidesqlite "github.com/bide-dev/bide/sqlite"
)

// Whatever readers ask for is found by an index, or within a window of the newest
// rows, and never sorted, however many runs there are.
func TestPlans(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bide.db")
	if err := open(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// What is read whole: small tables, a JSON list that came with the query, and what
	// another part of the plan has found.
	small := regexp.MustCompile(`SCAN (CONSTANT ROW|route|tally|json_each|\(subquery.*|x)`)
	queries := bidesqlite.Queries()
	if len(queries) < 20 {
		t.Fatalf("%d queries", len(queries))
	}
	for _, sql := range queries {
		var plan []string
		st, _, err := conn.PrepareTransient("EXPLAIN QUERY PLAN " + sql)
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		for more := true; more; {
			if more, err = st.Step(); err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
			if more {
				plan = append(plan, st.ColumnText(3))
			}
		}
		_ = st.Finalize()
		for _, step := range plan {
			sorts := strings.Contains(step, "TEMP B-TREE") && !strings.Contains(sql, "FROM tally")
			if sorts || strings.HasPrefix(step, "SCAN") && !small.MatchString(step) || strings.Contains(step, "AUTOMATIC") {
				t.Errorf("%s\n%s", sql, strings.Join(plan, "\n"))
				break
			}
		}
	}
}
