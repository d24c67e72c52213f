package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/bide-dev/bide"
)

// crewed checks that each route is where the writer looks for it; mu is held.
func (s *tight) crewed() {
	s.Helper()
	w, found := &s.w, 0
	for _, c := range w.crews {
		found += len(c.later) + len(c.ready)
		for i, r := range c.later {
			if r.crew != c || r.index != i || w.byKey[r.k] != r || c.later[max(i-1, 0)/2].next > r.next {
				s.Errorf("route %v stands at %d of those that are due later, and in its own mind at %d", r.name, i, r.index)
			}
		}
		for _, r := range c.ready {
			if r.crew != c || r.index != notLater || w.byKey[r.k] != r || r.next > w.now {
				s.Errorf("route %v takes turns, stands at %d and is due in %d", r.name, r.index, r.next-w.now)
			}
		}
	}
	for _, r := range w.byKey {
		var want []*worker
		for _, x := range w.workers {
			if x.wants(r.name) {
				want = append(want, x)
			}
		}
		if want != nil {
			found--
		}
		if (want == nil) != (r.crew == nil) || want != nil && !slices.Equal(r.crew.workers, want) {
			s.Errorf("route %v has another crew than the %d workers who want it", r.name, len(want))
		}
	}
	if found != 0 {
		s.Errorf("the crews have %d routes too many", found)
	}
}

// Many workflows, with workers for some of them that come and go, on a disk that
// fails at times: no run is left waiting while one of its workers has a hand free.
func TestManyRoutes(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &manyRoutes{tight: newTight(t, memory), seed: seed}
				m.play()
			})
		})
	}
}

const (
	loops   = 60
	loopTTL = 5 * time.Second
)

type manyRoutes struct {
	*tight
	seed  uint64
	turns atomic.Int64
}

func (m *manyRoutes) play() {
	ctx, cancel := context.WithCancel(context.Background())
	rng := rand.New(rand.NewPCG(m.seed, 0))
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(m.seed, uint64(i+1)))
			for life := 0; ctx.Err() == nil; life++ {
				m.work(ctx, rng, fmt.Sprintf("%d-%d", i, life))
			}
		})
	}
	for i := range loops {
		n := bide.NewRun{Workflow: fmt.Sprint("w", i), Queue: "q", StartAt: time.Now().Add(time.Duration(rng.IntN(2000)) * time.Millisecond)}
		if _, err := m.Create(ctx, []bide.NewRun{n, n}); err != nil {
			m.Fatal(err)
		}
	}
	for range 60 {
		time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
		if rng.IntN(10) == 0 {
			m.broken()
			time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
			_, err := m.Create(ctx, []bide.NewRun{{Workflow: fmt.Sprint("not made ", rng.Int()), Queue: "q"}})
			if err == nil {
				m.Error("a run was made on a broken disk")
			}
			m.mend()
			time.Sleep(2 * lookAgain)
		}
		m.sound()
		m.waiting()
	}
	cancel()
	all.Wait()
	m.sound()
	if n := m.turns.Load(); n < 1000 {
		m.Errorf("%d turns", n)
	}
}

// work is the life of a worker for some of the workflows: it ends with a goodbye,
// or without a word.
func (m *manyRoutes) work(ctx context.Context, rng *rand.Rand, name string) {
	c := bide.Claim{Worker: name, Queues: []string{"q", "other"}, Max: 1 + rng.IntN(20), TTL: loopTTL}
	for i := range loops {
		if rng.IntN(3) == 0 {
			c.Workflows = append(c.Workflows, fmt.Sprint("w", i))
		}
	}
	life, die := context.WithTimeout(ctx, time.Duration(rng.Int64N(int64(2*loopTTL))))
	defer die()
	for {
		claimed, err := m.Claim(life, c)
		if err != nil {
			break
		}
		pause(life, time.Duration(rng.IntN(50))*time.Millisecond)
		for _, l := range claimed {
			if l.News {
				continue
			}
			b := bide.Batch{Next: bide.Parked{WakeAt: time.Now().Add(time.Duration(rng.IntN(1000)) * time.Millisecond)}}
			if err := m.Commit(ctx, l.Lease, b); err == nil {
				m.turns.Add(1)
			}
		}
	}
	if rng.IntN(2) == 0 {
		_ = m.Commit(ctx, bide.Lease{Worker: name}, bide.Batch{Next: bide.Parked{}})
	} else {
		pause(ctx, 2*loopTTL)
	}
}

// waiting finds the runs that are due and in nobody's hand, though a worker could
// have them.
func (m *manyRoutes) waiting() {
	m.Helper()
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	r := <-m.readers
	defer func() { m.readers <- r }()
	due := time.Now().Add(-time.Millisecond).UnixMicro()
	err := sqlitex.Execute(r.conn, `SELECT k, route, wake FROM run WHERE wake <= ?`, &sqlitex.ExecOptions{Args: []any{due},
		ResultFunc: func(s *sqlite.Stmt) error {
			route := m.w.byKey[s.ColumnInt64(1)]
			for _, x := range m.w.workers {
				if x.wants(route.name) && m.w.leases[s.ColumnInt64(0)] == nil && x.held < x.max.Load() {
					m.Errorf("a run of %v has been due for %v, and worker %s has a hand free", route.name, time.Duration(due-s.ColumnInt64(2))*time.Microsecond, x.id)
				}
			}
			return nil
		}})
	if err != nil {
		m.Fatal(err)
	}
}

// crowd is a store with a worker for so many workflows, each with a run that
// sleeps.
func crowd(t testing.TB, path string, routes int) (*Store, bide.Claim) {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	c := bide.Claim{Worker: "x", Queues: []string{"q"}, Max: 1000, TTL: time.Hour}
	runs := make([]bide.NewRun, routes)
	for i := range runs {
		name := fmt.Sprint("w", i)
		c.Workflows = append(c.Workflows, name)
		runs[i] = bide.NewRun{Workflow: name, Queue: "q", Input: json.RawMessage(`1`), StartAt: time.Now().Add(24 * time.Hour)}
	}
	if _, err := s.Create(context.Background(), runs); err != nil {
		t.Fatal(err)
	}
	return s, c
}

// BenchmarkCommitAmongRoutes is a step of a run, with other workflows that have
// nothing to do.
func BenchmarkCommitAmongRoutes(b *testing.B) {
	for _, hands := range []int{1, 64} {
		for _, routes := range []int{1, 10_000} {
			b.Run(fmt.Sprintf("hands=%d/routes=%d", hands, routes), func(b *testing.B) {
				s, c := crowd(b, filepath.Join(b.TempDir(), "bide.db"), routes)
				ctx := context.Background()
				runs := make([]bide.NewRun, hands)
				for i := range runs {
					runs[i] = bide.NewRun{Workflow: "w0", Queue: "q", Input: json.RawMessage(`1`)}
				}
				if _, err := s.Create(ctx, runs); err != nil {
					b.Fatal(err)
				}
				var held []bide.Claimed
				for len(held) < hands {
					got, err := s.Claim(ctx, c)
					if err != nil {
						b.Fatal(err)
					}
					held = append(held, got...)
				}
				b.ResetTimer()
				var all sync.WaitGroup
				var done atomic.Int64
				for _, l := range held {
					all.Go(func() {
						for done.Add(1) <= int64(b.N) {
							r := bide.Record{Path: "1", Kind: bide.KindStep, Name: "s", Data: json.RawMessage(`1`), At: time.Now()}
							if err := s.Commit(ctx, l.Lease, bide.Batch{Records: []bide.Record{r}}); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
			})
		}
	}
}

// BenchmarkManyLoops is one turn of each of ten thousand runs that are due again
// and again, of one workflow or each of its own.
func BenchmarkManyLoops(b *testing.B) {
	const loops = 10_000
	for _, routes := range []int{1, loops} {
		b.Run(fmt.Sprintf("routes=%d", routes), func(b *testing.B) {
			s, c := crowd(b, filepath.Join(b.TempDir(), "bide.db"), routes)
			ctx := context.Background()
			runs := make([]bide.NewRun, loops)
			for i := range runs {
				runs[i] = bide.NewRun{Workflow: fmt.Sprint("w", i%routes), Queue: "q", Input: json.RawMessage(`1`)}
			}
			if _, err := s.Create(ctx, runs); err != nil {
				b.Fatal(err)
			}
			if _, err := s.hire(ctx, c); err != nil {
				b.Fatal(err)
			}
			turns := make(chan bide.Claimed, loops)
			var all sync.WaitGroup
			for range 64 {
				all.Go(func() {
					for l := range turns {
						r := bide.Record{Path: "1", Kind: bide.KindStep, Name: "s", Data: json.RawMessage(`1`), At: time.Now()}
						if err := s.Commit(ctx, l.Lease, bide.Batch{Records: []bide.Record{r}, Next: bide.Parked{WakeAt: time.Now()}}); err != nil {
							b.Error(err)
						}
					}
				})
			}
			b.ResetTimer()
			n := 0
			for n < b.N*loops {
				got, err := s.Claim(ctx, c)
				if err != nil {
					b.Fatal(err)
				}
				for _, l := range got {
					turns <- l
				}
				n += len(got)
			}
			close(turns)
			all.Wait()
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "turns/s")
		})
	}
}

// BenchmarkJoin is a worker with so many workflows that comes and goes.
func BenchmarkJoin(b *testing.B) {
	for _, routes := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("routes=%d", routes), func(b *testing.B) {
			s, c := crowd(b, memory, routes)
			ctx := context.Background()
			for i := range b.N {
				c.Worker = fmt.Sprint(i)
				if _, err := s.hire(ctx, c); err != nil {
					b.Fatal(err)
				}
				if err := s.Commit(ctx, bide.Lease{Worker: c.Worker}, bide.Batch{Next: bide.Parked{}}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkOpen is the opening of a file with so many workflows and the coming of
// a worker for all of them.
func BenchmarkOpen(b *testing.B) {
	for _, routes := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("routes=%d", routes), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "bide.db")
			s, c := crowd(b, path, routes)
			for range b.N {
				_ = s.Close()
				var err error
				if s, err = Open(path); err != nil {
					b.Fatal(err)
				}
				if _, err := s.hire(context.Background(), c); err != nil {
					b.Fatal(err)
				}
			}
			_ = s.Close()
		})
	}
}
