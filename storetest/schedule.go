package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/bide-dev/bide"
)

var scheduleCases = []testCase{
	{name: "schedule/workers", protects: "with workers, senders and deaths in any order: one holder a run, every acknowledged record kept in order and no other, every signal received once, no run left behind",
		run: func(k *kit) {
			for _, seed := range []uint64{1, 2} {
				newSchedule(k, seed).play(time.Hour)
			}
		}},
	{name: "schedule/reopen", protects: "the same while the store is closed and opened again in between", lasting: true,
		run: func(k *kit) {
			s := newSchedule(k, 3)
			for range 4 {
				s.play(3 * time.Second)
				k.reopen()
				s.reopened()
			}
			s.play(time.Hour)
		}},
}

const (
	scheduleRuns    = 50
	scheduleSignals = 5 // to each run
)

// schedule plays many runs at random, with a model of what has to come out.
type schedule struct {
	*kit
	seed  uint64
	queue string

	mu    sync.Mutex
	runs  map[string]*modelRun
	turns int
}

// modelRun is what is known of a run from what the store has acknowledged.
type modelRun struct {
	rng      *rand.Rand
	unsent   []string
	history  []string // paths
	received []string
	held     bool
	doubt    bool // whether the last turn was cut off after it had committed something
	turns    int
	ended    bool
}

func newSchedule(k *kit, seed uint64) *schedule {
	s := &schedule{kit: k, seed: seed, queue: fmt.Sprint("seed ", seed), runs: map[string]*modelRun{}}
	k.Cleanup(func() {
		if k.Failed() {
			k.Logf("seed %d, %d turns", seed, s.turns)
		}
	})
	for i := range scheduleRuns {
		n := run(fmt.Sprint(seed, "/", i))
		n.Queue = s.queue
		m := &modelRun{rng: rand.New(rand.NewPCG(seed, uint64(i)))}
		for j := range scheduleSignals {
			m.unsent = append(m.unsent, fmt.Sprint("signal ", j))
		}
		n.StartAt = now().Add(time.Duration(m.rng.IntN(3000)) * time.Millisecond)
		k.create(n)
		s.runs[n.ID] = m
	}
	return s
}

// play lets workers and senders work until every run has ended, or for so long.
func (s *schedule) play(limit time.Duration) {
	ctx, cancel := context.WithTimeout(s.ctx(), limit)
	defer cancel()
	began := time.Now()
	var wg sync.WaitGroup
	for w := range 4 {
		c := asks(fmt.Sprintf("%s worker %d from %v", s.queue, w, began.UnixMilli()), s.queue)
		c.Max = 10
		if w == 0 {
			c.Max, c.TTL = 3, 5*time.Second // dies again and again
		}
		wg.Go(func() { s.work(ctx, cancel, c, w == 0) })
	}
	for id, m := range s.runs {
		wg.Go(func() { s.send(ctx, id, m) })
	}
	wg.Wait()
	if limit < time.Hour || s.Failed() {
		return
	}
	for id, m := range s.runs {
		if !m.ended {
			s.Fatalf("run %s was left behind: %s after %d turns, %d of %d signals received, waits %+v", id, s.get(id).State, m.turns, len(m.received), scheduleSignals, s.get(id).Waiting)
		}
		slices.Sort(m.received)
		equal(s.kit, "signals received by "+id, len(slices.Compact(slices.Clone(m.received))), scheduleSignals)
		equal(s.kit, "received once", len(m.received), scheduleSignals)
		equal(s.kit, "history of "+id, paths(s.history(id)), m.history)
		r := s.get(id)
		equal(s.kit, "state", r.State, bide.Succeeded)
		equal(s.kit, "result", string(r.Result), fmt.Sprint(len(m.history)))
	}
}

// reopened notes that nobody holds anything any more.
func (s *schedule) reopened() {
	for _, m := range s.runs {
		m.held = false
	}
}

// send sends a run its signals, most of them twice.
func (s *schedule) send(ctx context.Context, id string, m *modelRun) {
	s.mu.Lock()
	rng := rand.New(rand.NewPCG(s.seed, uint64(len(id)+len(m.unsent))))
	s.mu.Unlock()
	for len(m.unsent) > 0 && ctx.Err() == nil {
		time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
		for range 1 + rng.IntN(2) {
			if _, err := s.s.Signal(s.ctx(), id, bide.Message{Op: bide.OpSignal, Name: m.unsent[0], Key: m.unsent[0]}); err != nil && !errors.Is(err, bide.ErrRunEnded) {
				s.Errorf("signal to %s: %v", id, err)
				return
			}
		}
		m.unsent = m.unsent[1:]
	}
}

// work claims runs and takes turns of them. A mortal worker leaves each turn
// after one commit, and is not heard of until its leases have lapsed.
func (s *schedule) work(ctx context.Context, done func(), c bide.Claim, mortal bool) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for ctx.Err() == nil && !s.Failed() {
		claimed, err := s.s.Claim(ctx, c)
		if err != nil {
			if ctx.Err() == nil {
				s.Errorf("claim: %v", err)
			}
			return
		}
		for _, got := range claimed {
			if got.News { // what a turn has not seen makes its run due when it parks
				continue
			}
			if mortal {
				s.turn(ctx, done, got, true)
			} else {
				wg.Go(func() { s.turn(ctx, done, got, false) })
			}
		}
		if mortal {
			sleep(ctx, time.Minute)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// turn commits some records, takes up some signals, and parks, ends or dies.
func (s *schedule) turn(ctx context.Context, done func(), c bide.Claimed, mortal bool) {
	id := c.Run.ID
	s.mu.Lock()
	m := s.runs[id]
	s.turns++
	m.turns++
	if m.held || m.ended {
		s.Errorf("run %s was handed out while it is held or has ended", id)
	}
	m.held = true
	if m.doubt && !c.Interrupted { // the other way round: a worker may have died with the run in its mail
		s.Errorf("run %s: its last turn was cut off, and this one is not told", id)
	}
	equal(s.kit, "history of "+id+" at claim", paths(c.History), append([]string(nil), m.history...))
	for _, got := range c.Inbox {
		if slices.Contains(m.received, got.Name) {
			s.Errorf("run %s gets %q, which it has received", id, got.Name)
		}
	}
	m.doubt = false
	inbox := c.Inbox
	commits := 1 + m.rng.IntN(3)
	s.mu.Unlock()

	commit := func(b bide.Batch, received []string) bool {
		if ctx.Err() != nil {
			return false
		}
		if b.Next != nil { // before the fact: another may have the run before Commit returns
			s.mu.Lock()
			m.held, m.doubt = false, false
			_, m.ended = b.Next.(bide.Done)
			s.mu.Unlock()
		}
		err := s.s.Commit(s.ctx(), c.Lease, b)
		if err != nil {
			s.Errorf("commit to %s by its holder: %v", id, err)
			return false
		}
		if b.Next == nil {
			s.mu.Lock()
			m.history = append(m.history, paths(b.Records)...)
			m.received = append(m.received, received...)
			m.doubt = true
			s.mu.Unlock()
		}
		return true
	}
	for range commits {
		var b bide.Batch
		var received []string
		for range 1 + m.rng.IntN(3) {
			b.Records = append(b.Records, step(fmt.Sprint(len(m.history)+len(b.Records)+1), "s"))
		}
		if len(inbox) > 0 && m.rng.IntN(2) == 0 {
			b.Consumed, received = []int64{inbox[0].Seq}, []string{inbox[0].Name}
			inbox = inbox[1:]
		}
		b.Seen = lastSeq(c.Inbox)
		sleep(ctx, time.Duration(m.rng.IntN(100))*time.Millisecond)
		if !commit(b, received) {
			return
		}
		if mortal {
			s.mu.Lock()
			m.held = false // as far as the living are concerned
			s.mu.Unlock()
			return
		}
	}
	b := bide.Batch{Seen: lastSeq(c.Inbox)}
	switch {
	case len(m.received) == scheduleSignals && m.turns >= 3:
		b.Next = bide.Done{Result: json.RawMessage(fmt.Sprint(len(m.history)))}
	case len(inbox) == 0 && len(m.received) < scheduleSignals && m.rng.IntN(2) == 0:
		b.Next = bide.Parked{} // more signals will come, and one of them has to wake it
	default:
		b.Next = bide.Parked{WakeAt: now().Add(time.Duration(m.rng.IntN(4000)-1000) * time.Millisecond)}
	}
	if !commit(b, nil) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.runs {
		if !other.ended {
			return
		}
	}
	done()
}
