package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bide-dev/bide/internal/pgtest"
)

// TestMain lets the test binary stand in for the command, which starts itself
// again for crash and all.
func TestMain(m *testing.M) {
	if os.Getenv(selfEnv) != "" {
		main()
		return
	}
	limitFor, pollEvery = 50*time.Millisecond, 20*time.Millisecond
	loopEvery, loopsFor, settle = 20*time.Millisecond, 200*time.Millisecond, 300*time.Millisecond
	checkEvery, checksFor, manyEvery = 10*time.Millisecond, 100*time.Millisecond, 100*time.Millisecond
	os.Exit(m.Run())
}

// atMost is how long a workload may take, as small as they are here.
const atMost = 2 * time.Minute

// Every workload runs and says what was promised of it.
func TestWorkloads(t *testing.T) {
	unit := map[string]string{"steps": "steps/s", "limit": "rows/s", "latency": "ms", "chain": "ms", "sleepers": "runs/s",
		"wake": "runs/s", "polls": "s", "checks": "us/check", "manypolls": "late", "loops": "late", "idleloops": "B/loop", "crash": "ms", "finished": "steps/s", "list": "ms", "resume": "ms", "cadence": "checks/wait", "pair": "steps/s"}
	for _, args := range []string{
		"steps -n 30", "limit -n 1", "latency -n 20", "chain -n 2", "sleepers -n 300", "sleepers -n 300 -ids random",
		"wake -n 300", "polls -n 20", "checks -n 2", "manypolls -n 50", "loops -n 20", "idleloops -n 50", "crash -n 20", "finished -n 50", "list -n 100", "resume -n 50", "cadence -n 50",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			all := append([]string{"-json", "-dir", t.TempDir(), "-workload"}, strings.Fields(args)...)
			var out, errOut bytes.Buffer
			ctx, cancel := context.WithTimeout(t.Context(), atMost)
			defer cancel()
			if err := run(ctx, all, &out, &errOut); err != nil {
				t.Fatalf("%v\n%s", err, errOut.String())
			}
			lines := 0
			for line := range strings.Lines(out.String()) {
				lines++
				var shape map[string]any
				if err := json.Unmarshal([]byte(line), &shape); err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				for _, field := range []string{"workload", "store", "n", "inflight", "value", "unit", "p50_ms", "p99_ms", "cpu_s", "others_share", "rss_bytes", "db_bytes"} {
					if _, ok := shape[field]; !ok {
						t.Errorf("no %s in %s", field, line)
					}
				}
				var r row
				if err := json.Unmarshal([]byte(line), &r); err != nil {
					t.Fatal(err)
				}
				// Of so few loops the heap's own coming and going is more than they hold.
				if share := r.Unit == "late"; share && (r.Count == 0 || r.Value > 1) {
					t.Errorf("makes no sense: %s", line)
				} else if tiny := r.Unit == "B/loop"; r.Value <= 0 && !share && !tiny || r.N <= 0 || r.Inflight <= 0 || r.Store != "sqlite" || r.Unit != unit[r.Workload] {
					t.Errorf("makes no sense: %s", line)
				}
				if r.Workload == "steps" && (r.Ratio <= 0 || r.DB <= 0 || r.P99 < r.P50) {
					t.Errorf("makes no sense: %s", line)
				}
			}
			if lines == 0 {
				t.Error("printed nothing")
			}
		})
	}
	if len(unit) != len(workloads) {
		t.Errorf("a workload is not tested: %v", slices.Sorted(maps.Keys(workloads)))
	}
}

// The same for Postgres, one after the other on one server.
func TestPostgres(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // the server is another user
		t.Fatal(err)
	}
	if _, err := postgresDSN(filepath.Join(dir, "x")); errors.Is(err, pgtest.ErrMissing) && os.Getenv("CI") == "" {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	defer stopPostgres()
	for _, args := range []string{"steps -n 30", "limit -n 1", "latency -n 20", "sleepers -n 300", "wake -n 300", "finished -n 50", "pair -n 30"} {
		var out, errOut bytes.Buffer
		all := append([]string{"-json", "-store", "postgres", "-dir", dir, "-workload"}, strings.Fields(args)...)
		ctx, cancel := context.WithTimeout(t.Context(), atMost)
		err := run(ctx, all, &out, &errOut)
		cancel()
		if err != nil {
			t.Fatalf("%s: %v\n%s", args, err, errOut.String())
		}
		for line := range strings.Lines(out.String()) {
			var r row
			if err := json.Unmarshal([]byte(line), &r); err != nil || r.Value <= 0 || r.Store != "postgres" {
				t.Errorf("%s: %v in %s", args, err, line)
			}
		}
	}
}

// The readable form is one line a row, and the temporary directory is removed.
func TestTable(t *testing.T) {
	dir := t.TempDir()
	var out, errOut bytes.Buffer
	if err := run(t.Context(), strings.Fields("-workload chain -n 1 -dir "+dir), &out, &errOut); err != nil {
		t.Fatal(err)
	}
	if s := out.String(); strings.Count(s, "\n") != 1 || !strings.HasPrefix(s, "chain ") {
		t.Errorf("printed %q", s)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestFlagsAreChecked(t *testing.T) {
	for _, args := range []string{"-store none", "-workload none", "-n -1", "-inflight -1", "-ids odd", "-limit maybe", "more"} {
		var out, errOut bytes.Buffer
		if err := run(t.Context(), strings.Fields(args), &out, &errOut); err == nil {
			t.Errorf("%s: no error", args)
		}
	}
}

func TestQuantile(t *testing.T) {
	d := []time.Duration{4, 1, 3, 2}
	if p := quantile(d, 0.5); p != 3 {
		t.Errorf("p50 is %v", p)
	}
	if p := quantile(d, 0.99); p != 4 {
		t.Errorf("p99 is %v", p)
	}
	if m := median([]float64{3, 9, 1}); m != 3 {
		t.Errorf("median is %v", m)
	}
}
