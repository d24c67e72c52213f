import type { Run } from '../shape.ts';
import { describe } from '../words/describe.ts';
import { instant, moment, span } from '../words/span.ts';
import { said } from './action.ts';

/** What a run does or waits for now, in a sentence. */
export function nowOf(run: Run, now: number): string {
  switch (run.state) {
    case 'succeeded':
      return took(run);
    case 'failed':
    case 'canceled':
    case 'terminated':
    case 'timed_out':
      return run.error?.detail && run.error.detail !== `the run is ${run.state}` ? firstLine(run.error.detail) : `${said(run)}${after(run)}`;
    case 'paused':
      return 'held back until it is resumed';
    default:
  }
  const [first, ...more] = run.waiting;
  if (!first) return run.state === 'queued' ? queued(run, now) : (run.progress?.message ?? (run.state === 'canceling' ? 'asked to end; it may clean up' : 'a worker is at it'));
  const sentence = describe(first, now);
  return more.length > 0 ? `${sentence} · and ${more.length} more` : sentence;
}

function queued(run: Run, now: number): string {
  const since = instant(run.created_at);
  return `waits for a worker of queue ${run.queue}` + (since === undefined ? '' : ` since ${span(now - since)}`);
}

function took(run: Run): string {
  return `done${after(run)}`;
}

function after(run: Run): string {
  const [from, to] = [instant(run.started_at ?? run.created_at), instant(run.finished_at)];
  return from === undefined || to === undefined ? '' : ` after ${span(to - from)}`;
}

function firstLine(text: string): string {
  const line = text.split('\n', 1)[0] ?? '';
  return line.length > 200 ? line.slice(0, 200) + '…' : line;
}

/** When the run is expected to end, in words; empty if that cannot be told. */
export function etaOf(run: Run, now: number): string {
  const at = instant(run.eta);
  if (at === undefined || run.finished_at) return '';
  return at > now ? `expected to end at ${moment(at, now)}, in ${span(at - now)}` : '';
}
