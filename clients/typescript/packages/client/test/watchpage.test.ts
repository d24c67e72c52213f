import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { createBide, type Bide, type BideOptions, type RunSnapshot } from '../src/index.js';
import { FakeClock, settle } from './clock.js';
import { FakePage } from './page.js';
import { FakeServer } from './server.js';

let clock: FakeClock;
let server: FakeServer;
let page: FakePage | undefined;
let bide: Bide | undefined;

beforeEach(() => {
  clock = new FakeClock();
  server = new FakeServer(clock);
});

afterEach(async () => {
  bide?.destroy();
  await settle();
  page?.remove();
  page = bide = undefined;
  assert.equal(clock.timers.size, 0, 'timers are left after destroy');
  assert.equal(server.live().length, 0, 'streams are left after destroy');
});

function watch(id: string, options: BideOptions = {}): () => RunSnapshot {
  bide ??= createBide({ baseUrl: 'http://bide', fetch: server.fetch, clock, random: () => 0.5, ...options });
  const handle = bide.run(id);
  handle.subscribe(() => {});
  return () => handle.snapshot;
}

describe('a page', () => {
  it('rests at once when hidden, and returns after 300 ms, 150 ms apart', async () => {
    page = new FakePage();
    for (const id of ['a', 'b', 'c', 'd']) {
      server.set(id, { next_poll_ms: id === 'd' ? 60_000 : 5000 });
      watch(id, { transport: 'poll', leader: false });
    }
    await clock.advance(1000);
    page.hide();
    const before = server.gets().length;
    await clock.advance(30_000);
    assert.equal(server.gets().length, before);
    page.show();
    await clock.advance(200);
    page.hide();
    await clock.advance(1000);
    assert.equal(server.gets().length, before, 'shown too briefly');
    page.show();
    const shown = clock.now();
    await clock.advance(800);
    assert.deepEqual(server.gets().slice(before).map((asked) => [asked.path, asked.at - shown]),
      [['/v1/runs/a', 300], ['/v1/runs/b', 450], ['/v1/runs/c', 600]]);
    await clock.advance(26_000);
    assert.ok(!server.gets().slice(before).some((asked) => asked.path === '/v1/runs/d'));
    await clock.advance(10_000);
    assert.ok(server.gets().slice(before).some((asked) => asked.path === '/v1/runs/d'), 'its time went on');
  });

  it('drops reads in flight when hidden, and that is no failure', async () => {
    page = new FakePage();
    server.set('a', { next_poll_ms: null });
    server.trouble.push('hang');
    watch('a', { transport: 'poll', leader: false });
    await clock.advance(100);
    page.hide();
    await settle();
    assert.equal(server.gets()[0]?.aborted, true);
    assert.equal(clock.timers.size, 0, 'a hidden page has no timers');
    page.show();
    await clock.advance(1400);
    assert.equal(server.gets().length, 3, 'the interval did not back off');
  });

  it('closes the stream when hidden or frozen, and a start goes on', async () => {
    page = new FakePage();
    server.set('a');
    const last = watch('a', { leader: false });
    await clock.advance(1000);
    assert.equal(server.live().length, 1);
    server.trouble.push('network');
    const started = bide?.start('render');
    page.document.dispatchEvent(new Event('freeze'));
    assert.equal(server.live().length, 0);
    assert.equal(last().connection, 'paused');
    await clock.advance(5000);
    assert.ok(await started);
    page.document.dispatchEvent(new Event('resume'));
    await clock.advance(1000);
    assert.equal(last().connection, 'sse');
    page.window.dispatchEvent(new Event('pagehide'));
    assert.equal(server.live().length, 0);
    page.window.dispatchEvent(new Event('pageshow'));
    await clock.advance(1000);
    assert.equal(server.live().length, 1);
  });

  it('rests while offline and returns within 2 s', async () => {
    page = new FakePage();
    server.set('a');
    const last = watch('a', { transport: 'poll', leader: false, random: () => 0.75 });
    await clock.advance(1000);
    page.offline();
    await clock.advance(60_000);
    assert.equal(last().connection, 'offline');
    const before = server.gets().length;
    page.online();
    await clock.advance(1400);
    assert.equal(server.gets().length, before);
    await clock.advance(200);
    assert.equal(server.gets().length, before + 1);
  });

  it('runs by the wall clock after the machine slept', async () => {
    server.set('a', { next_poll_ms: 60_000 });
    watch('a', { transport: 'poll' });
    await clock.advance(1000);
    clock.skew += 3_600_000;
    await clock.advance(30_000);
    assert.equal(server.gets().length, 2);
    clock.skew -= 7_200_000;
    await clock.advance(66_000);
    assert.equal(server.gets().length, 3, 'a clock that is set back delays nothing');
  });
});
