package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// firstRunWithin is generous: it takes about a second, and this machine may have
// other things to do.
const firstRunWithin = 10 * time.Second

// Whoever tries it out sees a run that has finished soon after the start.
func TestDemoFirstRun(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), firstRunWithin)
	defer cancel()
	began := time.Now()
	cmd := exec.CommandContext(ctx, "bide", "demo", "--addr", "127.0.0.1:0") // as TestMain has it on the PATH
	cmd.Dir = t.TempDir()
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	found := ""
	for lines := bufio.NewScanner(said); found == "" && lines.Scan(); {
		if strings.Contains(lines.Text(), "demo-hello: succeeded after ") {
			found = lines.Text()
			t.Logf("after %v: %s", time.Since(began).Round(time.Millisecond), found)
		}
	}
	if found == "" {
		t.Errorf("no run has finished within %v", firstRunWithin)
	}
	_ = cmd.Process.Signal(os.Interrupt)
	_, _ = io.Copy(io.Discard, said)
	if err := cmd.Wait(); err != nil && found != "" {
		t.Errorf("after Ctrl-C: %v", err)
	}
}
