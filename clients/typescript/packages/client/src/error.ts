import type { Failure, Problem, Run, State } from './run.js';

/** The server refused a request, and says why. */
export class ProblemError extends Error {
  override readonly name = 'ProblemError';
  readonly status: number;
  /** Stable, such as "not-found"; "http" if what answered was not bide. */
  readonly code: string;
  /** The same request may work later. */
  readonly retryable: boolean;
  /** How long the server wants to be left alone, in milliseconds. */
  readonly retryAfterMs: number | undefined;
  /** The part of the request that is wrong. */
  readonly field: string | undefined;
  readonly problem: Problem | undefined;

  constructor(status: number, problem: Problem | undefined, retryAfterMs: number | undefined, detail?: string) {
    super(problem?.detail ?? detail ?? `the server answered ${status}`);
    this.status = status;
    this.code = problem?.code ?? 'http';
    this.retryable = problem?.retryable ?? transientStatus(status);
    this.retryAfterMs = retryAfterMs;
    this.field = problem?.field;
    this.problem = problem;
  }
}

/** An answer did not come in time. Whether the request was carried out is not known. */
export class RequestTimeoutError extends Error {
  override readonly name = 'RequestTimeoutError';
  constructor(method: string, path: string, ms: number) {
    super(`${method} ${path}: no answer within ${ms} ms`);
  }
}

/** A run ended otherwise than well. */
export class RunFailedError extends Error {
  override readonly name = 'RunFailedError';
  readonly run: Run;
  readonly state: State;
  /** "run-failed", or "run-canceled" for one that was ended from outside. */
  readonly code: string;
  readonly failure: Failure | undefined;
  constructor(run: Run) {
    super(run.error?.detail ?? `the run is ${run.state}`);
    this.run = run;
    this.state = run.state;
    this.code = run.error?.code ?? 'run-failed';
    this.failure = run.error?.failure;
  }
}

/** result() was given a time, and it is over. The run goes on. */
export class ResultTimeoutError extends Error {
  override readonly name = 'ResultTimeoutError';
  readonly run: Run | undefined;
  constructor(id: string, ms: number, run: Run | undefined) {
    super(`the run ${id} has not ended within ${ms} ms; it goes on`);
    this.run = run;
  }
}

/** What was asked of was closed, by destroy or logout. */
export class ClosedError extends Error {
  override readonly name = 'ClosedError';
  constructor() {
    super('the bide client was closed');
  }
}

function transientStatus(status: number): boolean {
  return status === 408 || status === 425 || status === 429 || (status >= 500 && status !== 501);
}

/** Whether the same request may work later: no connection, no answer in time, or a
 * server that says so. */
export function transient(error: unknown): boolean {
  if (error instanceof ProblemError) return error.retryable || transientStatus(error.status);
  return error instanceof TypeError || error instanceof RequestTimeoutError;
}

/** Whether fetch failed because there is no network, which is nobody's failure. */
export function offlineFailure(error: unknown, online: boolean): boolean {
  return error instanceof TypeError && !online;
}

/** What an aborted signal throws. */
export function aborted(signal: AbortSignal): unknown {
  return signal.reason ?? new DOMException('This operation was aborted', 'AbortError');
}
