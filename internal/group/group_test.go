package group_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide/internal/group"
)

// recorder is a flush function that keeps the batches, and that can be held
// back to make callers gather behind it.
type recorder struct {
	gate    chan struct{} // nil: open
	batches [][]int
	running atomic.Int32
}

func (r *recorder) flush(t *testing.T) func([]int) {
	t.Helper()
	return func(items []int) {
		if r.running.Add(1) != 1 {
			t.Error("two flushes at once")
		}
		defer r.running.Add(-1)
		if len(items) == 0 {
			t.Error("an empty batch")
		}
		if r.gate != nil {
			<-r.gate
		}
		r.batches = append(r.batches, slices.Clone(items))
	}
}

func (r *recorder) all() []int { return slices.Concat(r.batches...) }

func TestBatchesForm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{gate: make(chan struct{})}
		g := group.New(r.flush(t))
		defer g.Close()

		// The first call occupies the writer; those that come meanwhile are one batch.
		var callers sync.WaitGroup
		callers.Go(func() { do(t, g, 0) })
		synctest.Wait()
		const n = 100
		for i := range n {
			callers.Go(func() { do(t, g, 1+i) })
		}
		synctest.Wait()
		close(r.gate)
		callers.Wait()

		if len(r.batches) != 2 || len(r.batches[0]) != 1 || len(r.batches[1]) != n {
			t.Errorf("%d batches of sizes %v, want 1 and %d", len(r.batches), sizes(r.batches), n)
		}
	})
}

func TestOrderIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		g := group.New(r.flush(t))
		const n = 10_000
		for i := range n {
			if i%100 == 99 {
				do(t, g, i)
			} else {
				add(t, g, i)
			}
		}
		g.Close()
		if got := r.all(); len(got) != n || !slices.IsSorted(got) {
			t.Errorf("%d items of %d, sorted %v", len(got), n, slices.IsSorted(got))
		}
	})
}

func TestDoReturnsAfterItsFlush(t *testing.T) {
	// What flush writes into an item is there when Do returns; without a lock in
	// between, the race detector would tell if it were not ordered.
	type call struct{ in, out int }
	g := group.New(func(calls []*call) {
		for _, c := range calls {
			c.out = c.in * c.in
		}
	})
	defer g.Close()
	var callers sync.WaitGroup
	for caller := range 50 {
		callers.Go(func() {
			for i := range 100 {
				c := &call{in: 100*caller + i}
				if err := g.Do(c); err != nil {
					t.Errorf("Do: %v", err)
				}
				if c.out != c.in*c.in {
					t.Errorf("item %d came back as %d", c.in, c.out)
				}
			}
		})
	}
	callers.Wait()
}

func TestCloseFlushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{gate: make(chan struct{})}
		g := group.New(r.flush(t))
		const n = 10
		for i := range n {
			add(t, g, i)
		}
		var waiting sync.WaitGroup
		waiting.Go(func() { do(t, g, n) })
		synctest.Wait()

		var closed atomic.Int32
		for range 3 { // closing again, or at once from elsewhere, does no harm
			waiting.Go(func() {
				g.Close()
				closed.Add(1)
			})
		}
		synctest.Wait()
		if closed.Load() != 0 {
			t.Error("Close returned before the queue was flushed")
		}
		if err := g.Do(-1); !errors.Is(err, group.ErrClosed) {
			t.Errorf("Do while closing: %v, want ErrClosed", err)
		}
		close(r.gate)
		waiting.Wait()
		if got := r.all(); len(got) != n+1 {
			t.Errorf("flushed %v, want 0 to %d", got, n)
		}
		g.Close()
	})
}

func TestAfterClose(t *testing.T) {
	g := group.New(func([]int) { t.Error("a flush of nothing") })
	g.Close()
	if err := g.Do(1); !errors.Is(err, group.ErrClosed) {
		t.Errorf("Do: %v, want ErrClosed", err)
	}
	if err := g.Add(1); !errors.Is(err, group.ErrClosed) {
		t.Errorf("Add: %v, want ErrClosed", err)
	}
}

// A call either is flushed or says that it was not, also while Close goes on.
func TestCloseUnderLoad(t *testing.T) {
	for seed := range uint64(50) {
		var flushed, accepted atomic.Int64
		g := group.New(func(items []int) { flushed.Add(int64(len(items))) })
		var callers sync.WaitGroup
		for caller := range 8 {
			rnd := rand.New(rand.NewPCG(seed, uint64(caller)))
			callers.Go(func() {
				for {
					call := g.Do
					if rnd.IntN(2) == 0 {
						call = g.Add
					}
					if err := call(1); errors.Is(err, group.ErrClosed) {
						return
					}
					if accepted.Add(1) == 200 {
						go g.Close()
					}
				}
			})
		}
		callers.Wait()
		g.Close()
		if flushed.Load() != accepted.Load() {
			t.Fatalf("seed %d: %d calls accepted, %d flushed", seed, accepted.Load(), flushed.Load())
		}
	}
}

// A writer that waits for as many items as its last batch had must not wait for
// them for ever: here one item comes, from a caller that does not wait, and no
// other follows until it is flushed. The clock of the bubble stands still, so no
// timeout can come to help.
func TestLoneAddAfterALargeBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{gate: make(chan struct{})}
		g := group.New(r.flush(t))
		defer g.Close()
		var callers sync.WaitGroup
		for i := range 500 {
			callers.Go(func() { do(t, g, i) })
		}
		synctest.Wait()
		close(r.gate)
		callers.Wait()
		began := time.Now()
		for i := range 10 {
			add(t, g, 1000+i)
			synctest.Wait()
			if got := r.all(); got[len(got)-1] != 1000+i {
				t.Fatalf("item %d was not flushed; the last is %d", 1000+i, got[len(got)-1])
			}
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("flushing took %v of the bubble's time", d)
		}
	})
}

// Callers that wait and callers that do not, mixed, from many goroutines: all is
// flushed, each caller's items in its own order, none twice.
func TestMixOfAddAndDo(t *testing.T) {
	const callers, calls = 40, 250
	mix := func(t *testing.T) {
		r := &recorder{}
		g := group.New(r.flush(t))
		var all sync.WaitGroup
		for caller := range callers {
			rnd := rand.New(rand.NewPCG(11, uint64(caller)))
			all.Go(func() {
				for i := range calls {
					if rnd.IntN(3) == 0 {
						do(t, g, caller*calls+i)
					} else {
						add(t, g, caller*calls+i)
					}
				}
			})
		}
		all.Wait()
		g.Close()

		var next [callers]int
		for _, v := range r.all() {
			caller, i := v/calls, v%calls
			if i != next[caller] {
				t.Fatalf("caller %d: item %d came where %d was due", caller, i, next[caller])
			}
			next[caller]++
		}
		for caller, n := range next {
			if n != calls {
				t.Errorf("caller %d: %d of %d items flushed", caller, n, calls)
			}
		}
	}
	t.Run("clock runs", mix)
	t.Run("clock stands", func(t *testing.T) { synctest.Test(t, mix) })
}

// A flush may queue what follows from it, as long as it does not wait for that.
func TestAddFromFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g *group.Group[int]
		var got []int
		g = group.New(func(items []int) {
			for _, v := range items {
				got = append(got, v)
				if v > 0 {
					add(t, g, v-1)
				}
			}
		})
		do(t, g, 5)
		synctest.Wait()
		g.Close()
		if want := []int{5, 4, 3, 2, 1, 0}; !slices.Equal(got, want) {
			t.Errorf("flushed %v, want %v", got, want)
		}
	})
}

// A group that is idle lets the clock of a bubble go on: a run that sleeps for a
// day in a test is not to be held up by the store's writer.
func TestIdleGroupLetsTimePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := group.New(func([]int) { time.Sleep(time.Second) })
		defer g.Close()
		began := time.Now()
		do(t, g, 1)
		time.Sleep(24 * time.Hour)
		do(t, g, 2)
		if d := time.Since(began); d != 24*time.Hour+2*time.Second {
			t.Errorf("%v went by", d)
		}
	})
}

func BenchmarkDo(b *testing.B) {
	for _, callers := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			b.ReportAllocs()
			batches := 0
			g := group.New(func([]int) { batches++ })
			var left atomic.Int64
			left.Store(int64(b.N))
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					for left.Add(-1) >= 0 {
						if err := g.Do(1); err != nil {
							b.Error(err)
						}
					}
				})
			}
			all.Wait()
			g.Close()
			b.ReportMetric(float64(b.N)/float64(max(batches, 1)), "items/batch")
		})
	}
}

func BenchmarkAdd(b *testing.B) {
	b.ReportAllocs()
	g := group.New(func([]int) {})
	for b.Loop() {
		if err := g.Add(1); err != nil {
			b.Fatal(err)
		}
	}
	g.Close()
}

func do(t *testing.T, g *group.Group[int], v int) {
	t.Helper()
	if err := g.Do(v); err != nil {
		t.Errorf("Do(%d): %v", v, err)
	}
}

func add(t *testing.T, g *group.Group[int], v int) {
	t.Helper()
	if err := g.Add(v); err != nil {
		t.Errorf("Add(%d): %v", v, err)
	}
}

func sizes(batches [][]int) []int {
	out := make([]int, len(batches))
	for i, b := range batches {
		out[i] = len(b)
	}
	return out
}
