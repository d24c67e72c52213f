package bide_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bide-dev/bide"
)

// The table is the dashboard's too, which has to say the same while its clock runs:
// dashboard/web/test/describe.test.ts.
func TestDescribe(t *testing.T) {
	data, err := os.ReadFile("testdata/describe.json")
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		Now   time.Time
		Cases []struct {
			Wait bide.Wait
			Says string
		}
	}
	if err := json.Unmarshal(data, &table); err != nil || len(table.Cases) == 0 {
		t.Fatalf("%d cases, %v", len(table.Cases), err)
	}
	for _, c := range table.Cases {
		if got := c.Wait.Describe(table.Now); got != c.Says {
			t.Errorf("got  %s\nwant %s", got, c.Says)
		}
	}
}

// Whatever a service has answered, the sentence stays one line that can be read.
func TestDescribeIsShort(t *testing.T) {
	w := bide.Wait{Kind: bide.KindPoll, Name: "job", LastValue: json.RawMessage(`"` + strings.Repeat("ä ", 5000) + `"`)}
	if got := w.Describe(time.Now()); len(got) > 200 || !strings.HasSuffix(got, "…") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
	w.Streak, w.LastError = 1, &bide.Failure{Message: strings.Repeat("line\n", 5000)}
	if got := w.Describe(time.Now()); len(got) > 300 || strings.Contains(got, "\n") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}
