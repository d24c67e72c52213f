import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { createBide, type Bide, type BideOptions, type Chunk, type StreamPiece } from '../src/index.js';
import { FakeClock, settle } from './clock.js';
import { FakeServer } from './server.js';

let clock: FakeClock;
let server: FakeServer;
let bide: Bide;

beforeEach(() => {
  clock = new FakeClock();
  server = new FakeServer(clock);
});

afterEach(async () => {
  bide.destroy();
  await settle();
  assert.equal(clock.timers.size, 0, 'timers are left after destroy');
  assert.equal(server.live().length, 0, 'streams are left after destroy');
});

const chunk = (seq: number, text: string, attempt = 1): Chunk => ({ seq, path: '1', name: 'llm', attempt, at: '2026-01-01T00:00:00Z', text });

/** Reads a stream as text, with a bar where an attempt begins. */
function read(options: BideOptions = {}, signal?: AbortSignal): { text: () => string; done: Promise<void>; seen: StreamPiece[] } {
  bide = createBide({ baseUrl: 'http://bide', fetch: server.fetch, clock, random: () => 0.5, ...options });
  const seen: StreamPiece[] = [];
  const done = (async () => {
    for await (const piece of bide.run('a').stream({ signal })) seen.push(piece);
  })();
  done.catch(() => {});
  return { seen, done, text: () => seen.map((p) => (p.type === 'chunk' ? p.text : p.type === 'segment' ? '|' : '.')).join('') };
}

describe('stream', () => {
  it('tells pieces as they come, until the end', async () => {
    server.set('a');
    const { text, done } = read();
    await clock.advance(10);
    const [stream] = server.live();
    stream?.send('segment', { path: '1', name: 'llm', attempt: 1 });
    stream?.send('chunk', chunk(3, 'Hel'), 3);
    stream?.send('chunk', chunk(4, 'lo'), 4);
    await settle();
    assert.equal(text(), '|Hello');
    stream?.send('end', { state: 'succeeded' }, 5);
    await done;
    assert.equal(text(), '|Hello.');
    assert.equal(server.live().length, 0);
  });

  it('goes on where a lost connection ended, each piece once', async () => {
    server.set('a');
    const { text, done } = read();
    await clock.advance(10);
    server.live()[0]?.send('chunk', chunk(3, 'Hel'), 3);
    await settle();
    server.live()[0]?.end();
    await clock.advance(3100);
    const [again] = server.live();
    assert.equal(again?.headers.get('Last-Event-ID'), '3');
    again?.send('chunk', chunk(3, 'Hel'), 3);
    again?.send('chunk', chunk(4, 'lo'), 4);
    again?.send('segment', { path: '1', name: 'llm', attempt: 2 });
    again?.send('chunk', chunk(5, 'Hi', 2), 5);
    again?.send('end', { state: 'failed' }, 6);
    await done;
    assert.equal(text(), '|Hello|Hi.');
  });

  it('reads pages where nothing streams', async () => {
    server.set('a', { next_poll_ms: 1000 });
    server.sse = 406;
    server.chunks.push(chunk(3, 'Hel'));
    const { text, done } = read();
    await clock.advance(100);
    assert.equal(text(), '|Hel');
    server.chunks.push(chunk(4, 'lo'));
    await clock.advance(1100);
    assert.equal(text(), '|Hello');
    server.chunks.push(chunk(5, '!', 2));
    server.end('a');
    await clock.advance(1100);
    await done;
    assert.equal(text(), '|Hello|!.');
  });

  it('ends with an error for a run that is not there', async () => {
    server.sse = 404;
    const { done } = read();
    await clock.advance(100);
    await assert.rejects(done, { code: 'not-found' });
  });

  it('is ended by its signal and by a break', async () => {
    server.set('a');
    const abort = new AbortController();
    const { done } = read({}, abort.signal);
    await clock.advance(10);
    abort.abort();
    await assert.rejects(done, { name: 'AbortError' });
    const broken = (async () => {
      for await (const piece of bide.run('a').stream()) if (piece.type === 'chunk') break;
    })();
    await clock.advance(10);
    server.live()[0]?.send('chunk', chunk(3, 'Hel'), 3);
    await broken;
    await settle();
    assert.equal(server.live().length, 0);
  });
});
