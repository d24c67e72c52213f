import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { createBide, type Bide, type BideOptions, type RunSnapshot } from '../src/index.js';
import { FakeClock, seeded, settle } from './clock.js';
import { FakeServer } from './server.js';

let clock: FakeClock;
let server: FakeServer;
let bide: Bide | undefined;

beforeEach(() => {
  clock = new FakeClock();
  server = new FakeServer(clock);
});

afterEach(async () => {
  bide?.destroy();
  await settle();
  bide = undefined;
  assert.equal(clock.timers.size, 0, 'timers are left after destroy');
  assert.equal(server.live().length, 0, 'streams are left after destroy');
});

function watch(id: string, options: BideOptions = {}): () => RunSnapshot {
  bide ??= createBide({ baseUrl: 'http://bide', fetch: server.fetch, clock, random: () => 0.5, ...options });
  const handle = bide.run(id);
  handle.subscribe(() => {});
  return () => handle.snapshot;
}

describe('SSE', () => {
  it('is dead after 35 s without an event or comment', async () => {
    server.set('a');
    const last = watch('a');
    await clock.advance(1000);
    for (let i = 0; i < 8; i++) {
      await clock.advance(15_000);
      server.live()[0]?.write(':\n\n');
      await settle();
    }
    assert.equal(server.streams.length, 1, 'comments keep it alive');
    await clock.advance(34_900);
    assert.equal(last().connection, 'sse');
    server.set('a', { state: 'waiting' }, false);
    await clock.advance(200);
    assert.equal(last().state, 'waiting', 'the change that was not told is read at once');
    await clock.advance(5000);
    assert.equal(server.streams.length, 2);
    assert.equal(last().connection, 'sse');
  });

  it('comes back after a lost connection, and nothing is lost between', async () => {
    server.set('a');
    const last = watch('a');
    await clock.advance(1000);
    server.live()[0]?.end();
    server.set('a', { state: 'waiting' });
    await clock.advance(20);
    assert.equal(last().state, 'waiting');
    assert.notEqual(last().connection, 'sse');
    await clock.advance(3100);
    assert.equal(last().connection, 'sse');
  });

  it('comes again when a server that stops says so', async () => {
    server.set('a');
    const last = watch('a');
    await clock.advance(1000);
    server.live()[0]?.write('event: closing\nretry: 8000\ndata: {}\n\n');
    server.live()[0]?.end();
    await clock.advance(7900);
    server.set('b');
    watch('b');
    await clock.advance(50);
    assert.equal(server.streams.length, 1, 'nor for another run');
    await clock.advance(200);
    assert.equal(server.streams.length, 2);
    assert.equal(last().connection, 'sse');
  });

  for (const status of [404, 406, 501]) {
    it(`gives way to long poll at ${status}, and is tried again after 60 s, 120 s … 10 min`, async () => {
      server.set('a');
      server.sse = status;
      const last = watch('a');
      const opens = (): number[] =>
        server.asked.filter((asked) => asked.path.includes('/events')).map((asked) => Math.round(asked.at / 1000));
      await clock.advance(100);
      assert.equal(last().connection, 'longpoll');
      await clock.advance(3_000_000);
      const [first = 0, ...later] = opens();
      assert.deepEqual(later.map((at) => at - first), [60, 180, 420, 900, 1500, 2100, 2700]);
      server.sse = 'ok';
      await clock.advance(600_000);
      assert.equal(last().connection, 'sse');
    });
  }

  it('gives way after two opens that fail', async () => {
    server.set('a');
    server.sse = 'network';
    const last = watch('a');
    await clock.advance(2000);
    assert.equal(last().connection, 'poll', 'polls meanwhile');
    await clock.advance(4000);
    assert.equal(last().connection, 'longpoll');
    server.set('a', { state: 'waiting' });
    await settle();
    assert.equal(last().state, 'waiting', 'held, so told at once');
  });

  it('gives way when what stands between keeps the stream back', async () => {
    server.set('a');
    server.sse = 'hang';
    const last = watch('a');
    await clock.advance(80_000);
    assert.equal(last().connection, 'longpoll');
  });

  it('never more than one stream and one read for a run', async () => {
    server.set('a');
    const random = seeded(7);
    const last = watch('a', { random });
    let version = 1;
    for (let i = 0; i < 400; i++) {
      const dice = random();
      server.sse = dice < 0.5 ? 'ok' : dice < 0.6 ? 404 : dice < 0.8 ? 'network' : 503;
      if (random() < 0.2) server.trouble.push('network', 503);
      server.holds = random() < 0.7;
      if (random() < 0.3) server.live()[0]?.end();
      if (random() < 0.3) server.set('a', { progress: { percent: i / 4, updated_at: '' } }, random() < 0.8);
      await clock.advance(random() * 20_000);
      assert.ok(server.live().length <= 1);
      const now = last().run?.version ?? 0;
      assert.ok(now >= version, 'went back');
      version = now;
    }
    server.sse = 'ok';
    server.trouble.length = 0;
    server.set('a', { progress: { percent: 100, updated_at: '' } });
    await clock.advance(50_000);
    assert.equal(last().run?.version, server.runs.get('a')?.version, 'the last change is known in the end');
    server.end('a');
    await clock.advance(50_000);
    assert.equal(last().state, 'succeeded');
    assert.equal(clock.timers.size, 0);
  });

  it('asks otherwise after runs that have no room on the stream', async () => {
    for (let i = 0; i < 101; i++) {
      server.set(`run${i}`);
      watch(`run${i}`);
    }
    await clock.advance(1000);
    assert.equal(server.live()[0]?.path.split('runs=').length, 101);
    server.end('run100');
    await clock.advance(5000);
    assert.equal(watch('run100')().state, 'succeeded');
  });
});

describe('EventSource', () => {
  class FakeEventSource extends EventTarget {
    static readonly CLOSED = 2;
    static readonly all: FakeEventSource[] = [];
    readyState = 0;
    onopen: (() => void) | null = null;
    onerror: (() => void) | null = null;
    readonly url: string;
    constructor(url: string) {
      super();
      this.url = url;
      FakeEventSource.all.push(this);
    }
    close(): void {
      this.readyState = 2;
    }
    tell(type: string, data: unknown): void {
      this.dispatchEvent(Object.assign(new Event(type), { data: JSON.stringify(data), lastEventId: '' }));
    }
  }

  beforeEach(() => {
    Object.assign(globalThis, { EventSource: FakeEventSource });
    FakeEventSource.all.length = 0;
    Object.assign(globalThis, { realFetch: globalThis.fetch, fetch: server.fetch });
  });
  afterEach(() => {
    const { realFetch } = globalThis as unknown as { realFetch: typeof fetch };
    Object.assign(globalThis, { fetch: realFetch });
    Reflect.deleteProperty(globalThis, 'EventSource');
  });

  it('is used where no headers are needed, doubted after 35 s of silence, and reopened when it kept a change back', async () => {
    server.set('a');
    const last = watch('a', { fetch: undefined as never });
    await clock.advance(100);
    const [source] = FakeEventSource.all;
    assert.equal(source?.url, 'http://bide/v1/runs/a/events');
    source?.tell('snapshot', server.runs.get('a'));
    await settle();
    assert.equal(last().connection, 'sse');
    const before = server.gets().length;
    await clock.advance(36_000);
    assert.equal(server.gets().length, before + 2, 'one for the switch, one in doubt');
    assert.equal(FakeEventSource.all.length, 1, 'nothing was kept back');
    server.set('a', { state: 'waiting' }, false);
    await clock.advance(40_000);
    assert.equal(last().state, 'waiting');
    assert.equal(FakeEventSource.all.length, 2);
    assert.equal(source?.readyState, 2);
  });

  it('falls back after two errors without an open', async () => {
    server.set('a');
    const last = watch('a', { fetch: undefined as never });
    await clock.advance(100);
    FakeEventSource.all[0]?.onerror?.();
    await clock.advance(4000);
    FakeEventSource.all[1]?.onerror?.();
    await clock.advance(100);
    assert.equal(last().connection, 'longpoll');
  });
});

describe('long poll', () => {
  it('is asked again at once while the server holds', async () => {
    server.set('a');
    const last = watch('a', { transport: 'longpoll' });
    await clock.advance(125_000);
    const at = server.gets().map((asked) => asked.at);
    const gaps = at.slice(1).map((t, i) => t - (at[i] ?? 0));
    assert.equal(gaps.length, 5);
    for (const gap of gaps.slice(1)) assert.ok(gap >= 30_000 && gap <= 30_250, `${gap} ms`);
    assert.equal(last().connection, 'longpoll');
    server.set('a', { state: 'waiting' });
    await settle();
    assert.equal(last().state, 'waiting');
  });

  it('is paced when the server does not hold, until it does', async () => {
    server.set('a', { next_poll_ms: 5000 });
    server.holds = false;
    const last = watch('a', { transport: 'longpoll' });
    await clock.advance(60_000);
    assert.ok(server.gets().length <= 14, `${server.gets().length} in 60 s`);
    assert.equal(last().connection, 'poll');
    server.holds = true;
    await clock.advance(40_000);
    assert.equal(last().connection, 'longpoll');
  });

  it('gives way to plain reads when it fails twice', async () => {
    server.set('a');
    server.trouble.push(504, 504);
    const last = watch('a', { transport: 'longpoll' });
    await clock.advance(20_000);
    assert.equal(last().connection, 'poll');
    assert.ok(!server.gets().at(-1)?.path.includes('wait'));
  });

  it('holds three connections at most', async () => {
    for (const id of 'abcdef') {
      server.set(id);
      watch(id, { transport: 'longpoll' });
    }
    await clock.advance(10_000);
    assert.equal(server.mostHeld, 3);
  });
});

describe('poll', () => {
  const gaps = (): number[] => {
    const at = server.gets().map((asked) => asked.at);
    return at.slice(1).map((t, i) => t - (at[i] ?? 0));
  };

  it('goes by the higher of next_poll_ms and Retry-After', async () => {
    server.set('a', { next_poll_ms: 7000 });
    watch('a', { transport: 'poll', random: () => 0 });
    await clock.advance(22_000);
    assert.deepEqual(gaps(), [7000, 7000, 7000]);
    server.retryAfter = '12';
    await clock.advance(45_000);
    assert.deepEqual(gaps().slice(4), [12_000, 12_000, 12_000]);
  });

  it('without a hint: 1 s, 2 s after 10 checks, 5 s after 30', async () => {
    server.set('a', { next_poll_ms: null });
    watch('a', { transport: 'poll' });
    await clock.advance(70_000);
    assert.deepEqual(gaps().slice(0, 9), Array(9).fill(1000));
    assert.deepEqual(gaps().slice(10, 29), Array(19).fill(2000));
    assert.deepEqual(gaps().slice(30, 33), Array(3).fill(5000));
  });

  it('backs off to 10 s on errors and returns at once', async () => {
    server.set('a', { next_poll_ms: null });
    server.trouble.push(500, 500, 500, 500, 500, 500);
    watch('a', { transport: 'poll' });
    await clock.advance(37_000);
    assert.deepEqual(gaps().slice(0, 7), [1000, 2000, 4000, 8000, 10_000, 10_000, 1000]);
  });

  it('honours what a refusal asks for, above all else', async () => {
    server.set('a', { next_poll_ms: 1000 });
    server.trouble.push({ status: 429, headers: { 'Retry-After': '30' } });
    watch('a', { transport: 'poll', random: () => 0.999 });
    await clock.advance(34_000);
    assert.ok((gaps()[0] ?? 0) >= 30_000);
  });

  it('is spread, never below the floor of 1 s, which can be lowered to 500 ms', async () => {
    server.set('a', { next_poll_ms: 100 });
    watch('a', { transport: 'poll', random: seeded(3) });
    await clock.advance(30_000);
    assert.ok(Math.min(...gaps()) >= 1000);
    assert.ok(new Set(gaps()).size > 5, 'spread');
    bide?.destroy();
    bide = undefined;
    server.asked.length = 0;
    watch('a', { transport: 'poll', random: seeded(3), minIntervalMs: 500 });
    await clock.advance(30_000);
    assert.ok(Math.min(...gaps()) >= 500 && Math.min(...gaps()) < 1000);
    assert.throws(() => createBide({ minIntervalMs: 100 }), /minIntervalMs must be at least 500/);
  });
});

it('can be imported where there is no page', async () => {
  assert.equal(typeof document, 'undefined');
  assert.equal(typeof (await import('../src/index.js')).createBide, 'function');
});
