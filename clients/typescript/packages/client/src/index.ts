export { createBide, type Bide, type BideOptions, type StartOptions } from './bide.js';
export { type Clock } from './clock.js';
export { type Transport } from './env.js';
export { ClosedError, ProblemError, RequestTimeoutError, ResultTimeoutError, RunFailedError } from './error.js';
export { type ResultOptions, type RunHandle } from './handle.js';
export { type Fetch, type GetHeaders } from './http.js';
export { type BackoffState, type LoopContext, type LoopFn, type LoopOptions, type Reason, type Triggered } from './loop.js';
export { type MethodOf, type Path, type Reply, type RequestOptions } from './request.js';
export {
  isTerminal, type Chunk, type Connection, type Failure, type NewRun, type Problem, type Progress, type Run, type RunSnapshot, type Segment,
  type State,
} from './run.js';
export type { components, operations, paths } from './schema.js';
export { createPollScheduler, type PollHandle, type PollScheduler, type PollSchedulerOptions } from './scheduler.js';
export { type StreamOptions, type StreamPiece } from './stream.js';
