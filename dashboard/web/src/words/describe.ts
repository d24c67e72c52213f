import type { Wait } from '../shape.ts';
import { oneLine } from '../exact/print.ts';
import { instant, moment, span, times } from './span.ts';

/** The most bytes of a value and an error that stand in a sentence. */
const describedValue = 80;
const describedError = 200;
/** A value is not looked at further than this. */
const mostLooked = 2000;

/** Says the wait in a sentence, as it stands at now. It is Wait.Describe of Go over
 * again, since it counts down while nothing is asked: one table tests both. */
export function describe(w: Wait, now: number): string {
  const name = w.name ?? '';
  const parts: string[] = [];
  const add = (text: string): void => void parts.push(text);
  switch (w.kind) {
    case 'sleep':
      return `asleep until ${w.until ? moment(instant(w.until) ?? 0, now) : 'further notice'}`;
    case 'signal':
    case 'webhook':
    case 'child':
      add(`waits for ${w.kind} ${name}${since(w.since, now)}`);
      break;
    case 'queue':
      add(`waits for a worker of queue ${name}${since(w.since, now)}`);
      break;
    case 'paused':
      return 'paused' + since(w.since, now);
    case 'poll':
      add(`poll ${name}`);
      if (w.attempt) add(`attempt ${w.attempt}`);
      add(next('next in ', 'checks now', w.next_at, now));
      break;
    case 'loop': {
      const loop = w.loop;
      add(`loop ${name}`);
      add(loop?.in_flight_since ? 'at work' + since(loop.in_flight_since, now) : next('next in ', 'runs now', w.next_at, now));
      if (loop?.failures) add(`interval ${span((loop.effective_ns ?? 0) / 1e6)} after ${times(loop.failures, 'failure')}`);
      break;
    }
    case 'retry': {
      const attempt = (w.attempt ?? 0) + 1;
      add(`step ${name}`);
      add(w.next_at ? next(`try ${attempt} in `, `try ${attempt} now`, w.next_at, now) : `try ${attempt} is under way`);
      break;
    }
    case 'stuck':
      add(`stuck in the code of ${name}${since(w.since, now)}`);
      add(next('tried again in ', 'tried again now', w.next_at, now));
      break;
    default:
      add(`waits for ${w.kind} ${name}`.trim());
  }
  if (w.until) add(next('gives up in ', 'gives up now', w.until, now));
  const said = last(w);
  return (said ? [...parts, said] : parts).join(', ');
}

/** What was seen last: the error, while it stands, else the value. */
function last(w: Wait): string | undefined {
  const failing = w.last_error && (w.kind !== 'poll' || (w.streak ?? 0) > 0) && (!w.loop || (w.loop.failures ?? 0) > 0);
  if (failing) return 'last error: ' + shorten(w.last_error?.message ?? '', describedError);
  let said = w.last_value ? shorten(oneLine(w.last_value.text, mostLooked), describedValue) : '';
  if (w.poll?.percent_at) said = `${said} ${whole(w.poll.percent ?? 0)} %`.trim();
  return said ? 'last: ' + said : undefined;
}

/** On one line, cut to so many bytes of UTF-8. */
function shorten(text: string, limit: number): string {
  const line = text.split(/\s+/).filter(Boolean).join(' ');
  const bytes = new TextEncoder().encode(line.slice(0, limit + 1));
  if (bytes.length <= limit) return line;
  let end = limit;
  while (((bytes[end] ?? 0) & 0xc0) === 0x80) end--; // not in the middle of a character
  return new TextDecoder().decode(bytes.subarray(0, end)) + '…';
}

/** Rounded, a half to the even one, as Go prints it. */
function whole(n: number): number {
  const r = Math.round(n);
  return r - n === 0.5 && r % 2 !== 0 ? r - 1 : r;
}

function since(t: string | undefined | null, now: number): string {
  const at = instant(t);
  return at === undefined ? '' : ' since ' + span(now - at);
}

function next(ahead: string, due: string, t: string | undefined | null, now: number): string {
  const left = (instant(t) ?? 0) - now;
  return left > 0 ? ahead + span(left) : due;
}
