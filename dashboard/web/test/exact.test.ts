import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkJSON, parseAnswer, Raw } from '../src/exact/parse.ts';
import { indented, longString, oneLine, Printer } from '../src/exact/print.ts';
import { rawRecord } from '../src/run/rawrecord.ts';

test('what is the user’s stays text, digit by digit', () => {
  const text = `{"id":"x","version":7,"input": {"n":9007199254740993, "f":1.10} ,"result":null,
    "values":{"total":12345678901234567890,"input":[1.0]},"labels":{"input":"a"},
    "waiting":[{"kind":"poll","last_value":1e400,"poll":{"percent":62.4,"log":{"values":[{"value":0.1000000000000000055,"percent":1}]}}}]}`;
  const run = parseAnswer(text) as Record<string, unknown>;
  assert.deepEqual(run['input'], new Raw('{"n":9007199254740993, "f":1.10}'));
  assert.deepEqual(run['result'], new Raw('null'));
  assert.deepEqual(run['values'], { total: new Raw('12345678901234567890'), input: new Raw('[1.0]') });
  assert.deepEqual(run['labels'], { input: 'a' });
  const [wait] = run['waiting'] as [{ last_value: Raw; poll: { percent: number; log: { values: { value: Raw; percent: number }[] } } }];
  assert.equal(wait.last_value.text, '1e400');
  assert.equal(wait.poll.percent, 62.4);
  assert.equal(wait.poll.log.values[0]?.value.text, '0.1000000000000000055');
  assert.equal(wait.poll.log.values[0]?.percent, 1);
});

test('all else is read as JSON.parse does', () => {
  for (const text of ['{"a":[1,-2.5e3,true,false,null,"\\u00e4\\n\\"{"],"b":{},"c":[]," d ":{"e":[[]]}}', '[]', '"x"', ' 1 ']) {
    assert.deepEqual(parseAnswer(text), JSON.parse(text));
  }
  const own = parseAnswer('{"__proto__":{"a":1}}') as object;
  assert.deepEqual(Object.keys(own), ['__proto__']);
});

test('what is no JSON is refused where it is wrong', () => {
  const wrong: [string, number][] = [['{"a":1,}', 7], ['[1 2]', 3], ['{a:1}', 1], ['"abc', 0], ['nul', 0], ['01', 1], ['{"a":1} x', 8], ['', 0], ['-', 0]];
  for (const [text, at] of wrong) {
    assert.throws(() => parseAnswer(text), SyntaxError, text);
    const checked = checkJSON(text);
    assert.ok(!checked.ok, text);
    assert.equal(checked.at, at, `${text}: ${checked.problem}`);
  }
  assert.deepEqual(checkJSON(' {"a":[1,2]} '), { ok: true });
});

test('printed JSON is the same JSON, with its numbers and strings untouched', () => {
  const text = '{"n":9007199254740993,"f":1.10,"e":{},"l":[],"s":"a\\u00e4\\"}","o":{"x":[1,[2,{"y":null}]]}}';
  const printed = indented(text);
  assert.equal(printed.replace(/\s+/g, ''), text);
  assert.equal(printed.split('\n')[1], '  "n": 9007199254740993,');
  assert.equal(indented('3'), '3');
  assert.equal(indented(''), '');
});

test('of a large value only the lines that are asked for are made', () => {
  const text = `[${'{"k":"vvvvvvvvvvvvvvvvvvvv"},'.repeat(80_000)}1]`;
  assert.ok(text.length > 2 << 20);
  const printer = new Printer(text);
  const cost = (fn: () => void): number => {
    const began = process.cpuUsage(); // of this process: the machine may be busy
    fn();
    return process.cpuUsage(began).user;
  };
  const few = cost(() => assert.equal(printer.lines(100).length, 100));
  assert.equal(printer.done, false);
  const all = cost(() => printer.lines(Infinity));
  assert.ok(few < all / 4, `a hundred lines cost ${few} µs, all the others ${all}`);
  assert.ok(longString < text.length);
});

test('on one line it is compact and cut', () => {
  assert.equal(oneLine('{ "state": "a b" }', 80), '{"state":"a b"}');
  assert.equal(oneLine('"' + 'x'.repeat(200) + '"', 10), '"xxxxxxxxx…');
});

test('a record is raw again as it came', () => {
  const text = '{"seq":7,"path":"1","kind":"step","data":9007199254740993,"error":{"message":"a","data":[1.0]}}';
  assert.equal(rawRecord(parseAnswer(text)), text);
});
