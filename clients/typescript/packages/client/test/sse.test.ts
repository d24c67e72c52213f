import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parseSse, type SseEvent } from '../src/sse.js';
import { seeded } from './clock.js';

function parse(pieces: string[]): { events: SseEvent[]; comments: number; retries: number[] } {
  const all = { events: [] as SseEvent[], comments: 0, retries: [] as number[] };
  const feed = parseSse({ event: (e) => all.events.push(e), comment: () => all.comments++, retry: (ms) => all.retries.push(ms) });
  for (const piece of pieces) feed(piece);
  return all;
}

const text =
  '\uFEFF: hello\r\nretry: 2500\r\n\r\nid: 7\nevent: state\ndata: {"a":1}\n\ndata:x\rdata\rdata: y\r\r' +
  'id\nevent: only\n\nretry: soon\nid: 8\0\nid: 9\ndata: äöü €\n\n:\n\ndata: cut';

describe('parseSse', () => {
  const whole = parse([text]);

  it('reads what the standard says', () => {
    assert.deepEqual(whole.events, [
      { type: 'state', data: '{"a":1}', id: '7' },
      { type: 'message', data: 'x\n\ny', id: '7' },
      { type: 'message', data: 'äöü €', id: '9' },
    ]);
    assert.equal(whole.comments, 2);
    assert.deepEqual(whole.retries, [2500]);
  });

  it('reads the same however it is cut', () => {
    const random = seeded(1);
    for (let i = 0; i < 2000; i++) {
      const pieces: string[] = [];
      for (let from = 0; from < text.length; ) {
        const size = Math.floor(random() * 6);
        pieces.push(text.slice(from, from + size));
        from += size;
      }
      assert.deepEqual(parse(pieces), whole);
    }
  });
});
