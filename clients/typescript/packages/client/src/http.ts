import { after, type Clock } from './clock.js';
import { aborted, ProblemError, RequestTimeoutError } from './error.js';
import { positive, retryAfter } from './hint.js';
import type { Problem } from './run.js';

export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

/** Headers for a request; refresh is true when the server answered 401 to the last. */
export type GetHeaders = (why: { refresh: boolean }) => Record<string, string> | Promise<Record<string, string>>;

/** Milliseconds for one request that the server does not hold. */
const requestMs = 30_000;

export interface Ask {
  body?: string | undefined;
  headers?: Record<string, string> | undefined;
  signal?: AbortSignal | undefined;
  timeoutMs?: number | undefined;
}

/** An answer, read to its end. */
export interface Answer {
  status: number;
  headers: Headers;
  text: string;
}

/** The server: requests with the page's headers, and answers that are errors thrown. */
export class Http {
  readonly #base: string;
  readonly #fetch: Fetch;
  readonly #getHeaders: GetHeaders | undefined;
  readonly #clock: Clock;
  /** The last refresh, and how many there were. */
  #refreshed: Promise<Record<string, string>> = Promise.resolve({});
  #refreshes = 0;

  constructor(baseUrl: string, fetch: Fetch, getHeaders: GetHeaders | undefined, clock: Clock) {
    this.#base = baseUrl.replace(/\/+$/, '');
    this.#fetch = fetch;
    this.#getHeaders = getHeaders;
    this.#clock = clock;
  }

  url(path: string): string {
    return this.#base + path;
  }

  /** Sends a request and reads the whole answer: 2xx or 304, else it throws. */
  async ask(method: string, path: string, ask: Ask = {}): Promise<Answer> {
    const limit = ask.timeoutMs ?? requestMs;
    const abort = new AbortController();
    let late = false;
    const stop = after(this.#clock, limit, () => {
      late = true;
      abort.abort();
    });
    const unlink = follow(ask.signal, abort);
    try {
      const response = await this.open(method, path, { ...ask, signal: abort.signal });
      return { status: response.status, headers: response.headers, text: await response.text() };
    } catch (error) {
      if (late) throw new RequestTimeoutError(method, path, limit);
      if (ask.signal?.aborted) throw aborted(ask.signal);
      throw error;
    } finally {
      stop();
      unlink();
    }
  }

  /** Sends a request whose answer the caller reads. 401 is asked again, once, with
   * new headers. */
  async open(method: string, path: string, ask: Ask): Promise<Response> {
    const known = this.#refreshes;
    let response = await this.#send(method, path, ask, (await this.#getHeaders?.({ refresh: false })) ?? {});
    if (response.status === 401 && this.#getHeaders) {
      discard(response);
      response = await this.#send(method, path, ask, await this.#refresh(this.#getHeaders, known));
    }
    if (response.ok || response.status === 304) return response;
    throw await this.#refused(response);
  }

  #send(method: string, path: string, ask: Ask, headers: Record<string, string>): Promise<Response> {
    const init: RequestInit = { method, headers: { Accept: 'application/json', ...headers, ...ask.headers } };
    if (ask.body !== undefined) {
      init.body = ask.body;
      init.headers = { 'Content-Type': 'application/json', ...init.headers };
    }
    if (ask.signal) init.signal = ask.signal;
    return this.#fetch(this.url(path), init);
  }

  /** Many requests that meet 401 at once ask for new headers once: who was sent
   * before the last refresh takes what that gave. */
  #refresh(getHeaders: GetHeaders, known: number): Promise<Record<string, string>> {
    if (known === this.#refreshes) {
      this.#refreshes++;
      this.#refreshed = Promise.resolve(getHeaders({ refresh: true }));
    }
    return this.#refreshed;
  }

  async #refused(response: Response): Promise<ProblemError> {
    const text = await response.text().catch(() => '');
    let problem: Problem | undefined;
    if (/[/+]json\b/.test(response.headers.get('Content-Type') ?? '')) {
      try {
        const value = JSON.parse(text) as Problem | null;
        if (typeof value?.code === 'string') problem = value;
      } catch {
        // what stands between answered in the server's place
      }
    }
    const hint = Math.max(positive(problem?.retry_after_ms) ?? 0, retryAfter(response.headers, this.#clock.now()) ?? 0);
    return new ProblemError(response.status, problem, hint || undefined);
  }
}

/** Parses an answer; what is no JSON was not written by bide. */
export function parse<T>(answer: Answer): T {
  try {
    return JSON.parse(answer.text) as T;
  } catch {
    throw new ProblemError(502, undefined, undefined, `the server's answer (${answer.status}) is not JSON`);
  }
}

/** Frees the connection of an answer that nobody reads. */
export function discard(response: Response): void {
  response.body?.cancel().catch(() => {});
}

/** Aborts with a signal, until the returned function is called. */
export function follow(signal: AbortSignal | undefined, abort: AbortController): () => void {
  if (!signal) return () => {};
  const stop = (): void => abort.abort(signal.reason);
  if (signal.aborted) stop();
  else signal.addEventListener('abort', stop, { once: true });
  return () => signal.removeEventListener('abort', stop);
}
