import { now } from '../live/clock.ts';
import { coarse, full, instant, moment, span } from '../words/span.ts';

/** How long ago something was, with the time itself as its title. */
export function Ago({ at }: { at: string | null | undefined }) {
  const t = instant(at);
  if (t === undefined) return <span class="faint">–</span>;
  return (
    <time dateTime={at ?? ''} title={full(t)}>
      {now.value - t < 1000 ? 'just now' : `${coarse(now.value - t)} ago`}
    </time>
  );
}

/** How long something has lasted. */
export function Since({ at }: { at: string }) {
  const t = instant(at) ?? now.value;
  return (
    <time dateTime={at} title={full(t)}>
      {coarse(now.value - t)}
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
      {left > 0 ? `in ${left < 1000 ? 'a moment' : span(left)}` : due}
    </time>
  );
}
