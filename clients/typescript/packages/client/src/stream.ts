import { after, type Cancel } from './clock.js';
import type { Env, Sleeper } from './env.js';
import { aborted, ClosedError, ProblemError, transient } from './error.js';
import { parse } from './http.js';
import { nextCheck } from './pace.js';
import { isTerminal, runPath, type Chunk, type Run, type Segment, type State } from './run.js';
import type { SourceEnd } from './source.js';

export interface StreamOptions {
  signal?: AbortSignal | undefined;
  /** Only what comes after the chunk with this seq. */
  after?: number | undefined;
}

/**
 * What a step streams. A segment begins an attempt of a step: what an earlier
 * attempt of the same path has streamed is void. The end is the run's.
 */
export type StreamPiece = ({ type: 'segment' } & Segment) | ({ type: 'chunk' } & Chunk) | { type: 'end'; state: State };

const types = ['segment', 'chunk', 'end', 'closing'] as const;
const pageSize = 1000;
const firstCooldownMs = 60_000;
const lastCooldownMs = 600_000;

/** Reads the stream of a run: pieces as they come, each once. */
export async function* streamOf(env: Env, id: string, options: StreamOptions): AsyncGenerator<StreamPiece, void, undefined> {
  const reader = new Reader(env, id, options.after ?? 0);
  const stop = (): void => reader.fail(aborted(options.signal as AbortSignal));
  if (options.signal?.aborted) stop();
  options.signal?.addEventListener('abort', stop);
  reader.wake(0);
  try {
    for (;;) {
      const piece = await reader.next();
      if (!piece) return;
      yield piece;
    }
  } finally {
    options.signal?.removeEventListener('abort', stop);
    reader.close();
  }
}

class Reader implements Sleeper {
  readonly #env: Env;
  readonly #id: string;
  readonly #queue: StreamPiece[] = [];
  #waiting: { resolve: (piece: StreamPiece | undefined) => void; reject: (error: unknown) => void } | undefined;
  #error: { error: unknown } | undefined;
  #over = false;
  #seq: number;
  /** The attempt of each path that the caller knows. */
  readonly #segments = new Map<string, number>();
  #source: Cancel | undefined;
  #timer: Cancel | undefined;
  #flight: AbortController | undefined;
  #failed = 0;
  #errors = 0;
  #checks = 0;
  #cooldownMs = 0;
  #pagesUntil = 0;

  constructor(env: Env, id: string, seq: number) {
    this.#env = env;
    this.#id = id;
    this.#seq = seq;
    env.sleepers.add(this);
  }

  next(): Promise<StreamPiece | undefined> {
    const piece = this.#queue.shift();
    if (piece) return Promise.resolve(piece);
    if (this.#error) return Promise.reject(this.#error.error);
    if (this.#over) return Promise.resolve(undefined);
    return new Promise((resolve, reject) => (this.#waiting = { resolve, reject }));
  }

  close(): void {
    this.#over = true;
    this.sleep();
    this.#env.sleepers.delete(this);
  }

  fail(error: unknown): void {
    if (this.#over || this.#error) return;
    this.#error = { error };
    this.close();
    this.#waiting?.reject(error);
    this.#waiting = undefined;
  }

  sleep(): void {
    this.#timer?.();
    this.#timer = undefined;
    this.#source?.();
    this.#source = undefined;
    this.#flight?.abort();
    this.#flight = undefined;
  }

  wake(delayMs: number): void {
    const { page } = this.#env;
    if (this.#over || page.hidden || page.offline || this.#timer || this.#source || this.#flight) return;
    this.#in(delayMs);
  }

  overdue(): boolean {
    return true;
  }

  intervalMs(): number {
    return 0;
  }

  destroy(): void {
    this.fail(new ClosedError());
  }

  #in(ms: number): void {
    this.#timer = after(this.#env.clock, ms, () => {
      this.#timer = undefined;
      const { transport, clock } = this.#env;
      if (transport === 'poll' || transport === 'longpoll' || clock.now() < this.#pagesUntil) void this.#page();
      else this.#open();
    });
  }

  #open(): void {
    let closing = false;
    this.#source = this.#env.open(runPath(this.#id) + '/stream', types, this.#seq ? String(this.#seq) : '', {
      open: () => {
        this.#failed = this.#errors = this.#cooldownMs = 0;
      },
      event: (event) => {
        if (event.type === 'closing') closing = true;
        else this.#event(event.type, event.data);
      },
      close: (why) => this.#closed(why, closing),
    });
  }

  #event(type: string, data: string): void {
    let value: unknown;
    try {
      value = JSON.parse(data);
    } catch {
      return; // cut off on the way; the chunk comes again with the next connection
    }
    if (type === 'chunk') this.#chunk(value as Chunk);
    else if (type === 'segment') this.#segment(value as Segment);
    else if (type === 'end') this.#end((value as { state: State }).state);
  }

  #segment({ path, name, attempt }: Segment): void {
    if (this.#segments.get(path) === attempt) return;
    this.#segments.set(path, attempt);
    this.#put({ type: 'segment', path, name, attempt });
  }

  #chunk(chunk: Chunk): void {
    if (chunk.seq <= this.#seq) return;
    this.#segment(chunk);
    this.#seq = chunk.seq;
    this.#put({ type: 'chunk', ...chunk });
  }

  #end(state: State): void {
    this.#put({ type: 'end', state });
    this.close();
  }

  #put(piece: StreamPiece): void {
    if (this.#over) return;
    if (this.#waiting) {
      this.#waiting.resolve(piece);
      this.#waiting = undefined;
    } else {
      this.#queue.push(piece);
    }
  }

  #closed(why: SourceEnd, closing: boolean): void {
    this.#source = undefined;
    if (this.#over) return;
    const { clock, random } = this.#env;
    const problem = why.error instanceof ProblemError ? why.error : undefined;
    const never = problem !== undefined && [404, 406, 501].includes(problem.status);
    if (problem && !never && !transient(problem)) {
      this.fail(problem);
      return;
    }
    if (!why.opened) this.#failed++;
    if (why.over || never || this.#failed >= 2) {
      // pages tell the rest; a run that is not there is refused there too
      this.#failed = 0;
      if (!why.over) this.#cooldownMs = Math.min(lastCooldownMs, this.#cooldownMs * 2 || firstCooldownMs);
      this.#pagesUntil = clock.now() + (why.over ? firstCooldownMs : this.#cooldownMs);
      this.#in(0);
      return;
    }
    const told = why.retryMs ?? (closing ? 1000 + 9000 * random() : 1000 + 1000 * random());
    this.#in(Math.max(told, problem?.retryAfterMs ?? 0));
  }

  /** Reads what there is as JSON. The run is read first: if it had ended by then, what
   * the pages after it tell is all. */
  async #page(): Promise<void> {
    const { http, floorMs, jitter, random } = this.#env;
    const flight = (this.#flight = new AbortController());
    const { signal } = flight;
    let hintMs: number | undefined;
    try {
      const run = parse<Run>(await http.ask('GET', runPath(this.#id), { signal }));
      hintMs = run.next_poll_ms ?? undefined;
      for (;;) {
        const answer = await http.ask('GET', `${runPath(this.#id)}/stream?after=${this.#seq}&limit=${pageSize}`, { signal });
        const { chunks } = parse<{ chunks: Chunk[] }>(answer);
        if (signal.aborted) return;
        for (const chunk of chunks) this.#chunk(chunk);
        if (chunks.length < pageSize) break;
      }
      if (isTerminal(run)) this.#end(run.state);
      this.#errors = 0;
      this.#checks++;
    } catch (error) {
      if (signal.aborted) return;
      if (!transient(error)) {
        this.fail(error);
        return;
      }
      this.#errors++;
      hintMs = error instanceof ProblemError ? error.retryAfterMs : undefined;
    } finally {
      if (this.#flight === flight) this.#flight = undefined;
    }
    if (!this.#over && !signal.aborted) this.#in(nextCheck({ checks: this.#checks, errors: this.#errors, hintMs }, floorMs, jitter, random));
  }
}
