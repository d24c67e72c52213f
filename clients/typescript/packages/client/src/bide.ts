import { Changes } from './changes.js';
import { after, systemClock, type Cancel, type Clock } from './clock.js';
import type { Env, Transport } from './env.js';
import { ClosedError } from './error.js';
import { Handle, type RunHandle } from './handle.js';
import { Http, parse, type Fetch, type GetHeaders } from './http.js';
import { anyRun, Hub, staggerMs } from './hub.js';
import { insist } from './insist.js';
import { Lead } from './lead.js';
import { Notifier } from './notify.js';
import { floorOf } from './pace.js';
import { Page } from './page.js';
import { pathOf, type Method, type MethodOf, type Path, type Reply, type RequestOptions } from './request.js';
import type { NewRun, Run } from './run.js';
import { fetchSource, nativeSource } from './source.js';
import { jitterOf, Tabs } from './tabs.js';
import { Watch } from './watch.js';

export interface BideOptions {
  /** Where the server is, such as "https://bide.example.com" or "" for this page's. */
  baseUrl?: string;
  fetch?: Fetch;
  /** Headers for every request, such as Authorization. After a 401 it is asked once
   * more, with refresh true. */
  getHeaders?: GetHeaders;
  clock?: Clock;
  /** In [0, 1), as Math.random. */
  random?: () => number;
  /** How news come, by default 'auto'. */
  transport?: Transport;
  /** Whom tabs share for: it must name the user. Without it each tab asks for itself. */
  scope?: string;
  /** false: do not share with other tabs. */
  leader?: 'auto' | false;
  /** The least time between two checks of a run, 1000 ms; as low as 500. */
  minIntervalMs?: number;
}

export interface StartOptions extends Omit<NewRun, 'workflow' | 'input'> {
  /** By default made anew; the same key with the same input gives the same run. */
  idempotencyKey?: string;
  /** The input as JSON text, in the place of input, for numbers beyond 2⁵³. */
  inputText?: string;
  /** Seconds, at most 60, to wait for the end before it is answered. */
  wait?: number;
  signal?: AbortSignal;
}

/** A bide server, as seen from a page. */
export interface Bide {
  /** Starts a run. It is sent again when the connection fails, under the same key, so
   * it is started once. */
  start<T = unknown>(workflow: string, input?: unknown, options?: StartOptions): Promise<RunHandle<T>>;
  /** A run that was started elsewhere. Nothing is asked until someone subscribes. */
  run<T = unknown>(id: string): RunHandle<T>;
  /**
   * Has fn called with true when some run, whichever, was made or has changed: once a
   * second at most, and whenever news may have been missed. It is the hint to read a
   * list again. With false the page has to look by itself, until it is told true.
   */
  changes(fn: (told: boolean) => void): () => void;
  /** Any request of openapi.yaml: request('GET', '/v1/runs/{id}', {path: {id}}). */
  request<P extends Path, V extends Uppercase<MethodOf<P>>>(method: V, path: P, options?: RequestOptions<P, Method<P, V>>): Promise<Reply<P, Method<P, V>>>;
  /** Stops all watching of this page; what waits for a result is told so. */
  destroy(): void;
  /** destroy in all tabs of the scope: nothing of the user's stays. */
  logout(): void;
}

export function createBide(options: BideOptions = {}): Bide {
  return new Client(options);
}

/** At most how long after a network's return a page waits, so that not all ask at once. */
const onlineMs = 2000;

class Client implements Bide {
  readonly #env: Env;
  readonly #watches = new Map<string, Watch>();
  readonly #waking = new Set<Cancel>();
  readonly #changes: Changes;
  #closed = false;

  constructor(options: BideOptions) {
    const clock = options.clock ?? systemClock;
    const random = options.random ?? Math.random;
    const transport = options.transport ?? 'auto';
    const fetch: Fetch = options.fetch ?? ((url, init) => globalThis.fetch(url, init));
    const http = new Http(options.baseUrl ?? '', fetch, options.getHeaders, clock);
    const native = !options.getHeaders && !options.fetch && typeof EventSource !== 'undefined';
    const open = native ? nativeSource(http) : fetchSource(http, clock);
    const tabs = Tabs.of(options.scope, options.leader);
    this.#env = {
      http, clock, random, transport, tabs, open,
      lead: tabs && new Lead(tabs, clock, newKey(), (id) => (id === anyRun ? this.#changes : this.run(id)).subscribe(() => {})),
      page: new Page(clock, {
        hide: () => this.#sleep(),
        show: () => this.#wake(0),
        offline: () => this.#sleep(),
        online: () => this.#wake(onlineMs * random()),
      }),
      notifier: new Notifier(),
      hub: transport === 'auto' || transport === 'sse' ? new Hub(open, native, clock, random) : undefined,
      floorMs: floorOf(options.minIntervalMs),
      jitter: jitterOf(tabs, options.leader),
      longPolls: 0,
      sleepers: new Set(),
    };
    this.#changes = new Changes(this.#env);
    tabs?.hear((message) => {
      if (typeof message === 'object' && message !== null && 'logout' in message) this.destroy();
    });
  }

  async start<T>(workflow: string, input?: unknown, options: StartOptions = {}): Promise<RunHandle<T>> {
    this.#open();
    const { idempotencyKey = newKey(), inputText, wait, signal, ...rest } = options;
    const headers: Record<string, string> = { 'Idempotency-Key': quoted(idempotencyKey) };
    if (wait !== undefined) headers.Prefer = `wait=${wait}`;
    const body = bodyOf({ workflow, ...rest }, input, inputText);
    const timeoutMs = wait === undefined ? undefined : (Math.min(wait, 60) + 10) * 1000;
    const answer = await insist(this.#env, () => this.#env.http.ask('POST', '/v1/runs', { body, headers, signal, timeoutMs }), signal);
    const run = parse<Run>(answer);
    const known = this.#watches.get(run.id);
    known?.accept(run);
    const etag = answer.headers.get('ETag') ?? undefined;
    return this.#handle(known ?? new Watch(this.#env, run.id, { run, etag }, this.#idle));
  }

  run<T>(id: string): RunHandle<T> {
    if (!id) throw new TypeError('id must be that of a run');
    return this.#handle(this.#watches.get(id) ?? new Watch(this.#env, id, undefined, this.#idle));
  }

  changes(fn: (told: boolean) => void): () => void {
    this.#open();
    return this.#changes.subscribe(fn);
  }

  async request<P extends Path, V extends Uppercase<MethodOf<P>>>(method: V, path: P, options: RequestOptions<P, Method<P, V>> = {}): Promise<Reply<P, Method<P, V>>> {
    this.#open();
    const { path: names, query, body, headers, signal } = options;
    const text = body === undefined ? undefined : JSON.stringify(body);
    const answer = await this.#env.http.ask(method, pathOf(path, names, query), { body: text, headers, signal });
    return (answer.text === '' ? undefined : parse(answer)) as Reply<P, Method<P, V>>;
  }

  destroy(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const cancel of this.#waking) cancel();
    for (const watch of this.#watches.values()) watch.destroy();
    for (const sleeper of [...this.#env.sleepers]) sleeper.destroy();
    this.#watches.clear();
    this.#env.page.destroy();
    this.#env.tabs?.close();
  }

  logout(): void {
    if (this.#closed) return;
    this.#env.tabs?.post({ logout: true });
    this.destroy();
  }

  #open(): void {
    if (this.#closed) throw new ClosedError();
  }

  readonly #idle = (watch: Watch): void => {
    if (this.#watches.get(watch.id) === watch) this.#watches.delete(watch.id);
  };

  #handle<T>(watch: Watch): RunHandle<T> {
    const watches = {
      find: (id: string) => this.#watches.get(id),
      enter: (own: Watch) => {
        this.#open();
        const found = this.#watches.get(own.id);
        if (found) return found;
        this.#watches.set(own.id, own);
        return own;
      },
    };
    return new Handle<T>(this.#env, watches, watch);
  }

  #sleep(): void {
    for (const cancel of this.#waking) cancel();
    this.#waking.clear();
    for (const sleeper of [...this.#env.sleepers]) sleeper.sleep();
  }

  /** What is overdue goes first by its interval, 150 ms apart; the rest goes on. */
  #wake(delayMs: number): void {
    const wake = (): void => {
      let turn = 0;
      const sleepers = [...this.#env.sleepers].sort((a, b) => a.intervalMs() - b.intervalMs());
      for (const sleeper of sleepers) sleeper.wake(sleeper.overdue() ? turn++ * staggerMs : 0);
    };
    if (delayMs === 0) {
      wake();
      return;
    }
    const cancel = after(this.#env.clock, delayMs, () => {
      this.#waking.delete(cancel);
      wake();
    });
    this.#waking.add(cancel);
  }
}

/** 128 random bits. randomUUID would do, but only exists in secure contexts. */
function newKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** A structured-field string (RFC 8941). */
function quoted(key: string): string {
  if (!/^[ -~]{1,255}$/.test(key)) throw new TypeError('idempotencyKey must be 1 to 255 printable ASCII characters');
  return `"${key.replace(/["\\]/g, '\\$&')}"`;
}

function bodyOf(rest: object, input: unknown, inputText: string | undefined): string {
  if (inputText === undefined) return JSON.stringify({ ...rest, input });
  try {
    JSON.parse(inputText);
  } catch (error) {
    throw new TypeError(`inputText must be JSON: ${(error as Error).message}`);
  }
  return `${JSON.stringify(rest).slice(0, -1)},"input":${inputText}}`;
}
