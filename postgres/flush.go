package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/bide-dev/bide"
)

// errFenced says that others have changed what this process holds.
var errFenced = errors.New("postgres: others have changed runs that this process holds")

// mostSent is about how many bytes of payloads a transaction carries: it has to get
// through in the time that the database is given to answer.
const mostSent = 16 << 20

// mostOfOne is how much a single call may carry.
const mostOfOne = 256 << 20

// flush makes a transaction of a batch, or more than one of a batch that is very big.
func (w *writer) flush(ops []*op) {
	for len(ops) > 0 {
		n := 1
		for sum := ops[0].size(); n < len(ops); n++ {
			if sum += ops[n].size(); sum > mostSent {
				break
			}
		}
		w.keep(ops[:n])
		ops = ops[n:]
	}
}

// keep makes one transaction of some ops. If that fails for a reason of one op's own,
// each gets a transaction to itself.
func (w *writer) keep(ops []*op) {
	if n := ops[0].size(); n > mostOfOne { // it is alone
		ops[0].err = &bide.InvalidError{Field: "batch", Reason: fmt.Sprintf("carries %d bytes, above the %d that one call may; make more calls of it", n, mostOfOne)}
		return
	}
	err := w.insist(ops)
	if err == nil {
		return
	}
	if len(ops) == 1 || !ownFault(err) {
		for _, o := range ops {
			o.err = err
		}
		return
	}
	for _, o := range ops {
		if err := w.insist([]*op{o}); err != nil {
			o.err = err
		}
	}
}

// size is how many bytes of payloads the op carries.
func (o *op) size() (n int) {
	if o.commit {
		return sizeOf(&o.batch)
	}
	for i := range o.create {
		n += sizeOfRun(&o.create[i])
	}
	return n + len(o.msg.Data)
}

func sizeOfRun(r *bide.NewRun) int {
	n := len(r.Input)
	for i := range r.Messages {
		n += len(r.Messages[i].Data)
	}
	return n
}

func sizeOf(b *bide.Batch) (n int) {
	for i := range b.Records {
		n += len(b.Records[i].Data)
	}
	for i := range b.Chunks {
		n += len(b.Chunks[i].Data)
	}
	for i := range b.Start {
		n += sizeOfRun(&b.Start[i])
	}
	for i := range b.Facts {
		n += len(b.Facts[i].Value)
	}
	for _, v := range b.Values {
		n += len(v)
	}
	switch next := b.Next.(type) {
	case bide.Done:
		n += len(next.Result)
	case bide.Continued:
		n += len(next.Input)
	}
	return n
}

// ownFault reports whether the error may be of one op of a batch, and not of the
// database as a whole.
func ownFault(err error) bool {
	c := code(err)
	if len(c) != 5 {
		return false
	}
	switch c[:2] {
	case "08", "25", "40", "53", "55", "57", "58": // connection, transaction, resources, locks, an operator, the machine
		return false
	}
	return c != "22012" // the fence
}

// patience is how long a batch waits for the database to answer, of a connection that
// may have been lost without a word: less than the leases last.
func (w *writer) patience() time.Duration { return min(max(w.ttl()/2, time.Second), writeFor) }

// writeFor is how long a write waits at most: longer than a read, which is tried again
// at no cost.
const writeFor = 15 * time.Second

// within gives fn that long.
func (w *writer) within(fn func() error) error {
	ctx, cancel := context.WithTimeout(context.Background(), w.patience())
	defer cancel()
	w.ctx = ctx
	defer func() { w.ctx = context.Background() }()
	return fn()
}

// insist tries until the batch is kept or cannot be.
func (w *writer) insist(ops []*op) error {
	w.careful, w.outrun = false, 0
	for tries := 0; ; tries++ {
		err := w.within(func() error { return w.try(ops) })
		if err == nil {
			w.count()
			w.finish()
			return nil
		}
		if w.sent && lost(err) {
			done, oerr := w.outcome()
			if oerr != nil {
				w.putBack()
				return errors.Join(oerr, failure(err))
			}
			if done {
				w.kept = w.batch
				w.strays = w.strays || len(w.asks) > 0
				w.tx = false
				w.count()
				w.finish()
				return nil
			}
		}
		w.putBack()
		if tries >= 30 {
			return failure(err)
		}
		if code(err) == "22012" || errors.Is(err, errFenced) {
			w.outrun++
			err = w.within(func() error {
				if err := w.ready(); err != nil {
					return err
				}
				return w.catchUp()
			})
		}
		switch {
		case err == nil:
		case lost(err):
			w.hangUp()
			if w.s.isClosed() || !w.pause(tries) {
				return failure(err)
			}
		case code(err) == "40001" || code(err) == "40P01": // again, after whoever was in the way
		case code(err) == "55P03": // it is in the way for longer than the role's lock_timeout
			if !w.pause(tries) {
				return failure(err)
			}
		case code(err) == "23505":
			w.careful = true
		default:
			return failure(err)
		}
	}
}

// outrunOften is how often others may be faster before they are made to wait.
const outrunOften = 3

// lockSelf keeps others from changing what this process holds until the batch is
// done. The rows of runs are locked first, in the order in which they do it.
func (w *writer) lockSelf(ops []*op) error {
	if err := w.open(); err != nil {
		return err
	}
	if err := w.foresee(ops); err != nil {
		return err
	}
	if _, err := w.conn.Exec(w.ctx, w.s.sql(`SELECT FROM bide.member WHERE k = $1 FOR UPDATE`), w.me); err != nil {
		return err
	}
	if err := w.catchUp(); err != nil {
		return err
	}
	w.tx = true // catchUp has cleared it
	if w.me == 0 {
		return errFenced
	}
	return nil
}

// try applies a batch and sends it.
func (w *writer) try(ops []*op) error {
	w.sent, w.tx, w.wrote, w.fresh = false, false, false, false
	if err := w.ready(); err != nil {
		return err
	}
	if w.strays {
		if err := w.giveBackStrays(); err != nil {
			return err
		}
	}
	w.now = w.s.now().UnixMicro()
	if w.s.noNotify && slices.ContainsFunc(ops, (*op).moves) {
		w.s.stir()
		w.lookSooner()
	}
	if w.named(ops) {
		if err := w.catchUp(); err != nil {
			return err
		}
		if err := w.ready(); err != nil {
			return err
		}
	}
	if w.outrun >= outrunOften {
		if err := w.lockSelf(ops); err != nil {
			return err
		}
	}
	if time.Since(w.start) >= w.beatAt || w.beatAfter() != never && slices.ContainsFunc(ops, (*op).signOfLife) {
		if err := w.beat(); err != nil {
			return err
		}
	}
	if err := w.foresee(ops); err != nil {
		return err
	}
	if err := w.expire(); err != nil {
		return err
	}
	for _, o := range ops {
		o.err = nil
		if err := w.apply(o); err != nil {
			return err
		}
	}
	if w.reserved-w.seq < 2*atOnce { // claims take numbers without asking
		if err := w.block(); err != nil {
			return err
		}
	}
	w.pump()
	return w.send()
}

// lost reports whether the connection is lost with the error.
func lost(err error) bool {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Severity == "FATAL" || e.Severity == "PANIC" || strings.HasPrefix(e.Code, "08") ||
			e.Code == "25006" // a server that only reads: the primary is elsewhere
	}
	return err != nil && !errors.Is(err, errFenced) && !isBide(err)
}

func isBide(err error) bool {
	var invalid *bide.InvalidError
	var codec *bide.CodecError
	return errors.As(err, &invalid) || errors.As(err, &codec)
}
