// Package bide is durable execution in which waiting is the first-class
// primitive.
//
// A workflow is an ordinary Go function. The result of each of its steps is
// kept, so a run whose process dies goes on at the first step that has no kept
// result. A run may wait for seconds or for weeks; while it waits it holds no
// goroutine, no connection and no memory.
//
// For most uses you need [Define], [Step], [Poll], [NewWorker] and [NewClient]:
//
//	var Greet = bide.Define("greet", func(ctx bide.Context, name string) (string, error) {
//		text, err := bide.Step(ctx, "write", func(ctx context.Context) (string, error) {
//			return "hello " + name, nil
//		})
//		if err != nil {
//			return "", err
//		}
//		err = bide.Sleep(ctx, 24*time.Hour)
//		return text, err
//	})
//
// # Words
//
// Each has one meaning, everywhere:
//
//   - workflow: the deterministic function, with a name of its own.
//   - run: one lasting execution of a workflow; it has an id, a [State], a history.
//   - step: a piece of non-deterministic work inside a run, retried by policy,
//     its result kept.
//   - history, [Record]: the ordered list of what a run has done; one line of it.
//   - turn: one pass of a worker through the workflow function, from claim to
//     park or finish.
//   - [Worker]: the part of a process that claims runs from queues and takes turns.
//   - [Client]: starts, reads, signals and cancels runs; it needs no worker.
//   - [Lease]: a worker's right to commit to a run, with a fencing epoch.
//   - park: to end a turn while the run waits.
//   - signal: a named message to one run, kept until it is received.
//   - webhook: a URL minted for one run, through which the world sends a signal.
//   - poll: a durable wait; one record however many attempts.
//   - loop: a named poll that never finishes; state in place of history.
//   - [Store]: where all this is kept.
//   - [Fact]: what else a store keeps, beside runs.
//
// # The promise
//
// A step that has finished, and whose record a Store has acknowledged, never
// runs again. A step that has not finished runs at least once; with
// [RetryPolicy] MaximumAttempts 1 it runs at most once. A record is durable
// before anything outside can see its consequence: the next side effect, a
// signal, the result.
//
// # What a workflow must not do
//
// The function is run again from its beginning on every turn, with the kept
// results in place of the work. It must therefore take the same path each time:
// time, randomness, I/O and goroutines go through the verbs of this package
// ([Now], [Rand], [NewID], [Step], [Go]). Code that is not deferred and stands
// after a verb does not run in a turn that parks there, so a mutex must not be
// held across a verb. Deferred functions do run when a turn parks; [Parking]
// tells them so.
package bide
