import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { createBide, type Bide, type BideOptions } from '../src/index.js';
import { FakeClock, settle } from './clock.js';
import { FakeChannel, FakePage } from './page.js';
import { FakeServer } from './server.js';

let clock: FakeClock;
let server: FakeServer;
let page: FakePage;
const made: Bide[] = [];

beforeEach(() => {
  clock = new FakeClock();
  server = new FakeServer(clock);
  page = new FakePage();
});

afterEach(async () => {
  for (const bide of made.splice(0)) bide.destroy();
  await settle();
  assert.equal(page.navigator.locks.held.size, 0, 'locks are left after destroy');
  assert.equal(FakeChannel.all.size, 0, 'channels are left after destroy');
  page.remove();
  assert.equal(clock.timers.size, 0, 'timers are left after destroy');
  assert.equal(server.live().length, 0, 'streams are left after destroy');
});

/** What a tab is told of changes. */
function tab(options: BideOptions = {}): { told: boolean[]; stop: () => void; bide: Bide } {
  const bide = createBide({ baseUrl: 'http://bide', fetch: server.fetch, clock, random: () => 0.5, scope: 'alice', ...options });
  made.push(bide);
  const told: boolean[] = [];
  return { told, bide, stop: bide.changes((t) => told.push(t)) };
}

describe('changes', () => {
  it('are told when the stream is up, and whenever it says so', async () => {
    const { told, stop } = tab();
    await clock.advance(1000);
    assert.deepEqual(told, [true], 'there may have been one before');
    server.set('a');
    await settle();
    assert.deepEqual(told, [true, true]);
    stop();
    await clock.advance(1000);
    assert.equal(server.live().length, 0);
    server.set('a', { state: 'waiting' });
    await settle();
    assert.equal(told.length, 2);
  });

  it('are told to all tabs over one stream', async () => {
    const one = tab();
    await clock.advance(100);
    const two = tab();
    await clock.advance(1000);
    assert.equal(server.streams.length, 1);
    assert.equal(two.told.at(-1), true);
    const before = two.told.length;
    server.set('a');
    await settle();
    assert.equal(two.told.length, before + 1);
    one.bide.destroy();
    await clock.advance(1000);
    assert.equal(server.live().length, 1);
    assert.ok(two.told.length > before + 1, 'what it missed in between');
  });

  it('and the runs of all tabs are one stream, and each new one counts as a change', async () => {
    server.set('a');
    server.set('b');
    const one = tab();
    await clock.advance(1000);
    assert.deepEqual(server.live().map((stream) => stream.path), ['/v1/events']);
    const two = tab();
    const a = two.bide.run('a');
    a.subscribe(() => {});
    await clock.advance(1000);
    assert.deepEqual(server.live().map((stream) => stream.path), ['/v1/events?runs=a&changes=true']);
    assert.deepEqual([one.told, two.told, a.snapshot.connection], [[true, true], [true, true], 'follower']);
    const stop = one.bide.run('b').subscribe(() => {});
    await clock.advance(1000);
    assert.deepEqual(server.live().map((stream) => stream.path), ['/v1/events?runs=a&runs=b&changes=true']);
    assert.deepEqual([one.told, two.told], [[true, true, true], [true, true, true]]);
    server.set('a', { state: 'waiting' });
    await settle();
    assert.deepEqual([a.snapshot.state, one.told.length, two.told.length], ['waiting', 4, 4]);
    server.end('a');
    stop();
    await clock.advance(100);
    server.set('c');
    await settle();
    assert.equal(two.told.length, 6, 'when no run is watched any more it goes on');
    one.stop();
    two.stop();
    await clock.advance(1000);
    assert.equal(server.live().length, 0);
  });

  it('come beside a run with any id', async () => {
    for (const id of ['b,c', 'b', 'c']) server.set(id);
    const { told, bide } = tab();
    const run = bide.run('b,c');
    run.subscribe(() => {});
    await clock.advance(1000);
    assert.deepEqual(server.live().map((stream) => stream.path), ['/v1/events?runs=b%2Cc&runs=b%2Cc&changes=true']);
    assert.deepEqual([run.snapshot.connection, told], ['sse', [true]]);
  });

  it('cost no stream when who listens is another', async () => {
    const { stop, bide } = tab();
    const two = tab();
    await clock.advance(1000);
    stop();
    const told: boolean[] = [];
    bide.changes((t) => told.push(t));
    two.stop();
    two.bide.changes(() => {});
    await clock.advance(1000);
    assert.equal(server.streams.length, 1);
    assert.deepEqual(told, [true]);
  });

  it('go with the lead, and are not called lost for that', async () => {
    server.set('a');
    const one = tab();
    one.bide.run('a').subscribe(() => {});
    const two = tab();
    await clock.advance(1000);
    const before = two.told.length;
    one.bide.destroy();
    await clock.advance(1000);
    assert.deepEqual(server.live().map((stream) => stream.path), ['/v1/events']);
    assert.deepEqual(two.told.slice(before), [true]);
    server.sse = 'network';
    server.live()[0]?.end();
    await settle();
    const three = tab();
    await clock.advance(10_000);
    assert.deepEqual([two.told.at(-1), three.told], [false, []]);
    two.bide.destroy();
    server.sse = 'ok';
    await clock.advance(1000);
    assert.deepEqual(three.told, [true]);
  });

  it('are called lost when the next to lead cannot have the stream', async () => {
    const one = tab();
    const two = tab();
    await clock.advance(1000);
    assert.equal(two.told.at(-1), true);
    server.sse = 'network';
    one.bide.destroy();
    await clock.advance(1000);
    assert.equal(two.told.at(-1), false);
  });

  it('that are not told any more are said to be so, until they are again', async () => {
    const { told } = tab();
    await clock.advance(1000);
    server.sse = 'network';
    server.live()[0]?.end();
    await settle();
    assert.deepEqual(told, [true, false]);
    await clock.advance(10_000);
    server.sse = 'ok';
    await clock.advance(50_000);
    assert.deepEqual(told, [true, false], 'two opens failed: it rests for 60 s');
    await clock.advance(15_000);
    assert.deepEqual(told, [true, false, true]);
  });

  it('are not listened to by a page that is hidden, and it looks when it is back', async () => {
    const { told } = tab();
    await clock.advance(1000);
    page.hide();
    await settle();
    assert.equal(server.live().length, 0);
    await clock.advance(600_000);
    assert.deepEqual(told, [true]);
    page.show();
    await clock.advance(1000);
    assert.deepEqual(told, [true, true]);
  });

  it('are not to be had by polling', async () => {
    const { told } = tab({ transport: 'poll' });
    await clock.advance(10_000);
    assert.deepEqual(told, []);
    assert.equal(server.asked.length, 0);
    assert.equal(page.navigator.locks.held.size, 0);
  });

  it('come to each who asks', async () => {
    const { told, bide } = tab();
    await clock.advance(1000);
    const more: boolean[] = [];
    bide.changes((t) => more.push(t));
    await settle();
    assert.deepEqual(more, [true], 'how it stands');
    server.set('a');
    await settle();
    assert.deepEqual([told.length, more.length], [2, 2]);
    bide.destroy();
    assert.throws(() => bide.changes(() => {}), { name: 'ClosedError' });
  });
});
