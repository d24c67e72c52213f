package sqlite_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sqlite3 "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/sqlite"
)

const ownerOf = "BIDE_OWNER_OF" // set: this process owns the file until its stdin ends

// A file has one owner: a second one, in this process or another, is told who has
// it and what to do, and gets it the moment the owner is gone, killed or not.
func TestOneOwner(t *testing.T) {
	if path := os.Getenv(ownerOf); path != "" {
		if _, err := sqlite.Open(path); err != nil {
			t.Fatal(err)
		}
		fmt.Println("open")
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	path := filepath.Join(t.TempDir(), "bide.db")
	inUse := func(pid int) {
		t.Helper()
		_, err := sqlite.Open(path)
		var e *sqlite.InUseError
		if !errors.As(err, &e) {
			t.Fatalf("a second owner got %v, want an InUseError", err)
		}
		program := filepath.Base(os.Args[0])
		if e.Path != path || e.Owner.PID != pid || e.Owner.Program != program || time.Since(e.Owner.Since) > time.Hour {
			t.Errorf("the error names %+v, want process %d of %s", e, pid, program)
		}
		for _, want := range []string{path, fmt.Sprint("process ", pid), program, "stop that process", "ReadOnly"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error says %q, want %q in it", err, want)
			}
		}
	}
	s := open(t, path)
	inUse(os.Getpid())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestOneOwner$")
	cmd.Env = append(os.Environ(), ownerOf+"="+path)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "open\n" {
		t.Fatalf("the other process says %q, %v", line, err)
	}
	inUse(cmd.Process.Pid)
	look, err := sqlite.Open(path, sqlite.ReadOnly())
	if err != nil {
		t.Fatal(err)
	}
	refusesToWrite(t, look, cmd.Process.Pid)
	if err := look.Close(); err != nil {
		t.Error(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if err := open(t, path).Close(); err != nil {
		t.Error(err)
	}
}

// refusesToWrite checks that every method that writes returns ErrReadOnly and
// names the owner.
func refusesToWrite(t *testing.T, s bide.Store, owner int) {
	t.Helper()
	ctx := t.Context()
	_, create := s.Create(ctx, []bide.NewRun{{Workflow: "w", Queue: "q"}})
	_, claim := s.Claim(ctx, bide.Claim{Worker: "x", Queues: []string{"q"}, Workflows: []string{"w"}, Max: 1, TTL: time.Second})
	_, signal := s.Signal(ctx, "r", bide.Message{Name: "s"})
	for method, err := range map[string]error{
		"Create":  create,
		"Claim":   claim,
		"Commit":  s.Commit(ctx, bide.Lease{Run: "r", Worker: "x"}, bide.Batch{}),
		"renew":   s.Commit(ctx, bide.Lease{Worker: "x"}, bide.Batch{}),
		"facts":   s.Commit(ctx, bide.Lease{}, bide.Batch{Facts: []bide.Fact{{Kind: "k", Key: "a", Value: json.RawMessage(`1`)}}}),
		"Signal":  signal,
		"Control": s.Control(ctx, "r", bide.Command{Op: bide.OpCancel}),
	} {
		if !errors.Is(err, bide.ErrReadOnly) || !strings.Contains(err.Error(), fmt.Sprint("process ", owner)) {
			t.Errorf("%s on a store to look at: %v, want ErrReadOnly and process %d named", method, err, owner)
		}
	}
}

// Whoever looks at a file beside its live owner sees what the owner has written,
// as it writes.
func TestReadOnlyBesideAnOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bide.db")
	synctest.Test(t, func(t *testing.T) {
		s := open(t, path)
		defer s.Close()
		look, err := sqlite.Open(path, sqlite.ReadOnly())
		if err != nil {
			t.Fatal(err)
		}
		defer look.Close()
		ctx := t.Context()
		for i := range 20 {
			c := create(t, s, bide.NewRun{ID: fmt.Sprint("r", i)})
			l := claim(t, s, 100)
			if r, err := look.Run(ctx, c.ID); err != nil || r.State != bide.Running {
				t.Fatalf("the run in hand shows as %v, %v", r.State, err)
			}
			b := bide.Batch{Records: []bide.Record{{Path: "1", Kind: bide.KindStep, Name: "s", At: time.Now()}}, Next: bide.Done{}}
			if err := s.Commit(ctx, l.Lease, b); err != nil {
				t.Fatal(err)
			}
			if r, err := look.Run(ctx, c.ID); err != nil || r.State != bide.Succeeded {
				t.Errorf("the ended run shows as %v, %v", r.State, err)
			}
			if h, err := look.History(ctx, c.ID, 0, 0); err != nil || len(h) != 1 {
				t.Errorf("its history shows as %v, %v", h, err)
			}
			if runs, err := look.Runs(ctx, bide.Query{States: []bide.State{bide.Succeeded}}); err != nil || len(runs) != i+1 {
				t.Errorf("%d runs show, %v; want %d", len(runs), err, i+1)
			}
		}
		refusesToWrite(t, look, os.Getpid())
		if err := look.Close(); err != nil {
			t.Error(err)
		}
		if _, err := look.Run(ctx, "r0"); !errors.Is(err, bide.ErrClosed) {
			t.Errorf("Run after Close: %v", err)
		}
	})
}

func create(t *testing.T, s bide.Store, n bide.NewRun) bide.Created {
	t.Helper()
	n.Workflow, n.Queue = "w", "q"
	c, err := s.Create(t.Context(), []bide.NewRun{n})
	if err != nil || c[0].Err != nil {
		t.Fatal(c, err)
	}
	return c[0]
}

// claim takes the one run that is due.
func claim(t *testing.T, s bide.Store, limit int) bide.Claimed {
	t.Helper()
	got, err := s.Claim(t.Context(), bide.Claim{Worker: "x", Queues: []string{"q"}, Workflows: []string{"w"}, Max: limit, TTL: time.Hour})
	if err != nil || len(got) != 1 {
		t.Fatalf("claimed %v, %v", got, err)
	}
	return got[0]
}

// What cannot be opened says why, and leaves the lock to others.
func TestCannotOpen(t *testing.T) {
	dir := t.TempDir()
	put := func(name, content string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	folder := filepath.Join(dir, "folder")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	newer := filepath.Join(dir, "newer.db")
	if err := open(t, newer).Close(); err != nil {
		t.Fatal(err)
	}
	run(t, newer, "PRAGMA user_version = 99")
	ro := []sqlite.Option{sqlite.ReadOnly()}
	for _, c := range []struct {
		name, path string
		opts       []sqlite.Option
		want       string
	}{
		{"a text", put("text.db", strings.Repeat("no database at all\n", 100)), nil, "not a database"},
		{"a text, to look at", put("text2.db", strings.Repeat("no database at all\n", 100)), ro, "not a database"},
		{"a folder", folder, nil, "unable to open"},
		{"a folder that is not there", filepath.Join(dir, "none", "bide.db"), nil, "no such file or directory"},
		{"a folder that is a file", filepath.Join(put("file", "x"), "bide.db"), nil, "not a directory"},
		{"a missing file, to look at", filepath.Join(dir, "missing.db"), ro, "no such file or directory"},
		{"an empty file, to look at", put("empty.db", ""), ro, "has no schema"},
		{"a newer file", newer, nil, "version 99, this program knows up to 4: use a newer bide"},
		{"a newer file, to look at", newer, ro, "version 99, this program knows up to 4: use a newer bide"},
	} {
		for range 2 { // the second time shows that the first has let go of the lock
			s, err := sqlite.Open(c.path, c.opts...)
			if err == nil {
				_ = s.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", c.name, err, c.want)
			}
		}
	}
	var schema *sqlite.SchemaError
	if _, err := sqlite.Open(newer); !errors.As(err, &schema) || schema.Has != 99 || schema.Newest != 4 || schema.Path != newer {
		t.Errorf("a newer file: %+v", schema)
	}
	if _, err := sqlite.Open(filepath.Join(dir, "missing.db"), ro...); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v, want fs.ErrNotExist", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "missing.db")); err == nil {
		t.Error("to look at a missing file has made it")
	}
	if os.Geteuid() != 0 { // nothing is unwritable for root
		if err := os.Chmod(folder, 0o500); err != nil {
			t.Fatal(err)
		}
		if _, err := sqlite.Open(filepath.Join(folder, "bide.db")); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("an unwritable folder: %v", err)
		}
	}
}

// run executes a statement on a file that nobody has open.
func run(t *testing.T, path, sql string) {
	t.Helper()
	conn, err := sqlite3.OpenConn(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sqlitex.ExecuteTransient(conn, sql, nil), conn.Close()); err != nil {
		t.Fatal(err)
	}
}

// A file that another program has begun, and an empty one, become stores; a
// migration that fails says which, and half of it is not there.
func TestMigration(t *testing.T) {
	dir := t.TempDir()
	begun := filepath.Join(dir, "begun.db")
	run(t, begun, "CREATE TABLE other (x)")
	s := open(t, begun)
	create(t, s, bide.NewRun{ID: "a"})
	_ = s.Close()
	s = open(t, begun)
	if _, err := s.Run(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	_ = s.Close()

	taken := filepath.Join(dir, "taken.db")
	run(t, taken, "CREATE TABLE rec (mine)")
	if _, err := sqlite.Open(taken); err == nil || !strings.Contains(err.Error(), "migration schema/") {
		t.Errorf("a file with a table of ours already: %v", err)
	}
	run(t, taken, "DROP TABLE rec")
	s = open(t, taken)
	create(t, s, bide.NewRun{ID: "a"})
	_ = s.Close()
}

// Stores in memory know nothing of each other, and of no file.
func TestMemoryIsApart(t *testing.T) {
	a, b := open(t, ":memory:"), open(t, ":memory:")
	defer a.Close()
	defer b.Close()
	create(t, a, bide.NewRun{ID: "a"})
	made := create(t, a, bide.NewRun{})
	create(t, b, bide.NewRun{})
	for _, id := range []string{"a", made.ID} {
		if _, err := b.Run(t.Context(), id); !errors.Is(err, bide.ErrNotFound) {
			t.Errorf("run %s of another store in memory: %v", id, err)
		}
	}
	if _, err := os.Stat(":memory:.owner"); err == nil {
		t.Error("a store in memory has locked a file")
	}
}

// Made ids ascend and are never given twice, over closed owners and crashed ones;
// those of another store are not found here, and do not pass for one's own.
func TestIDs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bide.db")
	var ids []string
	s := open(t, path)
	for i := range 8 {
		for range 3 {
			ids = append(ids, create(t, s, bide.NewRun{}).ID)
		}
		if i%2 == 0 {
			path = crashed(t, s, path)
		} else {
			path = closed(t, s, path)
		}
		s = open(t, path)
	}
	defer s.Close()
	tag := ids[0][:strings.LastIndexByte(ids[0], '_')+1]
	number := func(id string) string { return fmt.Sprintf("%12s", strings.TrimPrefix(id, tag)) }
	if !slices.IsSortedFunc(ids, func(a, b string) int { return strings.Compare(number(a), number(b)) }) || len(slices.Compact(slices.Sorted(slices.Values(ids)))) != len(ids) {
		t.Errorf("the made ids do not ascend: %v", ids)
	}
	runs, err := s.Runs(t.Context(), bide.Query{Limit: 100})
	if err != nil || len(runs) != len(ids) {
		t.Fatalf("%d runs, %v; want %d", len(runs), err, len(ids))
	}
	for i, r := range runs {
		if r.ID != ids[len(ids)-1-i] {
			t.Errorf("run %d is %s, want %s", i, r.ID, ids[len(ids)-1-i])
		}
	}
	for _, id := range []string{
		"run_zzzz_1", "run_", "run_x", tag, tag + "0", tag + "-1", tag + "zzzz", tag + "+" + strings.TrimPrefix(ids[0], tag),
		strings.ToUpper(ids[0]), tag + "0" + strings.TrimPrefix(ids[0], tag), "nobody",
	} {
		if _, err := s.Run(t.Context(), id); !errors.Is(err, bide.ErrNotFound) {
			t.Errorf("Run %q: %v, want ErrNotFound", id, err)
		}
		if _, err := s.Signal(t.Context(), id, bide.Message{Name: "s"}); !errors.Is(err, bide.ErrNotFound) {
			t.Errorf("Signal %q: %v, want ErrNotFound", id, err)
		}
	}
	// A user's id may look like a made one of another store.
	if c := create(t, s, bide.NewRun{ID: "run_zzzz_1"}); !c.New || c.ID != "run_zzzz_1" {
		t.Errorf("created %+v", c)
	}
	if r, err := s.Run(t.Context(), "run_zzzz_1"); err != nil || r.ID != "run_zzzz_1" {
		t.Errorf("%v, %v", r.ID, err)
	}
}

// Close lets what is queued be written, ends those who wait, and may be called
// again; what was refused is not in the file, what was not is.
func TestClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bide.db")
	s := open(t, path)
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			c := bide.Claim{Worker: fmt.Sprint("x", i), Queues: []string{"none"}, Workflows: []string{"w"}, Max: 1, TTL: time.Hour}
			if _, err := s.Claim(context.Background(), c); !errors.Is(err, bide.ErrClosed) {
				t.Errorf("a Claim that Close ended: %v", err)
			}
		})
	}
	var mu sync.Mutex
	made := map[string]error{}
	for i := range 50 {
		all.Go(func() {
			for j := 0; ; j++ {
				id := fmt.Sprintf("%d-%d", i, j)
				_, err := s.Create(context.Background(), []bide.NewRun{{ID: id, Workflow: "w", Queue: "q"}})
				mu.Lock()
				made[id] = err
				mu.Unlock()
				if err != nil {
					return
				}
				if i == 0 && j == 50 {
					go func() { _ = s.Close() }()
				}
			}
		})
	}
	all.Wait()
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	_, claimErr := s.Claim(t.Context(), bide.Claim{Worker: "x", TTL: time.Second})
	_, runsErr := s.Runs(t.Context(), bide.Query{})
	for call, err := range map[string]error{"Claim": claimErr, "Runs": runsErr, "renew": s.Commit(t.Context(), bide.Lease{Worker: "x0"}, bide.Batch{})} {
		if !errors.Is(err, bide.ErrClosed) {
			t.Errorf("%s after Close: %v", call, err)
		}
	}
	s = open(t, path)
	defer s.Close()
	for id, err := range made {
		_, found := s.Run(t.Context(), id)
		if err == nil && found != nil || err != nil && (!errors.Is(err, bide.ErrClosed) || !errors.Is(found, bide.ErrNotFound)) {
			t.Errorf("run %s: Create said %v; in the file: %v", id, err, found)
		}
	}
	t.Logf("%d runs were made while the store was closed", len(made)-50)
}

// Who waits for a run's end learns that the store is closed.
func TestCloseWakesWatchers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, ":memory:")
		w := bide.Define("w", func(bide.Context, string) (string, error) { return "", nil })
		h, err := w.Start(t.Context(), bide.NewClient(s), "in") // nobody will work on it
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		done := make(chan error, 1)
		go func() {
			_, err := h.Result(ctx)
			done <- err
		}()
		synctest.Wait()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, bide.ErrClosed) {
			t.Errorf("Result of a run whose store was closed: %v, want ErrClosed", err)
		}
	})
}

// Who watches a run in a file beside its owner sees it go on and end, and learns
// of Close too.
func TestWatchBesideAnOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bide.db")
	synctest.Test(t, func(t *testing.T) {
		s := open(t, path)
		defer s.Close()
		look, err := sqlite.Open(path, sqlite.ReadOnly())
		if err != nil {
			t.Fatal(err)
		}
		create(t, s, bide.NewRun{ID: "a"})
		create(t, s, bide.NewRun{ID: "b", StartAt: time.Now().Add(time.Hour)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		watch := func(id string) <-chan string {
			done := make(chan string, 1)
			go func() {
				var seen []string
				for r, err := range bide.NewClient(look).Watch(ctx, id) {
					seen = append(seen, fmt.Sprint(r.State, err))
				}
				done <- strings.Join(seen, ", ")
			}()
			return done
		}
		a, b := watch("a"), watch("b")
		time.Sleep(time.Second)
		l := claim(t, s, 1)
		time.Sleep(time.Second)
		if err := s.Commit(t.Context(), l.Lease, bide.Batch{Next: bide.Done{}}); err != nil {
			t.Fatal(err)
		}
		if got, want := <-a, "queued <nil>, succeeded <nil>"; got != want {
			t.Errorf("the one beside saw %s, want %s", got, want)
		}
		if err := look.Close(); err != nil {
			t.Error(err)
		}
		if got, want := <-b, "waiting <nil>, state(0) bide: the store is closed"; got != want {
			t.Errorf("after Close the one beside saw %s, want %s", got, want)
		}
	})
}

// The log is written over and over instead of growing, and opens intact though
// most of it is zeros or old.
func TestWAL(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bide.db")
	s := open(t, path)
	size := func() int64 {
		info, err := os.Stat(path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	if size() > 1<<20 {
		t.Errorf("a new log has %d bytes: opening is to be quick", size())
	}
	for i := range 70 {
		create(t, s, bide.NewRun{ID: fmt.Sprint("early", i), StartAt: time.Now().Add(time.Hour)})
	}
	if size() != 16<<20 {
		t.Errorf("a log in use has %d bytes, want 16 MB", size())
	}
	create(t, s, bide.NewRun{ID: "a"})
	l := claim(t, s, 1)
	var largest, written int64
	const batches, records = 60, 1000
	payload := json.RawMessage(`"` + strings.Repeat("x", 600) + `"`)
	for range batches {
		b := bide.Batch{}
		for range records {
			b.Records = append(b.Records, bide.Record{Path: "1", Kind: bide.KindStep, Name: "s", Data: payload, At: time.Now()})
			written += int64(len(payload))
		}
		if err := s.Commit(t.Context(), l.Lease, b); err != nil {
			t.Fatal(err)
		}
		largest = max(largest, size())
	}
	var all sync.WaitGroup
	for i := range 20 { // many small ones
		all.Go(func() {
			for j := range 100 {
				if _, err := s.Create(t.Context(), []bide.NewRun{{ID: fmt.Sprintf("%d-%d", i, j), Workflow: "v", Queue: "q"}}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	largest = max(largest, size())
	t.Logf("%d MB of records, the log had at most %d MB", written>>20, largest>>20)
	if largest >= 64<<20 || largest >= written {
		t.Errorf("the log grew to %d bytes for %d bytes of records", largest, written)
	}
	path = crashed(t, s, path)
	s = open(t, path)
	defer s.Close()
	if h, err := s.History(t.Context(), "a", 0, 0); err != nil || len(h) != batches*records {
		t.Errorf("after a crash %d records, %v; want %d", len(h), err, batches*records)
	}
	for i := range 20 {
		if _, err := s.Run(t.Context(), fmt.Sprintf("%d-99", i)); err != nil {
			t.Error(err)
		}
	}
}
