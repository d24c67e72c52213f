import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Raw } from '../src/exact/parse.ts';
import type { HistoryRecord, Run } from '../src/shape.ts';
import { comparePaths } from '../src/timeline/path.ts';
import { rows, type Row } from '../src/timeline/rows.ts';
import { pieces, place, ticks } from '../src/timeline/scale.ts';

const zero = Date.parse('2026-11-21T08:00:00Z');
const at = (ms: number): string => new Date(zero + ms).toISOString();

function run(more: Partial<Run> = {}): Run {
  return {
    id: 'r', workflow: 'w', queue: 'default', state: 'waiting', version: 1, progress: null, eta: null, attempt: 1, waiting: [],
    created_at: at(0), started_at: at(0), finished_at: null, deadline_at: null, expires_at: null, result: null, error: null, completed_by: null, ...more,
  };
}

let seq = 0;
function record(path: string, kind: string, end: number, took: number, more: Partial<HistoryRecord> = {}): HistoryRecord {
  return { seq: ++seq, path, kind, name: `${kind} ${path}`, at: at(end), took_ns: took * 1e6, ...more };
}

test('paths are ordered as the workflow is', () => {
  const sorted = ['10', '2.10', '2', '1', '2.9', '2.1.1'].sort(comparePaths);
  assert.deepEqual(sorted, ['1', '2', '2.1.1', '2.9', '2.10', '10']);
});

test('a row a step, under its phase; work is from its beginning to its end', () => {
  const list = rows(run(), [record('1.1', 'step', 1000, 400), record('1', 'phase', 1500, 1400), record('2', 'step', 2000, 500)], zero + 3000);
  assert.deepEqual(list.map((r) => [r.path, r.depth, r.kind]), [['1', 0, 'phase'], ['1.1', 1, 'step'], ['2', 0, 'step']]);
  assert.deepEqual(list[1]?.segments.map((s) => [s.from - zero, s.to - zero, s.look]), [[600, 1000, 'work']]);
});

test('the attempts before the last are hatched from where they could begin', () => {
  const list = rows(run(), [record('1', 'step', 1000, 1000), record('2', 'step', 9000, 500, { attempt: 3 })], zero + 9000);
  assert.deepEqual(list[1]?.segments.map((s) => [s.from - zero, s.to - zero, s.look]), [[1000, 8500, 'backoff'], [8500, 9000, 'work']]);
});

const tries = (...list: [number, number, string?][]) => ({ checks: list.map(([from, to, error]) => ({ at: at(from), last: at(to), outcome: 'transient', error: error ?? '503' })) });
const drawn = (list: Row[], i = 0) => list[i]?.segments.map((s) => [s.from - zero, s.to - zero, s.look, s.failed ?? false]);

test('attempts are segments, with the pauses between them hatched', () => {
  const list = rows(run(), [record('1', 'step', 9000, 500, { attempt: 3, poll: tries([1000, 2000], [4000, 4500]) })], zero + 9000);
  assert.deepEqual(drawn(list), [[1000, 2000, 'work', true], [2000, 4000, 'backoff', false], [4000, 4500, 'work', true], [4500, 8500, 'backoff', false], [8500, 9000, 'work', false]]);
  assert.equal(list[0]?.segments[2]?.title, 'attempt 2: 503');
  assert.equal(list[0]?.failed, false);
});

test('a step that failed ends with its last attempt; one that was settled by hand with a mark', () => {
  const failed = rows(run(), [record('1', 'step', 5001, 0, { attempt: 2, error: { message: 'gave up' }, poll: tries([1000, 2000], [4000, 5000]) })], zero + 9000);
  assert.deepEqual(drawn(failed), [[1000, 2000, 'work', true], [2000, 4000, 'backoff', false], [4000, 5000, 'work', true]]);
  const settled = rows(run(), [record('1', 'step', 7000, 0, { attempt: 1, by: 'complete', poll: tries([1000, 2000]) })], zero + 9000);
  assert.deepEqual(drawn(settled), [[1000, 2000, 'work', true], [2000, 7000, 'backoff', false]]);
  assert.deepEqual(settled[0]?.marks.map((m) => [m.at - zero, m.look]), [[7000, 'note']]);
});

test('attempts that are not kept any more are one hatched stretch', () => {
  const list = rows(run(), [record('1', 'step', 1000, 1000), record('2', 'step', 9000, 500, { attempt: 13, poll: tries([6000, 7000]) })], zero + 9000);
  assert.deepEqual(drawn(list, 1), [[1000, 6000, 'backoff', true], [6000, 7000, 'work', true], [7000, 8500, 'backoff', false], [8500, 9000, 'work', false]]);
  assert.equal(list[1]?.segments[0]?.title, '11 attempts before, and the pauses between them');
  assert.equal(list[1]?.segments[1]?.title, 'attempt 12: 503');
});

test('a step that waits for its next attempt', () => {
  const wait = { path: '1', kind: 'retry', name: 'charge', since: at(0), last_error_at: at(5000), attempt: 2, last_error: { message: '503' }, poll: { log: tries([0, 2000], [4000, 5000]) } };
  const [row] = rows(run({ waiting: [{ ...wait, next_at: at(9000) }] }), [], zero + 6000);
  assert.equal(row?.kind, 'step');
  assert.deepEqual(drawn([row as Row]), [[0, 2000, 'work', true], [2000, 4000, 'backoff', false], [4000, 5000, 'work', true], [5000, 9000, 'backoff', false]]);
  assert.deepEqual(row?.marks.map((m) => [m.at - zero, m.look]), [[9000, 'next']]);
  const [again] = rows(run({ waiting: [wait] }), [], zero + 6000);
  assert.deepEqual(drawn([again as Row])?.at(-1), [5000, 6000, 'work', false], 'the next is under way');
});

test('a sleep lasts until its time, or the end of the run', () => {
  const sleep = record('1', 'sleep', 100, 0, { data: new Raw(`"${at(60_000)}"`) });
  assert.equal((rows(run(), [sleep], zero + 5000)[0]?.segments[0]?.to ?? 0) - zero, 5000);
  assert.equal((rows(run({ state: 'canceled', finished_at: at(2000) }), [sleep], zero + 5000)[0]?.segments[0]?.to ?? 0) - zero, 2000);
});

test('a poll shows its checks, and its failures as such', () => {
  const poll = { checks: [{ at: at(1000), last: at(3000), count: 3, outcome: 'pending' }, { at: at(4000), outcome: 'transient', error: '503' }] };
  const [row] = rows(run(), [record('1', 'poll', 5000, 4500, { poll })], zero + 6000);
  assert.deepEqual(row?.marks.map((m) => [m.at - zero, m.look]), [[1000, 'tick'], [3000, 'tick'], [4000, 'error']]);
  assert.equal(row?.segments[0]?.look, 'wait');
});

test('what is idle is cut short, work never', () => {
  const day = 86_400_000;
  const list = pieces(0, 2 * day + 3000, [1000, 2 * day + 1000], [{ from: 0, to: 1000 }], 1000);
  assert.deepEqual(list.map((p) => p.idle), [false, true, false]);
  assert.equal(place(list, 0), 0);
  assert.ok(place(list, 1000) > 250, 'the first second is there to be seen');
  assert.ok(Math.abs(place(list, 2 * day + 3000) - 1000) < 1e-6);
  const busy = pieces(0, 2 * day, [1000], [{ from: 0, to: 2 * day }], 1000);
  assert.deepEqual(busy.map((p) => p.idle), [false]);
});

test('a run that did a millisecond of work and waits is mostly waiting', () => {
  const list = pieces(0, 80_001, [1], [], 1000);
  assert.ok(place(list, 1) < 2);
});

test('places never go back, for any history', () => {
  let seed = 1;
  const random = (): number => (seed = (seed * 16807) % 2147483647) / 2147483647;
  for (let round = 0; round < 200; round++) {
    const end = 1 + random() * 10 ** (1 + Math.floor(random() * 9));
    const moments = Array.from({ length: Math.floor(random() * 30) }, () => random() * end);
    const busy = moments.filter(() => random() < 0.3).map((m) => ({ from: m, to: m + random() * (end - m) }));
    const list = pieces(0, end, moments, busy, 600);
    let last = -1e-6;
    for (const m of [0, ...moments.toSorted((a, b) => a - b), end]) {
      const x = place(list, m);
      assert.ok(x >= last - 1e-6 && x <= 600 + 1e-6, `round ${round}: ${x} after ${last}`);
      last = x;
    }
    for (const [i, t] of ticks(list).entries()) assert.ok(i === 0 || t.x - (ticks(list)[i - 1]?.x ?? 0) >= 72);
  }
});

test('ten thousand records are laid out in a moment', () => {
  const many = Array.from({ length: 10_000 }, (_, i) => record(String(i + 1), 'step', i * 10 + 5, 5));
  const began = performance.now();
  assert.equal(rows(run(), many, zero + 100_000).length, 10_000);
  assert.ok(performance.now() - began < 1000);
});
