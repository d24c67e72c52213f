package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/postgres"
)

// alive gives a worker's signs of life until the test's end.
func alive(t *testing.T, s bide.Store, worker string) {
	t.Helper()
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	wg.Go(func() {
		for tick := time.Tick(100 * time.Millisecond); ; {
			select {
			case <-tick:
				_ = s.Commit(ctx, bide.Lease{Worker: worker}, bide.Batch{})
			case <-ctx.Done():
				return
			}
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
}

// TestOpenAtOnce has processes open a schema that is not there at the same time.
func TestOpenAtOnce(t *testing.T) {
	for range 5 {
		var wg sync.WaitGroup
		for schema, i := newSchema(), 0; i < 4; i++ {
			wg.Go(func() {
				s, err := postgres.Open(context.Background(), dsn, postgres.Schema(schema))
				if err != nil {
					t.Error(err)
					return
				}
				_ = s.Close()
			})
		}
		wg.Wait()
	}
}

// TestStopped stops a process (SIGSTOP, a paused machine) that has locked a row of
// another: the database ends its transaction, and the other goes on.
func TestStopped(t *testing.T) {
	w, schema := &wire{}, newSchema()
	stops, other := open(t, schema, postgres.Dial(w.dial)), open(t, schema)
	t.Cleanup(func() { _ = other.Close() })
	known(t, stops, asks("stops", time.Second))
	known(t, other, asks("w", time.Hour))
	create(t, other, newRun("r"))
	c := claim(t, other, asks("w", time.Hour))
	locked, gate := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(locked) })
	w.before(func(p []byte) {
		if bytes.Contains(p, []byte("inbox")) { // the run's row is locked
			once()
		}
		select {
		case <-locked:
			<-gate
		default:
		}
	})
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = stops.Signal(context.Background(), "r", bide.Message{Name: "m"}) })
	<-locked
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- other.Commit(ctx, c.Lease, bide.Batch{Records: []bide.Record{step("1")}, Next: bide.Parked{}})
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-ctx.Done():
		t.Error("the other process hangs")
	}
	close(gate)
	wg.Wait()
	_ = stops.Close()
}

// TestLostTail has the database lose what it had promised, as in a failover to a
// replica that was behind: who holds a run by a transaction that is lost holds nothing.
func TestLostTail(t *testing.T) {
	schema := newSchema()
	a := open(t, schema)
	t.Cleanup(func() { _ = a.Close() })
	known(t, a, asks("a", time.Hour))
	exec(t, `CREATE TABLE `+schema+`.before AS SELECT * FROM `+schema+`.member`)
	create(t, a, newRun("r"))
	c := claim(t, a, asks("a", time.Hour))
	exec(t, `UPDATE `+schema+`.member m SET batch = o.batch, news = o.news FROM `+schema+`.before o WHERE o.k = m.k`)
	exec(t, `DELETE FROM `+schema+`.run`)
	b := open(t, schema)
	t.Cleanup(func() { _ = b.Close() })
	known(t, b, asks("b", time.Hour))
	create(t, b, newRun("r"))
	d := claim(t, b, asks("b", time.Hour))
	if err := a.Commit(t.Context(), c.Lease, bide.Batch{Records: []bide.Record{step("1")}}); !errors.Is(err, bide.ErrLeaseLost) {
		t.Errorf("commit to a run that the database has never heard of: %v", err)
	}
	commit(t, b, d.Lease, bide.Batch{Records: []bide.Record{step("1")}})
	create(t, a, newRun("another")) // it lives on, as another
}

// TestLongHints has commits of which more is to be told than a notification takes.
func TestLongHints(t *testing.T) {
	name := newSchema() + strings.Repeat("s", 58) // too long for a channel
	a, b := open(t, name), open(t, name)
	t.Cleanup(func() { _ = a.Close(); _ = b.Close() })
	create(t, b, newRun("makes it known"))
	create(t, a, newRun("parent"))
	var c bide.Claimed
	for c.Lease.Run != "parent" {
		for _, x := range claims(t, a, asks("w", time.Hour)) {
			if c = x; c.Lease.Run == "parent" {
				break
			}
		}
	}
	var runs []bide.NewRun
	for i := range 400 {
		n := newRun("")
		n.Workflow = fmt.Sprint("workflow", i)
		runs = append(runs, n)
	}
	create(t, a, runs...)
	for _, letter := range []string{"i", "<"} { // that is six bytes of JSON
		runs = nil
		for i := range 100 {
			runs = append(runs, newRun(fmt.Sprintf("%s-%03d", strings.Repeat(letter, 96), i)))
		}
		create(t, a, runs...)
	}
	var kids []bide.NewRun
	for i := range 100 {
		kids = append(kids, newRun(fmt.Sprintf("%s/%03d", strings.Repeat("k", 80), i)))
	}
	commit(t, a, c.Lease, bide.Batch{Start: kids})
}

// TestUntold has a run end while nobody tells who waits for it: before that process
// was known to others, and in a process that pools its connections.
func TestUntold(t *testing.T) {
	t.Run("before it was known", func(t *testing.T) {
		w, schema := &wire{}, newSchema()
		s, waits := open(t, schema), open(t, schema, postgres.Dial(w.dial))
		t.Cleanup(func() { _ = s.Close(); _ = waits.Close() })
		known(t, s, asks("w", time.Hour))
		create(t, s, newRun("r"))
		c := claim(t, s, asks("w", time.Hour))
		gate := make(chan struct{})
		w.before(func(p []byte) {
			if bytes.Contains(p, []byte("nextval")) || bytes.Contains(p, []byte("INSERT INTO")) {
				<-gate
			}
		})
		told := waitFor(t, waits)
		commit(t, s, c.Lease, bide.Batch{Next: bide.Done{}})
		close(gate)
		known(t, waits, asks("looks soon", time.Second))
		told()
	})
	t.Run("by one that does not listen", func(t *testing.T) {
		schema := newSchema()
		s, waits := open(t, schema, postgres.NoNotify()), open(t, schema)
		t.Cleanup(func() { _ = s.Close(); _ = waits.Close() })
		known(t, s, asks("w", time.Hour))
		create(t, waits, newRun("r"))
		c := claim(t, s, asks("w", time.Hour))
		told := waitFor(t, waits)
		commit(t, s, c.Lease, bide.Batch{Next: bide.Done{}})
		told()
	})
}

// waitFor waits for the end of the run "r", which told then expects.
func waitFor(t *testing.T, s *postgres.Store) (told func()) {
	t.Helper()
	ch, stop := s.Wake("r", true)
	t.Cleanup(stop)
	<-ch // it may have ended before
	if r, err := s.Run(t.Context(), "r"); err != nil || r.State.Ended() {
		t.Fatalf("%v, %v", r.State, err)
	}
	return func() {
		t.Helper()
		select {
		case <-ch:
		case <-time.After(patience / 3):
			t.Error("nobody told of the end")
		}
	}
}

// TestReadOnly has a server go that is followed by one that only reads, until it
// takes writes: what is written meanwhile waits.
func TestReadOnly(t *testing.T) {
	schema := newSchema()
	exec(t, `CREATE ROLE `+schema+` SUPERUSER LOGIN`)
	s := openAs(t, schema)
	create(t, s, newRun("r"))
	exec(t, `ALTER ROLE `+schema+` SET default_transaction_read_only = on`)
	hangUp(t, schema)
	done := make(chan error, 1)
	go func() {
		_, err := s.Signal(context.Background(), "r", bide.Message{Name: "m"})
		done <- err
	}()
	for conn, n := connect(t), 0; n == 0; { // until it has come, and was refused
		if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE usename = $1`, schema).Scan(&n); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-done:
			t.Fatalf("a server that only reads has taken it: %v", err)
		default:
		}
	}
	exec(t, `ALTER ROLE `+schema+` RESET default_transaction_read_only`)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestTurnsReadOnly has a server that takes no more writes and keeps its connections.
func TestTurnsReadOnly(t *testing.T) {
	s := open(t, newSchema())
	t.Cleanup(func() { _ = s.Close() })
	create(t, s, newRun("r"))
	set := func(how, shows string) {
		t.Helper()
		exec(t, `ALTER SYSTEM `+how)
		exec(t, `SELECT pg_reload_conf()`)
		for conn, now := connect(t), ""; now != shows; {
			if err := conn.QueryRow(t.Context(), `SHOW default_transaction_read_only`).Scan(&now); err != nil {
				t.Fatal(err)
			}
		}
	}
	set(`SET default_transaction_read_only = on`, "on")
	done := make(chan error, 1)
	go func() {
		_, err := s.Signal(context.Background(), "r", bide.Message{Name: "m"})
		done <- err
	}()
	select {
	case err := <-done: // nil: its backend had not heard of it yet
		done <- err
	case <-time.After(100 * time.Millisecond):
	}
	set(`RESET default_transaction_read_only`, "off")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// openAs opens the schema by the role of that name.
func openAs(t *testing.T, role string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), as(t, role), postgres.Schema(role))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// as is the dsn for another role.
func as(t *testing.T, role string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("user", role)
	u.RawQuery = q.Encode()
	return u.String()
}

// hangUp ends all of a role's connections.
func hangUp(t *testing.T, role string) {
	t.Helper()
	exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1`, role)
}

// TestTakeoverKeepsOrder has a process end in the middle of another's takeover: its
// run's records come before those of whoever goes on.
func TestTakeoverKeepsOrder(t *testing.T) {
	w, schema := &wire{}, newSchema()
	leaves, heir, dies := open(t, schema), open(t, schema, postgres.Dial(w.dial)), open(t, schema)
	t.Cleanup(func() { _ = heir.Close() })
	known(t, leaves, asks("leaves", time.Hour))
	create(t, leaves, newRun("r"))
	c := claim(t, leaves, asks("leaves", time.Hour))
	known(t, dies, asks("dies", time.Second))
	reached, gate := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(reached); <-gate })
	w.before(func(p []byte) {
		if bytes.Contains(p, []byte("cut = true, ver = $1")) {
			once()
		}
	})
	dies.Die()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_, _ = heir.Claim(ctx, bide.Claim{Worker: "looks", Queues: []string{"none"}, Workflows: []string{wf}, Max: 1, TTL: time.Second})
	}()
	alive(t, heir, "looks")
	select {
	case <-reached:
	case <-time.After(patience):
		t.Fatal("no takeover")
	}
	create(t, leaves, bide.NewRun{Workflow: "another", Queue: "q"}) // a second later: by new numbers
	commit(t, leaves, c.Lease, bide.Batch{Records: []bide.Record{step("1")}})
	if err := leaves.Close(); err != nil {
		t.Fatal(err)
	}
	close(gate)
	got := claim(t, heir, asks("heir", time.Hour))
	commit(t, heir, got.Lease, bide.Batch{Records: []bide.Record{step("2")}})
	h, err := heir.History(t.Context(), "r", 0, 0)
	if err != nil || len(h) != 2 || h[0].Path != "1" {
		t.Errorf("history %+v: %v", h, err)
	}
}

// TestSilence has the network forget the connections that there are: reads and
// writes go on by new ones, in time.
func TestSilence(t *testing.T) {
	w := &wire{}
	forget := w.era()
	s := open(t, newSchema(), postgres.Dial(w.dial))
	t.Cleanup(func() { _ = s.Close() })
	known(t, s, asks("w", 3*time.Second))
	create(t, s, newRun("r"))
	c := claim(t, s, asks("w", 3*time.Second))
	w.era()
	forget()
	done := make(chan error, 1)
	go func() { done <- s.Commit(context.Background(), c.Lease, bide.Batch{Records: []bide.Record{step("1")}}) }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("the writer still waits")
	}
}

// TestListenerSilence has the network forget the line on which a process listens.
func TestListenerSilence(t *testing.T) {
	w, schema := &wire{}, newSchema()
	s, waits := open(t, schema), open(t, schema, postgres.Dial(w.dial), postgres.Quiet(50*time.Millisecond))
	t.Cleanup(func() { _ = s.Close(); _ = waits.Close() })
	known(t, s, asks("w", time.Hour))
	forget := w.era()
	create(t, waits, newRun("r")) // it listens from now on
	w.era()
	c := claim(t, s, asks("w", time.Hour))
	told := waitFor(t, waits)
	forget()
	commit(t, s, c.Lease, bide.Batch{Next: bide.Done{}})
	told()
}

// TestListenRefused has a process that cannot listen: it works all the same.
func TestListenRefused(t *testing.T) {
	w := &wire{}
	s := open(t, newSchema(), postgres.Dial(w.dial))
	t.Cleanup(func() { _ = s.Close() })
	w.before(func(p []byte) {
		if bytes.Contains(p, []byte("LISTEN")) {
			w.cutNext("lost")
		}
	})
	done := make(chan struct{})
	go func() { defer close(done); create(t, s, newRun("r")) }()
	select {
	case <-done:
	case <-time.After(patience):
		t.Error("it waits for the listener")
	}
	w.before(func([]byte) {})
}

// TestClockSetBack has a process die, and the database's clock go back as in a
// failover: who takes over goes by its own.
func TestClockSetBack(t *testing.T) {
	schema := newSchema()
	dies, heir := open(t, schema), open(t, schema)
	t.Cleanup(func() { _ = heir.Close() })
	known(t, dies, asks("dies", time.Second))
	create(t, dies, newRun("r"))
	claim(t, dies, asks("dies", time.Second))
	dies.Die()
	exec(t, `UPDATE `+schema+`.member SET expires = expires + interval '10 minutes'`)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	alive(t, heir, "heir")
	if got, err := heir.Claim(ctx, asks("heir", time.Second)); err != nil || got[0].Lease.Run != "r" {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestSlowLooks has a process that looks for what others do, as it hears nothing, be
// idle for an hour: it looks less often.
func TestSlowLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{}
		s := open(t, newSchema(), postgres.Dial(w.dial), postgres.NoNotify())
		defer s.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if got, err := s.Claim(ctx, asks("w", 2*time.Hour)); err == nil {
			t.Fatalf("got %+v", got)
		}
		if n := float64(w.sent.Load()) / 3600; n < 0.18 || n > 0.3 {
			t.Errorf("%.3f queries a second, want about 0.2", n)
		}
		before := w.sent.Load()
		create(t, s, newRun("for another worker"))
		time.Sleep(4 * time.Second)
		if n := w.sent.Load() - before; n < 8 {
			t.Errorf("%d queries in 4 s after something moved", n)
		}
	})
}
