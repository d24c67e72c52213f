// Package storetest is the conformance suite of [bide.Store]: the contract in
// full, as cases. For most uses you need [Run] and [Door]:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, storetest.Door{Open: func(t *testing.T) bide.Store { return open(t) }})
//	}
//
// Every case opens a store of its own inside a [testing/synctest] bubble, so
// hours pass in no time, and says on failure what it protects.
package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
)

// Door is how the suite gets into the stores that it tests.
type Door struct {
	// Open returns a new, empty store. The suite closes it.
	Open func(t *testing.T) bide.Store
	// Reopen ends the old store, by a close or as a crash would, and opens the
	// same data again. Nil says that the store does not outlive itself.
	Reopen func(t *testing.T, old bide.Store) bide.Store
}

// Run tests the store behind the door, each case as a subtest.
func Run(t *testing.T, door Door) {
	for _, c := range slices.Concat(createCases, claimCases, lapseCases, commitCases, childCases, signalCases, factCases, controlCases, readCases, wakeCases, closeCases, scheduleCases,
		streamCases, adminCases, listCases, followCases, keyCases) {
		t.Run(c.name, func(t *testing.T) {
			if c.lasting && door.Reopen == nil {
				t.Skip("the store does not outlive itself")
			}
			synctest.Test(t, func(t *testing.T) {
				t.Cleanup(func() {
					if t.Failed() {
						t.Logf("%s protects this: %s", c.name, c.protects)
					}
				})
				k := &kit{T: t, s: door.Open(t), door: door}
				t.Cleanup(func() { _ = k.s.Close() })
				c.run(k)
			})
		})
	}
}

// testCase is one point of the contract.
type testCase struct {
	name     string
	protects string // one sentence, printed on failure
	run      func(*kit)
	lasting  bool // needs [Door.Reopen]
}

const (
	workflow = "wf"
	lease    = 1000 * time.Hour // of workers whose leases should not matter to the case
	soon     = time.Second      // what a store may take to hand out what is due
	never    = time.Hour        // how long a run that is not due is waited for
)

// kit is a store under test with what the cases do to it again and again. Runs
// that it starts have a queue of their own, named as the run is, so that no
// case claims another's.
//
// A worker is known to the store from its first Claim on and may be handed runs
// from then on, whether it is waiting in Claim or about to come back. So that a
// case knows who can have a run, the worker of a single turn leaves with it, see
// [kit.turn], and one that was only to see nothing leaves after that.
type kit struct {
	*testing.T
	s     bide.Store
	door  Door
	onEnd *bide.NewRun // of the runs that [kit.inState] makes
}

func (k *kit) ctx() context.Context { return context.Background() }

func (k *kit) ok(err error) {
	k.Helper()
	if err != nil {
		k.Fatalf("unexpected error: %v", err)
	}
}

func (k *kit) is(err, want error) {
	k.Helper()
	if !errors.Is(err, want) {
		k.Errorf("got error %v, want %v", err, want)
	}
}

// isAs checks that err has an E in its chain.
func isAs[E error](k *kit, err error) {
	k.Helper()
	if e := *new(E); !errors.As(err, &e) {
		k.Errorf("got error %v, want a %T", err, e)
	}
}

func equal[T any](k *kit, what string, got, want T) {
	k.Helper()
	if !reflect.DeepEqual(got, want) {
		k.Errorf("%s: got %s, want %s", what, short(got), short(want))
	}
}

// sameJSON compares what was kept by meaning, numbers digit by digit; times by
// their instant.
func sameJSON(k *kit, what string, got, want any) {
	k.Helper()
	norm := func(v any) (out any) {
		data, err := json.Marshal(v)
		k.ok(err)
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		k.ok(d.Decode(&out))
		return out
	}
	equal(k, what, norm(got), norm(want))
}

func sameTime(k *kit, what string, got, want time.Time) {
	k.Helper()
	if !got.Equal(want) {
		k.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func short(v any) string {
	s := fmt.Sprintf("%+v", v)
	if raw, ok := v.(json.RawMessage); ok {
		s = string(raw)
	}
	if len(s) > 400 {
		s = fmt.Sprintf("%s… (%d bytes)", s[:400], len(s))
	}
	return s
}

// now is the time as stores keep it.
func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

func run(id string) bide.NewRun {
	input, _ := json.Marshal(map[string]string{"of": id})
	n := bide.NewRun{ID: id, Workflow: workflow, Queue: id, Input: input}
	if id == "" {
		n.Queue = "unnamed"
	}
	return n
}

// create makes runs that must not fail, and returns their ids.
func (k *kit) create(runs ...bide.NewRun) (ids []string) {
	k.Helper()
	created, err := k.s.Create(k.ctx(), runs)
	k.ok(err)
	if len(created) != len(runs) {
		k.Fatalf("%d runs created, %d answers", len(runs), len(created))
	}
	for i, c := range created {
		k.ok(c.Err)
		if runs[i].ID != "" && c.ID != runs[i].ID {
			k.Fatalf("run %q was created as %q", runs[i].ID, c.ID)
		}
		ids = append(ids, c.ID)
	}
	return ids
}

// asks is the claim of a worker for the queues.
func asks(worker string, queues ...string) bide.Claim {
	return bide.Claim{Worker: worker, Queues: queues, Workflows: []string{workflow}, Max: 1000, TTL: lease}
}

// claim calls Claim for at most d.
func (k *kit) claim(c bide.Claim, d time.Duration) ([]bide.Claimed, error) {
	k.Helper()
	ctx, cancel := context.WithTimeout(k.ctx(), d)
	defer cancel()
	got, err := k.s.Claim(ctx, c)
	if err == nil && len(got) == 0 {
		k.Fatal("Claim returned neither runs nor news nor an error; it has to wait")
	}
	return got, err
}

// take claims until it has n runs; news that come meanwhile are dropped.
func (k *kit) take(c bide.Claim, n int) (runs []bide.Claimed) {
	k.Helper()
	for len(runs) < n {
		got, err := k.claim(c, 10*time.Second)
		if err != nil {
			k.Fatalf("worker %s got %d of the %d runs that are due in %v, then: %v", c.Worker, len(runs), n, c.Queues, err)
		}
		for _, r := range got {
			if !r.News {
				runs = append(runs, r)
			}
		}
	}
	if len(runs) > n {
		k.Fatalf("worker %s got %d runs of %v, want %d", c.Worker, len(runs), c.Queues, n)
	}
	return runs
}

const single = "worker of " // begins the names of workers that leave with their turn

// turn claims the run of the id, by a worker of its own, that leaves when the
// turn has ended.
func (k *kit) turn(id string) bide.Claimed {
	k.Helper()
	c := k.take(asks(single+id, id), 1)[0]
	if c.Lease.Run != id || c.Run.ID != id || c.Lease.Worker != single+id {
		k.Fatalf("claimed run %q (lease %+v), want %q", c.Run.ID, c.Lease, id)
	}
	return c
}

// begin creates a run for a worker that is there already, to which a store may
// hand it as it is made, and claims it. [kit.inState] has the worker come later.
func (k *kit) begin(id string) bide.Claimed {
	k.Helper()
	k.silent(asks(single+id, id), time.Microsecond)
	k.create(run(id))
	return k.turn(id)
}

// leave makes the worker give back all that it has.
func (k *kit) leave(worker string) {
	k.Helper()
	k.anyOf(k.s.Commit(k.ctx(), bide.Lease{Worker: worker}, bide.Batch{Next: bide.Parked{}}), bide.ErrLeaseLost)
}

// idle checks that a worker that comes is given nothing for so long, and leaves.
func (k *kit) idle(c bide.Claim, d time.Duration) {
	k.Helper()
	k.silent(c, d)
	k.leave(c.Worker)
}

// silent checks that the worker is given nothing for so long.
func (k *kit) silent(c bide.Claim, d time.Duration) {
	k.Helper()
	began := time.Now()
	got, err := k.claim(c, d)
	if err == nil {
		k.Fatalf("worker %s was given %s after %v, want nothing for %v", c.Worker, brief(got), time.Since(began), d)
	}
	k.is(err, context.DeadlineExceeded)
}

// notDue checks that nobody is given the run.
func (k *kit) notDue(id string) {
	k.Helper()
	k.idle(asks("probe of "+id, id), never)
}

// news returns what the worker is told of the run that it holds.
func (k *kit) news(l bide.Lease) bide.Claimed {
	k.Helper()
	got, err := k.claim(asks(l.Worker, l.Run), 10*time.Second)
	if err != nil {
		k.Fatalf("no news of run %q for its holder: %v", l.Run, err)
	}
	all := got[0]
	for i, n := range got {
		if !n.News || n.Lease.Run != l.Run || n.Epoch != l.Epoch {
			k.Fatalf("got %s, want news for %+v only", brief(got), l)
		}
		if i > 0 {
			all.Inbox, all.Lost = append(all.Inbox, n.Inbox...), all.Lost || n.Lost
		}
	}
	return all
}

func brief(claimed []bide.Claimed) string {
	s := ""
	for _, c := range claimed {
		s += fmt.Sprintf("[run %s epoch %d news %v lost %v interrupted %v inbox %d] ", c.Lease.Run, c.Epoch, c.News, c.Lost, c.Interrupted, len(c.Inbox))
	}
	return s
}

func (k *kit) commit(c bide.Claimed, b bide.Batch) {
	k.Helper()
	if err := k.s.Commit(k.ctx(), c.Lease, b); err != nil {
		k.Fatalf("commit to %q: %v", c.Lease.Run, err)
	}
	if b.Next != nil && strings.HasPrefix(c.Worker, single) {
		k.leave(c.Worker)
	}
}

// refused checks that the lease is no longer good, and that nothing is written.
func (k *kit) refused(l bide.Lease) {
	k.Helper()
	k.is(k.s.Commit(k.ctx(), l, bide.Batch{Records: []bide.Record{step("99", "refused")}}), bide.ErrLeaseLost)
	h, err := k.s.History(k.ctx(), l.Run, 0, 0)
	if err != nil {
		return // no such run: nothing can be in it
	}
	for _, r := range h {
		if r.Path == "99" {
			k.Errorf("a commit without the lease left its record in run %q", l.Run)
		}
	}
}

func (k *kit) signal(id string, m bide.Message) {
	k.Helper()
	m.Op = bide.OpSignal
	_, err := k.s.Signal(k.ctx(), id, m)
	k.ok(err)
}

func (k *kit) control(id string, op bide.Op) {
	k.Helper()
	if err := k.s.Control(k.ctx(), id, bide.Command{Op: op, Reason: "because"}); err != nil {
		k.Fatalf("control operation %d on %q: %v", op, id, err)
	}
}

func (k *kit) get(id string) bide.Run {
	k.Helper()
	r, err := k.s.Run(k.ctx(), id)
	if err != nil {
		k.Fatalf("run %q: %v", id, err)
	}
	return r
}

func (k *kit) state(id string, want bide.State) {
	k.Helper()
	if got := k.get(id).State; got != want {
		k.Errorf("run %q is %v, want %v", id, got, want)
	}
}

func (k *kit) history(id string) []bide.Record {
	k.Helper()
	h, err := k.s.History(k.ctx(), id, 0, 0)
	k.ok(err)
	k.ascending(h)
	return h
}

func (k *kit) ascending(h []bide.Record) {
	k.Helper()
	for i := range h {
		if h[i].Seq <= 0 || i > 0 && h[i].Seq <= h[i-1].Seq {
			k.Errorf("record %d has Seq %d after %d; Seq must be above 0 and ascend", i, h[i].Seq, h[max(i-1, 0)].Seq)
		}
	}
}

// query returns the ids of the page, in its order.
func (k *kit) query(q bide.Query) (ids []string) {
	k.Helper()
	page, err := k.s.Runs(k.ctx(), q)
	k.ok(err)
	for _, r := range page {
		ids = append(ids, r.ID)
	}
	return ids
}

func (k *kit) reopen() {
	k.Helper()
	k.s = k.door.Reopen(k.T, k.s)
}

func step(path, name string) bide.Record {
	return bide.Record{Path: path, Kind: bide.KindStep, Name: name, Data: json.RawMessage(`"` + name + `"`), Attempt: 1, At: now()}
}

func message(name, data string) bide.Message {
	return bide.Message{Op: bide.OpSignal, Name: name, Data: json.RawMessage(data)}
}

// names lists the messages of an inbox by name, store-made ones by op.
func names(inbox []bide.Message) (list []string) {
	for _, m := range inbox {
		if m.Op == bide.OpSignal {
			list = append(list, m.Name)
		} else {
			list = append(list, fmt.Sprintf("op %d", m.Op))
		}
	}
	return list
}

func paths(h []bide.Record) (list []string) {
	for _, r := range h {
		list = append(list, r.Path)
	}
	return list
}

func lastSeq(inbox []bide.Message) (seq int64) {
	for _, m := range inbox {
		seq = max(seq, m.Seq)
	}
	return seq
}

func failure(text string) *bide.Failure { return bide.NewFailure(errors.New(text)) }

// states lists every state that a run can be in.
var states = []bide.State{bide.Queued, bide.Running, bide.Waiting, bide.Paused, bide.Canceling,
	bide.Succeeded, bide.Failed, bide.Canceled, bide.Terminated, bide.TimedOut}

// inState brings a new run into the state and returns the last lease on it.
func (k *kit) inState(id string, s bide.State) (c bide.Claimed) {
	k.Helper()
	n := run(id)
	n.OnEnd = k.onEnd
	k.create(n)
	if s != bide.Queued {
		c = k.turn(id)
		k.commit(c, bide.Batch{Records: []bide.Record{step("1", "before")}})
	}
	switch s {
	case bide.Waiting:
		k.commit(c, bide.Batch{Next: bide.Parked{}})
	case bide.Paused:
		k.commit(c, bide.Batch{Next: bide.Parked{}})
		k.control(id, bide.OpPause)
	case bide.Canceling:
		k.commit(c, bide.Batch{Next: bide.Parked{}})
		k.control(id, bide.OpCancel)
	case bide.Succeeded:
		k.commit(c, bide.Batch{Next: bide.Done{Result: json.RawMessage(`"done"`)}})
	case bide.Failed, bide.TimedOut:
		k.commit(c, bide.Batch{Next: bide.Ended{State: s, Error: failure(s.String())}})
	case bide.Canceled:
		k.control(id, bide.OpCancel)
		k.commit(c, bide.Batch{Next: bide.Ended{State: s, Error: bide.NewFailure(bide.ErrCanceled)}})
	case bide.Terminated:
		k.control(id, bide.OpTerminate)
		k.leave(c.Worker)
	}
	k.state(id, s)
	return c
}

// anyOf checks that err is nil or one of those that the contract leaves open.
func (k *kit) anyOf(err error, sentinels ...error) {
	k.Helper()
	var invalid *bide.InvalidError
	if err == nil || errors.As(err, &invalid) || slices.ContainsFunc(sentinels, func(s error) bool { return errors.Is(err, s) }) {
		return
	}
	k.Errorf("got error %v, want none, an InvalidError, or one of %v", err, sentinels)
}
