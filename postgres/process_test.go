package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/postgres"
)

const wf = "wf"

// patience is far above what anything here takes, and below the looks that a
// process takes by itself where a case is to show that it was told.
const patience = 30 * time.Second

// processes opens one schema twice, as two processes would.
func processes(t *testing.T, opts ...postgres.Option) (a, b *postgres.Store) {
	t.Helper()
	schema := newSchema()
	a, b = open(t, schema, opts...), open(t, schema, opts...)
	t.Cleanup(func() { _ = a.Close(); _ = b.Close() })
	return a, b
}

func asks(worker string, ttl time.Duration) bide.Claim {
	return bide.Claim{Worker: worker, Queues: []string{"q"}, Workflows: []string{wf}, Max: 100, TTL: ttl}
}

func newRun(id string) bide.NewRun {
	return bide.NewRun{ID: id, Workflow: wf, Queue: "q", Input: json.RawMessage(`1`)}
}

func create(t *testing.T, s bide.Store, runs ...bide.NewRun) {
	t.Helper()
	created, err := s.Create(t.Context(), runs)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range created {
		if c.Err != nil {
			t.Fatal(c.Err)
		}
	}
}

// claim waits for the first that comes to the worker.
func claim(t *testing.T, s bide.Store, c bide.Claim) bide.Claimed {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got, err := s.Claim(ctx, c)
	if err != nil {
		t.Fatalf("worker %s: %v", c.Worker, err)
	}
	if len(got) != 1 {
		t.Fatalf("worker %s was given %d at once", c.Worker, len(got))
	}
	return got[0]
}

// known makes a worker known that has nothing to do yet.
func known(t *testing.T, s bide.Store, c bide.Claim) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if got, err := s.Claim(ctx, c); err == nil {
		t.Fatalf("worker %s was given %+v", c.Worker, got)
	}
}

func commit(t *testing.T, s bide.Store, l bide.Lease, b bide.Batch) {
	t.Helper()
	if err := s.Commit(t.Context(), l, b); err != nil {
		t.Fatalf("commit to %s by %s: %v", l.Run, l.Worker, err)
	}
}

func step(path string) bide.Record {
	return bide.Record{Path: path, Kind: bide.KindStep, Name: "s", Data: json.RawMessage(`1`), At: time.Now().UTC()}
}

// TestWorkElsewhere starts runs in one process and has another work on them; who
// waits for the results is told at once.
func TestWorkElsewhere(t *testing.T) {
	for name, opts := range map[string][]postgres.Option{"notified": nil, "looking": {postgres.NoNotify()}} {
		t.Run(name, func(t *testing.T) {
			client, worker := processes(t, opts...)
			known(t, worker, asks("w", time.Hour))
			began := time.Now()
			go func() {
				for range 10 {
					got, err := worker.Claim(t.Context(), asks("w", time.Hour))
					if err != nil {
						return
					}
					for _, c := range got {
						_ = worker.Commit(t.Context(), c.Lease, bide.Batch{Records: []bide.Record{step("1")}, Next: bide.Done{Result: json.RawMessage(`2`)}})
					}
				}
			}()
			for i := range 5 {
				id := fmt.Sprint(i)
				ch, stop := client.Wake(id, true)
				create(t, client, newRun(id))
				for {
					if r, err := client.Run(t.Context(), id); err == nil && r.State == bide.Succeeded {
						break
					}
					select {
					case <-ch:
					case <-time.After(patience):
						t.Fatal("nobody told of the end")
					}
				}
				stop()
			}
			if d := time.Since(began); d > patience {
				t.Errorf("five runs took %v", d)
			}
		})
	}
}

// TestNewsFromElsewhere sends messages and commands to a run that another process
// holds.
func TestNewsFromElsewhere(t *testing.T) {
	a, b := processes(t)
	known(t, a, asks("w", time.Hour))
	create(t, a, newRun("r"))
	c := claim(t, a, asks("w", time.Hour))
	commit(t, a, c.Lease, bide.Batch{Records: []bide.Record{step("1")}})

	isNew, err := b.Signal(t.Context(), "r", bide.Message{Name: "m", Key: "k", Data: json.RawMessage(`7`)})
	if err != nil || !isNew {
		t.Fatalf("signal: %v, new %v", err, isNew)
	}
	if isNew, err := a.Signal(t.Context(), "r", bide.Message{Name: "m", Key: "k"}); err != nil || isNew {
		t.Errorf("the same signal by the other process: %v, new %v", err, isNew)
	}
	n := claim(t, a, asks("w", time.Hour))
	if !n.News || n.Lost || n.Lease != c.Lease || len(n.Inbox) != 1 || string(n.Inbox[0].Data) != `7` {
		t.Fatalf("got %+v, want the message as news", n)
	}
	before, _ := b.Run(t.Context(), "r")
	commit(t, a, c.Lease, bide.Batch{Records: []bide.Record{step("2")}, Consumed: []int64{n.Inbox[0].Seq}, Seen: n.Inbox[0].Seq})
	after, err := b.Run(t.Context(), "r")
	if err != nil || after.Version <= before.Version {
		t.Errorf("version %d after %d: %v", after.Version, before.Version, err)
	}
	h, err := b.History(t.Context(), "r", 0, 0)
	if err != nil || len(h) != 2 || h[0].Path != "1" || h[1].Seq <= n.Inbox[0].Seq {
		t.Errorf("history %+v, message %d: %v", h, n.Inbox[0].Seq, err)
	}

	if err := b.Control(t.Context(), "r", bide.Command{Op: bide.OpPause}); err != nil {
		t.Fatal(err)
	}
	if n = claim(t, a, asks("w", time.Hour)); len(n.Inbox) != 1 || n.Inbox[0].Op != bide.OpPause {
		t.Fatalf("got %+v, want the pause", n)
	}
	if err := b.Control(t.Context(), "r", bide.Command{Op: bide.OpTerminate}); err != nil {
		t.Fatal(err)
	}
	// Whether it has been told yet or not, it cannot write any more.
	if err := a.Commit(t.Context(), c.Lease, bide.Batch{Records: []bide.Record{step("3")}}); !errors.Is(err, bide.ErrLeaseLost) {
		t.Errorf("commit to a run that the other process has terminated: %v", err)
	}
	if n = claim(t, a, asks("w", time.Hour)); !n.Lost {
		t.Errorf("got %+v, want the loss", n)
	}
}

// TestLapse has a process die; another takes its runs over when their lease has
// run out, and the dead one cannot write any more should it come back.
func TestLapse(t *testing.T) {
	const ttl = time.Second
	w := &wire{}
	schema := newSchema()
	a, b := open(t, schema, postgres.Dial(w.dial)), open(t, schema)
	t.Cleanup(func() { _ = a.Close(); _ = b.Close() })
	known(t, a, asks("dies", ttl))
	create(t, a, newRun("r"))
	c := claim(t, a, asks("dies", ttl))
	commit(t, a, c.Lease, bide.Batch{Records: []bide.Record{step("1")}})
	w.freeze(func() {
		heir := claim(t, b, asks("heir", ttl))
		if !heir.Interrupted || heir.Lease.Run != "r" || heir.Epoch == c.Epoch || len(heir.History) != 1 {
			t.Errorf("the heir got %+v", heir)
		}
		commit(t, b, heir.Lease, bide.Batch{Records: []bide.Record{step("2")}})
	})
	if err := a.Commit(t.Context(), c.Lease, bide.Batch{Records: []bide.Record{step("late")}}); !errors.Is(err, bide.ErrLeaseLost) {
		t.Errorf("commit by the process that was taken for dead: %v", err)
	}
	create(t, a, newRun("another")) // it lives on, as another
	h, err := a.History(t.Context(), "r", 0, 0)
	if err != nil || len(h) != 2 || h[1].Path != "2" {
		t.Errorf("history %+v: %v", h, err)
	}
}

// TestGiveBack has a process close its store: another takes its runs over at once.
func TestGiveBack(t *testing.T) {
	a, b := processes(t)
	known(t, a, asks("leaves", time.Hour))
	create(t, a, newRun("r"))
	claim(t, a, asks("leaves", time.Hour))
	known(t, b, asks("heir", time.Hour))
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if got := claim(t, b, asks("heir", time.Hour)); got.Lease.Run != "r" || !got.Interrupted {
		t.Errorf("got %+v", got)
	}
}

// TestCrossfire has processes write to the same runs, ids and facts at once: each
// write counts once, and no record is out of order.
func TestCrossfire(t *testing.T) {
	schema := newSchema()
	const stores, runs, each = 3, 8, 25
	var all []*postgres.Store
	for range stores {
		s := open(t, schema)
		t.Cleanup(func() { _ = s.Close() })
		all = append(all, s)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	received := map[string]int{}
	for i, s := range all {
		wg.Go(func() { // a worker
			for {
				got, err := s.Claim(ctx, asks(fmt.Sprint("w", i), time.Hour))
				if err != nil {
					return
				}
				for _, c := range got {
					if c.News {
						continue
					}
					var used []int64
					for _, m := range c.Inbox {
						used = append(used, m.Seq)
					}
					b := bide.Batch{Records: []bide.Record{step(fmt.Sprint(len(c.History) + 1))}, Consumed: used, Next: bide.Parked{}}
					for _, u := range used {
						b.Seen = max(b.Seen, u)
					}
					if err := s.Commit(ctx, c.Lease, b); err != nil {
						t.Errorf("commit to %s: %v", c.Lease.Run, err)
						continue
					}
					mu.Lock()
					received[c.Lease.Run] += len(used)
					mu.Unlock()
				}
			}
		})
	}
	var senders sync.WaitGroup
	for i, s := range all {
		senders.Go(func() {
			for j := range runs {
				created, err := s.Create(t.Context(), []bide.NewRun{newRun(fmt.Sprint(j))})
				if err != nil || created[0].Err != nil {
					t.Errorf("start by store %d: %v, %+v", i, err, created)
				}
			}
			for n := range each {
				for j := range runs {
					if _, err := s.Signal(t.Context(), fmt.Sprint(j), bide.Message{Name: "m", Key: fmt.Sprint(i, "/", n)}); err != nil {
						t.Errorf("signal: %v", err)
					}
				}
				for {
					facts, err := s.Facts(t.Context(), "kind", "counter")
					f := bide.Fact{Kind: "kind", Key: "counter", Value: json.RawMessage(`1`)}
					if err == nil && len(facts) > 0 {
						f.Version = facts[0].Version
						var v int
						_ = json.Unmarshal(facts[0].Value, &v)
						f.Value = json.RawMessage(fmt.Sprint(v + 1))
					}
					if err = s.Commit(t.Context(), bide.Lease{}, bide.Batch{Facts: []bide.Fact{f}}); err == nil {
						break
					}
					if !errors.Is(err, bide.ErrFactChanged) {
						t.Errorf("fact: %v", err)
						break
					}
				}
			}
		})
	}
	senders.Wait()
	late := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for done := false; !done; {
		mu.Lock()
		done = true
		for j := range runs {
			done = done && received[fmt.Sprint(j)] >= stores*each
		}
		mu.Unlock()
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("received %v, want %d each", received, stores*each)
		}
	}
	cancel()
	wg.Wait()
	for j := range runs {
		id := fmt.Sprint(j)
		if received[id] != stores*each {
			t.Errorf("run %s received %d messages, %d were sent", id, received[id], stores*each)
		}
		h, err := all[0].History(t.Context(), id, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range h {
			if r.Path != fmt.Sprint(i+1) {
				t.Errorf("run %s: record %d has path %s", id, i+1, r.Path)
			}
		}
	}
	facts, err := all[0].Facts(t.Context(), "kind", "counter")
	if err != nil || len(facts) != 1 || string(facts[0].Value) != fmt.Sprint(stores*each) {
		t.Errorf("counter %+v, want %d: %v", facts, stores*each, err)
	}
}
