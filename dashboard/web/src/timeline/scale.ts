import { span } from '../words/span.ts';

/** A stretch of time and the part of the width that it is drawn on. */
export interface Piece {
  from: number;
  to: number;
  x0: number;
  x1: number;
  /** Nothing happens in it: it is drawn short, whatever it lasts. */
  idle: boolean;
}

export interface Interval {
  from: number;
  to: number;
}

const idleLeast = 60_000;
const idleShare = 0.25;
const mostIdle = 8;

/** Beside idle time a millisecond of work is not drawn wider than this, in pixels. */
const widest = 0.5;

/**
 * Draws the time from `from` to `to` on `width` pixels, with what is idle cut short:
 * a run that slept for two days between two seconds of work shows the work.
 * Moments are when something begins, ends or is marked; busy intervals are never cut.
 */
export function pieces(from: number, to: number, moments: Iterable<number>, busy: readonly Interval[], width: number, idleWidth = 28): Piece[] {
  const idle = idleGaps(from, to, moments, busy);
  const idleTime = idle.reduce((sum, g) => sum + g.to - g.from, 0);
  const least = Math.min(idleWidth, (width * 0.4) / Math.max(1, idle.length));
  const rest = Math.max(1e-9, to - from - idleTime);
  const fill = Math.max(0, width - least * idle.length) / rest;
  const perMs = idle.length > 0 ? Math.min(fill, widest) : fill;
  const cut = idle.length > 0 ? (width - perMs * rest) / idle.length : 0;
  const list: Piece[] = [];
  let x = 0;
  let t = from;
  const add = (end: number, isIdle: boolean): void => {
    if (end <= t) return;
    const x1 = x + (isIdle ? cut : (end - t) * perMs);
    list.push({ from: t, to: end, x0: x, x1, idle: isIdle });
    [t, x] = [end, x1];
  };
  for (const gap of idle) {
    add(gap.from, false);
    add(gap.to, true);
  }
  add(to, false);
  if (list.length === 0) list.push({ from, to, x0: 0, x1: width, idle: false });
  return list;
}

function idleGaps(from: number, to: number, moments: Iterable<number>, busy: readonly Interval[]): Interval[] {
  const times = [...new Set([from, to, ...moments])].filter((t) => t >= from && t <= to).sort((a, b) => a - b);
  const covered = merge(busy);
  const gaps: Interval[] = [];
  let k = 0;
  for (let i = 1; i < times.length; i++) {
    const gap = { from: times[i - 1] ?? from, to: times[i] ?? to };
    if (gap.to - gap.from < idleLeast) continue;
    while (k < covered.length && (covered[k]?.to ?? 0) <= gap.from) k++;
    const next = covered[k];
    if (!next || next.from >= gap.to) gaps.push(gap);
  }
  gaps.sort((a, b) => b.to - b.from - (a.to - a.from));
  let left = to - from;
  const idle: Interval[] = [];
  for (const gap of gaps) {
    const d = gap.to - gap.from;
    if (d < left * idleShare || idle.length === mostIdle) break;
    idle.push(gap);
    left -= d;
  }
  return idle.sort((a, b) => a.from - b.from);
}

function merge(list: readonly Interval[]): Interval[] {
  const merged: Interval[] = [];
  for (const i of [...list].sort((a, b) => a.from - b.from)) {
    const last = merged.at(-1);
    if (last && i.from <= last.to) last.to = Math.max(last.to, i.to);
    else merged.push({ ...i });
  }
  return merged;
}

/** Where a time is drawn. */
export function place(list: readonly Piece[], t: number): number {
  let lo = 0;
  let hi = list.length - 1;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if ((list[mid]?.to ?? 0) < t) lo = mid + 1;
    else hi = mid;
  }
  const p = list[lo];
  if (!p) return 0;
  const share = p.to > p.from ? (t - p.from) / (p.to - p.from) : 0;
  return p.x0 + Math.min(1, Math.max(0, share)) * (p.x1 - p.x0);
}

const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 10e3, 15e3, 30e3, 60e3, 120e3, 300e3, 600e3, 900e3, 1800e3, 3600e3, 7200e3, 14400e3, 21600e3, 43200e3,
  86400e3, 172800e3, 604800e3, 2592000e3];

export interface Tick {
  x: number;
  /** Milliseconds since the beginning, and the same in words. */
  after: number;
  label: string;
}

/** Round times since the beginning, at least `apart` pixels from each other and so far
 * from the end that what they say has room. */
export function ticks(list: readonly Piece[], apart = 72): Tick[] {
  const found: Tick[] = [];
  const zero = list[0]?.from ?? 0;
  const end = (list.at(-1)?.x1 ?? 0) - apart / 2;
  let lastX = -Infinity;
  for (const p of list) {
    if (p.idle || p.x1 - p.x0 < 1) continue;
    const perMs = (p.x1 - p.x0) / (p.to - p.from);
    const step = steps.find((s) => s * perMs >= apart) ?? 2592000e3;
    for (let after = Math.ceil((p.from - zero) / step) * step; zero + after <= p.to; after += step) {
      const x = p.x0 + (zero + after - p.from) * perMs;
      if (x - lastX < apart || (x > end && found.length > 0)) continue;
      found.push({ x, after, label: label(after, step) });
      lastX = x;
    }
  }
  return found;
}

/** As exact as the step between two of them is. */
function label(after: number, step: number): string {
  if (after < 1000 || after >= 60_000 || step % 1000 === 0) return span(after);
  return `${(after / 1000).toFixed(step % 100 === 0 ? 1 : step % 10 === 0 ? 2 : 3)} s`;
}
