package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/sqlite"
)

// TestMain lets the test binary be the program, so that there is a real process
// to kill.
func TestMain(m *testing.M) {
	if os.Getenv("RESEARCH_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// paidCalls are those that a run on "tea" makes, by the names of their steps.
var paidCalls = []string{"queries", "search tea history", "search tea today", "search tea risks", "search tea outlook", "submit", "write"}

const teaReport = `# tea

- a finding on tea history
- a finding on tea today
- a finding on tea risks
- a finding on tea outlook
- what only deep research finds on tea
`

// TestResearch takes a job of 50 minutes, in virtual time.
func TestResearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		ledger, err := openLedger(filepath.Join(dir, "ledger"))
		if err != nil {
			t.Fatal(err)
		}
		defer ledger.Close()
		store, err := sqlite.Open(":memory:")
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()

		service := newService(ledger, 50*time.Minute)
		agent := &researcher{api: &client{http: &http.Client{Transport: inProcess{service}}}, dir: dir, every: 10 * time.Second}
		workflow := agent.workflow()
		worker := bide.NewWorker(store, bide.WorkerConfig{})
		worker.Register(workflow)
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan error)
		go func() { stopped <- worker.Run(ctx) }()

		began := time.Now()
		run, err := workflow.Start(ctx, bide.NewClient(store), "tea", bide.ID("research-tea"))
		if err != nil {
			t.Fatal(err)
		}
		report, err := run.Result(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if report.Text != teaReport {
			t.Errorf("report:\n%s\nwant:\n%s", report.Text, teaReport)
		}
		if saved, err := os.ReadFile(report.File); err != nil || string(saved) != teaReport {
			t.Errorf("saved in %s: %q, %v", report.File, saved, err)
		}
		if took := time.Since(began); took < 50*time.Minute || took > 51*time.Minute {
			t.Errorf("took %v for a job of 50 minutes", took)
		}
		checkPaid(t, store, ledger)
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

// inProcess hands requests straight to a handler: a socket would let real time
// into the bubble.
type inProcess struct{ http.Handler }

func (h inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	resp := w.Result()
	resp.Request = r
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return resp, nil
}

// TestKilled kills the program at random moments and starts it again, until it
// has its report; then it audits the books.
func TestKilled(t *testing.T) {
	const most = 6 // kills of one run; the shorter the lives, the more of them it takes
	for seed, longest := range []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second} {
		t.Run(fmt.Sprintf("within %v", longest), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(uint64(seed), 0))
			dir := t.TempDir()
			kills := 0
			out, killed := program(t, dir, 50*time.Millisecond+time.Duration(rng.Int64N(int64(longest))))
			for killed {
				life := 50*time.Millisecond + time.Duration(rng.Int64N(int64(longest)))
				if kills++; kills == most {
					life = time.Minute
				}
				out, killed = program(t, dir, life)
			}
			t.Logf("killed %d times", kills)
			// A process may have died before it had begun, or after the end.
			if !strings.Contains(out, teaReport) || !strings.Contains(out, "No finished call was paid for twice: 7 calls, 7 bills.") {
				t.Errorf("the last process said:\n%s", out)
			}

			store, err := sqlite.Open(filepath.Join(dir, "research.db"))
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			ledger, err := openLedger(filepath.Join(dir, "research.ledger.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			defer ledger.Close()
			checkPaid(t, store, ledger)
		})
	}
}

// checkPaid compares what the agent says it did with what the service says it
// was asked for.
func checkPaid(t *testing.T, store bide.Store, l *ledger) {
	t.Helper()
	c := bide.NewClient(store)
	run, err := c.Get(t.Context(), "research-tea")
	if err != nil || run.State != bide.Succeeded {
		t.Fatalf("the run is %s, %v", run.State, err)
	}
	history, err := c.History(t.Context(), run.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	finished := map[string]time.Time{}
	for _, r := range history {
		if _, twice := finished[r.Name]; twice || r.Error != nil {
			t.Errorf("record %s %s %q: twice, or with an error (%v)", r.Path, r.Kind, r.Name, r.Error)
		}
		finished[r.Name] = r.At
	}
	if want := len(paidCalls) + 2; len(finished) != want { // and the poll, and "save"
		t.Errorf("the history has %d records, want %d: %v", len(finished), want, finished)
	}

	// Every call was billed once, under one key.
	accounts := l.accounts(time.Time{})
	billed := map[string]int{}
	for _, a := range accounts {
		billed[a.call] += a.billed
	}
	for _, call := range paidCalls {
		if billed[call] != 1 {
			t.Errorf("%q was billed %d times", call, billed[call])
		}
	}
	if len(accounts) != len(paidCalls) {
		t.Errorf("%d keys were used for %d calls", len(accounts), len(paidCalls))
	}

	// And it was not asked for again: within one process only after a refusal, and
	// never after its step was recorded.
	open := map[string]bool{}
	for i, e := range l.entries {
		switch e.Event {
		case opened:
			clear(open)
		case requested:
			if open[e.Key] {
				t.Errorf("ledger line %d: %q was requested twice by one process", i+1, e.Call)
			}
			if at, ok := finished[e.Call]; !ok || e.At.After(at) {
				t.Errorf("ledger line %d: %q was requested at %v; its step was recorded at %v", i+1, e.Call, e.At, at)
			}
			open[e.Key] = true
		case refused:
			open[e.Key] = false
		}
	}
}

// program runs research and kills it (-9) when its life is over.
func program(t *testing.T, dir string, life time.Duration) (out string, killed bool) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var output bytes.Buffer
	cmd := exec.Command(self, "-db", filepath.Join(dir, "research.db"), "-job", "1s", "tea")
	cmd.Env = append(os.Environ(), "RESEARCH_MAIN=1")
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(life, func() { cmd.Process.Kill() })
	defer kill.Stop()
	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == -1 { // by a signal: ours
		return output.String(), true
	}
	if err != nil {
		t.Fatalf("%v:\n%s", err, &output)
	}
	return output.String(), false
}
