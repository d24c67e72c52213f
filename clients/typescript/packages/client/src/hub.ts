import { after, type Cancel, type Clock } from './clock.js';
import { Reopening } from './reopen.js';
import { runPath } from './run.js';
import { silenceMs, type OpenSource, type SourceEnd } from './source.js';
import type { SseEvent } from './sse.js';

/** What one watched run, or anyRun, hears of the stream that all share. */
export interface HubSink {
  /** The stream tells of the run, from now on. What it may have missed is asked for
   * after delayMs, so that many do not ask at once. Of anyRun it is told for each
   * stream, as this has nothing to begin with that makes up for one before. */
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

const types = ['snapshot', 'state', 'progress', 'end', 'gone', 'done', 'changed', 'closing'] as const;

/** Stands for an id: that some run has changed, whichever. */
export const anyRun = '';

/** The server takes this many ids on one stream, and a URL should stay short. */
const mostRuns = 100;
const mostUrl = 4000;

/** What comes back at once comes this far apart, in milliseconds. */
export const staggerMs = 150;
/** How long joins are gathered before the stream is opened anew. */
const gatherMs = 20;

/**
 * One stream of events for all watched runs, and for hints that any has changed: a
 * browser has about six connections to a server over HTTP/1.1. A snapshot of each run
 * comes first whenever it is opened, so nothing is lost between two streams and none
 * needs to be resumed.
 */
export class Hub {
  readonly #open: OpenSource;
  readonly #native: boolean;
  readonly #clock: Clock;
  readonly #reopening: Reopening;
  readonly #members = new Set<Member>();
  #source: Cancel | undefined;
  #timer: Cancel | undefined;
  #silence: Cancel | undefined;
  #up = false;
  #closing = false;
  #downUntil = 0;
  /** No new stream before, although it is not given up. */
  #restUntil = 0;

  constructor(open: OpenSource, native: boolean, clock: Clock, random: () => number) {
    this.#open = open;
    this.#native = native;
    this.#clock = clock;
    this.#reopening = new Reopening(random);
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
    this.#reopening.forget();
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
    const hints = [...this.#members].some((m) => m.id === anyRun);
    if (ids.length === 0 && !hints) return;
    const told = new Set(hints ? [...ids, anyRun] : ids);
    this.#listen();
    this.#source = this.#open(pathOf(ids, hints), types, '', {
      open: () => {
        if (ids.length === 0) this.#spoke(told); // else each run has a first word
      },
      event: (event) => this.#event(event, told),
      close: (why) => this.#closed(why),
    });
  }

  /** The runs that one stream has room for; the others are asked after otherwise. */
  #choose(): string[] {
    const ids = new Set<string>();
    let length = 0;
    for (const member of [...this.#members]) {
      if (member.id === anyRun) continue;
      const cost = named(member.id).length + 1;
      const fits = ids.size < mostRuns && length + cost <= mostUrl;
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
    let value: unknown;
    try {
      value = JSON.parse(event.data);
    } catch {
      this.#closed({ opened: true });
      return;
    }
    const source = this.#source;
    const id = event.type === 'changed' ? anyRun : idOf(value);
    for (const member of [...this.#members]) if (member.id === id && (member.up || id !== anyRun)) member.sink.event(event.type, value);
    if (source === this.#source) this.#spoke(told);
  }

  /** The stream lives, and tells of these. */
  #spoke(told: ReadonlySet<string>): void {
    const source = this.#source;
    const first = !this.#up;
    if (first) {
      this.#up = true;
      this.#reopening.spoke();
    }
    let turn = 0;
    for (const member of [...this.#members]) {
      const known = member.up && !(first && member.id === anyRun);
      if (known || !told.has(member.id) || source !== this.#source || !this.#members.has(member)) continue;
      member.up = true;
      member.sink.up(member.id === anyRun ? 0 : turn++ * staggerMs);
    }
  }

  #closed(why: SourceEnd): void {
    const was = this.#up;
    this.#drop();
    if (this.#members.size === 0) return;
    const { ms, down } = this.#reopening.pause(why, was, this.#closing);
    if (down) this.#downUntil = this.#clock.now() + ms;
    else this.#restUntil = this.#clock.now() + ms;
    this.#reopenIn(ms);
    for (const { id, sink, up } of this.#members) {
      if (why.over) void sink.check();
      else if (down) sink.down();
      else if (up || id === anyRun) sink.lost();
    }
    for (const member of this.#members) member.up = false;
  }
}

/** The stream of these runs. A comma would part a single id, unless it is given twice. */
function pathOf(ids: readonly string[], hints: boolean): string {
  const [only] = ids;
  if (only === undefined) return '/v1/events';
  if (ids.length === 1 && !hints) return runPath(only) + '/events';
  const all = ids.length === 1 && only.includes(',') ? [only, only] : ids;
  return '/v1/events?' + all.map(named).join('&') + (hints ? '&changes=true' : '');
}

/** A run as one of several in a query; whatever is in its id. */
function named(id: string): string {
  return 'runs=' + encodeURIComponent(id);
}

function idOf(value: unknown): string | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const { id, run } = value as { id?: unknown; run?: unknown };
  return typeof id === 'string' ? id : typeof run === 'string' ? run : undefined;
}
