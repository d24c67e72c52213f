package remote

import (
	"context"
	"crypto/rand"
	"encoding/hex"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/internal/wire"
)

// Create implements [bide.Store].
func (s *Store) Create(ctx context.Context, runs []bide.NewRun) ([]bide.Created, error) {
	if len(runs) == 0 {
		return nil, ctx.Err()
	}
	var e encoder
	msg := &wire.CreateWrite{Runs: each(runs, e.newRun)}
	keyed := make([]bool, len(runs))
	for i, n := range msg.GetRuns() {
		// Should the server be lost meanwhile, the run is found again by its key; one
		// with an id of its own is found by that.
		if n.Key == "" && (n.Id == "" || n.Conflict != wire.Conflict_CONFLICT_EXISTING) {
			n.Key, keyed[i] = s.key(), true
		}
	}
	out, err := s.do(ctx, &op{write: &wire.Write{Write: &wire.Write_Create{Create: msg}}, size: e.size})
	if err != nil {
		return nil, err
	}
	created := make([]bide.Created, len(runs))
	for i, c := range out.GetCreated() {
		if i < len(created) {
			created[i] = bide.Created{ID: c.GetId(), New: c.GetIsNew(), Err: restore(c.GetError())}
			if keyed[i] && created[i].Err == nil {
				created[i].New = true // nobody else has the key
			}
		}
	}
	return created, nil
}

// key is one that nobody else has.
func (s *Store) key() string {
	var k [16]byte
	_, _ = rand.Read(k[:]) // never fails
	return hex.EncodeToString(k[:])
}

// Commit implements [bide.Store].
func (s *Store) Commit(ctx context.Context, l bide.Lease, b bide.Batch) error {
	var e encoder
	msg := &wire.CommitWrite{Run: l.Run, Worker: l.Worker, Epoch: l.Epoch, Key: l.Key, Batch: e.batch(&b)}
	if e.err != nil {
		return e.err
	}
	_, err := s.do(ctx, &op{write: &wire.Write{Write: &wire.Write_Commit{Commit: msg}}, size: e.size, fenced: l.Run != ""})
	return err
}

// Signal implements [bide.Store].
func (s *Store) Signal(ctx context.Context, run string, m bide.Message) (isNew bool, err error) {
	var e encoder
	msg := e.message(&m)
	if e.err != nil {
		return false, e.err
	}
	if msg.Key == "" { // by which it is dropped if the server is lost and it comes again
		msg.Key = s.key()
	}
	out, err := s.do(ctx, &op{write: &wire.Write{Write: &wire.Write_Signal{Signal: &wire.SignalWrite{Run: run, Message: msg}}}, size: e.size})
	return err == nil && (m.Key == "" || out.GetIsNew()), err
}

// Control implements [bide.Store].
func (s *Store) Control(ctx context.Context, run string, c bide.Command) error {
	msg := &wire.ControlWrite{Run: run, Op: wire.Op(c.Op), Wait: c.Wait, Data: c.Data, Reason: c.Reason}
	_, err := s.do(ctx, &op{write: &wire.Write{Write: &wire.Write_Control{Control: msg}}, size: overhead + len(c.Data) + len(c.Reason)})
	return err
}

// Purge implements [bide.Admin].
func (s *Store) Purge(ctx context.Context, run string) error {
	_, err := s.do(ctx, &op{write: &wire.Write{Write: &wire.Write_Purge{Purge: &wire.PurgeWrite{Run: run}}}, size: overhead})
	return err
}
