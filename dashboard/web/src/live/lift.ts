import type { Run as ClientRun } from '@bide/client';
import { Raw } from '../exact/parse.ts';
import type { Run, Wait } from '../shape.ts';

/**
 * A run as the live client tells it, whose numbers went through JSON.parse: what may
 * have lost digits is left out, and comes with the next exact answer.
 */
export function lift(run: ClientRun): Run {
  const { input: _input, values: _values, result: _result, waiting, ...rest } = run;
  return { ...(rest as unknown as Run), result: null, waiting: waiting.map(liftWait), partial: true };
}

function liftWait(wait: ClientRun['waiting'][number]): Wait {
  const { last_value, details: _details, poll, loop, ...rest } = wait;
  const lifted = rest as unknown as Wait;
  if (last_value !== undefined && isSafe(last_value)) lifted.last_value = new Raw(JSON.stringify(last_value));
  if (loop) lifted.loop = loop as NonNullable<Wait['loop']>;
  if (poll) {
    const { log: _log, ...state } = poll as Record<string, unknown>;
    lifted.poll = state as NonNullable<Wait['poll']>;
  }
  return lifted;
}

/** Whether all numbers in it are as they were before they were parsed: whole ones of
 * up to 15 digits are. */
function isSafe(value: unknown): boolean {
  if (typeof value === 'number') return Number.isSafeInteger(value) && Math.abs(value) < 1e15;
  if (typeof value !== 'object' || value === null) return true;
  return Object.values(value).every(isSafe);
}
