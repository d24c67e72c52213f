package sqlite_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/sqlite"
)

const limitedIn = "BIDE_LIMITED_IN" // set: this process works in the folder, its files limited in size

// On a file system that takes no more, and under a limit on the size of files,
// writing says ErrStoreFull, what was acknowledged stays, and once there is room
// the same store goes on.
func TestReallyFull(t *testing.T) {
	if dir := os.Getenv(limitedIn); dir != "" {
		signal.Ignore(syscall.SIGXFSZ) // writes beyond the limit fail instead
		limit := func(n uint64) {
			var l syscall.Rlimit
			if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &l); err != nil {
				t.Fatal(err)
			}
			if l.Cur = n; n == 0 {
				l.Cur = l.Max
			}
			if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &l); err != nil {
				t.Fatal(err)
			}
		}
		limit(3 << 20)
		untilFull(t, dir, func() { limit(0) })
		return
	}
	t.Run("limit", func(t *testing.T) {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(self, "-test.run=^TestReallyFull$", "-test.v")
		cmd.Env = append(os.Environ(), limitedIn+"="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v:\n%s", err, out)
		}
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "full after") {
				t.Log(strings.TrimSpace(line))
			}
		}
	})
	t.Run("disk", func(t *testing.T) {
		dir := t.TempDir()
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
			t.Logf("no file system to fill: mount: %v; the limit above stands in for it", err)
			return
		}
		defer func() {
			if err := syscall.Unmount(dir, 0); err != nil {
				t.Error(err)
			}
		}()
		ballast := filepath.Join(dir, "ballast")
		if err := os.WriteFile(ballast, make([]byte, 2<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		untilFull(t, dir, func() {
			if err := os.Remove(ballast); err != nil {
				t.Fatal(err)
			}
		})
	})
}

func untilFull(t *testing.T, dir string, lift func()) {
	path := filepath.Join(dir, "bide.db")
	s := open(t, path)
	made := 0
	put := func() error {
		id := fmt.Sprint("r", made)
		c, err := s.Create(t.Context(), []bide.NewRun{{ID: id, Workflow: "w", Queue: "q", Input: []byte(`"` + strings.Repeat("x", 10_000) + `"`)}})
		if err == nil {
			err = c[0].Err
		}
		if err == nil {
			made++
		}
		return err
	}
	var err error
	for err == nil && made < 10_000 {
		err = put()
	}
	t.Logf("full after %d runs: %v", made, err)
	for range 3 {
		if !errors.Is(err, bide.ErrStoreFull) {
			t.Fatalf("with no room left: %v, want ErrStoreFull", err)
		}
		err = put()
	}
	check := func() {
		t.Helper()
		for i := range made + 1 {
			_, err := s.Run(t.Context(), fmt.Sprint("r", i))
			if want := error(nil); i == made {
				want = bide.ErrNotFound
				if !errors.Is(err, want) {
					t.Errorf("the run that found no room: %v", err)
				}
			} else if err != nil {
				t.Fatalf("run %d of %d: %v", i, made, err)
			}
		}
	}
	check()
	lift()
	for range 20 {
		if err := put(); err != nil {
			t.Fatalf("once there was room: %v", err)
		}
	}
	check()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	next, err := sqlite.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	s = next
	check()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
