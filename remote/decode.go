package remote

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/internal/wire"
)

// decoder reads what came over the wire, and keeps the first error: whatever it
// is given, the rest of it reads as nothing. It trusts payloads to be JSON unless
// it is strict.
type decoder struct {
	strict bool // what a client sends
	err    error
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

const input = "input"

// payload is a value of a user's.
func (d *decoder) payload(what, name string, data []byte) json.RawMessage {
	if len(data) == 0 {
		return nil
	}
	if d.strict {
		switch {
		case len(data) > bide.MaxPayload:
			d.fail(&bide.PayloadTooLargeError{Field: what + name, Size: len(data), Limit: bide.MaxPayload})
		case !json.Valid(data):
			d.fail(&bide.InvalidError{Field: what + name, Reason: "is not JSON"})
		}
	}
	return data
}

// object reads a T that is kept as JSON, nil for none.
func object[T any](d *decoder, field string, data []byte) *T {
	if len(data) == 0 {
		return nil
	}
	v := new(T)
	if err := json.Unmarshal(data, v); err != nil {
		d.fail(&bide.InvalidError{Field: field, Reason: fmt.Sprintf("is no %T: %v", *v, err)})
		return nil
	}
	return v
}

func (d *decoder) failure(data []byte) *bide.Failure { return object[bide.Failure](d, "error", data) }

// small checks that a number of an enumeration is one that bide can hold.
func small[To, From ~int8 | ~int32](d *decoder, field string, v From) To {
	if v < 0 || v > 127 {
		d.fail(&bide.InvalidError{Field: field, Reason: fmt.Sprintf("%d is none", v)})
		return 0
	}
	return To(v)
}

func clock(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}

func (d *decoder) run(r *wire.Run) bide.Run {
	out := bide.Run{ID: r.GetId(), Workflow: r.GetWorkflow(), Queue: r.GetQueue(), State: small[bide.State](d, "state", r.GetState()),
		Version: r.GetVersion(), Parent: r.GetParent(), Labels: r.GetLabels(), Input: d.payload(input, "", r.GetInput()),
		Result: d.payload("result", "", r.GetResult()), Error: d.failure(r.GetError()),
		Progress: object[bide.ProgressState](d, "progress", r.GetProgress()), Values: d.values(r.GetValues()),
		CreatedAt: clock(r.GetCreatedAt()), StartedAt: clock(r.GetStartedAt()), EndedAt: clock(r.GetEndedAt()),
		Deadline: clock(r.GetDeadline()), Generation: int(r.GetGeneration()), Trace: r.GetTrace(), Seed: r.GetSeed()}
	if waits := d.waits(r.GetWaiting()); waits != nil {
		out.Waiting = *waits
	}
	return out
}

func (d *decoder) waits(data []byte) *[]bide.Wait { return object[[]bide.Wait](d, "waiting", data) }

func (d *decoder) values(values map[string][]byte) map[string]json.RawMessage {
	if len(values) == 0 {
		return nil
	}
	out := make(map[string]json.RawMessage, len(values))
	for k, v := range values {
		out[k] = d.payload("value ", k, v)
	}
	return out
}

func (d *decoder) record(r *wire.Record) bide.Record {
	return bide.Record{Seq: r.GetSeq(), Path: r.GetPath(), Kind: small[bide.Kind](d, "kind", r.GetKind()), Name: r.GetName(),
		Data: d.payload("record ", r.GetPath(), r.GetData()), Error: d.failure(r.GetError()), Attempt: int(r.GetAttempt()),
		At: clock(r.GetAt()), Took: time.Duration(r.GetTook()) * time.Microsecond, By: r.GetBy(),
		Poll: object[bide.PollLog](d, "poll", r.GetPoll())}
}

func (d *decoder) chunk(c *wire.Chunk) bide.Chunk {
	return bide.Chunk{Seq: c.GetSeq(), Path: c.GetPath(), Name: c.GetName(), Attempt: int(c.GetAttempt()), Data: c.GetData(), At: clock(c.GetAt())}
}

func (d *decoder) message(m *wire.Message) bide.Message {
	return bide.Message{Seq: m.GetSeq(), Op: small[bide.Op](d, "op", m.GetOp()), Name: m.GetName(), Key: m.GetKey(), Print: m.GetPrint(),
		Data: d.payload("message ", m.GetName(), m.GetData()), Error: d.failure(m.GetError()), At: clock(m.GetAt())}
}

func (d *decoder) fact(f *wire.Fact) bide.Fact {
	return bide.Fact{Kind: f.GetKind(), Key: f.GetKey(), Version: f.GetVersion(),
		Value: d.payload("fact ", f.GetKey(), f.GetValue()), ExpiresAt: clock(f.GetExpiresAt())}
}

func (d *decoder) newRun(n *wire.NewRun) bide.NewRun {
	out := bide.NewRun{ID: n.GetId(), Workflow: n.GetWorkflow(), Queue: n.GetQueue(), Input: d.payload(input, "", n.GetInput()),
		Labels: n.GetLabels(), Parent: n.GetParent(), Detached: n.GetDetached(), StartAt: clock(n.GetStartAt()),
		Deadline: clock(n.GetDeadline()), Conflict: small[bide.Conflict](d, "conflict", n.GetConflict()),
		Messages: every(n.GetMessages(), d.message), Key: n.GetKey(), Print: n.GetPrint(), Trace: n.GetTrace()}
	if n.GetOnEnd() != nil {
		next := d.newRun(n.GetOnEnd())
		out.OnEnd = &next
	}
	return out
}

func (d *decoder) batch(b *wire.Batch) bide.Batch {
	out := bide.Batch{Records: every(b.GetRecords(), d.record), Chunks: every(b.GetChunks(), d.chunk), Consumed: b.GetConsumed(),
		Waiting: d.waits(b.GetWaiting()), Progress: object[bide.ProgressState](d, "progress", b.GetProgress()),
		Values: d.values(b.GetValues()), Start: every(b.GetStart(), d.newRun), Cancel: b.GetCancel(), Seen: b.GetSeen(),
		Started: clock(b.GetStarted()), Facts: every(b.GetFacts(), d.fact)}
	switch n := b.GetNext().(type) {
	case *wire.Batch_Done:
		out.Next = bide.Done{Result: d.payload("result", "", n.Done.GetResult())}
	case *wire.Batch_Ended:
		out.Next = bide.Ended{State: small[bide.State](d, "state", n.Ended.GetState()), Error: d.failure(n.Ended.GetError())}
	case *wire.Batch_Parked:
		out.Next = bide.Parked{WakeAt: clock(n.Parked.GetWakeAt()), Paused: n.Parked.GetPaused(), Interrupted: n.Parked.GetInterrupted()}
	case *wire.Batch_Continued:
		out.Next = bide.Continued{Input: d.payload(input, "", n.Continued.GetInput())}
	}
	return out
}

func (d *decoder) claimed(c *wire.Claimed) bide.Claimed {
	out := bide.Claimed{Lease: bide.Lease{Run: c.GetRunId(), Worker: c.GetWorker(), Epoch: c.GetEpoch(), Key: c.GetKey()},
		News: c.GetNews(), Lost: c.GetLost(), Interrupted: c.GetInterrupted(), Now: clock(c.GetNow()),
		Ahead: time.Duration(c.GetAhead()), Steady: true, History: every(c.GetHistory(), d.record), Inbox: every(c.GetInbox(), d.message)}
	if c.GetRun() != nil {
		out.Run = d.run(c.GetRun())
	}
	return out
}

// every converts the elements of a list; none for none.
func every[From, To any](list []*From, convert func(*From) To) []To {
	if len(list) == 0 {
		return nil
	}
	out := make([]To, len(list))
	for i, v := range list {
		out[i] = convert(v)
	}
	return out
}
