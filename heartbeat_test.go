package bide_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bide-dev/bide"
)

// distant is a store at a distance: what it hears was sent a while ago.
type distant struct{ bide.Store }

func (s distant) Commit(ctx context.Context, l bide.Lease, b bide.Batch) error {
	if l.Run == "" {
		time.Sleep(20 * time.Millisecond)
	}
	return s.Store.Commit(ctx, l, b)
}

// A worker that the store cannot hear stops by itself before its leases lapse: its
// steps are told, its loops make no iteration, and nobody who takes its runs over
// finds it at work. Once it is heard again it takes runs as before.
func TestCutOff(t *testing.T) {
	inBubble(t, func(e *env) {
		e.store = distant{e.store}
		var mu sync.Mutex
		made := map[string]int{} // iterations, by worker
		frozenAt := time.Time{}
		var atWork tkoPeak
		var told atomic.Int64 // when the step was, since then
		workflow := func(who string) (*bide.Workflow[none, string], bide.Definition) {
			return bide.Define("long", func(ctx bide.Context, _ none) (string, error) {
					return bide.Step(ctx, "work", func(ctx context.Context) (string, error) {
						if atWork.now.Load() > 0 {
							t.Error("two at work at once")
						}
						atWork.enter()
						defer atWork.leave()
						select {
						case <-time.After(8 * time.Second):
						case <-ctx.Done():
							told.Store(int64(time.Since(frozenAt)))
						}
						return who, ctx.Err()
					})
				}), bide.Loop("often", func(context.Context) {
					mu.Lock()
					defer mu.Unlock()
					made[who]++
				}, bide.Every(50*time.Millisecond), bide.Exact{}, bide.MinInterval(time.Millisecond))
		}
		w1, l1 := workflow("first")
		first := e.work(w1, l1)
		run := start(e, w1, none{}, bide.ID("run"))
		time.Sleep(2 * time.Second)
		mu.Lock()
		if made["first"] < 30 {
			t.Errorf("%d iterations before", made["first"])
		}
		frozenAt = time.Now()
		first.gate.set(frozen)
		made["first"] = 0
		mu.Unlock()
		w2, l2 := workflow("second")
		second := e.work(w2, l2)
		time.Sleep(2*testLease + time.Second)
		mu.Lock()
		if made["first"] > 1 || made["second"] < 30 {
			t.Errorf("iterations while the first was cut off: %v", made)
		}
		mu.Unlock()
		if d := time.Duration(told.Load()); d <= testLease/2 || d > testLease {
			t.Errorf("the step was told after %v, with a lease of %v", d, testLease)
		}
		if !strings.Contains(e.logs.String(), "the runs in hand are let go") {
			t.Error("the log says nothing")
		}
		first.gate.set(passing)
		if out, err := result(e, run); out != "second" || err != nil {
			t.Errorf("the run came to %q, %v", out, err)
		}
		e.ok(second.stop())
		if out, err := result(e, start(e, w1, none{}, bide.ID("another"))); out != "first" || err != nil {
			t.Errorf("later: %q, %v", out, err)
		}
		mu.Lock()
		defer mu.Unlock()
		if made["first"] < 30 {
			t.Errorf("%d iterations after", made["first"])
		}
	})
}

// A store that was out of reach for longer than a lease, and never let anyone else
// have the runs, has them back from the worker, and each is finished.
func TestCutOffAlone(t *testing.T) {
	inBubble(t, func(e *env) {
		calls := 0
		w := bide.Define("alone", func(ctx bide.Context, _ none) (int, error) {
			return bide.Step(ctx, "work", func(ctx context.Context) (int, error) {
				calls++
				select {
				case <-time.After(5 * time.Second):
				case <-ctx.Done():
				}
				return calls, ctx.Err()
			})
		})
		patient := &patientStore{Store: e.store}
		e.store = patient
		h := e.work(w)
		run := start(e, w, none{})
		time.Sleep(time.Second)
		h.gate.set(frozen)
		time.Sleep(2 * testLease)
		h.gate.set(passing)
		began := time.Now()
		if out, err := result(e, run); out != 2 || err != nil {
			t.Errorf("%d, %v", out, err)
		}
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("it took %v to go on", took)
		}
	})
}

// patientStore never lets a lease lapse.
type patientStore struct{ bide.Store }

func (s *patientStore) Claim(ctx context.Context, c bide.Claim) ([]bide.Claimed, error) {
	c.TTL = 1000 * time.Hour
	return s.Store.Claim(ctx, c)
}
