package remote_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/remote"
)

// TestKill has real processes work, and kills one in the middle of it.
func TestKill(t *testing.T) {
	t.Run("worker", func(t *testing.T) {
		testKill(t, func(t *testing.T, s *site) {
			kill(s.workers[0])
			s.hire(t)
		})
	})
	t.Run("server", func(t *testing.T) {
		testKill(t, func(t *testing.T, s *site) {
			kill(s.server)
			s.open(t, s.address)
		})
	})
}

// site is a server and its workers, each a process.
type site struct {
	file, witness string
	address       string
	server        *exec.Cmd
	workers       []*exec.Cmd
}

func (s *site) open(t *testing.T, address string) {
	t.Helper()
	s.server, s.address = start(t, "server", s.file, address)
}

func (s *site) hire(t *testing.T) {
	t.Helper()
	w, _ := start(t, "worker", "http://"+s.address, s.witness)
	s.workers = append(s.workers, w)
}

// lines are those of the witness: the steps that were called.
func (s *site) lines(t *testing.T) [][]byte {
	t.Helper()
	data, err := os.ReadFile(s.witness)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
}

func testKill(t *testing.T, accident func(*testing.T, *site)) {
	runs := 2000
	if testing.Short() || raceDetector {
		runs = 200
	}
	dir := t.TempDir()
	s := &site{file: filepath.Join(dir, "bide.db"), witness: filepath.Join(dir, "witness")}
	s.open(t, "127.0.0.1:0")
	s.hire(t)
	s.hire(t)
	store, err := remote.Dial("http://" + s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	work, client := chain(nil), bide.NewClient(store)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()

	// A hundred callers, each with a run at a time.
	var callers sync.WaitGroup
	names := make(chan int)
	for range 100 {
		callers.Go(func() {
			for n := range names {
				id := bide.ID(fmt.Sprint("run-", n))
				h, err := work.Start(ctx, client, task{Name: string(id), Steps: stepsARun}, id)
				if err != nil {
					t.Errorf("start %s: %v", id, err)
					continue
				}
				if got, err := h.Result(ctx); err != nil || got != stepsARun {
					t.Errorf("%s: %d, %v", id, got, err)
				}
			}
		})
	}
	once := sync.OnceFunc(func() { accident(t, s) })
	for n := range runs {
		if n == runs/2 {
			if done := len(s.lines(t)); done > runs*stepsARun*9/10 {
				t.Fatalf("%d of %d steps before the accident", done, runs*stepsARun)
			}
			once()
		}
		names <- n
	}
	close(names)
	callers.Wait()
	if t.Failed() {
		return
	}

	// Every step has one record, and its function was called once, or a second time
	// if the accident came before its record was durable.
	called := map[string]int{}
	for _, line := range s.lines(t) {
		called[string(line)]++
	}
	again := 0
	for n := range runs {
		id := fmt.Sprint("run-", n)
		h, err := store.History(ctx, id, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(h) != stepsARun {
			t.Errorf("%s has %d records, want %d", id, len(h), stepsARun)
		}
		repeated := 0
		for i := range stepsARun {
			switch calls := called[fmt.Sprintf("%s %d", id, i)]; calls {
			case 1:
			case 2:
				repeated++
			default:
				t.Errorf("step %d of %s was called %d times", i, id, calls)
			}
		}
		if repeated > 1 {
			t.Errorf("%d steps of %s were called twice: only one can have been under way", repeated, id)
		}
		again += repeated
	}
	t.Logf("%d runs, %d steps called again", runs, again)
}
