import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Raw } from '../src/exact/parse.ts';
import type { Wait } from '../src/shape.ts';
import { describe } from '../src/words/describe.ts';
import { moment, span } from '../src/words/span.ts';

process.env['TZ'] = 'Europe/Berlin';
const now = Date.parse('2026-11-21T08:00:00+01:00');
const [second, minute, hour, day] = [1000, 60_000, 3_600_000, 86_400_000];
const at = (ms: number): string => new Date(now + ms).toISOString();
const failure = { message: '503 Service\nUnavailable' };
const percent = { percent: 62.4, percent_at: at(0) };

// The table of TestDescribe, in Go: the page and the CLI say the same.
const table: [Wait, string][] = [
  [{ kind: 'sleep', until: at(7 * second) }, 'asleep until 08:00:07'],
  [{ kind: 'sleep', until: at(hour) }, 'asleep until 09:00'],
  [{ kind: 'sleep', until: at(25 * hour) }, 'asleep until Sunday 09:00'],
  [{ kind: 'sleep', until: at(40 * day) }, 'asleep until 2026-12-31 08:00'],
  [{ kind: 'poll', name: 'job', next_at: at(0) }, 'poll job, checks now'],
  [
    { kind: 'poll', name: 'job', attempt: 14, next_at: at(7 * second), until: at(10 * minute), last_value: new Raw('{ "state": "running" }'), last_error: failure, poll: percent },
    'poll job, attempt 14, next in 7 s, gives up in 10 min, last: {"state":"running"} 62 %',
  ],
  [{ kind: 'poll', name: 'job', attempt: 2, next_at: at(minute), streak: 1, last_error: failure }, 'poll job, attempt 2, next in 1 min, last error: 503 Service Unavailable'],
  [{ kind: 'poll', name: 'job', attempt: 2, next_at: at(minute), poll: percent }, 'poll job, attempt 2, next in 1 min, last: 62 %'],
  [{ kind: 'signal', name: 'approval', since: at(-48 * hour), until: at(22 * hour) }, 'waits for signal approval since 2 d, gives up in 22 h'],
  [{ kind: 'webhook', name: 'done', since: at(-90 * second) }, 'waits for webhook done since 1 min 30 s'],
  [{ kind: 'child', name: 'run_7', since: at(-300) }, 'waits for child run_7 since 300 ms'],
  [{ kind: 'retry', name: 'charge', attempt: 2, next_at: at(12 * second), last_error: failure }, 'step charge, try 3 in 12 s, last error: 503 Service Unavailable'],
  [{ kind: 'retry', name: 'charge', attempt: 2, next_at: at(-second) }, 'step charge, try 3 now'],
  [{ kind: 'retry', name: 'charge' }, 'step charge, try 1 is under way'],
  [{ kind: 'queue', name: 'gpu', since: at(-26 * hour) }, 'waits for a worker of queue gpu since 1 d 2 h'],
  [{ kind: 'paused' }, 'paused'],
  [
    { kind: 'stuck', name: 'order', since: at(-20 * minute), next_at: at(5 * minute), last_error: failure },
    'stuck in the code of order since 20 min, tried again in 5 min, last error: 503 Service Unavailable',
  ],
  [{ kind: 'loop', name: 'news', next_at: at(20 * second), last_error: failure, loop: {} }, 'loop news, next in 20 s'],
  [
    { kind: 'loop', name: 'news', next_at: at(4 * minute), last_error: failure, loop: { effective_ns: 4 * minute * 1e6, failures: 3 } },
    'loop news, next in 4 min, interval 4 min after 3 failures, last error: 503 Service Unavailable',
  ],
  [{ kind: 'loop', name: 'news', loop: { in_flight_since: at(-2 * second) } }, 'loop news, at work since 2 s'],
  [{ kind: 'join', name: 'left' }, 'waits for join left'],
];

test('a wait is said as the CLI says it', () => {
  for (const [wait, want] of table) assert.equal(describe(wait, now), want);
});

test('whatever a service has said, the sentence is one short line', () => {
  const long = describe({ kind: 'poll', name: 'job', last_value: new Raw(`"${'ä '.repeat(5000)}"`) }, now);
  assert.ok(long.length < 200 && long.endsWith('…'), long);
  const failing = describe({ kind: 'poll', name: 'job', streak: 1, last_error: { message: 'line\n'.repeat(5000) } }, now);
  assert.ok(failing.length < 300 && !failing.includes('\n'), failing);
});

test('spans and moments', () => {
  assert.equal(span(-5), '0 ms');
  assert.equal(span(59_999), '59 s');
  assert.equal(span(11 * minute + 30 * second), '11 min');
  assert.equal(span(9 * day + 5 * hour), '9 d 5 h');
  assert.equal(moment(now - 11 * minute, now), '07:49');
  assert.equal(moment(now - 2 * day, now), '2026-11-19 08:00');
});
