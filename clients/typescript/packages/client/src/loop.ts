import { after, type Cancel, type Clock } from './clock.js';
import { offlineFailure, ProblemError } from './error.js';
import { positive } from './hint.js';
import { spread } from './pace.js';

/** Why a loop's function runs: by its timer, because it was asked to, because the page
 * or the network is back, or because the leading tab is silent. */
export type Reason = 'timer' | 'trigger' | 'resume' | 'silent';

export interface LoopContext<T> {
  /** Aborted when the page is hidden: give it to reads, not to writes. */
  signal: AbortSignal;
  reason: Reason;
  /** The server wants to be left alone for so long; the next turn is no earlier. */
  hint(ms: number): void;
  /** Gives what was read to the receive of this tab and of all others. */
  share(data: T): void;
}

/** false, or an error, is a failure; true or nothing is success. */
export type LoopFn<T = unknown> = (context: LoopContext<T>) => Promise<boolean | void> | boolean | void;

export interface LoopOptions<T = unknown> {
  intervalMs: number;
  /** false skips a turn, which counts as nothing. */
  condition?: (() => boolean) | undefined;
  /** Do not wait for the first interval. */
  runImmediately?: boolean | undefined;
  /** Takes what share was given, in whichever tab. A loop that has it runs in one tab
   * only; without it each tab has to run its own. */
  receive?: ((data: T) => void) | undefined;
}

export interface BackoffState {
  readonly failures: number;
  readonly multiplier: number;
  readonly effectiveIntervalMs: number;
  readonly iteration: number;
  readonly inFlight: boolean;
  readonly paused: boolean;
  /** Whether this tab runs the loop; false: another does. */
  readonly leading: boolean;
  readonly nextRunAt: number | undefined;
  readonly lastRunAt: number | undefined;
  readonly lastCompletedAt: number | undefined;
  readonly lastSuccessAt: number | undefined;
  readonly lastError: unknown;
}

/** The iteration that begins after the trigger; coalesced: after one in flight. */
export interface Triggered {
  readonly iteration: number;
  readonly coalesced: boolean;
  /** The condition was false, so nothing ran. */
  readonly skipped: boolean;
}

/** What a loop needs of its scheduler. */
export interface LoopHost {
  readonly clock: Clock;
  readonly random: () => number;
  readonly jitter: number;
  readonly floorMs: number;
  readonly maxMultiplier: number;
  /** Whether timers may run, and by what intervals are stretched meanwhile. */
  idle(): boolean;
  stretch(): number;
  offline(): boolean;
  /** Runs start when there is room for one more. */
  enqueue(start: () => void): Cancel;
  leave(): void;
  changed(loop: Loop): void;
  /** Tells the other tabs that a turn is over, and what came of it. */
  told(loop: Loop, data: { value: unknown } | undefined): void;
}

/** One named loop: a turn, then a pause, never two turns at once. */
export class Loop {
  readonly name: string;
  options: LoopOptions;
  fn: LoopFn;
  /** Another tab runs it. */
  following = false;
  readonly subscribers = new Set<() => void>();
  readonly #host: LoopHost;
  readonly #born: number;
  #timer: Cancel | undefined;
  #queued: Cancel | undefined;
  #flight: AbortController | undefined;
  /** A trigger came while a turn was in flight: one more follows. */
  #again = false;
  #dead = false;
  /** What the last pause was meant to be, a server's hint included. */
  #spanMs: number;
  #state: BackoffState;

  constructor(host: LoopHost, name: string, fn: LoopFn, options: LoopOptions) {
    this.#host = host;
    this.name = name;
    this.fn = fn;
    this.options = options;
    this.#born = host.clock.now();
    this.#spanMs = options.intervalMs;
    this.#state = {
      failures: 0, multiplier: 1, effectiveIntervalMs: options.intervalMs, iteration: 0, inFlight: false, paused: false, leading: true,
      nextRunAt: undefined, lastRunAt: undefined, lastCompletedAt: undefined, lastSuccessAt: undefined, lastError: undefined,
    };
    this.#set({ nextRunAt: this.#born + (options.runImmediately ? 0 : this.#delay(0)) });
  }

  get state(): BackoffState {
    return this.#state;
  }

  /** Due, by the wall clock: a throttled page's timers count for nothing. */
  stale(): boolean {
    const { nextRunAt = 0, lastCompletedAt = this.#born } = this.#state;
    const now = this.#host.clock.now();
    return now >= nextRunAt || now - lastCompletedAt >= this.#spanMs;
  }

  /** Sets the timer for what is left until the next turn. */
  schedule(): void {
    this.unschedule();
    if (this.#dead || this.#flight || this.#state.paused || this.following || this.#host.idle()) return;
    const left = (this.#state.nextRunAt ?? 0) - this.#host.clock.now();
    this.#timer = after(this.#host.clock, Math.max(0, left), () => {
      this.#timer = undefined;
      this.enqueue('timer');
    });
  }

  /** Takes away the timer and the place in the queue. */
  unschedule(): void {
    this.#timer?.();
    this.#timer = undefined;
    this.#queued?.();
    this.#queued = undefined;
  }

  /** Runs as soon as there is room. */
  enqueue(reason: Reason, delayMs = 0): void {
    this.unschedule();
    const join = (): void => {
      this.#timer = undefined;
      this.#queued = this.#host.enqueue(() => {
        this.#queued = undefined;
        void this.#turn(reason);
      });
    };
    if (delayMs > 0) this.#timer = after(this.#host.clock, delayMs, join);
    else join();
  }

  trigger(force: boolean): Triggered {
    if (this.#dead) throw new Error(`the loop ${this.name} is stopped`);
    const { paused, iteration } = this.#state;
    if (paused && !force) throw new Error(`the loop ${this.name} is paused; resume it, or trigger with {force: true}`);
    if (this.#flight) {
      this.#again = true;
      return { iteration: iteration + 1, coalesced: true, skipped: false };
    }
    if (!this.#willing()) {
      this.#rest(this.#delay(0));
      return { iteration, coalesced: false, skipped: true };
    }
    this.enqueue('trigger');
    return { iteration: iteration + 1, coalesced: false, skipped: false };
  }

  pause(abort: boolean): void {
    this.unschedule();
    this.#again = false;
    this.#set({ paused: true });
    if (abort) this.abort();
  }

  /** Ends a pause; what is overdue is for the scheduler to run. */
  unpause(): void {
    this.#set({ paused: false });
  }

  resetBackoff(): void {
    const { lastCompletedAt = this.#born } = this.#state;
    this.#spanMs = this.options.intervalMs;
    this.#set({ failures: 0, multiplier: 1, nextRunAt: lastCompletedAt + this.options.intervalMs });
    if (this.#running()) this.schedule();
  }

  /** Takes over another function or interval; what it has learnt stays. */
  update(fn: LoopFn, options: LoopOptions): void {
    const before = this.options.intervalMs;
    this.fn = fn;
    this.options = options;
    if (options.intervalMs === before) return;
    const { lastCompletedAt = this.#born } = this.#state;
    this.#spanMs = this.#effective();
    this.#set({ nextRunAt: lastCompletedAt + this.#spanMs });
    if (this.#running()) this.schedule();
  }

  /** Ends the turn in flight, which counts as neither success nor failure. */
  abort(): void {
    this.#flight?.abort();
  }

  /** Another tab has had a turn, which ended at that time. */
  heard(at: number): void {
    this.#set({ lastCompletedAt: at, nextRunAt: at + this.#delay(0) });
  }

  lead(leading: boolean): void {
    this.following = !leading;
    if (this.#state.leading !== leading) this.#set({ leading });
    if (!leading) this.unschedule();
  }

  /** A page that is shown again waits no longer than the plain interval. */
  unstretch(): void {
    const { lastCompletedAt = this.#born, nextRunAt } = this.#state;
    const next = lastCompletedAt + this.#spanMs;
    if (nextRunAt !== undefined && nextRunAt > next + this.#spanMs) this.#set({ nextRunAt: next });
  }

  stop(): void {
    this.#dead = true;
    this.unschedule();
    this.abort();
    this.subscribers.clear();
  }

  #running(): boolean {
    return !this.#flight && !this.#queued;
  }

  #willing(): boolean {
    return this.options.condition?.() ?? true;
  }

  #effective(): number {
    return this.options.intervalMs * this.#state.multiplier;
  }

  /** The pause after a turn; a server's hint is its floor. */
  #delay(hintMs: number): number {
    const { floorMs, jitter, random } = this.#host;
    const ms = this.#effective();
    this.#spanMs = Math.max(floorMs, ms, hintMs);
    return spread(ms, hintMs, floorMs, jitter, random) * this.#host.stretch();
  }

  #rest(delayMs: number): void {
    this.#set({ nextRunAt: this.#host.clock.now() + delayMs });
    this.schedule();
  }

  async #turn(reason: Reason): Promise<void> {
    const host = this.#host;
    if (this.#flight) {
      host.leave();
      return;
    }
    let willing: boolean;
    let failure: { error: unknown } | undefined;
    try {
      willing = this.#willing();
    } catch (error) {
      willing = true;
      failure = { error };
    }
    if (!willing) {
      host.leave();
      this.#rest(this.#delay(0));
      return;
    }
    const flight = (this.#flight = new AbortController());
    let hintMs = 0;
    let shared: { value: unknown } | undefined;
    this.#set({ inFlight: true, iteration: this.#state.iteration + 1, lastRunAt: host.clock.now(), nextRunAt: undefined });
    if (!failure) {
      try {
        const ok = await this.fn({
          signal: flight.signal,
          reason,
          hint: (ms) => (hintMs = Math.max(hintMs, positive(ms) ?? 0)),
          share: (value) => (shared = { value }),
        });
        if (ok === false) failure = { error: undefined };
      } catch (error) {
        failure = { error };
      }
    }
    this.#flight = undefined;
    host.leave();
    if (this.#dead) return;
    if (failure?.error instanceof ProblemError) hintMs = Math.max(hintMs, failure.error.retryAfterMs ?? 0);
    const uncounted = failure !== undefined && (flight.signal.aborted || offlineFailure(failure.error, !host.offline()));
    if (uncounted) this.#uncounted(flight.signal);
    else this.#counted(failure, hintMs);
    if (!uncounted) host.told(this, failure ? undefined : shared);
    if (this.#again && !this.#state.paused) {
      this.#again = false;
      this.enqueue('trigger');
    } else {
      this.schedule();
    }
  }

  #counted(failure: { error: unknown } | undefined, hintMs: number): void {
    const now = this.#host.clock.now();
    const failures = failure ? this.#state.failures + 1 : 0;
    const multiplier = Math.min(2 ** failures, this.#host.maxMultiplier);
    this.#set({ failures, multiplier });
    const next = { inFlight: false, lastCompletedAt: now, nextRunAt: now + this.#delay(hintMs) };
    this.#set(failure ? { ...next, lastError: failure.error ?? new Error(`${this.name} returned false`) } : { ...next, lastSuccessAt: now, lastError: undefined });
  }

  /** Aborted, or without a network: it is due as it was, but not in a hot loop. */
  #uncounted(signal: AbortSignal): void {
    const now = this.#host.clock.now();
    const asleep = this.#host.idle() || signal.aborted;
    this.#set({ inFlight: false, nextRunAt: asleep ? now : now + this.#delay(0) });
  }

  #set(change: Partial<BackoffState>): void {
    const next = { ...this.#state, ...change };
    this.#state = { ...next, effectiveIntervalMs: this.options.intervalMs * next.multiplier };
    this.#host.changed(this);
  }
}
