import type { components } from './schema.js';

type Schemas = components['schemas'];

/** A run as the server tells it; result is what the workflow returned. */
export type Run<T = unknown> = Omit<Schemas['Run'], 'result'> & { result?: T | null };
export type State = Schemas['State'];
export type Progress = Schemas['Progress'];
export type Failure = Schemas['Failure'];
export type Problem = Schemas['Problem'];
export type NewRun = Schemas['NewRun'];
export type Chunk = Schemas['Chunk'];
export type Segment = Schemas['Segment'];
export type ProgressEvent = Schemas['ProgressEvent'];

const ends: ReadonlySet<State> = new Set<State>(['succeeded', 'failed', 'canceled', 'terminated', 'timed_out']);

/** Whether a run has ended, well or not. */
export function isTerminal(run: { state: State } | null | undefined): boolean {
  return run != null && ends.has(run.state);
}

/**
 * How news of a run come: 'sse', 'longpoll' and 'poll' say how this tab asks,
 * 'follower' that another tab does; 'paused' and 'offline' that it will go on when
 * the page is shown or the network is back; 'closed' that there is nothing more
 * to come.
 */
export type Connection = 'idle' | 'connecting' | 'sse' | 'longpoll' | 'poll' | 'follower' | 'paused' | 'offline' | 'closed';

/** What is known of a run. A snapshot never changes; a new one takes its place. */
export interface RunSnapshot<T = unknown> {
  readonly id: string;
  readonly run: Run<T> | undefined;
  /** The run's; undefined until it is known. */
  readonly state: State | undefined;
  readonly progress: Progress | undefined;
  /** Why the run ended otherwise than well, or why it is no longer watched. */
  readonly error: Error | undefined;
  readonly connection: Connection;
}

/** Whether next takes the place of run: a higher version does, and within one
 * version a state that differs (queued and running change without a commit). */
export function newer(run: Run | undefined, next: Run): boolean {
  if (!run) return true;
  if (isTerminal(run) && next.version === run.version) return false;
  return next.version > run.version || (next.version === run.version && next.state !== run.state);
}

/** Whether a value that came from elsewhere can be taken for a run. */
export function isRun(value: unknown): value is Run {
  if (typeof value !== 'object' || value === null) return false;
  const { id, state, version } = value as Record<string, unknown>;
  return typeof id === 'string' && typeof state === 'string' && typeof version === 'number';
}

/** The path of a run in the API. */
export function runPath(id: string): string {
  return '/v1/runs/' + encodeURIComponent(id);
}
