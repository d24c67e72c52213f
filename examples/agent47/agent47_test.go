package main

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/sqlite"
)

// TestMain lets the test binary be the program, so that there is a real process
// to kill.
func TestMain(m *testing.M) {
	if os.Getenv("AGENT47_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

const kills = 6

func TestEachStepRunsOnceHoweverOftenTheProcessIsKilled(t *testing.T) {
	const seed = 47
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()

	for range kills {
		life := 40*time.Millisecond + time.Duration(rng.Int64N(150e6))
		if out, killed := program(t, dir, life); !killed {
			t.Fatalf("done within %v, before it could be killed %d times:\n%s", life, kills, out)
		}
	}
	out, _ := program(t, dir, time.Minute)
	if !strings.Contains(out, "answer follows observe-15\n47 steps, ") {
		t.Errorf("the last process said:\n%s", out)
	}
	effects := checkEffects(t, dir)
	checkHistory(t, dir)
	t.Logf("%d kills, 47 steps, %d effects", kills, effects)
}

// checkEffects proves from the effects that each of the 47 steps ran, in order,
// and that one ran again only where a process died between effect and record:
// then the effect is the last one of its process.
func checkEffects(t *testing.T, dir string) int {
	t.Helper()
	w, err := openWorld(filepath.Join(dir, "agent47.effects"), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	effects, err := w.effects()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i, e := range effects {
		if seen[e.Step] && (effects[i-1].Step != e.Step || effects[i-1].PID == e.PID) {
			t.Errorf("effect %d: %s ran again although a process had gone on beyond it", i, e.Step)
		}
		seen[e.Step] = true
	}
	if len(seen) != steps {
		t.Errorf("%d different steps had an effect, want %d", len(seen), steps)
	}
	return len(effects)
}

// checkHistory reads the run: it succeeded, with one record for each step.
func checkHistory(t *testing.T, dir string) {
	t.Helper()
	store, err := sqlite.Open(filepath.Join(dir, "agent47.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	client := bide.NewClient(store)
	run, err := client.Get(t.Context(), "agent-47")
	if err != nil || run.State != bide.Succeeded {
		t.Fatalf("the run is %s, %v", run.State, err)
	}
	history, err := client.History(t.Context(), "agent-47", 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(history) != steps {
		t.Errorf("the history has %d records, want %d", len(history), steps)
	}
	names := map[string]bool{}
	for _, r := range history {
		if r.Kind != bide.KindStep || r.Error != nil || names[r.Name] {
			t.Errorf("record %s: %s %q, error %v; want each step once, without error", r.Path, r.Kind, r.Name, r.Error)
		}
		names[r.Name] = true
	}
}

// program runs agent47 and kills it (-9) when its life is over.
func program(t *testing.T, dir string, life time.Duration) (out string, killed bool) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var output bytes.Buffer
	cmd := exec.Command(self, "-dir", dir, "-pace", "30ms")
	cmd.Env = append(os.Environ(), "AGENT47_MAIN=1")
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
