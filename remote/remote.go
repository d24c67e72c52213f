// Package remote is a [bide.Store] that is kept by a bide server elsewhere, over
// Connect (connectrpc.com/connect). For most uses you need [Dial], which takes
// the place of sqlite.Open and leaves the rest of a program as it is:
//
//	store, err := remote.Dial("http://localhost:8080")
//	worker := bide.NewWorker(store, bide.WorkerConfig{})
//
// [NewHandler] is the other side: it serves a store to those who dial.
//
// # What holds over a network
//
// All that a [bide.Store] promises. The writes of many callers share requests, as
// those of a local store share transactions. A write is carried out once, however
// often its request had to be sent; a run that was handed out is handed out again
// if the answer was lost; a server that is killed and started again is ridden out.
// Errors keep their identity.
//
// A caller waits while the server cannot be reached, but not for ever: after ten
// seconds it gets an [UnreachableError]. Only a commit under a lease that may have
// arrived waits until its outcome is known, since nobody else can tell.
//
// What a server was doing when it was killed it cannot say afterwards. A start, a
// signal and a change of facts are then found again by a key of their own. A turn
// is given back, to be taken again from what was kept. Whether a wait was extended,
// completed or failed, or a run retried, is left to the caller to look at, with
// UnreachableError.Sent.
//
// # What it needs of the way
//
// HTTP/1.1, or HTTP/2 if a client of the caller's has it ([HTTPClient]) or TLS offers it.
// A proxy must pass on a response as it comes, else nobody is woken ([bide.Waker]) before
// the next look, and must let a request wait for 15 seconds.
package remote
