import { after } from './clock.js';
import type { Env } from './env.js';
import { aborted, ResultTimeoutError } from './error.js';
import { parse } from './http.js';
import { insist } from './insist.js';
import { isTerminal, runPath, type Run, type RunSnapshot } from './run.js';
import { streamOf, type StreamOptions, type StreamPiece } from './stream.js';
import type { Watch } from './watch.js';

export interface ResultOptions {
  signal?: AbortSignal | undefined;
  /** After so long without an end a ResultTimeoutError is thrown; the run goes on. */
  timeoutMs?: number | undefined;
}

/** One run. However many handles and subscribers it has, it is watched once. */
export interface RunHandle<T = unknown> {
  readonly id: string;
  /** What is known of the run; another object whenever that changes. */
  readonly snapshot: RunSnapshot<T>;
  /** Watches the run and has fn called with each new snapshot, beginning with what is
   * known, until the returned function is called. */
  subscribe(fn: (snapshot: RunSnapshot<T>) => void): () => void;
  /** Waits for the end: what the workflow returned, or a RunFailedError. */
  result(options?: ResultOptions): Promise<T>;
  /** The same as the text that is stored, for numbers beyond 2⁵³. */
  resultText(options?: ResultOptions): Promise<string>;
  /** Asks the run to end; it may clean up. Asking again is no error. */
  cancel(reason?: string): Promise<Run<T>>;
  /** What the run's steps stream, such as a model's tokens, from the beginning or
   * after a piece; through lost connections, until the run ends. */
  stream(options?: StreamOptions): AsyncGenerator<StreamPiece, void, undefined>;
  /** Asks now, also after an error that ended the watching. */
  refresh(): void;
}

/** How a handle finds the one watch of its run. */
export interface Watches {
  find(id: string): Watch | undefined;
  /** Makes a watch the one of its run, unless there is one; gives the one. */
  enter(watch: Watch): Watch;
}

/** The last watch is kept, so that a snapshot stays what it was. */
export class Handle<T> implements RunHandle<T> {
  readonly #env: Env;
  readonly #watches: Watches;
  #own: Watch;

  constructor(env: Env, watches: Watches, own: Watch) {
    this.#env = env;
    this.#watches = watches;
    this.#own = own;
  }

  get id(): string {
    return this.#own.id;
  }

  get snapshot(): RunSnapshot<T> {
    return this.#watch().snapshot as RunSnapshot<T>;
  }

  #watch(): Watch {
    return (this.#own = this.#watches.find(this.id) ?? this.#own);
  }

  subscribe(fn: (snapshot: RunSnapshot<T>) => void): () => void {
    const watch = (this.#own = this.#watches.enter(this.#watch()));
    return watch.subscribe(() => fn(watch.snapshot as RunSnapshot<T>));
  }

  refresh(): void {
    this.#watch().refresh();
  }

  result(options: ResultOptions = {}): Promise<T> {
    return this.#ended(options).then((run) => run.result as T);
  }

  async resultText(options: ResultOptions = {}): Promise<string> {
    const began = this.#env.clock.now();
    await this.#ended(options);
    const { timeoutMs, signal } = options;
    const left = timeoutMs === undefined ? undefined : Math.max(1, timeoutMs - (this.#env.clock.now() - began));
    return (await insist(this.#env, () => this.#env.http.ask('GET', runPath(this.id) + '/result', { signal, timeoutMs: left }), signal)).text;
  }

  #ended({ signal, timeoutMs }: ResultOptions): Promise<Run> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) {
        reject(aborted(signal));
        return;
      }
      const done = (settle: () => void): void => {
        stopTimer?.();
        signal?.removeEventListener('abort', abort);
        unsubscribe();
        settle();
      };
      const abort = (): void => done(() => reject(aborted(signal as AbortSignal)));
      const look = ({ run, error }: RunSnapshot): void => {
        if (error) done(() => reject(error));
        else if (run && isTerminal(run)) done(() => resolve(run));
      };
      signal?.addEventListener('abort', abort);
      const stopTimer =
        timeoutMs === undefined
          ? undefined
          : after(this.#env.clock, timeoutMs, () =>
              done(() => reject(new ResultTimeoutError(this.id, timeoutMs, this.snapshot.run))),
            );
      const unsubscribe = this.subscribe(look);
    });
  }

  async cancel(reason?: string): Promise<Run<T>> {
    const body = reason === undefined ? undefined : JSON.stringify({ reason });
    const answer = await insist(this.#env, () => this.#env.http.ask('POST', runPath(this.id) + '/cancel', { body }));
    const run = parse<Run<T>>(answer);
    this.#watch().accept(run);
    return run;
  }

  stream(options: StreamOptions = {}): AsyncGenerator<StreamPiece, void, undefined> {
    return streamOf(this.#env, this.id, options);
  }
}
