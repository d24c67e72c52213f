import { after, type Cancel, type Clock } from './clock.js';
import { ProblemError } from './error.js';
import { runPath } from './run.js';
import { silenceMs, type OpenSource, type SourceEnd } from './source.js';
import type { SseEvent } from './sse.js';

/** What one watched run hears of the stream that all share. */
export interface HubSink {
  /** The stream tells of the run, from now on. What it may have missed is asked for
   * after delayMs, so that many do not ask at once. */
  up(delayMs: number): void;
  /** It is being opened, again or for the first time. */
  lost(): void;
  /** It cannot be had for now. */
  down(): void;
  event(type: string, data: unknown): void;
  /** Ask by other means; the answer is whether the stream had kept something back. */
  check(): Promise<boolean>;
}

interface Member {
  readonly id: string;
  readonly sink: HubSink;
  up: boolean;
}

const types = ['snapshot', 'state', 'progress', 'end', 'gone', 'done', 'closing'] as const;

/** The server takes this many ids on one stream, and a URL should stay short. */
const mostRuns = 100;
const mostUrl = 4000;

/** What comes back at once comes this far apart, in milliseconds. */
export const staggerMs = 150;
/** How long joins are gathered before the stream is opened anew. */
const gatherMs = 20;
const firstCooldownMs = 60_000;
const lastCooldownMs = 600_000;

/**
 * One stream of events for all watched runs: a browser has about six connections to
 * a server over HTTP/1.1. A snapshot of each run comes first whenever it is opened,
 * so nothing is lost between two streams and none needs to be resumed.
 */
export class Hub {
  readonly #open: OpenSource;
  readonly #native: boolean;
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #members = new Set<Member>();
  #source: Cancel | undefined;
  #timer: Cancel | undefined;
  #silence: Cancel | undefined;
  #up = false;
  #closing = false;
  #failed = 0;
  #cooldownMs = 0;
  #downUntil = 0;
  /** No new stream before, although it is not given up. */
  #restUntil = 0;

  constructor(open: OpenSource, native: boolean, clock: Clock, random: () => number) {
    this.#open = open;
    this.#native = native;
    this.#clock = clock;
    this.#random = random;
  }

  /** Has the run told to the sink, until the returned function is called. */
  join(id: string, sink: HubSink): Cancel {
    const member: Member = { id, sink, up: false };
    this.#members.add(member);
    const wait = this.#downUntil - this.#clock.now();
    if (wait > 0) {
      this.#reopenIn(wait, true);
      sink.down();
    } else {
      this.#reopenIn(Math.max(gatherMs, this.#restUntil - this.#clock.now()));
      sink.lost();
    }
    return () => {
      if (this.#members.delete(member) && this.#members.size === 0) this.#halt();
    };
  }

  #halt(): void {
    this.#timer?.();
    this.#timer = undefined;
    this.#drop();
    this.#failed = 0;
  }

  #drop(): void {
    this.#silence?.();
    this.#source?.();
    this.#source = undefined;
    this.#up = false;
  }

  #reopenIn(ms: number, keep = false): void {
    if (keep && this.#timer) return;
    this.#timer?.();
    this.#timer = after(this.#clock, ms, () => {
      this.#timer = undefined;
      this.#reopen();
    });
  }

  #reopen(): void {
    this.#drop();
    this.#closing = false;
    const ids = this.#choose();
    const only = ids.length === 1 ? ids[0] : undefined;
    if (ids.length === 0) return;
    const path = only !== undefined ? runPath(only) + '/events' : '/v1/events?runs=' + ids.map(encodeURIComponent).join(',');
    const told = new Set(ids);
    this.#listen();
    this.#source = this.#open(path, types, '', {
      open: () => {},
      event: (event) => this.#event(event, told),
      close: (why) => this.#closed(why),
    });
  }

  /** The runs that one stream has room for; the others are asked after otherwise. */
  #choose(): string[] {
    const ids = new Set<string>();
    let length = 0;
    for (const member of [...this.#members]) {
      const cost = encodeURIComponent(member.id).length + 1;
      const fits = ids.size < mostRuns && length + cost <= mostUrl && !(member.id.includes(',') && this.#members.size > 1);
      if (ids.has(member.id)) continue;
      if (fits) {
        ids.add(member.id);
        length += cost;
      } else {
        member.up = false;
        member.sink.down();
      }
    }
    return [...ids];
  }

  /** A native EventSource hides the comments that show that it lives: after as long
   * a silence the runs are asked for otherwise, and if one had changed it is dead. */
  #listen(): void {
    this.#silence?.();
    this.#silence = after(this.#clock, silenceMs, () => {
      if (!this.#up) this.#closed({ opened: false });
      else if (this.#native) void this.#doubt();
    });
  }

  async #doubt(): Promise<void> {
    const source = this.#source;
    const missed = await Promise.all([...this.#members].filter((m) => m.up).map((m) => m.sink.check()));
    if (source !== this.#source || !source) return;
    if (missed.includes(true)) this.#closed({ opened: true });
    else this.#listen();
  }

  #event(event: SseEvent, told: ReadonlySet<string>): void {
    this.#listen();
    if (event.type === 'closing') {
      this.#closing = true;
      return;
    }
    if (!this.#up) {
      this.#up = true;
      this.#failed = 0;
      this.#cooldownMs = 0;
    }
    let value: unknown;
    try {
      value = JSON.parse(event.data);
    } catch {
      this.#closed({ opened: true });
      return;
    }
    const source = this.#source;
    const id = idOf(value);
    const members = [...this.#members];
    for (const member of members) if (member.id === id) member.sink.event(event.type, value);
    let turn = 0;
    for (const member of members) {
      if (member.up || !told.has(member.id) || source !== this.#source || !this.#members.has(member)) continue;
      member.up = true;
      member.sink.up(turn++ * staggerMs);
    }
  }

  #closed(why: SourceEnd): void {
    const was = this.#up;
    this.#drop();
    if (this.#members.size === 0) return;
    const problem = why.error instanceof ProblemError ? why.error : undefined;
    const never = problem !== undefined && [404, 406, 501].includes(problem.status);
    const cooling = this.#cooldownMs > 0;
    if (!was && !why.over) this.#failed++;
    if (never || this.#failed >= 2 || (!was && cooling)) {
      this.#failed = 0;
      this.#cooldownMs = Math.min(lastCooldownMs, cooling ? this.#cooldownMs * 2 : firstCooldownMs);
      this.#downUntil = this.#clock.now() + this.#cooldownMs;
      this.#reopenIn(this.#cooldownMs);
    } else {
      const told = why.retryMs ?? (this.#closing ? 1000 + 9000 * this.#random() : 2500 + 1000 * this.#random());
      const rest = Math.max(told, problem?.retryAfterMs ?? 0);
      this.#restUntil = this.#clock.now() + rest;
      this.#reopenIn(rest);
    }
    const down = this.#downUntil > this.#clock.now();
    for (const { sink, up } of this.#members) {
      if (why.over) void sink.check();
      else if (down) sink.down();
      else if (up) sink.lost();
    }
    for (const member of this.#members) member.up = false;
  }
}

function idOf(value: unknown): string | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const { id, run } = value as { id?: unknown; run?: unknown };
  return typeof id === 'string' ? id : typeof run === 'string' ? run : undefined;
}
