import type { Wait } from '../shape.ts';
import { oneLine } from '../exact/print.ts';
import { instant, moment, span, times } from './span.ts';

const describedValue = 80;
const describedError = 200;

/** Says the wait in a sentence, as it stands at now; the same words as in the CLI. */
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
  if (failing) return 'last error: ' + shorten((w.last_error?.message ?? '').split(/\s+/).filter(Boolean).join(' '), describedError);
  let said = w.last_value ? oneLine(w.last_value.text, describedValue) : '';
  if (w.poll?.percent_at) said = `${said} ${Math.round(w.poll.percent ?? 0)} %`.trim();
  return said ? 'last: ' + said : undefined;
}

function shorten(text: string, limit: number): string {
  return text.length <= limit ? text : text.slice(0, limit) + '…';
}

function since(t: string | undefined | null, now: number): string {
  const at = instant(t);
  return at === undefined ? '' : ' since ' + span(now - at);
}

function next(ahead: string, due: string, t: string | undefined | null, now: number): string {
  const left = (instant(t) ?? 0) - now;
  return left > 0 ? ahead + span(left) : due;
}
