import type { Raw } from './exact/parse.ts';

// What the API answers with, as this program reads it: JSON that is a user's stays text.

export const states = ['queued', 'running', 'waiting', 'paused', 'canceling', 'succeeded', 'failed', 'canceled', 'terminated', 'timed_out'] as const;
export type State = (typeof states)[number];

export function isState(text: string): text is State {
  return (states as readonly string[]).includes(text);
}

/** Whether the run is over. */
export function ended(state: State): boolean {
  return states.indexOf(state) >= states.indexOf('succeeded');
}

export interface Failure {
  code?: string;
  type?: string;
  message: string;
  data?: Raw;
  causes?: Failure[];
}

export interface Progress {
  percent: number;
  message?: string;
  step?: { index: number; count: number; name?: string };
  updated_at: string;
}

export interface CheckLine {
  at: string;
  last?: string;
  count?: number;
  outcome: string;
  trigger?: string;
  error?: string;
}

export interface PollLog {
  counts?: Record<string, number>;
  checks?: CheckLine[];
  values?: { at: string; value?: Raw; percent?: number }[];
}

export interface PollState {
  pending?: number;
  errors?: number;
  throttled?: number;
  eta?: string;
  percent?: number;
  percent_at?: string;
  rate?: number;
  sticky_ns?: number;
  hurry_until?: string;
  base_ns?: number;
  floor_ns?: number;
  floor_source?: string;
  not_before?: string;
  uncut?: string;
  last_pending?: string;
  log?: PollLog;
}

export interface WaitLoop {
  effective_ns?: number;
  failures?: number;
  in_flight_since?: string;
}

export interface Wait {
  path?: string;
  kind: string;
  name?: string;
  since?: string;
  until?: string;
  next_at?: string;
  attempt?: number;
  streak?: number;
  last_value?: Raw;
  last_error?: Failure;
  last_error_at?: string;
  details?: Raw;
  poll?: PollState;
  loop?: WaitLoop;
}

export interface Run {
  id: string;
  workflow: string;
  queue: string;
  state: State;
  version: number;
  parent?: string;
  labels?: Record<string, string>;
  generation?: number;
  trace?: string;
  progress: Progress | null;
  eta: string | null;
  attempt: number;
  waiting: Wait[];
  created_at: string;
  started_at: string | null;
  finished_at: string | null;
  deadline_at: string | null;
  expires_at: string | null;
  input?: Raw;
  values?: Record<string, Raw>;
  result: Raw | null;
  error: { detail: string; code: string; failure?: Failure } | null;
  completed_by: string | null;
  /** It came from the live client: a user's JSON is left out of it. */
  partial?: boolean;
}

export interface RunPage {
  runs: Run[];
  next_page_token: string | null;
}

export interface HistoryRecord {
  seq: number;
  path: string;
  kind: string;
  name?: string;
  data?: Raw;
  error?: Failure;
  attempt?: number;
  at: string;
  took_ns?: number;
  by?: string;
  poll?: PollLog;
}

export interface RecordPage {
  records: HistoryRecord[];
  next_after: number | null;
}

export interface Loop {
  name: string;
  interval_ms: number | null;
  effective_ms: number | null;
  iterations: number;
  failures: number;
  multiplier: number;
  next_at: string | null;
  last_at: string | null;
  last_success_at: string | null;
  last_error?: Failure;
  last_error_at?: string;
  in_flight_since: string | null;
  paused: boolean;
  stopped: boolean;
  breaker?: 'closed' | 'open' | 'half_open';
  skipped?: string;
  outcomes: string;
}

export interface Worker {
  id: string;
  queues: string[];
  workflows: string[];
  max: number;
  held: number;
  expires_at: string;
}

export interface Queue {
  name: string;
  runs: Record<string, number>;
  workers: number;
  oldest: string | null;
}

export interface Status {
  counts: { queue: string; workflow: string; state: State; runs: number; oldest?: string }[];
  workers: Worker[];
  commits: number;
  transactions: number;
  leases_lost: number;
  waiters: number;
}

export interface Chunk {
  seq: number;
  path: string;
  name: string;
  attempt: number;
  at: string;
  text?: string;
  data?: string;
}
