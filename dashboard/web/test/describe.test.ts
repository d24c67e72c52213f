import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { parseAnswer, Raw } from '../src/exact/parse.ts';
import type { Wait } from '../src/shape.ts';
import { describe } from '../src/words/describe.ts';
import { moment, span } from '../src/words/span.ts';

process.env['TZ'] = 'Etc/GMT-1';
const now = Date.parse('2026-11-21T08:00:00+01:00');
const [second, minute, hour, day] = [1000, 60_000, 3_600_000, 86_400_000];

test('a wait is said as Wait.Describe says it in Go, by the table of its test', () => {
  // from build/, where this runs
  const text = readFileSync(new URL('../../../testdata/describe.json', import.meta.url), 'utf8');
  const table = parseAnswer(text) as { now: string; cases: { wait: Wait; says: string }[] };
  assert.ok(table.cases.length > 20);
  for (const { wait, says } of table.cases) assert.equal(describe(wait, Date.parse(table.now)), says);
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
