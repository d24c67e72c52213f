package bide

import (
	"context"
	"encoding/json"
	"time"
)

// Store keeps runs. Implementations: bide/sqlite. Every one passes the suite in
// bide/storetest, which is the contract in full; in short:
//
//   - All methods are safe for concurrent use. What has returned without an
//     error is durable.
//   - A method whose ctx ends while its write is already queued still waits for
//     the outcome: giving up early would leave it unknown.
//   - Errors match the sentinels of this package with [errors.Is].
type Store interface {
	// Create starts runs, each as its own NewRun says; a failing one does not
	// fail the others. The error is for the call as a whole (the store cannot
	// be written). Created.Err is a [ConflictError] or an [InvalidError].
	Create(ctx context.Context, runs []NewRun) ([]Created, error)

	// Claim waits until there is something for the worker: runs it may now take
	// a turn of, or news for runs that it holds. A run is handed out when it is
	// due (its wake time has come, or a message that its last turn had not seen),
	// its queue and workflow are among those asked for, and nobody holds its
	// lease; within a queue and workflow the one due first comes first. The first
	// call makes the worker known, with its queues and workflows; every call
	// renews its leases. Between two calls the store may hand it further runs, up
	// to Max in all; a call that ends with its ctx ends that.
	Claim(ctx context.Context, c Claim) ([]Claimed, error)

	// Commit is the only write of a turn: all or nothing, durable on return.
	// It returns [ErrLeaseLost] when the lease is no longer the run's current
	// one, and [ErrFactChanged] when a fact is not at the version that the batch
	// asks for; then nothing was written, and after the latter the lease is still
	// held. With only Lease.Worker set, an empty batch renews all that the worker
	// holds, and one whose Next is Parked gives all of it back, due at once. A batch
	// of Facts and nothing else needs no lease: it is committed with Lease{}.
	Commit(ctx context.Context, l Lease, b Batch) error

	// Signal puts a message into a run's inbox and makes the run due. A message
	// with the key of an earlier one to the same run is dropped, and isNew is
	// false. It returns [ErrNotFound], [ErrRunEnded], or a [ConflictError] when that
	// had another Print.
	Signal(ctx context.Context, run string, m Message) (isNew bool, err error)

	// Control does to a run what the command says, from outside. It returns
	// [ErrNotFound], [ErrRunEnded], or an [InvalidError] when the run is in no
	// state for it.
	Control(ctx context.Context, run string, c Command) error

	// Run reads one run, or returns [ErrNotFound].
	Run(ctx context.Context, id string) (Run, error)

	// Runs reads a page of runs, newest first, without Input, Result and Values.
	Runs(ctx context.Context, q Query) ([]Run, error)

	// History reads a run's records with Seq > after, in order, at most limit
	// (0: all).
	History(ctx context.Context, run string, after int64, limit int) ([]Record, error)

	// Chunks reads what the run's steps have streamed, with Seq > after, in order,
	// at most limit (0: all), or returns [ErrNotFound].
	Chunks(ctx context.Context, run string, after int64, limit int) ([]Chunk, error)

	// Facts reads the facts of a kind under the keys, in no order, all at one
	// moment: those not there are left out. No keys: all of the kind. It returns
	// an [InvalidError] when the kind or a key is empty.
	Facts(ctx context.Context, kind string, keys ...string) ([]Fact, error)

	// Close waits for queued writes and ends the store; later calls return
	// [ErrClosed].
	Close() error
}

// Waker is what a [Store] may also implement, so that those who wait for a run
// need not ask again and again.
type Waker interface {
	// Wake returns a channel that receives after commits to the run (several may
	// fold into one), with ends true only after the one that ends it, and a
	// function that gives the subscription up. A value other than nil is the
	// ended run; nil is a hint to read it. There is a first value at once if the
	// run may have ended before the call. An empty id stands for all runs: its
	// values are hints that one was made or has changed, and there is no first.
	Wake(id string, ends bool) (<-chan *Run, func())
}

// Admin is what a [Store] may also implement, for those who look after it.
type Admin interface {
	// Status says what is in the store and who works on it.
	Status(ctx context.Context) (Status, error)

	// Purge removes a run that has ended, with all that belongs to it. Its children
	// stay. It returns [ErrNotFound], or an [InvalidError] when the run has not ended.
	Purge(ctx context.Context, run string) error
}

// Status is what [Admin.Status] tells.
type Status struct {
	Counts  []Count      `json:"counts"`  // by queue, workflow, state
	Workers []WorkerInfo `json:"workers"` // by id
	// Since the store was opened, in this process: commits, the transactions that
	// they were gathered into, and leases that workers lost.
	Commits      int64 `json:"commits"`
	Transactions int64 `json:"transactions"`
	LeasesLost   int64 `json:"leases_lost"`
}

// Count is how many runs of a queue and workflow are in a state.
type Count struct {
	Queue    string `json:"queue"`
	Workflow string `json:"workflow"`
	State    State  `json:"state"`
	Runs     int64  `json:"runs"`
	// Oldest is since when the run has been due that has waited longest for a
	// worker; only with [Queued].
	Oldest time.Time `json:"oldest,omitzero"`
}

// WorkerInfo is a worker that the store knows.
type WorkerInfo struct {
	ID        string    `json:"id"`
	Queues    []string  `json:"queues"`
	Workflows []string  `json:"workflows"`
	Max       int       `json:"max"`        // the most runs that it wants to hold
	Held      int       `json:"held"`       // leases
	ExpiresAt time.Time `json:"expires_at"` // when its leases lapse unless it is heard of
}

// NewRun is a run to be created.
type NewRun struct {
	ID       string // empty: the store makes one
	Workflow string
	Queue    string
	Input    json.RawMessage
	Labels   map[string]string
	Parent   string    // set by a store for runs that a Batch starts
	Detached bool      // a child that outlives its parent
	StartAt  time.Time // zero: now
	Deadline time.Time // zero: none
	Conflict Conflict
	Messages []Message // in the inbox from the start
	// Key, if set, is unique in the store for the life of the run: another NewRun
	// with the same Key and Print, of whatever else, is answered with the run that
	// has it; with another Print it is a [ConflictError].
	Key   string
	Print string // a fingerprint of what was asked for
	// OnEnd, if set, is a run that is made when this one has ended, however it
	// ends, in the same transaction; its Parent is this run, and it is Detached.
	OnEnd *NewRun
	// Trace is the W3C traceparent of whoever starts the run, "" for none.
	Trace string
}

// Created answers one NewRun.
type Created struct {
	ID  string
	New bool // false: a run with this id, workflow and input was there already
	Err error
}

// Conflict says what Create does when the id is taken.
type Conflict int8

// The conflict policies. They are also [StartOption] values.
const (
	// Existing hands back the run that exists, in any state, if it has the same
	// workflow and input; otherwise it is a [ConflictError].
	Existing Conflict = iota
	// Fail is a [ConflictError] in any case.
	Fail
	// Replace terminates the run that exists, if it has not ended, and gives the
	// id to a new one. The old run stays, under an id of the store's making.
	Replace
)

// Claim is what a worker asks for.
type Claim struct {
	Worker    string
	Queues    []string
	Workflows []string
	Max       int           // the most runs that the worker wants to hold at once
	TTL       time.Duration // how long its leases last without being renewed
}

// Lease is a worker's right to commit to one run.
type Lease struct {
	Run    string
	Worker string
	Epoch  int64 // fences: it differs for every claim
	Key    int64 // the store's own handle of the run
}

// Claimed is one run handed to a worker, or news for one that it holds.
type Claimed struct {
	Lease
	// News: the worker holds this lease already; only Inbox (new messages) and
	// Lost are set.
	News bool
	// Lost: the lease is gone; the turn must stop. Without a Run, all of the
	// worker's may be: it stops them, and then gives all back.
	Lost bool
	// Interrupted: an earlier turn may have ended without a word, by a crash or
	// by losing its lease, with steps begun and not finished.
	Interrupted bool
	// Now is the store's time, by which the run is due. A turn goes by it, however
	// the worker's own clock is set. Ahead is by how much it is ahead of the wall
	// clock, since that was set back: what waits for a date goes by that.
	Now   time.Time
	Ahead time.Duration
	// Steady: that time is kept on another machine, so that this one's wall clock
	// says nothing of it.
	Steady  bool
	Run     Run
	History []Record
	Inbox   []Message
}

// Message is an entry of a run's inbox.
type Message struct {
	Seq  int64 // given by the store, ascending
	Op   Op
	Name string // the signal's name, the wait's name or path, the child's id
	Key  string // if set: a second message with this key is dropped
	// Print, beside Key, is a fingerprint of what is asked for: a second message with
	// the key and another one is a [ConflictError].
	Print string
	Data  json.RawMessage
	// Error is set for OpFail and for a child that did not succeed.
	Error *Failure
	At    time.Time
}

// Op is what a message or command asks for.
type Op int8

// The operations. Those from OpCancel to OpFailWait reach a run through
// [Store.Control]; the store carries out OpTerminate, OpPause, OpResume and
// OpRetry on its own, and passes the others on as messages.
const (
	OpSignal       Op = iota + 1 // a named message from outside
	OpChildEnded                 // a child run is over
	OpCancel                     // the workflow should end; it may clean up
	OpTerminate                  // the run ends now, without clean-up
	OpPause                      // hold the run after what is in flight
	OpResume                     // let a paused run go on
	OpRetry                      // send a failed run on from its failed step
	OpCheckWait                  // look now
	OpExtendWait                 // another deadline; Data is a duration in nanoseconds
	OpCompleteWait               // end the wait with the value in Data
	OpFailWait                   // end the wait with Error
)

// Command is an intervention from outside, see [Store.Control].
type Command struct {
	Op     Op
	Wait   string // the wait's name or path, for the Op…Wait operations
	Data   json.RawMessage
	Reason string
}

// Query selects runs. Zero fields select everything.
type Query struct {
	States   []State
	Workflow string
	Queue    string
	Parent   string
	IDPrefix string
	Labels   map[string]string
	Before   string // the id of the last run of the page before: a keyset, not an offset
	Limit    int    // 0 means 50; at most 1,000
}

// Batch is what one commit writes: all of it or nothing.
type Batch struct {
	Records  []Record // Seq is given by the store
	Chunks   []Chunk  // Seq is given by the store
	Consumed []int64  // inbox messages that Records have taken up
	Waiting  *[]Wait  // if set, replaces what the run waits for
	Progress *ProgressState
	Values   map[string]json.RawMessage // merged into the run's values
	// Start are children. One whose id exists already is not made: the run gets
	// an OpChildEnded, with the outcome if that is its own child and has ended,
	// with a [ConflictError] if it is not its own.
	Start  []NewRun
	Cancel []string // children to cancel
	// Seen is the newest message that came as news and that the turn knew of: a
	// run that parks with an unseen message is due at once.
	Seen int64
	// Started is when the run's first turn began; kept if the run has no such time yet.
	Started time.Time
	// Facts are changed by compare-and-set: if one is not at the version that it
	// should be, nothing of the batch is written and Commit returns
	// [ErrFactChanged]. Each stands in a batch once at most.
	Facts []Fact
	// Next ends the turn and releases the lease; nil goes on.
	Next Next
}

// Fact is what must last and is no run: a breaker's state, a learned cadence, a
// webhook's token. It is read with [Store.Facts] and changed in a [Batch]. Its
// Value is JSON of at most [MaxPayload] bytes; see [PayloadTooLargeError].
type Fact struct {
	Kind, Key string
	// Version grows with each change, over the whole store. In a [Batch] it is
	// what the stored one must be: 0 means that there must be none yet (or that it
	// has expired), [AnyVersion] that it does not matter.
	Version   int64
	Value     json.RawMessage // in a Batch, an empty one removes the fact
	ExpiresAt time.Time       // zero: never. From then on the fact is not there.
}

// AnyVersion is the [Fact.Version] of a change that is made whatever is there.
const AnyVersion int64 = -1

// Next is how a turn ends: [Done], [Ended], [Parked] or [Continued].
type Next interface{ next() }

// Done ends the run in [Succeeded].
type Done struct{ Result json.RawMessage }

// Ended ends the run in [Failed], [Canceled] or [TimedOut].
type Ended struct {
	State State
	Error *Failure
}

// Parked ends the turn; the run is due at WakeAt (zero: when a message comes).
type Parked struct {
	WakeAt time.Time
	Paused bool // it is held back, as by OpPause, unless it is canceling
	// Interrupted, for all that a worker holds: its turns were cut short, see [Claimed].
	Interrupted bool
}

// Continued begins the run anew, with an empty history and another input. Its
// id and inbox stay.
type Continued struct{ Input json.RawMessage }

func (Done) next()      {}
func (Ended) next()     {}
func (Parked) next()    {}
func (Continued) next() {}
