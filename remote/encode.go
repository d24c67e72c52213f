package remote

import (
	"encoding/json"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/internal/wire"
)

// encoder puts what bide speaks of into its wire form. It keeps the first error,
// and about how many bytes all of it takes.
type encoder struct {
	size int
	err  error
}

// overhead is about what a message takes beside its texts and payloads.
const overhead = 32

func (e *encoder) bytes(b []byte) []byte {
	e.size += len(b)
	return b
}

// object is v as JSON.
func (e *encoder) object(field string, v any) []byte {
	data, err := json.Marshal(v)
	if err != nil && e.err == nil {
		e.err = &bide.InvalidError{Field: field, Reason: "cannot be made JSON: " + err.Error()}
	}
	return e.bytes(data)
}

func (e *encoder) failure(f *bide.Failure) []byte {
	if f == nil {
		return nil
	}
	return e.object("error", f)
}

// micros is 0 for no time, so that the beginning of 1970 is a microsecond late.
func micros(t time.Time) int64 {
	switch m := t.UnixMicro(); {
	case t.IsZero():
		return 0
	case m == 0:
		return 1
	default:
		return m
	}
}

// notBefore is the first microsecond that is not before t.
func notBefore(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return micros(t.Add(time.Microsecond - 1))
}

func (e *encoder) run(r *bide.Run) *wire.Run {
	e.size += overhead + len(r.ID) + len(r.Workflow) + len(r.Queue)
	out := &wire.Run{Id: r.ID, Workflow: r.Workflow, Queue: r.Queue, State: wire.State(r.State), Version: r.Version,
		Parent: r.Parent, Labels: r.Labels, Input: e.bytes(r.Input), Result: e.bytes(r.Result), Error: e.failure(r.Error),
		Values: e.values(r.Values), CreatedAt: micros(r.CreatedAt), StartedAt: micros(r.StartedAt),
		EndedAt: micros(r.EndedAt), Deadline: micros(r.Deadline), Generation: int64(r.Generation), Trace: r.Trace, Seed: r.Seed}
	if r.Progress != nil {
		out.Progress = e.object("progress", r.Progress)
	}
	if len(r.Waiting) > 0 {
		out.Waiting = e.object("waiting", r.Waiting)
	}
	return out
}

func (e *encoder) values(values map[string]json.RawMessage) map[string][]byte {
	if len(values) == 0 {
		return nil
	}
	out := make(map[string][]byte, len(values))
	for k, v := range values {
		e.size += len(k)
		out[k] = e.bytes(v)
	}
	return out
}

func (e *encoder) record(r *bide.Record) *wire.Record {
	e.size += overhead + len(r.Path) + len(r.Name)
	out := &wire.Record{Seq: r.Seq, Path: r.Path, Kind: wire.Kind(r.Kind), Name: r.Name, Data: e.bytes(r.Data),
		Error: e.failure(r.Error), Attempt: int64(r.Attempt), At: micros(r.At), Took: r.Took.Microseconds(), By: r.By}
	if r.Poll != nil {
		out.Poll = e.object("poll", r.Poll)
	}
	return out
}

func (e *encoder) chunk(c *bide.Chunk) *wire.Chunk {
	e.size += overhead + len(c.Path) + len(c.Name)
	return &wire.Chunk{Seq: c.Seq, Path: c.Path, Name: c.Name, Attempt: int64(c.Attempt), Data: e.bytes(c.Data), At: micros(c.At)}
}

func (e *encoder) message(m *bide.Message) *wire.Message {
	e.size += overhead + len(m.Name) + len(m.Key)
	return &wire.Message{Seq: m.Seq, Op: wire.Op(m.Op), Name: m.Name, Key: m.Key, Print: m.Print, Data: e.bytes(m.Data),
		Error: e.failure(m.Error), At: micros(m.At)}
}

func (e *encoder) fact(f *bide.Fact) *wire.Fact {
	e.size += overhead + len(f.Kind) + len(f.Key)
	return &wire.Fact{Kind: f.Kind, Key: f.Key, Version: f.Version, Value: e.bytes(f.Value), ExpiresAt: micros(f.ExpiresAt)}
}

func (e *encoder) newRun(n *bide.NewRun) *wire.NewRun {
	e.size += overhead + len(n.ID) + len(n.Workflow)
	out := &wire.NewRun{Id: n.ID, Workflow: n.Workflow, Queue: n.Queue, Input: e.bytes(n.Input), Labels: n.Labels,
		Parent: n.Parent, Detached: n.Detached, StartAt: notBefore(n.StartAt), Deadline: micros(n.Deadline),
		Conflict: wire.Conflict(n.Conflict), Messages: each(n.Messages, e.message), Key: n.Key, Print: n.Print, Trace: n.Trace}
	if n.OnEnd != nil {
		out.OnEnd = e.newRun(n.OnEnd)
	}
	return out
}

func (e *encoder) batch(b *bide.Batch) *wire.Batch {
	e.size += overhead
	out := &wire.Batch{Records: each(b.Records, e.record), Chunks: each(b.Chunks, e.chunk), Consumed: b.Consumed,
		Values: e.values(b.Values), Start: each(b.Start, e.newRun), Cancel: b.Cancel, Seen: b.Seen,
		Started: micros(b.Started), Facts: each(b.Facts, e.fact)}
	if b.Waiting != nil {
		waits := *b.Waiting
		if waits == nil {
			waits = []bide.Wait{} // not null: it replaces what there was
		}
		out.Waiting = e.object("waiting", waits)
	}
	if b.Progress != nil {
		out.Progress = e.object("progress", b.Progress)
	}
	switch n := b.Next.(type) {
	case bide.Done:
		out.Next = &wire.Batch_Done{Done: &wire.Done{Result: e.bytes(n.Result)}}
	case bide.Ended:
		out.Next = &wire.Batch_Ended{Ended: &wire.Ended{State: wire.State(n.State), Error: e.failure(n.Error)}}
	case bide.Parked:
		out.Next = &wire.Batch_Parked{Parked: &wire.Parked{WakeAt: notBefore(n.WakeAt), Paused: n.Paused, Interrupted: n.Interrupted}}
	case bide.Continued:
		out.Next = &wire.Batch_Continued{Continued: &wire.Continued{Input: e.bytes(n.Input)}}
	}
	return out
}

// each converts the elements of a list; none for none.
func each[From, To any](list []From, convert func(*From) To) []To {
	if len(list) == 0 {
		return nil
	}
	out := make([]To, len(list))
	for i := range list {
		out[i] = convert(&list[i])
	}
	return out
}

// claimed leaves out the history, which may have to come by itself.
func (e *encoder) claimed(c *bide.Claimed) *wire.Claimed {
	e.size += overhead + len(c.Lease.Run)
	out := &wire.Claimed{RunId: c.Lease.Run, Worker: c.Worker, Epoch: c.Epoch, Key: c.Key, News: c.News, Lost: c.Lost,
		Interrupted: c.Interrupted, Now: micros(c.Now), Ahead: int64(c.Ahead), Inbox: each(c.Inbox, e.message)}
	if !c.News {
		out.Run = e.run(&c.Run)
	}
	return out
}
