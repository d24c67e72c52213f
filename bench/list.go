package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bide-dev/bide"
)

// listWithin is what a page of a million runs, or the counts of them, may take.
const listWithin = 200 * time.Millisecond

// runList times lists and counts of a million runs, made so that the newest do not
// help: from the oldest, three of each rare kind, then those asleep, then those
// that nobody takes, then the finished ones.
func runList(ctx context.Context, b *bench) (err error) {
	n := b.size(1_000_000)
	d, err := b.door("list")
	if err != nil {
		return err
	}
	store, err := d.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	s := &seeder{ctx: ctx, store: store}
	began := time.Now()
	for _, part := range parts(n) {
		if err := s.seed(part.n, part.fate); err != nil {
			return err
		}
	}
	fmt.Fprintf(b.errOut, "bench: %d runs made in %v\n", s.made, time.Since(began).Round(time.Second))
	if err := b.lists(ctx, store, d, n); err != nil {
		return err
	}
	admin, ok := store.(bide.Admin)
	if !ok {
		return errors.New("the store counts nothing")
	}
	return b.counts(ctx, admin, d, n)
}

// part is so many runs of a fate.
type part struct {
	n    int
	fate fate
}

func parts(n int) []part {
	return []part{{3, fails}, {3, cancels}, {3, terminates}, {3, timesOut}, {3, pauses}, {3, lingers},
		{n * 3 / 10, sleeps}, {n / 10, queues}, {n * 6 / 10, succeeds}}
}

func (b *bench) lists(ctx context.Context, store bide.Store, d *door, n int) error {
	newest, err := store.Runs(ctx, bide.Query{})
	if err != nil {
		return err
	}
	sleeping, err := store.Runs(ctx, bide.Query{States: []bide.State{bide.Waiting}, Limit: 1000})
	if err != nil {
		return err
	}
	type labels = map[string]string
	queries := []struct {
		name string
		q    bide.Query
	}{
		{"newest", bide.Query{}},
		{"deep page", bide.Query{Before: sleeping[len(sleeping)-1].ID}},
		{"workflow", bide.Query{Workflow: "order"}},
		{"rare workflow", bide.Query{Workflow: "rare"}},
		{"queue", bide.Query{Queue: "idle"}},
		{"label", bide.Query{Labels: labels{"tier": "gold"}}},
		{"rare label", bide.Query{Labels: labels{"fate": "failed"}}},
		{"two labels", bide.Query{Labels: labels{"tier": "gold", "customer": "11"}}},
		{"two that never meet", bide.Query{Labels: labels{"tier": "gold", "customer": "7"}}},
		{"made id prefix", bide.Query{IDPrefix: newest[0].ID[:len(newest[0].ID)-1]}},
		{"id prefix", bide.Query{IDPrefix: "order-00"}},
		{"rare id prefix", bide.Query{IDPrefix: "order-000002"}},
		{"no such parent", bide.Query{Parent: newest[0].ID}},
		{"waiting, label", bide.Query{States: []bide.State{bide.Waiting}, Labels: labels{"customer": "7"}}},
		{"failed, label", bide.Query{States: []bide.State{bide.Failed}, Labels: labels{"tier": "gold"}}},
		{"ended, workflow, label", bide.Query{States: []bide.State{bide.Succeeded, bide.Failed}, Workflow: "order", Labels: labels{"tier": "gold"}}},
	}
	for s := bide.Queued; s <= bide.TimedOut; s++ {
		queries = append(queries, struct {
			name string
			q    bide.Query
		}{s.String(), bide.Query{States: []bide.State{s}}})
	}
	for _, x := range queries {
		found := 0
		err := b.timed(d, n, "list", x.name, func() error {
			runs, err := store.Runs(ctx, x.q)
			found = len(runs)
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		}
		if none := x.name == "running" || x.name == "no such parent" || x.name == "two that never meet"; (found == 0) != none && n >= 1000 {
			return fmt.Errorf("%s: %d runs found", x.name, found)
		}
	}
	return nil
}

func (b *bench) counts(ctx context.Context, admin bide.Admin, d *door, n int) error {
	return b.timed(d, n, "list", "counts", func() error {
		_, err := admin.Status(ctx)
		return err
	})
}

// timed prints how long fn takes: the median of some calls, and the longest.
func (b *bench) timed(d *door, n int, workload, what string, fn func() error) error {
	m := startMeter()
	took := make([]time.Duration, 20)
	for i := range took {
		began := time.Now()
		if err := fn(); err != nil {
			return err
		}
		took[i] = time.Since(began)
	}
	p50 := ms(quantile(took, 0.5))
	return b.print(row{Workload: workload, What: what, N: n, Inflight: 1, Value: p50, Unit: "ms", P50: p50, P99: ms(quantile(took, 1)),
		Most: ms(listWithin), usage: m.used()}, d)
}

// fate is what becomes of a run that a seeder makes.
type fate string

const (
	succeeds   fate = "succeeded"
	fails      fate = "failed"
	cancels    fate = "canceled"
	timesOut   fate = "timed_out"
	terminates fate = "terminated"
	pauses     fate = "paused"
	lingers    fate = "canceling"
	sleeps     fate = "waiting"
	queues     fate = "queued"
)

// seeder makes runs by the store's own methods, many at a time.
type seeder struct {
	ctx   context.Context
	store bide.Store
	made  int
}

func (s *seeder) seed(n int, f fate) error {
	queue := "idle" // nobody claims from it
	switch f {
	case succeeds, fails, cancels, timesOut, sleeps:
		queue = "busy"
		ctx, cancel := context.WithCancelCause(s.ctx)
		defer cancel(nil)
		done := make(chan error, 1)
		go func() {
			err := s.finish(ctx, n, f)
			cancel(err)
			done <- err
		}()
		if err := s.create(ctx, n, queue, f); err != nil {
			return err
		}
		return <-done
	}
	return s.create(s.ctx, n, queue, f)
}

func (s *seeder) create(ctx context.Context, n int, queue string, f fate) error {
	for n > 0 {
		batch := make([]bide.NewRun, min(n, 1000))
		for i := range batch {
			x := bide.NewRun{Workflow: "order", Queue: queue, Input: []byte(`{"amount":42}`), Labels: map[string]string{"customer": strconv.Itoa(s.made % 1000)}}
			if s.made%10 == 1 {
				x.Labels["tier"] = "gold"
			}
			if s.made%5 == 4 {
				x.ID = fmt.Sprintf("order-%07d", s.made)
			}
			if f != succeeds && f != sleeps && f != queues {
				x.Workflow, x.Labels["fate"] = "rare", string(f)
			}
			batch[i] = x
			s.made++
		}
		created, err := s.store.Create(ctx, batch)
		if err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		for _, c := range created {
			op := map[fate]bide.Op{terminates: bide.OpTerminate, pauses: bide.OpPause, lingers: bide.OpCancel}[f]
			if op == 0 {
				break
			}
			if err := s.store.Control(ctx, c.ID, bide.Command{Op: op}); err != nil {
				return err
			}
		}
		n -= len(batch)
	}
	return nil
}

// finish takes n runs and does with them as their fate is.
func (s *seeder) finish(ctx context.Context, n int, f fate) error {
	claim := bide.Claim{Worker: "seeder", Queues: []string{"busy"}, Workflows: []string{"order", "rare"}, Max: 4000, TTL: time.Minute}
	var failed atomic.Pointer[error]
	hands := make(chan bide.Lease, claim.Max)
	var wg sync.WaitGroup
	for range 500 { // who commit share transactions
		wg.Go(func() {
			for l := range hands {
				if err := s.store.Commit(ctx, l, f.batch()); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	var err error
	for n > 0 && err == nil && failed.Load() == nil {
		var claimed []bide.Claimed
		claimed, err = s.store.Claim(ctx, claim)
		for _, c := range claimed {
			if !c.News {
				hands <- c.Lease
				n--
			}
		}
	}
	close(hands)
	wg.Wait()
	if p := failed.Load(); p != nil {
		err = errors.Join(err, *p)
	}
	return errors.Join(err, s.store.Commit(ctx, bide.Lease{Worker: claim.Worker}, bide.Batch{Next: bide.Parked{}}))
}

// batch is how the only turn of a run ends: with the record of a step.
func (f fate) batch() bide.Batch {
	now := time.Now()
	b := bide.Batch{Started: now, Records: []bide.Record{{Path: "1", Kind: bide.KindStep, Name: stepName, Attempt: 1, At: now,
		Data: []byte(strconv.Quote(payload))}}}
	switch f {
	case succeeds:
		b.Next = bide.Done{Result: []byte(`"done"`)}
	case sleeps:
		until := now.Add(time.Hour)
		b.Waiting, b.Next = &[]bide.Wait{{Path: "2", Kind: bide.KindSleep, Since: now, Until: until}}, bide.Parked{WakeAt: until}
	default:
		b.Next = bide.Ended{State: map[fate]bide.State{fails: bide.Failed, cancels: bide.Canceled, timesOut: bide.TimedOut}[f],
			Error: &bide.Failure{Message: string(f)}}
	}
	return b
}
