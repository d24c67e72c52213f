import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { createBide, ProblemError, ResultTimeoutError, RunFailedError, type Bide, type BideOptions, type RunSnapshot } from '../src/index.js';
import { FakeClock, settle } from './clock.js';
import { FakeServer } from './server.js';

let clock: FakeClock;
let server: FakeServer;
const made: Bide[] = [];

beforeEach(() => {
  clock = new FakeClock();
  server = new FakeServer(clock);
});

afterEach(async () => {
  for (const bide of made.splice(0)) bide.destroy();
  await settle();
  assert.equal(clock.timers.size, 0, 'timers are left after destroy');
  assert.equal(server.live().length, 0, 'streams are left after destroy');
});

function client(options: BideOptions = {}): Bide {
  const bide = createBide({ baseUrl: 'http://bide', fetch: server.fetch, clock, random: () => 0.5, ...options });
  made.push(bide);
  return bide;
}

/** What a subscriber was told, as state and connection. */
function record(bide: Bide, id: string): { seen: string[]; stop: () => void; last: () => RunSnapshot } {
  const handle = bide.run(id);
  const seen: string[] = [];
  const stop = handle.subscribe((s) => seen.push(`${s.state ?? '-'} ${s.connection}`));
  return { seen, stop, last: () => handle.snapshot };
}

describe('start', () => {
  it('makes one key and sends it again with each attempt', async () => {
    server.trouble.push('network', 503);
    const started = client().start('render', { page: 1 });
    await clock.advance(5000);
    const run = await started;
    const posts = server.asked.filter((asked) => asked.method === 'POST');
    assert.equal(posts.length, 3);
    assert.equal(new Set(posts.map((post) => post.headers.get('Idempotency-Key'))).size, 1);
    assert.match(posts[0]?.headers.get('Idempotency-Key') ?? '', /^"[0-9a-f]{32}"$/);
    assert.deepEqual(JSON.parse(posts[0]?.body ?? ''), { workflow: 'render', input: { page: 1 } });
    assert.equal(run.snapshot.state, 'queued');
  });

  it('does not repeat what the server refuses', async () => {
    server.trouble.push({ status: 422, body: { code: 'idempotency-key-reused', detail: 'used', retryable: false } });
    await assert.rejects(client().start('render', 1, { idempotencyKey: 'a"b' }), { code: 'idempotency-key-reused', status: 422 });
    assert.equal(server.asked.length, 1);
    assert.equal(server.asked[0]?.headers.get('Idempotency-Key'), '"a\\"b"');
  });

  it('leaves the server alone for as long as it asks', async () => {
    server.trouble.push({ status: 503, headers: { 'Retry-After': '20' } });
    const started = client().start('render');
    await clock.advance(19_900);
    assert.equal(server.asked.length, 1);
    await clock.advance(2200);
    assert.equal(server.asked.length, 2);
    await started;
  });

  it('keeps numbers exactly that are given as text', async () => {
    const bide = client();
    await bide.start('render', undefined, { inputText: '{"id":9007199254740993}', labels: { a: 'b' } });
    assert.equal(server.asked[0]?.body, '{"workflow":"render","labels":{"a":"b"},"input":{"id":9007199254740993}}');
    await assert.rejects(bide.start('render', undefined, { inputText: '{' }), /inputText must be JSON/);
  });

  it('stops trying when its signal is aborted', async () => {
    server.trouble.push('network', 'network', 'network');
    const abort = new AbortController();
    const started = client().start('render', 1, { signal: abort.signal });
    await clock.advance(100);
    abort.abort(new Error('enough'));
    await assert.rejects(started, /enough/);
  });
});

describe('watching', () => {
  it('is one stream however many subscribe', async () => {
    server.set('a');
    const bide = client();
    const one = record(bide, 'a');
    const two = record(bide, 'a');
    await clock.advance(100);
    assert.equal(server.streams.length, 1);
    assert.equal(server.streams[0]?.path, '/v1/runs/a/events');
    one.stop();
    await clock.advance(100);
    assert.equal(server.live().length, 1);
    server.set('a', { state: 'waiting' });
    await settle();
    assert.equal(two.seen.at(-1), 'waiting sse');
    assert.ok(!one.seen.includes('waiting sse'));
    two.stop();
    await clock.advance(100);
    assert.equal(server.live().length, 0);
    assert.equal(clock.timers.size, 0);
  });

  it('survives an unmount that is followed by a mount', async () => {
    server.set('a');
    const bide = client();
    const handle = bide.run('a');
    handle.subscribe(() => {})();
    const stop = handle.subscribe(() => {});
    await clock.advance(1000);
    assert.equal(server.streams.length, 1);
    stop();
  });

  it('has one stream for several runs', async () => {
    const bide = client();
    for (const id of ['a', 'b', 'c']) {
      server.set(id);
      record(bide, id);
    }
    await clock.advance(1000);
    assert.deepEqual(server.streams.map((stream) => stream.path), ['/v1/events?runs=a&runs=b&runs=c']);
    server.set('d');
    const d = record(bide, 'd');
    await clock.advance(1000);
    assert.equal(server.live().length, 1);
    assert.equal(server.live()[0]?.path, '/v1/events?runs=a&runs=b&runs=c&runs=d');
    server.end('d');
    await settle();
    assert.equal(d.seen.at(-1), 'succeeded closed');
  });

  it('asks once with the last ETag when the stream is up', async () => {
    server.set('a');
    record(client(), 'a');
    await clock.advance(1000);
    const gets = server.gets();
    assert.equal(gets.length, 2);
    assert.equal(gets[1]?.headers.get('If-None-Match'), '"v1-running"');
    await clock.advance(30_000);
    assert.equal(server.gets().length, 2, 'a stream is not polled beside');
  });

  it('spreads what it asks when the stream of many is up', async () => {
    const bide = client();
    for (const id of ['a', 'b', 'c']) {
      server.set(id);
      record(bide, id);
    }
    await clock.advance(15);
    const before = server.gets().length;
    await clock.advance(1000);
    const at = server.gets().slice(before).map((asked) => asked.at);
    assert.deepEqual(at.map((t) => t - (at[0] ?? 0)), [0, 150, 300]);
  });

  it('has any id on the stream of several', async () => {
    const bide = client();
    for (const id of ['a', 'b,c', 'd&runs=e%']) {
      server.set(id);
      record(bide, id);
    }
    await clock.advance(1000);
    assert.deepEqual(server.streams.map((stream) => stream.path), ['/v1/events?runs=a&runs=b%2Cc&runs=d%26runs%3De%25']);
    for (const id of ['b,c', 'd&runs=e%']) {
      server.end(id);
      await settle();
      assert.equal(bide.run(id).snapshot.state, 'succeeded');
    }
  });

  it('drops an answer that the stream has overtaken', async () => {
    server.set('a', { state: 'queued' });
    const late = client({
      fetch: async (url, init) => {
        const answer = await server.fetch(url, { ...init, headers: { ...init.headers, 'If-None-Match': '' } });
        if (!url.includes('events') && server.gets().length > 1) await clock.sleep(500);
        return answer;
      },
    });
    const { last } = record(late, 'a');
    await clock.advance(30);
    assert.equal(last().state, 'queued');
    assert.equal(server.gets().length, 2, 'the read of the switch is in flight');
    server.set('a', { state: 'running', version: 1 });
    await settle();
    assert.equal(last().state, 'running');
    await clock.advance(600);
    assert.equal(last().state, 'running', 'the read had said queued, of the same version');
  });

  it('takes progress and never goes back', async () => {
    server.set('a', { version: 5 });
    const { last } = record(client(), 'a');
    await clock.advance(1000);
    const progress = { percent: 40, updated_at: '2026-01-01T00:00:00Z' };
    const stream = server.live()[0];
    stream?.send('progress', { run: 'a', version: 7, progress, eta: null, next_poll_ms: 900 });
    await settle();
    assert.equal(last().progress?.percent, 40);
    stream?.send('progress', { run: 'a', version: 6, progress: { ...progress, percent: 10 }, eta: null, next_poll_ms: 900 });
    stream?.send('state', { ...last().run, version: 6, state: 'queued' });
    await settle();
    assert.equal(last().progress?.percent, 40);
    assert.equal(last().state, 'running');
    assert.equal(last().run?.version, 7);
  });

  it('takes queued to running within one version', async () => {
    server.set('a', { state: 'queued' });
    const { last } = record(client(), 'a');
    await clock.advance(1000);
    server.set('a', { state: 'running', version: 1 });
    await settle();
    assert.equal(last().state, 'running');
  });

  it('tells a new subscriber what is known', async () => {
    server.set('a');
    const bide = client();
    record(bide, 'a');
    await clock.advance(100);
    const late = record(bide, 'a');
    await settle();
    assert.deepEqual(late.seen, ['running sse']);
  });

  it('ends all that waits on destroy', async () => {
    server.set('a');
    const bide = client();
    const result = bide.run('a').result();
    await clock.advance(100);
    bide.destroy();
    await assert.rejects(result, { name: 'ClosedError' });
    await assert.rejects(bide.start('render'), { name: 'ClosedError' });
    assert.throws(() => bide.run('a').subscribe(() => {}), { name: 'ClosedError' });
  });
});

describe('result', () => {
  it('is what the workflow returned', async () => {
    const bide = client();
    const run = await bide.start<{ pages: number }>('render');
    const result = run.result();
    await clock.advance(100);
    server.end(run.id, 'succeeded', { pages: 3 });
    assert.deepEqual(await result, { pages: 3 });
    assert.deepEqual(await run.result(), { pages: 3 }, 'once more');
    await clock.advance(10);
    assert.equal(clock.timers.size, 0, 'an ended run is not watched');
  });

  it('keeps numbers as text', async () => {
    server.set('a');
    server.end('a', 'succeeded', 1);
    server.results.set('a', '{"id":9007199254740993}');
    const text = client().run('a').resultText();
    await clock.advance(100);
    assert.equal(await text, '{"id":9007199254740993}');
  });

  for (const state of ['failed', 'canceled', 'terminated', 'timed_out'] as const) {
    it(`is an error when the run ${state}`, async () => {
      server.set('a');
      const result = client().run('a').result();
      await clock.advance(100);
      server.end('a', state);
      await assert.rejects(result, (error) => error instanceof RunFailedError && error.state === state);
    });
  }

  it('gives up after its time, and the run goes on', async () => {
    server.set('a');
    const result = client().run('a').result({ timeoutMs: 5000 });
    result.catch(() => {});
    await clock.advance(5100);
    await assert.rejects(result, (error) => error instanceof ResultTimeoutError && error.run?.id === 'a');
    assert.equal(clock.timers.size, 0);
  });

  it('is abandoned with its signal', async () => {
    server.set('a');
    const abort = new AbortController();
    const result = client().run('a').result({ signal: abort.signal });
    await clock.advance(100);
    abort.abort();
    await assert.rejects(result, { name: 'AbortError' });
    await clock.advance(10);
    assert.equal(server.live().length, 0);
  });
});

describe('stopping', () => {
  it('cancels, again when the answer is lost', async () => {
    server.set('a');
    const { last } = record(client(), 'a');
    await clock.advance(100);
    server.trouble.push('network');
    const canceled = made[0]?.run('a').cancel('enough');
    await clock.advance(2000);
    assert.equal((await canceled)?.state, 'canceled');
    assert.equal(last().state, 'canceled');
    assert.equal(server.asked.filter((asked) => asked.path.endsWith('/cancel')).at(-1)?.body, '{"reason":"enough"}');
  });

  for (const status of [403, 404, 410]) {
    it(`stops at ${status}`, async () => {
      server.sse = status;
      server.trouble.push(status, status);
      const { last } = record(client(), 'a');
      await clock.advance(700_000);
      const { error, connection } = last();
      assert.ok(error instanceof ProblemError && error.status === status);
      assert.equal(connection, 'closed');
      assert.ok(server.asked.length <= 3);
    });
  }

  it('asks for headers once after 401, then stops', async () => {
    server.set('a');
    server.token = 'good';
    const asked: boolean[] = [];
    const getHeaders = ({ refresh }: { refresh: boolean }): Record<string, string> => {
      asked.push(refresh);
      return { Authorization: refresh ? 'good' : 'old' };
    };
    const { last } = record(client({ getHeaders, transport: 'poll' }), 'a');
    await clock.advance(10);
    assert.equal(last().state, 'running');
    assert.deepEqual(asked, [false, true]);

    server.token = 'another';
    await clock.advance(60_000);
    assert.deepEqual(asked, [false, true, false, true]);
    assert.equal((last().error as ProblemError).status, 401);
    assert.equal(clock.timers.size, 0);
  });

  it('asks for headers once for all that are refused at once', async () => {
    server.set('a');
    server.token = 'good';
    let refreshed = 0;
    const bide = client({
      getHeaders: async ({ refresh }) => {
        if (refresh) refreshed++;
        return { Authorization: refresh ? 'good' : 'old' };
      },
    });
    const get = () => bide.request('GET', '/v1/runs/{id}', { path: { id: 'a' } });
    const runs = await Promise.all([get(), get(), get()]);
    assert.equal(refreshed, 1);
    assert.ok(runs.every((run) => run.state === 'running'));
  });

  it('stops at 401 on any transport, after one refresh', async () => {
    server.set('a');
    server.token = 'good';
    let refreshed = 0;
    const { last } = record(client({ getHeaders: ({ refresh }) => ({ Authorization: refresh ? `bad${refreshed++}` : 'bad' }) }), 'a');
    await clock.advance(600_000);
    assert.equal(refreshed, 1);
    assert.equal((last().error as ProblemError).status, 401);
    assert.equal(clock.timers.size, 0);
  });

  it('is tried again by refresh', async () => {
    server.trouble.push(403);
    server.set('a');
    const { last } = record(client({ transport: 'poll' }), 'a');
    await clock.advance(100);
    assert.equal(last().connection, 'closed');
    made[0]?.run('a').refresh();
    await clock.advance(100);
    assert.equal(last().state, 'running');
    assert.equal(last().error, undefined);
    server.end('a');
    await clock.advance(10_000);
    assert.equal(last().state, 'succeeded');
    server.set('a', { state: 'running' });
    made[0]?.run('a').refresh();
    await clock.advance(100);
    assert.equal(last().state, 'running', 'a run that was retried');
  });
});
