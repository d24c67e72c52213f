const second = 1000;
const minute = 60 * second;
const hour = 60 * minute;
const day = 24 * hour;

/** A duration in milliseconds as people say it, in its one or two leading units. */
export function span(ms: number): string {
  const d = Math.max(0, ms);
  if (d < second) return `${Math.floor(d)} ms`;
  if (d < minute) return `${Math.floor(d / second)} s`;
  if (d < hour) return two(d, minute, second, 'min', 's');
  if (d < day) return two(d, hour, minute, 'h', 'min');
  return two(d, day, hour, 'd', 'h');
}

function two(d: number, unit: number, part: number, name: string, partName: string): string {
  const rest = Math.floor((d % unit) / part);
  const head = `${Math.floor(d / unit)} ${name}`;
  return rest > 0 && d < 10 * unit ? `${head} ${rest} ${partName}` : head;
}

/** How long ago something was, in its leading unit: it is not worth more. */
export function coarse(ms: number): string {
  return span(ms < minute ? ms : ms < hour ? ms - (ms % minute) : ms < day ? ms - (ms % hour) : ms - (ms % day));
}

/** A short duration with tenths, as of a step: "1.3 s". */
export function fine(ms: number): string {
  if (ms <= 0) return '0 ms';
  if (ms < 1) return `${Math.max(1, Math.round(ms * 1000))} µs`;
  if (ms < second) return `${Math.round(ms)} ms`;
  if (ms < 10 * second) return `${(ms / second).toFixed(1)} s`;
  return span(ms);
}

const two0 = (n: number): string => String(n).padStart(2, '0');

/** The clock's time of a moment, "08:00" or "08:00:07". */
export function clock(t: Date, seconds: boolean): string {
  return `${two0(t.getHours())}:${two0(t.getMinutes())}${seconds ? ':' + two0(t.getSeconds()) : ''}`;
}

export function date(t: Date): string {
  return `${t.getFullYear()}-${two0(t.getMonth() + 1)}-${two0(t.getDate())}`;
}

const weekdays = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];

/** A time as people say it, the more exact the nearer it is. */
export function moment(at: number, now: number): string {
  const t = new Date(at);
  const ahead = at - now;
  if (Math.abs(ahead) < 10 * minute) return clock(t, true);
  if (date(t) === date(new Date(now))) return clock(t, false);
  if (ahead > 0 && ahead < 6 * day) return `${weekdays[t.getDay()]} ${clock(t, false)}`;
  return `${date(t)} ${clock(t, false)}`;
}

/** A time in full, in the reader's zone, to the millisecond: for titles. */
export function full(at: number): string {
  const t = new Date(at);
  const off = -t.getTimezoneOffset();
  const zone = `${off < 0 ? '−' : '+'}${two0(Math.floor(Math.abs(off) / 60))}:${two0(Math.abs(off) % 60)}`;
  return `${date(t)} ${clock(t, true)}.${String(t.getMilliseconds()).padStart(3, '0')} ${zone}`;
}

/** "1 failure", "3 failures". */
export function times(n: number, what: string): string {
  return n === 1 ? `1 ${what}` : `${n} ${what}s`;
}

/** A number with its thousands apart. */
export function grouped(n: number): string {
  return String(n).replace(/\B(?=(\d{3})+$)/g, '\u202f');
}

/** Milliseconds since 1970 of a time of the API; undefined if there is none. */
export function instant(text: string | null | undefined): number | undefined {
  if (!text) return undefined;
  const t = Date.parse(text);
  return Number.isNaN(t) ? undefined : t;
}
