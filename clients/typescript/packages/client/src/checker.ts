import { after, type Cancel } from './clock.js';
import type { Env } from './env.js';
import { ProblemError, transient } from './error.js';
import { parse } from './http.js';
import { positive, retryAfter } from './hint.js';
import { nextCheck, spread } from './pace.js';
import { isTerminal, runPath, type Run } from './run.js';

/** Seconds that the server is asked to hold a long poll. */
const holdS = 30;
/** A client that is later than the server ends what the server would have answered. */
const graceMs = 10_000;
/** How many long polls at once: each holds one of a browser's few connections. */
const mostLongPolls = 3;

/** 'once' asks until it has an answer, then rests. */
export type CheckMode = 'off' | 'once' | 'poll' | 'longpoll';

export interface CheckerSink {
  /** The server answered: with a run, or that it is as it was. Mark is what mark()
   * gave when the request was sent. */
  read(run: Run | undefined, mark: number): void;
  mark(): number;
  /** There was no answer, or none of use; it is asked again. */
  failed(): void;
  asking(how: 'poll' | 'longpoll'): void;
  /** It is of no use to ask again. */
  fatal(error: Error): void;
}

/** A run as an earlier answer told it. */
export interface Seed {
  run: Run;
  etag: string | undefined;
}

/** Asks for one run, again and again, never twice at once. */
export class Checker {
  readonly #env: Env;
  readonly #id: string;
  readonly #sink: CheckerSink;
  #mode: CheckMode = 'off';
  #timer: Cancel | undefined;
  #flight: AbortController | undefined;
  #etag: string | undefined;
  #nextAt: number | undefined;
  #checks = 0;
  #errors = 0;
  #hintMs: number | undefined;
  /** Long polls in a row that were answered early with nothing new, or failed. */
  #unheld = 0;
  #longFailures = 0;

  constructor(env: Env, id: string, seed: Seed | undefined, sink: CheckerSink) {
    this.#env = env;
    this.#id = id;
    this.#etag = seed?.etag;
    this.#sink = sink;
    if (!seed) return;
    this.#hintMs = positive(seed.run.next_poll_ms);
    this.#nextAt = env.clock.now() + this.#interval();
  }

  /** Asks in another way from now on, first after delayMs; what is in flight is
   * dropped, which is no failure. */
  set(mode: CheckMode, delayMs = 0): void {
    this.#abort();
    if (mode === 'longpoll' && this.#mode !== mode) this.#unheld = this.#longFailures = 0;
    this.#mode = mode;
    if (mode !== 'off') this.#schedule(delayMs);
  }

  /** Asks at once, and goes on as before. */
  now(): void {
    this.set(this.#mode === 'off' ? 'once' : this.#mode);
  }

  /** How long it is until the next check, also while it is off; 0 if it is overdue. */
  remaining(): number {
    return Math.max(0, (this.#nextAt ?? 0) - this.#env.clock.now());
  }

  #abort(): void {
    this.#timer?.();
    this.#timer = undefined;
    this.#flight?.abort();
    this.#flight = undefined;
  }

  #schedule(ms: number): void {
    this.#nextAt = this.#env.clock.now() + ms;
    this.#timer = after(this.#env.clock, ms, () => {
      this.#timer = undefined;
      void this.#check();
    });
  }

  async #check(): Promise<void> {
    const env = this.#env;
    const flight = (this.#flight = new AbortController());
    const long = this.#long();
    const began = env.clock.now();
    const mark = this.#sink.mark();
    if (this.#mode !== 'once') this.#sink.asking(long && this.#unheld < 2 ? 'longpoll' : 'poll');
    if (long) env.longPolls++;
    let delay: number;
    try {
      const headers: Record<string, string> = {};
      if (this.#etag) headers['If-None-Match'] = this.#etag;
      const answer = await env.http.ask('GET', runPath(this.#id) + (long ? `?wait=${holdS}` : ''), {
        headers,
        signal: flight.signal,
        timeoutMs: long ? holdS * 1000 + graceMs : undefined,
      });
      if (flight.signal.aborted) return;
      const run = answer.status === 304 ? undefined : parse<Run>(answer);
      this.#checks++;
      this.#errors = 0;
      if (long) this.#longFailures = 0;
      const header = retryAfter(answer.headers, env.clock.now());
      this.#hintMs = run ? higher(positive(run.next_poll_ms), header) : (header ?? this.#hintMs);
      delay = this.#pause(long, run !== undefined, env.clock.now() - began);
      if (run) this.#etag = answer.headers.get('ETag') ?? undefined;
      if (this.#mode === 'once' || isTerminal(run)) this.#mode = 'off';
      this.#sink.read(run, mark);
    } catch (error) {
      if (flight.signal.aborted) return;
      if (!transient(error)) {
        this.#mode = 'off';
        this.#sink.fatal(error instanceof Error ? error : new Error(String(error)));
        return;
      }
      this.#errors++;
      if (long) this.#longFailures++;
      this.#hintMs = error instanceof ProblemError ? error.retryAfterMs : undefined;
      delay = this.#interval();
      this.#sink.failed();
    } finally {
      if (long) env.longPolls--;
      if (this.#flight === flight) this.#flight = undefined;
    }
    if (flight.signal.aborted || this.#timer) return; // the answer changed the mode
    if (this.#mode === 'off') this.#nextAt = env.clock.now() + delay;
    else this.#schedule(delay);
  }

  /** Whether the server is asked to hold the next answer. */
  #long(): boolean {
    return this.#mode === 'longpoll' && this.#longFailures < 2 && this.#env.longPolls < mostLongPolls;
  }

  #interval(): number {
    const p = { checks: this.#checks, errors: this.#errors, hintMs: this.#hintMs };
    return nextCheck(p, this.#env.floorMs, this.#env.jitter, this.#env.random);
  }

  /** What follows an answer. A server that held is asked again at once; one that
   * answers early with nothing new does not hold, and is paced until it does. */
  #pause(long: boolean, changed: boolean, tookMs: number): number {
    if (!long) return this.#interval();
    if (changed) {
      this.#unheld = 0;
      return spread(this.#env.floorMs, 0, this.#env.floorMs, this.#env.jitter, this.#env.random);
    }
    if (tookMs >= 0.8 * holdS * 1000) {
      this.#unheld = 0;
      return 250 * this.#env.random();
    }
    if (tookMs < 0.2 * holdS * 1000) this.#unheld++;
    return this.#interval();
  }
}

function higher(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined ? b : b === undefined ? a : Math.max(a, b);
}
