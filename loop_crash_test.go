package bide_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
)

// These tests kill a worker before each single commit that it makes for a loop,
// and after each but before the answer, let another take over, and ask that the
// loop goes on as if nothing had been.

// loopLife is a loop from its beginning, with at most one kill.
type loopLife struct {
	t       *testing.T
	began   time.Time
	home    *place
	doomed  *mortal
	workers []<-chan error
	loop    func(gone <-chan struct{}) *bide.LoopDefinition // as of a process; gone closes when it dies
	others  []bide.Definition
	warm    int

	mu    sync.Mutex // held while the store is opened again
	store bide.Store
}

// lifeOf sets a worker to work that dies at a commit, and another after it, and
// calls fn.
func lifeOf(t *testing.T, l *loopLife, dieAt int, after bool, fn func(ctx context.Context)) {
	t.Helper()
	l.t = t
	synctest.Test(t, func(t *testing.T) {
		l.store = l.home.open(t)
		l.began = time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		l.doomed = newMortal(l.store, dieAt, after)
		l.work(ctx, l.doomed, l.doomed.dead)
		var heir sync.WaitGroup
		heir.Go(func() {
			select {
			case <-ctx.Done():
				return
			case <-l.doomed.dead:
			}
			if err := <-l.workers[0]; !errors.Is(err, bide.ErrClosed) {
				t.Errorf("the dead worker returned %v", err)
			}
			synctest.Wait()
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.home.lasts() {
				l.store = l.home.reopen(t, l.store)
			}
			l.work(ctx, l.store, nil)
		})
		fn(ctx)
		cancel()
		heir.Wait()
		err := <-l.workers[len(l.workers)-1]
		if atTheEnd := len(l.workers) == 1 && l.doomed.alive() != nil; err != nil && !atTheEnd { // with nobody left to go on
			t.Errorf("the worker returned %v", err)
		}
		if err := l.store.Close(); err != nil {
			t.Error(err)
		}
	})
}

func (l *loopLife) work(ctx context.Context, s bide.Store, gone <-chan struct{}) {
	w := bide.NewWorker(s, bide.WorkerConfig{MaxWarm: l.warm, Seed: 1, Lease: testLease, Logger: slog.New(slog.DiscardHandler)})
	w.Register(append(l.others, l.loop(gone))...)
	done := make(chan error, 1)
	l.workers = append(l.workers, done)
	go func() { done <- w.Run(ctx) }()
}

// do does something with a client at a time of the loop's life.
func (l *loopLife) do(at time.Duration, fn func(*bide.Client) error) {
	time.Sleep(time.Until(l.began.Add(at)))
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := fn(bide.NewClient(l.store)); err != nil {
		l.t.Errorf("at %v: %v", at, err)
	}
}

// atEveryCommit calls live for each commit of a whole life, which live returns the
// number of.
func atEveryCommit(t *testing.T, live func(t *testing.T, warm int, home *place, dieAt int, after bool) (commits int)) {
	points := 0
	for name, warm := range map[string]int{"parks": -1, "warm": 0} {
		t.Run(name, func(t *testing.T) {
			commits := live(t, warm, inMemory(), 0, false)
			if commits < 10 {
				t.Fatalf("only %d commits", commits)
			}
			for dieAt := 1; dieAt <= commits && !t.Failed(); dieAt++ {
				for _, after := range []bool{false, true} {
					points++
					home := forKill(t, points)
					if home == nil {
						continue
					}
					live(t, warm, home, dieAt, after)
					if t.Failed() {
						t.Errorf("killed at commit %d of %d (after: %v)", dieAt, commits, after)
						break
					}
				}
			}
		})
	}
	t.Logf("%d kill points", points)
}

// However the process dies, no two iterations overlap, each is counted at least
// once, a pause holds, a trigger is heard, and the loop goes on.
func TestLoopKilledAtEveryCommit(t *testing.T) {
	atEveryCommit(t, func(t *testing.T, warm int, home *place, dieAt int, after bool) int {
		var peak tkoPeak
		var mu sync.Mutex
		var at []time.Duration
		dues := map[time.Time]int{}
		l := &loopLife{home: home, warm: warm}
		l.loop = func(gone <-chan struct{}) *bide.LoopDefinition {
			return bide.Loop("it", func(ctx context.Context) error {
				mu.Lock()
				at = append(at, time.Since(l.began))
				dues[bide.ScheduledAt(ctx)]++
				n := len(at)
				mu.Unlock()
				peak.enter()
				select {
				case <-time.After(200 * time.Millisecond):
				case <-gone:
				}
				peak.leave()
				if n == 4 || n == 5 {
					return errors.New("down")
				}
				return bide.Publish(ctx, "n", n)
			}, bide.Every(10*sec), bide.MaxMultiplier(2), bide.Exact{}, bide.Breaker{Failures: 9})
		}
		heard := func(after, within time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			for _, a := range at {
				if a >= after && a <= after+within {
					return
				}
			}
			t.Errorf("none began within %v of %v: %v", within, after, at)
		}
		lifeOf(t, l, dieAt, after, func(ctx context.Context) {
			const takeover = testLease + 2*sec
			l.do(15*sec, func(c *bide.Client) error { _, err := c.Loop("it").Trigger(ctx, false); return err })
			l.do(35*sec, func(c *bide.Client) error { return c.Loop("it").Pause(ctx, false) })
			l.do(55*sec, func(c *bide.Client) error { return c.Loop("it").Resume(ctx) })
			l.do(100*sec, func(c *bide.Client) error { return c.Loop("it").ResetBackoff(ctx) })
			l.do(130*sec, func(c *bide.Client) error { return c.Loop("it").Pause(ctx, true) })
			l.do(140*sec, func(c *bide.Client) error { _, err := c.Loop("it").Trigger(ctx, true); return err })
			l.do(160*sec, func(c *bide.Client) error {
				if s, err := c.Loop("it").State(ctx); err != nil || !s.Paused {
					t.Errorf("it is not paused again: %v, %s", err, jsonOf(t, s))
				}
				return c.Loop("it").Resume(ctx)
			})
			l.do(220*sec, func(c *bide.Client) error {
				s, err := c.Loop("it").State(ctx)
				h, herr := c.History(ctx, "loop:it", 0)
				mu.Lock()
				n := len(at)
				mu.Unlock()
				if s.Iterations < n-1 || s.Iterations > n+1 || len(h) != 0 || s.Failures != 0 || s.Paused {
					t.Errorf("after %d iterations, with %d records: %s", n, len(h), jsonOf(t, s))
				}
				return errors.Join(err, herr)
			})
			heard(15*sec, takeover)
			heard(55*sec, 12*sec+takeover)
			heard(140*sec, takeover)
			heard(160*sec, takeover)
			heard(200*sec, 12*sec+takeover)
		})
		mu.Lock()
		defer mu.Unlock()
		for _, a := range at {
			if a > 36*sec && a < 55*sec || a > 131*sec && a < 140*sec || a > 147*sec && a < 160*sec {
				t.Errorf("one began while it was paused: %v", at)
			}
		}
		again := 0
		for _, n := range dues {
			again += n - 1
		}
		if again > 1 {
			t.Errorf("for one kill %d iterations came again: %v", again, dues)
		}
		if top := peak.top.Load(); top != 1 {
			t.Errorf("%d iterations at once", top)
		}
		return l.doomed.commits
	})
}

// A schedule that starts runs: each of its times has one run, whenever the process
// dies, and whoever was not there.
func TestLoopStartsOneRunATime(t *testing.T) {
	atEveryCommit(t, func(t *testing.T, warm int, home *place, dieAt int, after bool) int {
		var mu sync.Mutex
		reports := map[time.Time]int{}
		report := bide.Define("report", func(ctx bide.Context, day time.Time) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			reports[day]++
			return "done", nil
		})
		l := &loopLife{home: home, warm: warm, others: []bide.Definition{report}}
		l.loop = func(<-chan struct{}) *bide.LoopDefinition {
			return bide.Loop("reports", func(ctx context.Context) error {
				l.mu.Lock() // by the store as it is: that of a dead process refuses
				c := bide.NewClient(l.store)
				l.mu.Unlock()
				at := bide.ScheduledAt(ctx)
				_, err := report.Start(ctx, c, at, bide.ID(fmt.Sprint("report-", at.Unix())))
				return err
			}, bide.On(everyFull(20*sec), bide.MisfireAll))
		}
		lifeOf(t, l, dieAt, after, func(context.Context) { time.Sleep(130 * sec) })
		mu.Lock()
		defer mu.Unlock()
		for i := range 6 {
			at := l.began.Add(time.Duration(i+1) * 20 * sec).UTC()
			if reports[at] < 1 {
				t.Errorf("no report for %v: %v", at, reports)
			}
			delete(reports, at)
		}
		if len(reports) > 0 {
			t.Errorf("reports for other times: %v", reports)
		}
		return l.doomed.commits
	})
}

// An iteration that is over is not made again, even if the next was due before it
// ended and took the process with it at once.
func TestLoopOverOnce(t *testing.T) {
	inBubble(t, func(e *env) {
		var mu sync.Mutex
		var due []time.Duration
		begun := func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(due)
		}
		began := time.Now()
		loop := func() *bide.LoopDefinition {
			return bide.Loop("it", func(ctx context.Context) {
				mu.Lock()
				due = append(due, bide.ScheduledAt(ctx).Sub(began))
				mu.Unlock()
				time.Sleep(2 * sec)
			}, bide.On(everyFull(time.Minute), bide.MisfireAll))
		}
		e.ok(e.work(loop()).stop())
		time.Sleep(10 * time.Minute)
		h := e.work(loop()) // catches up
		for begun() < 5 {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(20 * time.Millisecond)
		h.kill()
		e.work(loop())
		time.Sleep(30 * sec)
		want := []time.Duration{1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10} // but for the fifth, which was not over
		for i := range want {
			want[i] *= time.Minute
		}
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(due, want) {
			t.Errorf("iterations for %v, want %v", due, want)
		}
	})
}
