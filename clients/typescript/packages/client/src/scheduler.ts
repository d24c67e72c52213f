import { after, systemClock, type Cancel, type Clock } from './clock.js';
import { staggerMs as defaultStaggerMs } from './hub.js';
import { Loop, type BackoffState, type LoopFn, type LoopHost, type LoopOptions, type Reason, type Triggered } from './loop.js';
import { Notifier, report } from './notify.js';
import { floorOf } from './pace.js';
import { Page } from './page.js';
import { jitterOf, Tabs } from './tabs.js';

export interface PollSchedulerOptions {
  /** How far failures in a row stretch an interval, 8. */
  maxMultiplier?: number;
  /** How far apart overdue loops start when the page is back, 150 ms. */
  staggerMs?: number;
  /** 0.1: an interval is up to a tenth longer or shorter; 0.3 where each tab polls. */
  jitter?: number;
  /** How many loops run at once, 4. */
  maxConcurrent?: number;
  /** What a hidden page does: nothing, or all more rarely. */
  hidden?: 'pause' | { multiplier: number };
  /** Whom tabs share for: it must name the user. Without it each tab runs its own. */
  scope?: string;
  leader?: 'auto' | false;
  /** The least pause between two turns, 1000 ms; as low as 500. */
  minIntervalMs?: number;
  clock?: Clock;
  random?: () => number;
}

/** A loop of a page. Two that register one name share one loop. */
export interface PollHandle {
  readonly name: string;
  /** Runs now and begins the countdown anew; while a turn is in flight exactly one
   * follows it, however often it is called. */
  trigger(options?: { force?: boolean }): Triggered;
  /** Holds the loop back. A turn in flight finishes, unless aborted. */
  pause(options?: { abort?: boolean }): void;
  /** Goes on: at once if overdue, else when it would have. */
  resume(): void;
  backoffState(): BackoffState;
  /** Forgets failures: the next turn is one plain interval after the last. */
  resetBackoff(): void;
  /** Has fn called whenever backoffState gives another object. */
  subscribe(fn: () => void): Cancel;
  stop(): void;
}

export interface PollScheduler {
  register<T = unknown>(name: string, fn: LoopFn<T>, options: LoopOptions<T>): PollHandle;
  /** Stops all loops and leaves nothing behind. */
  destroy(): void;
  /** destroy in all tabs of the scope. */
  logout(): void;
}

/** What one tab tells the others of a loop: a turn, and what was read; or, without a
 * version, that it would like to know. */
interface Told {
  loop: string;
  version?: number;
  at?: number;
  data?: { value: unknown };
}

interface Entry {
  loop: Loop;
  owners: Set<symbol>;
  /** Of what the tabs have shared; only a higher one is taken. */
  version: number;
  /** The last that was shared, for a tab that comes later. */
  told: Told | undefined;
  resign: Cancel | undefined;
  silence: Cancel | undefined;
}

const onlineMs = 2000;

/** Creates the scheduler of a page: its loops rest while nobody looks. */
export function createPollScheduler(options: PollSchedulerOptions = {}): PollScheduler {
  return new Scheduler(options);
}

class Scheduler implements PollScheduler {
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #staggerMs: number;
  readonly #maxConcurrent: number;
  readonly #hiddenMultiplier: number | undefined;
  readonly #host: LoopHost;
  readonly #page: Page;
  readonly #tabs: Tabs | undefined;
  readonly #notifier = new Notifier();
  readonly #entries = new Map<string, Entry>();
  readonly #queue = new Set<() => void>();
  #running = 0;
  #flushing: Cancel | undefined;
  #closed = false;

  constructor(options: PollSchedulerOptions) {
    const { hidden = 'pause', leader } = options;
    this.#clock = options.clock ?? systemClock;
    this.#random = options.random ?? Math.random;
    this.#staggerMs = least('staggerMs', options.staggerMs ?? defaultStaggerMs, 0);
    this.#maxConcurrent = least('maxConcurrent', options.maxConcurrent ?? 4, 1);
    this.#hiddenMultiplier = hidden === 'pause' ? undefined : least('hidden.multiplier', hidden.multiplier, 1);
    this.#tabs = Tabs.of(options.scope, leader);
    this.#page = new Page(this.#clock, {
      hide: () => this.#hide(),
      show: () => this.#back(0),
      offline: () => this.#rest(),
      online: () => this.#back(onlineMs * this.#random()),
    });
    this.#host = {
      clock: this.#clock,
      random: this.#random,
      jitter: least('jitter', options.jitter ?? jitterOf(this.#tabs, leader), 0),
      floorMs: floorOf(options.minIntervalMs),
      maxMultiplier: least('maxMultiplier', options.maxMultiplier ?? 8, 1),
      idle: () => this.#idle(),
      stretch: () => (this.#page.hidden ? (this.#hiddenMultiplier ?? 1) : 1),
      offline: () => this.#page.offline,
      enqueue: (start) => this.#enqueue(start),
      leave: () => this.#leave(),
      changed: (loop) => this.#notifier.tell(loop.subscribers),
      told: (loop, data) => this.#tell(loop, data),
    };
    this.#tabs?.hear((message) => this.#hear(message));
  }

  register<T>(name: string, fn: LoopFn<T>, options: LoopOptions<T>): PollHandle {
    if (this.#closed) throw new Error('the scheduler was destroyed');
    if (!name) throw new TypeError('name must not be empty');
    least('intervalMs', options.intervalMs, Number.MIN_VALUE);
    const given = { fn: fn as LoopFn, options: options as LoopOptions };
    let entry = this.#entries.get(name);
    if (entry) {
      entry.loop.update(given.fn, given.options);
    } else {
      const loop = new Loop(this.#host, name, given.fn, given.options);
      entry = { loop, owners: new Set(), version: 0, told: undefined, resign: undefined, silence: undefined };
      this.#entries.set(name, entry);
      this.#begin(entry);
    }
    const owner = Symbol(name);
    entry.owners.add(owner);
    return this.#handle(entry, owner);
  }

  destroy(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const entry of this.#entries.values()) this.#end(entry);
    this.#entries.clear();
    this.#queue.clear();
    this.#flushing?.();
    this.#page.destroy();
    this.#tabs?.close();
  }

  logout(): void {
    if (this.#closed) return;
    this.#tabs?.post({ logout: true });
    this.destroy();
  }

  #handle(entry: Entry, owner: symbol): PollHandle {
    const { loop } = entry;
    return {
      name: loop.name,
      trigger: ({ force = false } = {}) => loop.trigger(force),
      pause: ({ abort = false } = {}) => loop.pause(abort),
      resume: () => {
        if (!loop.state.paused) return;
        loop.unpause();
        this.#go([entry], 'resume');
      },
      backoffState: () => loop.state,
      resetBackoff: () => loop.resetBackoff(),
      subscribe: (fn) => {
        const tell = (): void => fn();
        loop.subscribers.add(tell);
        return () => loop.subscribers.delete(tell);
      },
      stop: () => {
        entry.owners.delete(owner);
        if (entry.owners.size > 0 || this.#entries.get(loop.name) !== entry) return;
        this.#entries.delete(loop.name);
        this.#end(entry);
      },
    };
  }

  #idle(): boolean {
    return this.#closed || this.#page.offline || (this.#page.hidden && this.#hiddenMultiplier === undefined);
  }

  /** Lets a loop run in this tab, or in whichever leads; after delayMs if it is overdue. */
  #begin(entry: Entry, delayMs = 0): void {
    const { loop } = entry;
    if (this.#idle()) return;
    if (!this.#tabs || !loop.options.receive || this.#page.hidden) {
      loop.schedule();
      return;
    }
    loop.lead(false);
    this.#expect(entry);
    this.#tabs.post({ loop: loop.name });
    entry.resign = this.#tabs.stand('loop:' + loop.name, () => {
      entry.silence?.();
      entry.silence = undefined;
      loop.lead(true);
      this.#go([entry], 'resume', delayMs);
    });
  }

  #end(entry: Entry): void {
    this.#withdraw(entry);
    entry.loop.stop();
  }

  #withdraw(entry: Entry): void {
    entry.resign?.();
    entry.resign = undefined;
    entry.silence?.();
    entry.silence = undefined;
    entry.loop.lead(true);
  }

  /** A leader of whom nothing is heard for three intervals is stood in for, once. */
  #expect(entry: Entry): void {
    const { loop } = entry;
    entry.silence?.();
    entry.silence = after(this.#clock, 3 * loop.state.effectiveIntervalMs, () => {
      loop.enqueue('silent');
      this.#expect(entry);
    });
  }

  #hide(): void {
    for (const entry of this.#entries.values()) this.#withdraw(entry);
    if (this.#hiddenMultiplier === undefined) this.#rest();
    else for (const { loop } of this.#entries.values()) loop.schedule();
  }

  /** Nothing runs any more, and nothing waits to; reads in flight are dropped. */
  #rest(): void {
    this.#flushing?.();
    this.#flushing = undefined;
    for (const entry of this.#entries.values()) {
      this.#withdraw(entry);
      entry.loop.unschedule();
      entry.loop.abort();
    }
  }

  #back(delayMs: number): void {
    this.#flushing?.();
    this.#flushing = undefined;
    if (this.#idle()) return;
    if (delayMs > 0) {
      this.#flushing = after(this.#clock, delayMs, () => this.#back(0));
      return;
    }
    const free: Entry[] = [];
    let delay = 0; // each gets its lock by itself, so the order is made here
    for (const entry of [...this.#entries.values()].sort((a, b) => byInterval(a.loop, b.loop))) {
      const { loop } = entry;
      if (this.#hiddenMultiplier !== undefined) loop.unstretch();
      if (!this.#tabs || !loop.options.receive) {
        free.push(entry);
        continue;
      }
      this.#begin(entry, delay);
      if (loop.stale() && !loop.state.paused) delay += this.#staggerMs;
    }
    this.#go(free, 'resume', delay);
  }

  /** Overdue loops start one after the other, the most frequent first; the others
   * keep what was left of their time. */
  #go(entries: Entry[], reason: Reason, delayMs = 0): void {
    if (this.#idle()) return;
    const loops = entries.map((entry) => entry.loop).filter((loop) => !loop.state.paused && !loop.state.inFlight && !loop.following);
    const stale = loops.filter((loop) => loop.stale());
    stale.sort(byInterval);
    stale.forEach((loop, i) => loop.enqueue(reason, delayMs + i * this.#staggerMs));
    for (const loop of loops) if (!stale.includes(loop)) loop.schedule();
  }

  #enqueue(start: () => void): Cancel {
    this.#queue.add(start);
    this.#admit();
    return () => this.#queue.delete(start);
  }

  #leave(): void {
    this.#running--;
    this.#admit();
  }

  #admit(): void {
    for (const start of this.#queue) {
      if (this.#running >= this.#maxConcurrent) return;
      this.#queue.delete(start);
      this.#running++;
      start();
    }
  }

  #tell(loop: Loop, data: { value: unknown } | undefined): void {
    if (data) this.#receive(loop, data.value);
    const entry = this.#entries.get(loop.name);
    if (!entry || !this.#tabs || !loop.options.receive) return;
    const at = this.#clock.now();
    entry.version = Math.max(entry.version + 1, at);
    const told: Told = { loop: loop.name, version: entry.version, at };
    if (data) entry.told = { ...told, data };
    this.#tabs.post(data ? entry.told : told);
    if (loop.following) this.#expect(entry);
  }

  #hear(message: unknown): void {
    if (typeof message !== 'object' || message === null) return;
    if ('logout' in message) {
      this.destroy();
      return;
    }
    const { loop: name, version, at, data } = message as Partial<Told>;
    const entry = typeof name === 'string' ? this.#entries.get(name) : undefined;
    if (!entry) return;
    const { loop } = entry;
    if (version === undefined && entry.told && entry.resign && !loop.following) this.#tabs?.post(entry.told);
    if (typeof version !== 'number' || version <= entry.version) return;
    entry.version = version;
    loop.heard(Math.min(at ?? Infinity, this.#clock.now()));
    if (loop.following && entry.resign) this.#expect(entry);
    else loop.schedule();
    if (data) this.#receive(loop, data.value);
  }

  #receive(loop: Loop, value: unknown): void {
    try {
      loop.options.receive?.(value);
    } catch (error) {
      report(error);
    }
  }
}

/** The most frequent first. */
function byInterval(a: Loop, b: Loop): number {
  return a.options.intervalMs - b.options.intervalMs || (a.name < b.name ? -1 : 1);
}

function least(name: string, value: number, min: number): number {
  if (Number.isFinite(value) && value >= min) return value;
  throw new RangeError(`${name} must be ${min === Number.MIN_VALUE ? 'above 0' : `at least ${min}`}, is ${value}`);
}
