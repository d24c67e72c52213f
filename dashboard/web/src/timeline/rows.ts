import { triedOf, type Tried } from '../run/tried.ts';
import type { HistoryRecord, PollLog, Run, Wait } from '../shape.ts';
import { ended } from '../shape.ts';
import { instant, times } from '../words/span.ts';
import { branchOf, comparePaths } from './path.ts';

/** How a stretch is drawn: work filled, waiting light, back-off hatched, a phase as a bracket. */
export type Look = 'work' | 'wait' | 'backoff' | 'phase';

export interface Segment {
  from: number;
  to: number;
  look: Look;
  failed?: boolean;
  /** It goes on; `to` is now, or when it will end. */
  open?: boolean;
  title: string;
}

export interface Mark {
  at: number;
  look: 'tick' | 'error' | 'note' | 'next';
  title: string;
}

export interface Row {
  path: string;
  depth: number;
  kind: string;
  name: string;
  failed: boolean;
  live: boolean;
  segments: Segment[];
  marks: Mark[];
}

interface Draft extends Row {
  from: number;
  to: number;
}

/** Lays a run's history and waits out as rows, one a step, poll, timer, child or phase. */
export function rows(run: Run, records: readonly HistoryRecord[], now: number): Row[] {
  const end = instant(run.finished_at) ?? now;
  const byPath = new Map<string, Draft>();
  const row = (path: string, kind: string, name: string, at: number): Draft => {
    let r = byPath.get(path);
    if (!r) {
      r = { path, depth: 0, kind, name, failed: false, live: false, segments: [], marks: [], from: at, to: at };
      byPath.set(path, r);
    }
    return r;
  };
  for (const record of records) {
    if (record.path !== '') addRecord(row(record.path, shownKind(record.kind), record.name ?? '', instant(record.at) ?? 0), record, end);
  }
  for (const wait of run.waiting) {
    if (wait.path) addWait(row(wait.path, wait.kind, wait.name ?? '', instant(wait.since) ?? now), wait, now);
  }
  const sorted = [...byPath.values()].sort((a, b) => comparePaths(a.path, b.path));
  widen(sorted, instant(run.started_at) ?? instant(run.created_at) ?? now);
  if (run.state === 'running' && run.waiting.length === 0) sorted.push(atWork(sorted, run, now));
  nest(sorted);
  if (ended(run.state)) for (const r of sorted) r.live = false;
  return sorted;
}

/** What a person did to a wait stands under the wait's own kind. */
function shownKind(kind: string): string {
  return kind === 'step_started' ? 'step' : kind;
}

const notes: Record<string, string> = { checked: 'asked to look now', extended: 'the deadline was moved', canceled: 'saw the cancel', webhook: 'its URL was made', race: 'a race was decided', join: 'a branch was waited for' };

function addRecord(r: Draft, record: HistoryRecord, end: number): void {
  const at = instant(record.at) ?? 0;
  const took = (record.took_ns ?? 0) / 1e6;
  const failed = record.error !== undefined;
  r.failed ||= failed;
  if (r.kind === 'checked' || r.kind === 'extended') r.kind = shownKind(record.kind);
  r.name ||= record.name ?? '';
  const note = notes[record.kind];
  if (note !== undefined) {
    r.marks.push({ at, look: failed ? 'error' : 'note', title: record.error?.message ?? note });
  } else if (record.kind === 'step_started') {
    r.live = true;
  } else if (record.kind === 'sleep' && !failed && !record.by) {
    const until = Math.min(instant(quoted(record.data?.text)) ?? at, end);
    r.segments = [{ from: at, to: Math.max(at, until), look: 'wait', title: 'asleep' }];
    r.to = until;
    return;
  } else {
    r.live = false;
    const look: Look = record.kind === 'phase' ? 'phase' : record.kind === 'step' ? 'work' : 'wait';
    const before = record.kind === 'step' ? (record.attempt ?? 1) - (failed || record.by ? 0 : 1) : 0;
    const tried = record.kind === 'step' ? triedOf(record.poll, before) : [];
    const kept = tried.at(-1);
    if (before > tried.length) r.segments.push(unseen(before - tried.length, tried[0]?.from ?? at - took));
    attempts(r, tried);
    const told = failed && kept !== undefined; // it ended as its last attempt did
    if (kept && (!told || record.by) && at - took > kept.to) r.segments.push(between(kept.to, at - took));
    if (!told && (took > 0 || look === 'work') && !record.by) r.segments.push({ from: at - took, to: at, look, failed, title: record.error?.message ?? said(record) });
    else if (!told || record.by) r.marks.push({ at, look: failed ? 'error' : 'note', title: record.error?.message ?? said(record) });
    r.from = Math.min(r.from, tried[0]?.from ?? at);
  }
  if (record.poll && record.kind === 'poll') checks(r, record.poll);
  r.from = Math.min(r.from, at - took);
  r.to = Math.max(r.to, at);
}

/** Attempts that failed, as what they did, and the pauses between them. */
function attempts(r: Draft, tried: readonly Tried[]): void {
  for (const [i, a] of tried.entries()) {
    const next = tried[i + 1];
    r.segments.push({ from: a.from, to: a.to, look: 'work', failed: true, title: `attempt ${a.number}: ${a.error}` });
    if (next && next.from > a.to) r.segments.push(between(a.to, next.from));
  }
}

function between(from: number, to: number): Segment {
  return { from, to, look: 'backoff', title: 'the pause before the next attempt' };
}

/** Attempts that are not kept: they began when what stands before was over. */
function unseen(count: number, to: number): Segment {
  return { from: NaN, to, look: 'backoff', failed: true, title: `${times(count, 'attempt')} before, and the pauses between them` };
}

function said(record: HistoryRecord): string {
  if (record.by) return `settled by hand: ${record.by}`;
  return record.kind === 'child' ? 'child' : record.kind;
}

function addWait(r: Draft, w: Wait, now: number): void {
  const since = instant(w.since) ?? now;
  const next = instant(w.next_at);
  r.live = true;
  r.kind = w.kind === 'retry' ? 'step' : w.kind;
  r.name ||= w.name ?? '';
  r.segments = r.segments.filter((s) => s.to <= since);
  if (w.kind === 'retry') {
    const tried = triedOf(w.poll?.log, w.attempt ?? 0);
    const last = tried.at(-1);
    if (tried[0] && (w.attempt ?? 0) > tried.length) r.segments.push({ ...unseen((w.attempt ?? 0) - tried.length, tried[0].from), from: since });
    attempts(r, tried);
    if (last && next !== undefined) r.segments.push({ from: last.to, to: next, look: 'backoff', open: true, title: 'waits for the next attempt' });
    else r.segments.push({ from: last?.to ?? since, to: now, look: 'work', open: true, title: 'under way' });
  } else r.segments.push({ from: since, to: Math.max(since, now), look: w.kind === 'step' ? 'work' : 'wait', open: true, title: 'goes on' });
  if (w.poll?.log && w.kind === 'poll') checks(r, w.poll.log);
  if (next !== undefined && next > now) r.marks.push({ at: next, look: 'next', title: 'the next attempt' });
  r.from = Math.min(r.from, since);
  r.to = Math.max(r.to, now);
}

function checks(r: Draft, log: PollLog): void {
  for (const c of log.checks ?? []) {
    const look = c.outcome === 'pending' || c.outcome === 'succeeded' ? 'tick' : 'error';
    const many = (c.count ?? 1) > 1 ? `${c.count} × ` : '';
    for (const at of [c.at, c.last]) if (at) r.marks.push({ at: instant(at) ?? 0, look, title: `${many}${c.outcome}${c.error ? ': ' + c.error : ''}` });
  }
}

/** The attempts before a step's last began when what stands before it in its branch was over. */
function widen(sorted: Draft[], started: number): void {
  const before = new Map<string, number>();
  for (const r of sorted) {
    const branch = branchOf(r.path);
    const first = r.segments[0];
    if (first && Number.isNaN(first.from)) {
      first.from = Math.min(first.to, before.get(branch) ?? started);
      r.from = Math.min(r.from, first.from);
      if (first.to - first.from < 1) r.segments.shift();
    }
    before.set(branch, Math.max(before.get(branch) ?? 0, r.to));
  }
}

/** A worker has the run and it waits for nothing: its code, or a step, is at work. */
function atWork(sorted: readonly Draft[], run: Run, now: number): Draft {
  const from = Math.min(now, sorted.reduce((t, r) => Math.max(t, r.to), instant(run.started_at) ?? now));
  const segment: Segment = { from, to: now, look: 'work', open: true, title: 'a worker is at it' };
  return { path: '', depth: 0, kind: 'work', name: 'at work', failed: false, live: true, segments: [segment], marks: [], from, to: now };
}

/** A row is indented under the rows that its path is within. */
function nest(sorted: Draft[]): void {
  const open: string[] = [];
  for (const r of sorted) {
    while (open.length > 0 && !r.path.startsWith((open.at(-1) ?? '') + '.')) open.pop();
    r.depth = open.length;
    open.push(r.path);
  }
}

function quoted(text: string | undefined): string | undefined {
  return text?.startsWith('"') ? text.slice(1, -1) : undefined;
}
