package postgres

import (
	"context"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
)

// Die ends the store without a word, as the death of its process would.
func (s *Store) Die() {
	s.w.dead.Store(true)
	_ = s.Close()
}

// Transactions is how many there have been.
func (s *Store) Transactions() int64 { return s.meter.transactions.Load() }

// Dial has the store connect through a network of the test's.
func Dial(f func(ctx context.Context, network, addr string) (net.Conn, error)) Option {
	return func(c *config) { c.dial = f }
}

// Quiet is after what time without a word the listener asks whether it is heard.
func Quiet(d time.Duration) Option { return func(c *config) { c.quiet = d } }

// OwnFault and Jittered are what retries go by.
var (
	OwnFault = ownFault
	Jittered = jittered
)

// Once is what [TxStep] does in an attempt.
func (s *Store) Once(ctx context.Context, key string, do func(pgx.Tx) ([]byte, error), recall func([]byte) error) error {
	return s.once(ctx, key, do, recall)
}

// AtOneMoment begins a transaction of a list.
const AtOneMoment = atOneMoment

// PlannedQuery is a statement of lists or counts, and the indexes that it is to use.
type PlannedQuery struct{ SQL, Types, Args, Indexes string }

// PlannedQueries are all of them that read the runs.
func PlannedQueries() []PlannedQuery {
	const page, some = "bigint,bigint,bigint", "0, 9223372036854775807, 50"
	return []PlannedQuery{
		{newest, page, some, "run_pkey"},
		{byPlace, page + ", bigint[]", some + ", '{22,23,38}'", "run_state"},
		{byParent, page + ", text", some + ", 'p9'", "run_parent"},
		{byLabel, page + ", text, text", some + ", 'a', '1'", "label_pkey"},
		{made, page + ", bigint, bigint", some + ", 5, 5000", "run_pkey"},
		{openIn, page + ", bigint, bigint[], bigint, boolean, boolean", some + ", 1000, '{1,2}', 100, true, false", "run_pkey"},
		{idIn, page + ", bigint, text, text", some + ", 1000, 'id4', 'id5'", "run_pkey"},
		{floor, page + ", bigint", some + ", 1000", "run_pkey"},
		{byWake, page + ", bigint[], bigint, bigint", some + ", '{1,2,3}', -1, 100", "run_due"},
		{mute, page + ", bigint[]", some + ", '{1,2,3}'", "run_mute"},
		{inHand, page, some, "run_held"},
		{byID, page + ", text, text", some + ", 'id4', 'id5'", "run_id"},
		{readPage, "bigint[]", "'{1,2,3}'", "run_pkey"},
		{openRuns, "bigint[], bigint, bigint", "'{1,2,3}', 100, 50000", "run_due run_mute run_state"},
		{heldRuns, "", "", "run_held"},
	}
}

// Forget and FoldTally are what keeps the tables small.
const (
	Forget    = forget
	FoldTally = foldTally
)
