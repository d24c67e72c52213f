package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/bide-dev/bide"
)

// Many workers that come, lag and go, and many hands that start, signal and
// direct runs at random, leave the store right: one lease a run at a time, no
// run that nothing would ever wake, and all of them end once they are let.
func TestStress(t *testing.T) {
	for seed := range uint64(3) {
		path, rounds := memory, 20
		if seed == 0 {
			path, rounds = filepath.Join(t.TempDir(), "bide.db"), 8
		}
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := &stress{tight: newTight(t, path), seed: seed, stop: make(chan struct{})}
				st.run(rounds)
			})
		})
	}
}

type stress struct {
	*tight
	seed   uint64
	stop   chan struct{} // no more mischief: every turn ends its run
	workMu sync.Mutex
	counts map[string]int
}

const (
	stressTTL     = 2 * time.Second
	stressWorkers = 5
	stressHands   = 4
	stressRuns    = 60
)

func (st *stress) run(rounds int) {
	st.counts = map[string]int{}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var workers, hands sync.WaitGroup
	for i := range stressWorkers {
		workers.Go(func() { st.worker(ctx, i) })
	}
	for i := range stressHands {
		hands.Go(func() { st.hand(ctx, rand.New(rand.NewPCG(st.seed, uint64(100+i))), i) })
	}
	for range rounds {
		time.Sleep(3 * time.Second)
		st.sound()
		st.orphans()
	}
	close(st.stop)
	hands.Wait()
	left := 1
	for rounds := 0; left > 0 && rounds < 20; rounds++ { // whoever waits for a message gets one, whoever is paused goes on
		left = 0
		runs, err := st.Runs(ctx, bide.Query{Limit: 1000})
		if err != nil {
			st.Fatal(err)
		}
		for _, r := range runs {
			if r.State.Ended() {
				continue
			}
			left++
			if r.State == bide.Paused {
				_ = st.Control(ctx, r.ID, bide.Command{Op: bide.OpResume})
			}
			_, _ = st.Signal(ctx, r.ID, bide.Message{Name: "s"})
		}
		time.Sleep(10 * time.Second)
	}
	st.sound()
	st.orphans()
	if left > 0 {
		st.Errorf("%d runs have not ended", left)
	}
	st.fenced(ctx)
	st.Log(st.counts)
	cancel()
	workers.Wait()
}

func (st *stress) count(what string) {
	st.workMu.Lock()
	defer st.workMu.Unlock()
	st.counts[what]++
}

// orphans finds the runs that nothing would ever wake: not ended, not paused, in
// nobody's hand, with no time to wake at, and with a message that was never seen
// or with nothing that a message could end.
func (st *stress) orphans() {
	st.Helper()
	const sql = `SELECT k, state, mail FROM run WHERE wake IS NULL AND state NOT IN (?1) AND state < ?2
		AND (waits IS NULL OR EXISTS (SELECT 1 FROM inbox WHERE inbox.run = run.k AND taken = 0))`
	st.mu.Lock()
	defer st.mu.Unlock()
	r := <-st.readers
	defer func() { st.readers <- r }()
	err := sqlitex.Execute(r.conn, sql, &sqlitex.ExecOptions{Args: []any{int64(bide.Paused), int64(bide.Succeeded)},
		ResultFunc: func(s *sqlite.Stmt) error {
			if k := s.ColumnInt64(0); st.w.leases[k] == nil {
				st.Errorf("run %s is an orphan: %v, newest message %d", st.madeID(k), bide.State(s.ColumnInt64(1)), s.ColumnInt64(2))
			}
			return nil
		}})
	if err != nil {
		st.Fatal(err)
	}
}

// fenced checks that no commit of an older lease came after one of a newer: each
// record has its lease's epoch.
func (st *stress) fenced(ctx context.Context) {
	st.Helper()
	runs, err := st.Runs(ctx, bide.Query{Limit: 1000})
	if err != nil {
		st.Fatal(err)
	}
	for _, run := range runs {
		records, err := st.History(ctx, run.ID, 0, 0)
		if err != nil {
			st.Fatal(err)
		}
		newest := int64(0)
		for _, r := range records {
			if r.Kind != bide.KindStep {
				continue
			}
			epoch, err := strconv.ParseInt(string(r.Data), 10, 64)
			if err != nil || epoch < newest {
				st.Errorf("run %s: a commit of lease %s after one of lease %d", run.ID, r.Data, newest)
			}
			newest = epoch
			st.counts["records"]++
		}
	}
}

// worker claims and takes turns, at times without a sign of life for longer than
// its leases last; then it comes back under another name.
func (st *stress) worker(ctx context.Context, n int) {
	rng := rand.New(rand.NewPCG(st.seed, uint64(n)))
	for life := 0; ctx.Err() == nil; life++ {
		st.serve(ctx, rng, fmt.Sprintf("%d-%d", n, life))
	}
}

func (st *stress) serve(ctx context.Context, rng *rand.Rand, name string) {
	life, die := context.WithCancel(ctx)
	defer die()
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		for range 3 + rng.IntN(30) {
			if !pause(life, stressTTL/3) {
				return
			}
			if err := st.Commit(ctx, bide.Lease{Worker: name}, bide.Batch{}); err != nil && !errors.Is(err, bide.ErrLeaseLost) {
				st.Errorf("renew: %v", err)
			}
		}
		if st.over() {
			<-life.Done() // in the end nobody dies without a word
		} else if st.dice(rng, 2) == 0 {
			_ = st.Commit(ctx, bide.Lease{Worker: name}, bide.Batch{Next: bide.Parked{}})
		} else {
			pause(life, stressTTL*3/2)
		}
		die()
	})
	turns := map[string]*stressTurn{}
	for {
		claimed, err := st.Claim(life, bide.Claim{Worker: name, Queues: []string{"q"}, Workflows: []string{"w", "v"}, Max: 12, TTL: stressTTL})
		if err != nil {
			return
		}
		for _, c := range claimed {
			x := turns[c.Lease.Run]
			switch {
			case !c.News:
				x = &stressTurn{lease: c.Lease, rng: rand.New(rand.NewPCG(st.seed, uint64(c.Epoch)))}
				x.mail = append(x.mail, c.Inbox...)
				turns[c.Lease.Run] = x
				all.Go(func() { x.take(life, st) })
			case x != nil && x.lease.Epoch == c.Epoch:
				x.mu.Lock()
				x.mail, x.lost = append(x.mail, c.Inbox...), x.lost || c.Lost
				x.mu.Unlock()
			}
		}
	}
}

func (st *stress) dice(rng *rand.Rand, n int) int {
	st.workMu.Lock()
	defer st.workMu.Unlock()
	return rng.IntN(n)
}

func (st *stress) over() bool {
	select {
	case <-st.stop:
		return true
	default:
		return false
	}
}

type stressTurn struct {
	lease bide.Lease
	rng   *rand.Rand
	mu    sync.Mutex
	mail  []bide.Message
	lost  bool
}

// take commits a few times and ends the turn somehow.
func (x *stressTurn) take(ctx context.Context, st *stress) {
	for n := x.rng.IntN(4); ; n-- {
		b := bide.Batch{Records: []bide.Record{{Path: "1", Kind: bide.KindStep, Name: "s", Data: json.RawMessage(strconv.FormatInt(x.lease.Epoch, 10)), At: time.Now()}}}
		x.mu.Lock()
		for _, m := range x.mail {
			b.Consumed, b.Seen = append(b.Consumed, m.Seq), max(b.Seen, m.Seq)
		}
		x.mail = nil
		x.mu.Unlock()
		if n <= 0 {
			b.Next = x.end(st, &b)
		} else if x.rng.IntN(3) == 0 {
			b.Start = []bide.NewRun{{ID: fmt.Sprintf("%s.%d", x.lease.Run[:min(len(x.lease.Run), 20)], x.rng.IntN(3)), Workflow: "w", Queue: "q"}}
			b.Cancel = []string{fmt.Sprintf("u%d", x.rng.IntN(stressRuns))}
			b.Values = map[string]json.RawMessage{"k": json.RawMessage(strconv.Itoa(n))}
		}
		err := st.Commit(context.Background(), x.lease, b)
		switch {
		case errors.Is(err, bide.ErrLeaseLost):
			st.count("lost")
			return
		case err != nil:
			st.Errorf("Commit: %v", err)
			return
		case b.Next != nil:
			st.count(fmt.Sprintf("%T", b.Next))
			return
		}
		if !pause(ctx, time.Duration(x.rng.Int64N(int64(time.Second)))) {
			return // died in the middle
		}
	}
}

func (x *stressTurn) end(st *stress, b *bide.Batch) bide.Next {
	if st.over() {
		return bide.Done{Result: json.RawMessage("1")}
	}
	switch x.rng.IntN(8) {
	case 0:
		return bide.Done{Result: json.RawMessage("1")}
	case 1:
		return bide.Ended{State: bide.Failed, Error: bide.NewFailure(errors.New("no"))}
	case 2:
		return bide.Continued{Input: json.RawMessage("2")}
	case 3, 4: // until a message comes
		b.Waiting = &[]bide.Wait{{Path: "1", Kind: bide.KindReceive, Name: "s"}}
		return bide.Parked{}
	default:
		b.Waiting = &[]bide.Wait{{Path: "1", Kind: bide.KindSleep, Name: "z"}}
		return bide.Parked{WakeAt: time.Now().Add(time.Duration(x.rng.Int64N(int64(10 * time.Second))))}
	}
}

// hand does things to runs from outside until it is stopped.
func (st *stress) hand(ctx context.Context, rng *rand.Rand, n int) {
	ops := []bide.Op{bide.OpCancel, bide.OpTerminate, bide.OpPause, bide.OpPause, bide.OpResume, bide.OpResume, bide.OpResume, bide.OpRetry, bide.OpRetry, bide.OpCheckWait}
	for i := 0; !st.over(); i++ {
		id := fmt.Sprintf("u%d", rng.IntN(stressRuns))
		var err error
		switch rng.IntN(4) {
		case 0:
			runs := []bide.NewRun{{ID: id, Workflow: "w", Queue: "q", Conflict: bide.Conflict(rng.IntN(3))}, {Workflow: "v", Queue: "q"}}
			if rng.IntN(3) == 0 {
				runs[0].StartAt = time.Now().Add(time.Duration(rng.Int64N(int64(5 * time.Second))))
			}
			_, err = st.Create(ctx, runs[:1+rng.IntN(20)/19])
		case 1:
			m := bide.Message{Name: "s"}
			if rng.IntN(2) == 0 {
				m.Key = strconv.Itoa(rng.IntN(20))
			}
			_, err = st.Signal(ctx, id, m)
		default:
			err = st.Control(ctx, id, bide.Command{Op: ops[rng.IntN(len(ops))], Wait: "s"})
		}
		var invalid *bide.InvalidError
		if err != nil && !errors.Is(err, bide.ErrNotFound) && !errors.Is(err, bide.ErrRunEnded) && !errors.As(err, &invalid) {
			st.Errorf("hand %d: %v", n, err)
		}
		st.count("done by hand")
		pause(ctx, time.Duration(rng.Int64N(int64(100*time.Millisecond))))
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
