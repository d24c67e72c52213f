import type { Loop, Wait } from '../shape.ts';
import { instant, moment, span, times } from './span.ts';

/** Why a loop's interval is what it is: "30 s × 4 = 2 min, because of 2 failures". */
export function explainLoop(l: Loop): string {
  if (l.stopped) return 'stopped';
  if (l.paused) return 'paused';
  if (l.breaker === 'open') return 'the breaker is open: the next is its probe';
  if (l.interval_ms === null) return 'by its schedule' + (l.failures > 0 ? `, after ${times(l.failures, 'failure')}` : '');
  const effective = l.effective_ms ?? l.interval_ms;
  const base = effective / l.multiplier;
  const own = span(l.interval_ms);
  const adapted = Math.abs(base - l.interval_ms) >= 1;
  const from = !adapted ? own : `${span(base)} (from ${own}, ${base < l.interval_ms ? 'as it changes often' : 'as it changes seldom'})`;
  if (l.multiplier > 1) return `${from} × ${l.multiplier} = ${span(effective)}, because of ${times(l.failures, 'failure')}`;
  return l.failures > 0 ? `${from}, after ${times(l.failures, 'failure')}` : from;
}

/** Why the next check of a poll comes when it does, sentence by sentence. */
export function explainPoll(w: Wait, now: number): string[] {
  const p = w.poll;
  const next = instant(w.next_at);
  const lines: string[] = [];
  if (!p || next === undefined) return lines;
  const until = instant(w.until);
  lines.push(next > now ? `The next check is at ${moment(next, now)}, in ${span(next - now)}.` : 'A check is due now.');
  if (p.base_ns) lines.push(`Its pause is ${span(p.base_ns / 1e6)}, before jitter: ${reason(w, now)}.`);
  if (p.floor_ns) {
    const who = p.floor_source ? `The server's ${p.floor_source}` : 'The server';
    lines.push(`${who} asks for ${span(p.floor_ns / 1e6)} at least.`);
  }
  const refused = instant(p.not_before);
  if (refused !== undefined && refused > now) lines.push(`The server refuses to be asked before ${moment(refused, now)}.`);
  if (p.uncut && until !== undefined) lines.push(`It would come at ${moment(instant(p.uncut) ?? 0, now)}, past the deadline: the last check is at the deadline itself.`);
  const hurry = instant(p.hurry_until);
  if (hurry !== undefined && hurry > now) lines.push('A webhook came a moment ago, so checks come close together for now.');
  if (until !== undefined && !p.uncut) lines.push(`It gives up at ${moment(until, now)}.`);
  return lines;
}

function reason(w: Wait, now: number): string {
  const p = w.poll ?? {};
  if (p.throttled && !p.errors) return `it was refused ${p.throttled === 1 ? 'once' : `${p.throttled} times`} for asking too often`;
  if (p.errors) return `the back-off after ${times(p.errors, 'error')} in a row`;
  const eta = instant(p.eta);
  if (eta !== undefined) return eta > now ? `the thing says that it is done at ${moment(eta, now)}` : `the thing is overdue since ${moment(eta, now)}`;
  if (p.rate) return `it goes at ${p.rate.toPrecision(2)} % a second`;
  return `the interval after ${times(p.pending ?? 0, 'check')} that found it not done`;
}
