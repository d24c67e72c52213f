package bide_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/bide-dev/bide/internal/pgtest"
)

// suites are the tests that TestOnPostgres runs: those to which it is most likely to
// matter how a store hands runs over, and keeps waits. Those left out and all others run there too,
// with BIDE_TEST_POSTGRES set by hand.
const (
	suites  = `^Test(Kill|Loop|Poll|SharedPoll|Webhook|Endpoint|Job|Takeover|Signal|Stream)`
	tooLong = `^TestPoll(OneRecord|Learned|OverRandomServices|JitterBounds)$|^TestLoopStaysSmall$` // thousands of turns
)

// TestOnPostgres runs the suites once more, in a process whose tests keep their
// stores in a Postgres.
func TestOnPostgres(t *testing.T) {
	if onPostgres != "" {
		t.Skip("all of this process are on Postgres")
	}
	if short() {
		t.Skip("starts a Postgres, and takes a minute; make crash runs it")
	}
	server, err := pgtest.Start("", "fsync=off", "synchronous_commit=off", "full_page_writes=off")
	if errors.Is(err, pgtest.ErrMissing) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.v", "-test.timeout=10m", "-test.run="+suites, "-test.skip="+tooLong)
	cmd.Env = append(os.Environ(), "BIDE_TEST_POSTGRES="+server.DSN)
	out, err := cmd.CombinedOutput()
	passed := bytes.Count(out, []byte("\n--- PASS: "))
	if err != nil || passed < 50 {
		t.Errorf("%d tests passed on Postgres, %v:\n%s", passed, err, out)
	}
	t.Logf("%d tests passed on Postgres", passed)
}
