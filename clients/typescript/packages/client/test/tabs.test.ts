import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { createBide, createPollScheduler, type Bide, type BideOptions, type PollScheduler, type PollSchedulerOptions } from '../src/index.js';
import { FakeClock, settle } from './clock.js';
import { FakeChannel, FakePage } from './page.js';
import { FakeServer } from './server.js';

let clock: FakeClock;
let server: FakeServer;
let page: FakePage;
const made: { destroy(): void }[] = [];

beforeEach(() => {
  clock = new FakeClock();
  server = new FakeServer(clock);
  page = new FakePage();
});

afterEach(async () => {
  for (const one of made.splice(0)) one.destroy();
  await settle();
  assert.equal(page.navigator.locks.held.size, 0, 'locks are left after destroy');
  assert.equal(FakeChannel.all.size, 0, 'channels are left after destroy');
  FakeChannel.mute = false;
  page.remove();
  assert.equal(clock.timers.size, 0, 'timers are left after destroy');
});

/** A client as another tab would have it. */
function tab(options: BideOptions = {}): Bide {
  const bide = createBide({ baseUrl: 'http://bide', fetch: server.fetch, clock, random: () => 0.5, scope: 'alice', ...options });
  made.push(bide);
  return bide;
}

function scheduler(options: PollSchedulerOptions = {}): PollScheduler {
  const s = createPollScheduler({ clock, random: () => 0.5, scope: 'alice', ...options });
  made.push(s);
  return s;
}

describe('a run in two tabs', () => {
  it('is asked for by one, and known to both', async () => {
    server.set('a');
    const one = tab().run('a');
    const two = tab().run('a');
    one.subscribe(() => {});
    await clock.advance(100);
    two.subscribe(() => {});
    await clock.advance(1000);
    assert.equal(server.streams.length, 1);
    assert.deepEqual([one.snapshot.connection, two.snapshot.connection], ['sse', 'follower']);
    server.set('a', { state: 'waiting' });
    await settle();
    assert.equal(two.snapshot.state, 'waiting');
    const gets = server.gets().length;
    await clock.advance(30_000);
    assert.equal(server.gets().length, gets, 'a leader that lives is not doubted');
    server.end('a');
    await settle();
    assert.deepEqual([one.snapshot.state, two.snapshot.state], ['succeeded', 'succeeded']);
  });

  it('that look at different runs have one stream, which tells of both', async () => {
    server.set('a');
    server.set('b');
    const first = tab();
    const a = first.run('a');
    a.subscribe(() => {});
    await clock.advance(100);
    const second = tab();
    const b = second.run('b');
    const stop = b.subscribe(() => {});
    await clock.advance(1000);
    assert.deepEqual(server.live().map((stream) => stream.path), ['/v1/events?runs=a&runs=b']);
    assert.deepEqual([a.snapshot.connection, b.snapshot.connection], ['sse', 'follower']);
    server.set('b', { state: 'waiting' });
    await settle();
    assert.equal(b.snapshot.state, 'waiting');
    stop();
    await clock.advance(1000);
    assert.equal(server.live().length, 1, 'what nobody wants any more costs no new stream');
    b.subscribe(() => {});
    await clock.advance(1000);
    first.destroy();
    await clock.advance(1000);
    assert.deepEqual(server.live().map((stream) => stream.path), ['/v1/runs/b/events']);
    assert.equal(b.snapshot.connection, 'sse');
    server.end('b');
    await settle();
    assert.equal(b.snapshot.state, 'succeeded');
  });

  it('is told at once to a tab that comes later, which asks for nothing', async () => {
    server.set('a');
    tab().run('a').subscribe(() => {});
    await clock.advance(1000);
    const gets = server.asked.length;
    const late = tab().run('a');
    late.subscribe(() => {});
    await clock.advance(30_000);
    assert.equal(late.snapshot.state, 'running');
    assert.equal(server.asked.length, gets);
  });

  it('is no longer asked for on behalf of a tab that is gone without a word', async () => {
    server.set('a');
    server.set('b');
    tab().run('a').subscribe(() => {});
    await clock.advance(100);
    const channel = new FakeChannel('bide:alice');
    channel.postMessage({ tab: 'crashed', want: ['b'] });
    channel.postMessage({ tab: 7, want: ['b'] });
    channel.postMessage({ tab: 'odd', want: 'b' });
    await clock.advance(1000);
    const pathOf = (): string[] => server.live().map((stream) => stream.path);
    assert.deepEqual(pathOf(), ['/v1/events?runs=a&runs=b']);
    server.live()[0]?.end();
    await clock.advance(58_000);
    assert.deepEqual(pathOf(), ['/v1/events?runs=a&runs=b']);
    await clock.advance(5000);
    server.live()[0]?.end();
    await clock.advance(5000);
    assert.deepEqual(pathOf(), ['/v1/runs/a/events']);
    channel.close();
  });

  it('is led by the tab that is shown; each that comes back says what it wants', async () => {
    for (const id of ['a', 'b']) server.set(id);
    const one = tab();
    one.run('a').subscribe(() => {});
    const two = tab();
    two.run('b').subscribe(() => {});
    await clock.advance(1000);
    page.hide();
    await clock.advance(1000);
    assert.equal(server.live().length, 0);
    assert.equal(page.navigator.locks.held.size, 0);
    page.show();
    await clock.advance(3000);
    assert.deepEqual(server.live().map((stream) => stream.path), ['/v1/events?runs=a&runs=b']);
    assert.deepEqual([one.run('a').snapshot.state, two.run('b').snapshot.state], ['running', 'running']);
  });

  it('is taken over when the leader goes', async () => {
    server.set('a');
    const first = tab();
    first.run('a').subscribe(() => {});
    const two = tab().run('a');
    two.subscribe(() => {});
    await clock.advance(1000);
    first.destroy();
    await clock.advance(1000);
    assert.equal(two.snapshot.connection, 'sse');
    assert.equal(server.live().length, 1);
  });

  it('is asked for once when the leader is silent for three intervals', async () => {
    server.set('a', { next_poll_ms: 4000 });
    tab({ transport: 'poll' }).run('a').subscribe(() => {});
    const two = tab().run('a');
    two.subscribe(() => {});
    await clock.advance(1000);
    FakeChannel.mute = true;
    server.set('a', { state: 'waiting' });
    await clock.advance(10_000);
    assert.equal(two.snapshot.state, 'running');
    const known = server.gets().filter((asked) => !asked.path.includes('wait')).length;
    await clock.advance(4000);
    assert.equal(two.snapshot.state, 'waiting');
    assert.ok(server.gets().length <= known + 3);
  });

  it('takes only a higher version from another tab, and only of its own user', async () => {
    server.set('a', { version: 5 });
    const one = tab().run('a');
    one.subscribe(() => {});
    const other = tab({ scope: 'bob' }).run('a');
    other.subscribe(() => {});
    await clock.advance(1000);
    assert.equal(server.streams.length, 2, 'bob asks for himself');
    const two = tab().run('a');
    two.subscribe(() => {});
    await clock.advance(1000);
    const channel = new FakeChannel('bide:alice');
    const run = server.runs.get('a');
    channel.postMessage({ id: 'a', version: 4, run: { ...run, version: 4, state: 'failed' } });
    channel.postMessage({ id: 'a', version: 9, run: 'nonsense' });
    channel.postMessage(null);
    await settle();
    assert.equal(two.snapshot.state, 'running');
    channel.postMessage({ id: 'a', version: 6, run: { ...run, version: 6, state: 'waiting' } });
    await settle();
    assert.equal(two.snapshot.state, 'waiting');
    assert.equal(other.snapshot.state, 'running');
    channel.close();
  });

  it('is read again by a tab that hears that the leader knows more', async () => {
    server.set('a');
    tab().run('a').subscribe(() => {});
    const two = tab().run('a');
    two.subscribe(() => {});
    await clock.advance(1000);
    FakeChannel.mute = true;
    server.set('a', { state: 'waiting' });
    await settle();
    FakeChannel.mute = false;
    assert.equal(two.snapshot.state, 'running');
    await clock.advance(2000);
    assert.equal(two.snapshot.state, 'waiting');
    assert.equal(two.snapshot.connection, 'follower');
  });

  it('is forgotten in all tabs on logout', async () => {
    server.set('a');
    const one = tab();
    one.run('a').subscribe(() => {});
    const two = tab().run('a');
    two.subscribe(() => {});
    await clock.advance(100);
    one.logout();
    await settle();
    assert.equal(two.snapshot.error?.name, 'ClosedError');
    assert.equal(clock.timers.size, 0);
  });

  it('without Web Locks is asked for by each, spread by 0.3', async () => {
    page.remove();
    page = new FakePage(false);
    Object.assign(page.navigator, { locks: undefined });
    server.set('a', { next_poll_ms: 10_000 });
    tab({ transport: 'poll', random: () => 0.999 }).run('a').subscribe(() => {});
    tab({ transport: 'poll', random: () => 0.999 }).run('a').subscribe(() => {});
    await clock.advance(12_900);
    assert.equal(server.gets().length, 2);
    await clock.advance(200);
    assert.equal(server.gets().length, 4);
    Object.assign(page.navigator, { locks: { held: new Map() } });
  });

  it('in a hidden page holds no lock', async () => {
    server.set('a');
    tab().run('a').subscribe(() => {});
    await clock.advance(100);
    assert.equal(page.navigator.locks.held.size, 1);
    page.hide();
    await settle();
    assert.equal(page.navigator.locks.held.size, 0);
  });
});

describe('a loop in two tabs', () => {
  it('that can receive runs in one, and both get what it shares', async () => {
    let turns = 0;
    const got: string[] = [];
    const open = (name: string, s: PollScheduler) =>
      s.register<number>('news', ({ share }) => share(++turns), { intervalMs: 10_000, receive: (n) => got.push(name + n) });
    const one = open('one', scheduler());
    await clock.advance(100);
    const second = scheduler();
    const two = open('two', second);
    await clock.advance(30_000);
    assert.equal(turns, 3);
    assert.deepEqual(got, ['one1', 'two1', 'one2', 'two2', 'one3', 'two3']);
    assert.deepEqual([one.backoffState().leading, two.backoffState().leading], [true, false]);
    made[0]?.destroy();
    await clock.advance(10_000);
    assert.equal(two.backoffState().leading, true);
    assert.deepEqual(got.slice(6), ['two4']);
  });

  it('is stood in for, once, when the leader is silent for three intervals', async () => {
    const ran: string[] = [];
    const open = (name: string) =>
      scheduler().register('news', ({ reason }) => void ran.push(name + ' ' + reason), { intervalMs: 10_000, receive: () => {} });
    open('one');
    await clock.advance(100);
    open('two');
    FakeChannel.mute = true;
    await clock.advance(35_000);
    assert.deepEqual(ran.filter((line) => line.startsWith('two')), ['two silent']);
  });

  it('is never run twice at once by a tab that stands in', async () => {
    scheduler().register('news', () => undefined, { intervalMs: 10_000, receive: () => {} });
    await clock.advance(100);
    let running = 0;
    let most = 0;
    scheduler().register('news', async () => {
      most = Math.max(most, ++running);
      await clock.sleep(80_000);
      running--;
    }, { intervalMs: 10_000, receive: () => {} });
    FakeChannel.mute = true;
    await clock.advance(100_000);
    assert.equal(most, 1);
    await clock.advance(100_000);
  });

  it('gives a tab that comes later what was shared last', async () => {
    let turns = 0;
    const open = (got: number[]) =>
      scheduler().register<number>('news', ({ share }) => share(++turns), { intervalMs: 10_000, receive: (n) => got.push(n) });
    open([]);
    await clock.advance(15_000);
    const got: number[] = [];
    open(got);
    await clock.advance(10);
    assert.deepEqual([turns, got], [1, [1]]);
    await clock.advance(5000);
    assert.deepEqual([turns, got], [2, [1, 2]]);
    const channel = new FakeChannel('bide:alice');
    channel.postMessage({ loop: 'news', version: clock.now() - 60_000, at: clock.now(), data: { value: 99 } });
    await settle();
    assert.deepEqual(got, [1, 2], 'what is older is not taken');
    channel.close();
  });

  it('that cannot receive runs in each', async () => {
    let turns = 0;
    for (let i = 0; i < 2; i++) scheduler().register('news', () => void turns++, { intervalMs: 10_000 });
    await clock.advance(10_000);
    assert.equal(turns, 2);
  });
});

describe('loops that tabs share', () => {
  it('come back in order and apart, as those of one tab do', async () => {
    const s = scheduler();
    const order: [string, number][] = [];
    for (const [name, intervalMs] of [['weather', 40_000], ['news', 30_000], ['stocks', 20_000], ['notifications', 10_000]] as const) {
      s.register(name, () => { order.push([name, clock.now()]); }, { intervalMs, receive: () => {} });
    }
    await settle();
    page.hide();
    await clock.advance(300_000);
    order.length = 0;
    const shown = clock.now();
    page.show();
    await clock.advance(2000);
    assert.deepEqual(order.map(([name, at]) => [name, at - shown]), [['notifications', 300], ['stocks', 450], ['news', 600], ['weather', 750]]);
  });
});
