package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/internal/wire"
)

// exec carries out one write. It is in doubt if the request came before to a
// server that is not there any more, which may have carried it out.
type exec struct {
	*handler
	session *session
	doubt   bool
	id      opID
}

type opID struct {
	client string
	number uint64
	index  int
}

func (x *exec) write(ctx context.Context, w *wire.Write) *wire.Outcome {
	switch w := w.GetWrite().(type) {
	case *wire.Write_Commit:
		return x.outcome(x.commit(ctx, w.Commit))
	case *wire.Write_Create:
		return x.create(ctx, w.Create)
	case *wire.Write_Signal:
		return x.signal(ctx, w.Signal)
	case *wire.Write_Control:
		return x.control(ctx, w.Control)
	case *wire.Write_Purge:
		return x.outcome(x.purge(ctx, w.Purge))
	case *wire.Write_Watch:
		x.session.watch(w.Watch)
		return &wire.Outcome{}
	}
	return refused(errNoWrite)
}

// errUnknown stands for a write of which nobody can tell whether it was carried out.
var errUnknown = errors.New("unknown")

func (x *exec) outcome(err error) *wire.Outcome {
	switch {
	case err == nil:
		return &wire.Outcome{}
	case errors.Is(err, errUnknown):
		return &wire.Outcome{Unknown: true}
	case errors.Is(err, bide.ErrClosed):
		return &wire.Outcome{Closed: true, Unknown: x.doubt}
	}
	return refused(err)
}

func (x *exec) create(ctx context.Context, w *wire.CreateWrite) *wire.Outcome {
	answers := make([]*wire.Created, len(w.GetRuns()))
	var runs []bide.NewRun
	var places []int // of runs in answers
	for i, n := range w.GetRuns() {
		d := decoder{strict: true}
		run := d.newRun(n)
		if d.err != nil {
			answers[i] = &wire.Created{Error: failure(d.err)}
			continue
		}
		runs, places = append(runs, run), append(places, i)
	}
	if len(runs) > 0 {
		created, err := x.store.Create(ctx, runs)
		if err != nil {
			return x.outcome(err)
		}
		for j, c := range created {
			answers[places[j]] = &wire.Created{Id: c.ID, IsNew: c.New, Error: failure(c.Err)}
		}
	}
	return &wire.Outcome{Created: answers}
}

func (x *exec) commit(ctx context.Context, w *wire.CommitWrite) error {
	l := bide.Lease{Run: w.GetRun(), Worker: w.GetWorker(), Epoch: w.GetEpoch(), Key: w.GetKey()}
	d := decoder{strict: true}
	b := d.batch(w.GetBatch())
	if d.err != nil {
		return d.err
	}
	switch {
	case l.Run != "" && x.doubt:
		return x.giveBack(ctx, l)
	case l.Run == "" && len(b.Facts) > 0:
		return x.facts(ctx, l, b)
	case l.Run == "" && b.Next != nil:
		x.session.leave(l.Worker)
	}
	return x.store.Commit(ctx, l, b)
}

// giveBack ends a turn of which a commit is in doubt. Whether it was carried out,
// whoever takes the next turn sees in the history; to carry it out a second time
// would write it twice.
func (x *exec) giveBack(ctx context.Context, l bide.Lease) error {
	err := x.store.Commit(ctx, l, bide.Batch{Next: bide.Parked{WakeAt: time.Now()}})
	switch {
	case err == nil || errors.Is(err, bide.ErrLeaseLost):
		return bide.ErrLeaseLost
	case errors.Is(err, bide.ErrClosed):
		return err
	}
	return errUnknown
}

// proof is the kind of the facts that tell whether a change of facts was carried
// out, for whoever has to repeat it.
const proof = "bide.remote.proof"

// proofFor is how long a change of facts may be repeated.
const proofFor = time.Hour

func (x *exec) facts(ctx context.Context, l bide.Lease, b bide.Batch) error {
	key := fmt.Sprintf("%s/%d/%d", x.id.client, x.id.number, x.id.index)
	b.Facts = append(b.Facts, bide.Fact{Kind: proof, Key: key, Value: json.RawMessage("1"), ExpiresAt: time.Now().Add(proofFor)})
	err := x.store.Commit(ctx, l, b)
	if !x.doubt || !errors.Is(err, bide.ErrFactChanged) {
		return err
	}
	found, rerr := x.store.Facts(ctx, proof, key)
	switch {
	case rerr != nil:
		return errUnknown
	case len(found) > 0:
		return nil // by itself
	}
	return err
}

func (x *exec) signal(ctx context.Context, w *wire.SignalWrite) *wire.Outcome {
	d := decoder{strict: true}
	m := d.message(w.GetMessage())
	if d.err != nil {
		return refused(d.err)
	}
	isNew, err := x.store.Signal(ctx, w.GetRun(), m)
	out := x.outcome(err)
	out.IsNew = isNew
	return out
}

func (x *exec) control(ctx context.Context, w *wire.ControlWrite) *wire.Outcome {
	d := decoder{strict: true}
	c := bide.Command{Op: small[bide.Op](&d, "op", w.GetOp()), Wait: w.GetWait(), Data: d.payload("data", "", w.GetData()), Reason: w.GetReason()}
	if d.err != nil {
		return refused(d.err)
	}
	if x.doubt && !repeatable(c.Op) {
		return x.outcome(errUnknown)
	}
	err := x.store.Control(ctx, w.GetRun(), c)
	if x.doubt && c.Op == bide.OpTerminate && errors.Is(err, bide.ErrRunEnded) {
		if run, rerr := x.store.Run(ctx, w.GetRun()); rerr == nil && run.State == bide.Terminated {
			err = nil // by itself
		}
	}
	return x.outcome(err)
}

// repeatable reports whether an operation that comes twice does as much as one
// that comes once.
func repeatable(op bide.Op) bool {
	switch op {
	case bide.OpCancel, bide.OpTerminate, bide.OpPause, bide.OpResume, bide.OpCheckWait:
		return true
	}
	return false
}

func (x *exec) purge(ctx context.Context, w *wire.PurgeWrite) error {
	admin, ok := x.store.(bide.Admin)
	if !ok {
		return errNoAdmin
	}
	err := admin.Purge(ctx, w.GetRun())
	if x.doubt && errors.Is(err, bide.ErrNotFound) {
		return nil // by itself, or it never was
	}
	return err
}
