/** How often a page asks, at most, unless it lowers that; in milliseconds. */
export const floorMs = 1000;
/** How far it may lower it. */
export const lowestMs = 500;

const longestErrorMs = 10_000;

/** What one check leads to the next by. */
export interface Paced {
  /** Checks so far. */
  checks: number;
  /** Errors in a row. */
  errors: number;
  /** What the server asked for, in its body and in its header. */
  hintMs: number | undefined;
}

/**
 * The delay until the next check of a run. The server's hint is the interval; without
 * one it is 1 s, 2 s after 10 checks, 5 s after 30. Errors in a row double it up to
 * 10 s. A hint is never undercut: the jitter on it goes upwards only.
 */
export function nextCheck(p: Paced, floor: number, jitter: number, random: () => number): number {
  const local = p.hintMs !== undefined ? floor : p.checks >= 30 ? 5000 : p.checks >= 10 ? 2000 : 1000;
  const backoff = p.errors > 0 ? Math.min(longestErrorMs, 1000 * 2 ** (p.errors - 1)) : 0;
  return spread(Math.max(local, backoff), p.hintMs ?? 0, floor, jitter, random);
}

/** Jitter: around the interval, above the server's floor, never below the page's. */
export function spread(ms: number, hintMs: number, floor: number, jitter: number, random: () => number): number {
  const u = random();
  const delay = hintMs >= ms ? hintMs * (1 + jitter * u) : Math.max(hintMs, ms * (1 + jitter * (2 * u - 1)));
  return Math.max(floor, delay);
}

/** The lowest interval that a page asked for, checked. */
export function floorOf(minIntervalMs: number | undefined): number {
  if (minIntervalMs === undefined) return floorMs;
  if (!(minIntervalMs >= lowestMs)) {
    throw new RangeError(`minIntervalMs must be at least ${lowestMs}, is ${minIntervalMs}`);
  }
  return minIntervalMs;
}
