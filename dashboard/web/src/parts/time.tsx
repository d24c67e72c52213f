import { now } from '../live/clock.ts';
import { coarse, full, instant, moment, span } from '../words/span.ts';

/** How long ago something was, with the time itself as its title. */
export function Ago({ at }: { at: string | null | undefined }) {
  const t = instant(at);
  if (t === undefined) return <span class="faint">–</span>;
  return (
    <time dateTime={at ?? ''} title={full(t)}>
      {coarse(now.value - t)} ago
    </time>
  );
}

/** When something is or was, as the clock says it. */
export function At({ at }: { at: string | null | undefined }) {
  const t = instant(at);
  if (t === undefined) return <span class="faint">–</span>;
  return (
    <time dateTime={at ?? ''} title={full(t)}>
      {moment(t, now.value)}
    </time>
  );
}

/** How long it is to a time, or that it is now. */
export function Until({ at, due }: { at: string | null | undefined; due: string }) {
  const t = instant(at);
  if (t === undefined) return <span class="faint">–</span>;
  const left = t - now.value;
  return (
    <time dateTime={at ?? ''} title={full(t)} class="num">
      {left > 0 ? `in ${span(left)}` : due}
    </time>
  );
}
