import type { Fetch } from '../src/http.js';
import { isTerminal, type Chunk, type Run, type State } from '../src/run.js';
import type { FakeClock } from './clock.js';

export interface Asked {
  method: string;
  /** With the query. */
  path: string;
  headers: Headers;
  body: string;
  at: number;
  aborted: boolean;
}

/** An open stream of events. */
export interface FakeStream {
  path: string;
  headers: Headers;
  send(type: string, data: unknown, id?: number | string): void;
  write(text: string): void;
  end(): void;
  open: boolean;
}

type Trouble = number | 'network' | 'hang';
interface Refusal {
  status: number;
  headers?: Record<string, string>;
  body?: unknown;
}

export function runOf(id: string, change: Partial<Run> = {}): Run {
  return {
    id, workflow: 'render', queue: 'default', state: 'running', version: 1, progress: null, eta: null, next_poll_ms: 2000, attempt: 1,
    waiting: [], created_at: '2026-01-01T00:00:00Z', started_at: null, finished_at: null, deadline_at: null, result: null,
    error: null, completed_by: null,
    links: { self: '', result: '', events: '', stream: '', history: '', cancel: '' },
    ...change,
  };
}

/** A bide server in memory, which behaves as it is told. */
export class FakeServer {
  readonly runs = new Map<string, Run>();
  readonly results = new Map<string, string>();
  readonly chunks: Chunk[] = [];
  readonly asked: Asked[] = [];
  readonly streams: FakeStream[] = [];
  /** How streams fare: 'ok', not at all, or opened and never heard of. */
  sse: 'ok' | Trouble = 'ok';
  /** Whether a long poll is held. */
  holds = true;
  mostHeld = 0;
  /** What the next requests that are no streams meet, in order. */
  readonly trouble: (Trouble | Refusal)[] = [];
  /** What an Authorization header must be. */
  token: string | undefined;
  retryAfter: string | undefined;
  readonly #clock: FakeClock;
  readonly #held = new Set<() => void>();
  readonly #keys = new Map<string, string>();

  constructor(clock: FakeClock) {
    this.#clock = clock;
  }

  set(id: string, change: Partial<Run> = {}, tell = true): Run {
    const was = this.runs.get(id);
    const run = was ? { ...was, version: was.version + 1, ...change } : runOf(id, change);
    if (isTerminal(run)) run.next_poll_ms = null;
    this.runs.set(id, run);
    for (const look of [...this.#held]) look();
    if (!tell) return run;
    for (const stream of this.live()) {
      if (stream.path === '/v1/events' || stream.path.endsWith('&changes=true')) stream.send('changed', {});
      this.#tell(stream, run, isTerminal(run) ? 'end' : 'state');
    }
    return run;
  }

  end(id: string, state: State = 'succeeded', result: unknown = 'done'): Run {
    return this.set(id, { state, result: state === 'succeeded' ? result : null });
  }

  live(): FakeStream[] {
    return this.streams.filter((stream) => stream.open);
  }

  paths(): string[] {
    return this.asked.map((asked) => `${asked.method} ${asked.path}`);
  }

  /** Reads that are no streams. */
  gets(): Asked[] {
    return this.asked.filter((asked) => asked.method === 'GET' && !asked.path.includes('/events') && !asked.path.includes('/stream'));
  }

  readonly fetch: Fetch = async (url, init) => {
    const headers = new Headers(init.headers);
    const asked: Asked = {
      method: init.method ?? 'GET', path: url.replace('http://bide', ''), headers, body: String(init.body ?? ''), at: this.#clock.now(),
      aborted: false,
    };
    this.asked.push(asked);
    init.signal?.addEventListener('abort', () => (asked.aborted = true));
    const answer = this.#answer(asked, init.signal ?? undefined);
    return await Promise.race([answer, abortion(init.signal ?? undefined)]);
  };

  async #answer(asked: Asked, signal: AbortSignal | undefined): Promise<Response> {
    await Promise.resolve();
    const { method, headers } = asked;
    const url = new URL('http://bide' + asked.path);
    if (this.token && headers.get('Authorization') !== this.token) return refusal({ status: 401 });
    const streams = headers.get('Accept') === 'text/event-stream';
    const trouble = streams ? (this.sse === 'ok' ? undefined : this.sse) : this.trouble.shift();
    if (trouble === 'network') throw new TypeError('fetch failed');
    if (trouble === 'hang') return await new Promise(() => {});
    if (typeof trouble === 'number') return refusal({ status: trouble });
    if (trouble) return refusal(trouble);
    if (streams) return this.#stream(asked, url, signal);
    const [, , , id = '', part] = url.pathname.split('/').map(decodeURIComponent);
    if (method === 'POST' && url.pathname === '/v1/runs') return this.#start(asked);
    const run = this.runs.get(id);
    if (!run) return refusal({ status: 404, body: { code: 'not-found', detail: 'there is no such run', retryable: false } });
    if (part === 'cancel') return this.#json(this.end(id, 'canceled'), 200);
    if (part === 'result') return new Response(this.results.get(id) ?? JSON.stringify(run.result), { status: 200 });
    if (part === 'stream') {
      const chunks = this.chunks.filter((chunk) => chunk.seq > Number(url.searchParams.get('after')));
      return Response.json({ chunks, next_after: null });
    }
    return await this.#read(id, headers.get('If-None-Match'), Number(url.searchParams.get('wait') ?? 0), signal);
  }

  async #read(id: string, known: string | null, wait: number, signal: AbortSignal | undefined): Promise<Response> {
    const current = (): Run => this.runs.get(id) as Run;
    if (wait > 0 && this.holds) {
      await new Promise<void>((resolve) => {
        const done = (): void => {
          this.#held.delete(look);
          this.#clock.clearTimeout(timer);
          resolve();
        };
        const look = (): void => {
          if (tag(current()) !== known || isTerminal(current())) done();
        };
        const timer = this.#clock.setTimeout(done, wait * 1000);
        signal?.addEventListener('abort', done);
        this.#held.add(look);
        this.mostHeld = Math.max(this.mostHeld, this.#held.size);
        look();
      });
    }
    return known === tag(current()) ? new Response(null, { status: 304, headers: this.#hints(current()) }) : this.#json(current(), 200);
  }

  #start(asked: Asked): Response {
    const key = asked.headers.get('Idempotency-Key') ?? '';
    const known = this.#keys.get(key);
    const id = known ?? `run_${this.#keys.size + 1}`;
    if (!known) {
      this.#keys.set(key, id);
      this.set(id, { state: 'queued' });
    }
    return this.#json(this.runs.get(id) as Run, 202);
  }

  #hints(run: Run): Record<string, string> {
    const headers: Record<string, string> = { ETag: tag(run) };
    if (this.retryAfter) headers['Retry-After'] = this.retryAfter;
    return headers;
  }

  #json(run: Run, status: number): Response {
    return Response.json(run, { status, headers: this.#hints(run) });
  }

  #stream(asked: Asked, url: URL, signal: AbortSignal | undefined): Response {
    let controller!: ReadableStreamDefaultController<Uint8Array>;
    const body = new ReadableStream<Uint8Array>({ start: (c) => (controller = c) });
    const encoder = new TextEncoder();
    const stream: FakeStream = {
      path: asked.path,
      headers: asked.headers,
      open: true,
      write: (text) => {
        if (stream.open) controller.enqueue(encoder.encode(text));
      },
      send: (type, data, id) => stream.write(`${id === undefined ? '' : `id: ${id}\n`}event: ${type}\ndata: ${JSON.stringify(data)}\n\n`),
      end: () => {
        if (stream.open) controller.close();
        stream.open = false;
      },
    };
    signal?.addEventListener('abort', () => {
      if (stream.open) controller.error(new DOMException('aborted', 'AbortError'));
      stream.open = false;
    });
    this.streams.push(stream);
    stream.write('retry: 3000\n\n');
    for (const id of watched(url)) {
      const run = this.runs.get(id);
      if (run) this.#tell(stream, run, isTerminal(run) ? 'end' : 'snapshot');
      else if (!url.pathname.endsWith('/stream')) stream.send('gone', { run: id });
    }
    return new Response(body, { status: 200, headers: { 'Content-Type': 'text/event-stream' } });
  }

  #tell(stream: FakeStream, run: Run, type: string): void {
    if (!watched(new URL('http://bide' + stream.path)).includes(run.id)) return;
    stream.send(type, run, run.version);
  }
}

function watched(url: URL): string[] {
  if (url.pathname.endsWith('/stream')) return [];
  const ids = url.searchParams.getAll('runs');
  if (url.pathname === '/v1/events') return ids.length === 1 ? (ids[0] ?? '').split(',') : ids;
  return [decodeURIComponent(url.pathname.split('/')[3] ?? '')];
}

function tag(run: Run): string {
  return `"v${run.version}${run.state === 'queued' || run.state === 'running' ? '-' + run.state : ''}"`;
}

function refusal({ status, headers = {}, body }: Refusal): Response {
  if (body === undefined) return new Response('no', { status, headers });
  return new Response(JSON.stringify(body), { status, headers: { 'Content-Type': 'application/problem+json', ...headers } });
}

function abortion(signal: AbortSignal | undefined): Promise<never> {
  return new Promise((_, reject) => {
    const abort = (): void => reject(new DOMException('aborted', 'AbortError'));
    if (signal?.aborted) abort();
    else signal?.addEventListener('abort', abort);
  });
}
