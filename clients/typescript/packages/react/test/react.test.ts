import { createBide, createPollScheduler, type Bide, type BackoffState, type PollScheduler, type Run } from '@bide/client';
import { BideProvider, usePoll, useRun, type UsePollResult, type UseRunResult } from '@bide/react';
import { Window } from 'happy-dom';
import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import type { Root } from 'react-dom/client';

// what is imported below looks for a page when it is loaded
const window = new Window({ url: 'http://page/' });
for (const [name, value] of Object.entries({ window, document: window.document, navigator: window.navigator })) {
  Object.defineProperty(globalThis, name, { value, configurable: true });
}

const { StrictMode, createElement: h, useEffect } = await import('react');
const { createRoot } = await import('react-dom/client');

/** A server with one run, whose streams are counted. */
class Server {
  run: Run = runOf('queued', 1);
  opened = 0;
  open = 0;
  canceled = 0;
  readonly #tell = new Set<() => void>();

  readonly fetch = async (url: string, init: RequestInit): Promise<Response> => {
    const path = new URL(url).pathname;
    if (path.endsWith('/cancel')) {
      this.canceled++;
      this.set('canceled');
    }
    if (!path.endsWith('/events')) return Response.json(this.run, { headers: { ETag: `"v${this.run.version}"` } });
    this.opened++;
    this.open++;
    let told: () => void = () => {};
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        told = () => controller.enqueue(new TextEncoder().encode(`event: state\ndata: ${JSON.stringify(this.run)}\n\n`));
        this.#tell.add(told);
        told();
      },
    });
    init.signal?.addEventListener('abort', () => {
      this.open--;
      this.#tell.delete(told);
    });
    return new Response(body, { headers: { 'Content-Type': 'text/event-stream' } });
  };

  set(state: Run['state'], result: unknown = null): void {
    this.run = { ...runOf(state, this.run.version + 1), result };
    for (const tell of this.#tell) tell();
  }
}

function runOf(state: Run['state'], version: number): Run {
  return {
    id: 'a', workflow: 'render', queue: 'default', state, version, eta: null, next_poll_ms: 60_000, attempt: 1, waiting: [],
    progress: { percent: version * 10, updated_at: '' }, created_at: '', started_at: null, finished_at: null, deadline_at: null,
    result: null, error: null, completed_by: null,
    links: { self: '', result: '', events: '', stream: '', history: '', cancel: '' },
  };
}

/** The program's timers, some of which must not outlast it. */
const live = new Set<unknown>();
const clock = {
  now: () => Date.now(),
  setTimeout: (fn: () => void, ms: number): unknown => {
    const timer = setTimeout(() => {
      live.delete(timer);
      fn();
    }, ms);
    live.add(timer);
    return timer;
  },
  clearTimeout: (timer: unknown): void => {
    live.delete(timer);
    clearTimeout(timer as NodeJS.Timeout);
  },
};

let server: Server;
let bide: Bide;
let scheduler: PollScheduler;
let root: Root;
let last: UseRunResult<string> | undefined;

before(() => assert.ok(document));
after(() => window.close());

beforeEach(() => {
  last = undefined;
  server = new Server();
  bide = createBide({ baseUrl: 'http://bide', fetch: server.fetch, clock, leader: false });
  scheduler = createPollScheduler({ clock, leader: false, minIntervalMs: 500 });
  root = createRoot(document.body.appendChild(document.createElement('div')));
});

afterEach(async () => {
  root.unmount();
  await until(() => server.open === 0, 'a stream is left after unmount');
  await until(() => live.size === 0, 'timers are left after unmount');
  bide.destroy();
  scheduler.destroy();
});

/** Waits until something holds; what never does fails. */
async function until(holds: () => boolean, what: string): Promise<void> {
  for (let i = 0; i < 500; i++) {
    if (holds()) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  assert.fail(what);
}

function Progress({ id, onDone, enabled }: { id: string; onDone?: (run: Run<string>) => void; enabled?: boolean }) {
  last = useRun<string>(id, { enabled, onDone });
  return h('p', null, `${last.status ?? '-'} ${last.progress?.percent ?? 0}`);
}

const shown = (): string => document.body.textContent ?? '';

describe('useRun', () => {
  it('shows a run until its end, over one stream although StrictMode mounts twice', async () => {
    const done: string[] = [];
    const onDone = (run: Run<string>): void => void done.push(run.state);
    const page = h(StrictMode, null, h(BideProvider, { bide }, h(Progress, { id: 'a', onDone }), h(Progress, { id: 'a' })));
    root.render(page);
    await until(() => last?.connection === 'sse', 'no stream');
    assert.equal(server.opened, 1);
    server.set('running');
    await until(() => shown() === 'running 20running 20', 'the page does not follow');
    server.set('succeeded', 'done');
    await until(() => last?.run?.result === 'done', 'no result');
    assert.deepEqual(done, ['succeeded']);
    assert.equal(server.opened, 1);
  });

  it('cancels', async () => {
    root.render(h(BideProvider, { bide }, h(Progress, { id: 'a' })));
    await until(() => last?.status === 'queued', 'not known');
    await last?.cancel('enough');
    await until(() => last?.status === 'canceled', 'not canceled');
    assert.equal(last?.error?.name, 'RunFailedError');
    assert.equal(server.canceled, 1);
  });

  it('asks for nothing while it is not enabled', async () => {
    root.render(h(BideProvider, { bide }, h(Progress, { id: 'a', enabled: false })));
    await until(() => shown() === '- 0', 'not rendered');
    assert.equal(last?.connection, 'idle');
    assert.equal(server.opened, 0);
    root.render(h(BideProvider, { bide }, h(Progress, { id: 'a', enabled: true })));
    await until(() => last?.connection === 'sse', 'no stream');
  });

  it('says what is missing', async () => {
    let caught: unknown;
    const silent = createRoot(document.createElement('div'), { onUncaughtError: (error) => (caught = error) });
    silent.render(h(Progress, { id: 'a' }));
    await until(() => caught !== undefined, 'nothing is thrown');
    assert.match(String(caught), /put <BideProvider bide=/);
  });
});

describe('usePoll', () => {
  it('runs while it is mounted, with the function of the last render', async () => {
    const ran: string[] = [];
    let poll: UsePollResult | undefined;
    let state: BackoffState | undefined;
    let settled = '';
    function News({ text }: { text: string }) {
      poll = usePoll('news', () => void ran.push(text), { intervalMs: 60_000, runImmediately: true });
      state = poll.state;
      useEffect(() => void (settled = text));
      return h('p', null, text);
    }
    const page = (text: string) => h(StrictMode, null, h(BideProvider, { scheduler }, h(News, { text })));
    root.render(page('one'));
    await until(() => state?.lastSuccessAt !== undefined, 'it does not run');
    assert.deepEqual(ran, ['one']);
    root.render(page('two'));
    await until(() => settled === 'two', 'not rendered');
    poll?.trigger();
    await until(() => state?.iteration === 2, 'it does not run again');
    assert.deepEqual(ran, ['one', 'two']);
    poll?.pause();
    await until(() => state?.paused === true, 'not paused');
    poll?.resume();
    await until(() => state?.paused === false, 'still paused');
  });
});
