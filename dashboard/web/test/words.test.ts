import assert from 'node:assert/strict';
import { test } from 'node:test';
import { whyNot, whyNotWait, workersFor } from '../src/run/action.ts';
import { Errand } from '../src/run/coalesce.ts';
import { listQuery, searched } from '../src/run/filter.ts';
import { merge, newIds } from '../src/run/merge.ts';
import { nowOf } from '../src/run/now.ts';
import { add, empty } from '../src/run/streamed.ts';
import type { Loop, Run, State } from '../src/shape.ts';
import { cli, curl, quote } from '../src/words/command.ts';
import { explainLoop, explainPoll } from '../src/words/interval.ts';

const now = Date.parse('2026-11-21T08:00:00Z');
const at = (ms: number): string => new Date(now + ms).toISOString();

function loop(more: Partial<Loop>): Loop {
  return {
    name: 'news', interval_ms: 30_000, effective_ms: 30_000, iterations: 9, failures: 0, multiplier: 1, next_at: null, last_at: null, last_success_at: null,
    in_flight_since: null, paused: false, stopped: false, outcomes: '', ...more,
  };
}

test('a loop’s interval is explained', () => {
  assert.equal(explainLoop(loop({})), '30 s');
  assert.equal(explainLoop(loop({ failures: 2, multiplier: 4, effective_ms: 120_000 })), '30 s × 4 = 2 min, because of 2 failures');
  assert.equal(explainLoop(loop({ failures: 1, multiplier: 2, effective_ms: 30_000 })), '15 s (from 30 s, as it changes often) × 2 = 30 s, because of 1 failure');
  assert.equal(explainLoop(loop({ effective_ms: 45_000 })), '45 s (from 30 s, as it changes seldom)');
  assert.equal(explainLoop(loop({ interval_ms: null, effective_ms: null, failures: 3 })), 'by its schedule, after 3 failures');
  assert.equal(explainLoop(loop({ breaker: 'open', failures: 5 })), 'the breaker is open: the next is its probe');
  assert.equal(explainLoop(loop({ paused: true })), 'paused');
});

test('a poll’s next check is explained', () => {
  const lines = explainPoll(
    { kind: 'poll', next_at: at(7000), until: at(60_000), poll: { base_ns: 8e9, floor_ns: 5e9, floor_source: 'Retry-After', errors: 2 } },
    now,
  );
  assert.match(lines[0] ?? '', /^The next check is at .*, in 7 s\.$/);
  assert.equal(lines[1], 'Its pause is 8 s, before jitter: the back-off after 2 errors in a row.');
  assert.equal(lines[2], "The server's Retry-After asks for 5 s at least.");
  assert.match(lines[3] ?? '', /^It gives up at /);
  assert.deepEqual(explainPoll({ kind: 'poll', next_at: at(0), poll: {} }, now), ['A check is due now.']);
  assert.match(explainPoll({ kind: 'poll', next_at: at(1), until: at(1), poll: { uncut: at(9000) } }, now).join(' '), /past the deadline: the last check is at the deadline itself/);
});

function run(state: State, more: Partial<Run> = {}): Run {
  return {
    id: 'r', workflow: 'w', queue: 'q', state, version: 1, progress: null, eta: null, attempt: 1, waiting: [], created_at: at(-9000), started_at: at(-8000),
    finished_at: null, deadline_at: null, expires_at: null, result: null, error: null, completed_by: null, ...more,
  };
}

test('what a run does now', () => {
  assert.equal(nowOf(run('queued'), now), 'waits for a worker of queue q since 9 s');
  assert.equal(nowOf(run('running', { progress: { percent: 1, message: 'encoding', updated_at: at(0) } }), now), 'encoding');
  assert.equal(nowOf(run('succeeded', { finished_at: at(-3000) }), now), 'done after 5 s');
  assert.equal(nowOf(run('failed', { finished_at: at(0), error: { code: 'run-failed', detail: 'no\nmore' } }), now), 'no');
  assert.equal(nowOf(run('timed_out', { finished_at: at(0), error: { code: 'run-failed', detail: 'the run is timed_out' } }), now), 'timed out after 8 s');
  const waiting = [{ kind: 'signal', name: 'a', since: at(-1000) }, { kind: 'sleep' }];
  assert.equal(nowOf(run('waiting', { waiting }), now), 'waits for signal a since 1 s · and 1 more');
});

test('each action says why it cannot be done', () => {
  const states: State[] = ['queued', 'running', 'waiting', 'paused', 'canceling', 'succeeded', 'failed', 'canceled', 'terminated', 'timed_out'];
  const can = (action: Parameters<typeof whyNot>[0]): State[] => states.filter((s) => whyNot(action, run(s)) === undefined);
  assert.deepEqual(can('cancel'), ['queued', 'running', 'waiting', 'paused']);
  assert.deepEqual(can('terminate'), ['queued', 'running', 'waiting', 'paused', 'canceling']);
  assert.deepEqual(can('pause'), ['queued', 'running', 'waiting']);
  assert.deepEqual(can('resume'), ['paused']);
  assert.deepEqual(can('retry'), ['failed', 'canceled', 'terminated', 'timed_out']);
  assert.deepEqual(can('signal'), ['queued', 'running', 'waiting', 'paused', 'canceling']);
  assert.equal(whyNotWait('check', { path: '1', kind: 'poll' }), undefined);
  assert.ok(whyNotWait('check', { path: '1', kind: 'signal' }));
  assert.ok(whyNotWait('extend', { path: '1', kind: 'signal' }));
  assert.equal(whyNotWait('extend', { path: '1', kind: 'signal', until: at(1) }), undefined);
  assert.ok(whyNotWait('complete', { kind: 'poll' }));
});

test('the workers that would take a run', () => {
  const worker = { id: 'a', queues: ['q'], workflows: ['w'], max: 1, held: 0, expires_at: at(0) };
  assert.equal(workersFor(run('queued'), [worker, { ...worker, queues: ['other'] }, { ...worker, workflows: [] }]).length, 1);
});

test('rows change where they stand', () => {
  const rows = [run('waiting', { id: 'b' }), run('waiting', { id: 'a' })];
  assert.equal(merge(rows, [run('waiting', { id: 'a' })]), rows, 'nothing new, nothing rendered');
  const next = merge(rows, [run('succeeded', { id: 'a', version: 2 }), run('queued', { id: 'c', created_at: at(0) })]);
  assert.deepEqual(next.map((r) => [r.id, r.state]), [['b', 'waiting'], ['a', 'succeeded']]);
  assert.equal(merge(next, [run('waiting', { id: 'a' })]), next, 'an older answer is dropped');
  assert.equal(newIds(next, [run('queued', { id: 'c', created_at: at(0) }), ...next]), 1);
  assert.equal(newIds(next, [run('queued', { id: 'old', created_at: at(-99_000) })]), 0);
});

test('the search tells labels from ids', () => {
  assert.deepEqual(searched('tenant=acme  run_01'), { prefix: 'run_01', labels: [['tenant', 'acme']] });
  const asked = listQuery({ states: ['failed', 'timed_out'], workflow: 'w', queue: '', search: 'a=b=c loop:', page: 't' });
  assert.equal(decodeURIComponent(asked), 'state=failed,timed_out&workflow=w&id_prefix=loop:&label=a:b=c&page_size=50&page_token=t');
});

test('a new attempt takes the place of what was streamed', () => {
  const chunk = { type: 'chunk', path: '1', name: 's', at: at(0) } as const;
  let s = add(empty, { ...chunk, seq: 1, attempt: 1, text: 'hel' });
  s = add(s, { ...chunk, seq: 2, attempt: 1, text: 'lo' });
  assert.equal(s.parts[0]?.text, 'hello');
  s = add(s, { type: 'segment', path: '1', name: 's', attempt: 2 });
  s = add(s, { ...chunk, seq: 3, attempt: 2, text: 'x' });
  assert.deepEqual(s.parts.map((p) => [p.attempt, p.text]), [[2, 'x']]);
  assert.equal(add(s, { type: 'end', state: 'succeeded' }).over, 'succeeded');
  for (let i = 0; i < 400; i++) s = add(s, { ...chunk, seq: 4 + i, attempt: 2, text: 'y'.repeat(1000) });
  assert.ok((s.parts[0]?.text.length ?? 0) <= 250_000 && (s.parts[0]?.cut ?? 0) > 100_000);
});

test('commands are safe to paste', () => {
  assert.equal(quote("it's; rm"), `'it'\\''s; rm'`);
  assert.equal(curl('http://h', '/v1/runs/a%20b?x=1', true), `curl -s -H "Authorization: Bearer $BIDE_TOKEN" 'http://h/v1/runs/a%20b?x=1'`);
  assert.equal(cli('http://127.0.0.1:7433', 'show', 'x y'), "bide show 'x y'");
  assert.equal(cli('http://h:1', 'list'), 'bide list --server http://h:1');
});

test('an errand that is asked for while it runs runs once more, and no oftener', async () => {
  let ran = 0;
  let finish = (): void => {};
  const errand = new Errand(() => {
    ran++;
    return new Promise((resolve) => (finish = resolve));
  });
  const next = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 5));
  errand.ask();
  for (let i = 0; i < 9; i++) errand.ask();
  assert.equal(ran, 1);
  finish();
  await next();
  assert.equal(ran, 2);
  finish();
  await next();
  assert.equal(ran, 2);
  errand.end();
  errand.ask();
  assert.equal(ran, 2);
});
