import { after, type Cancel } from './clock.js';
import { Checker, type Seed } from './checker.js';
import type { Env, Sleeper } from './env.js';
import { ClosedError, RunFailedError } from './error.js';
import type { HubSink } from './hub.js';
import { isRun, isTerminal, newer, type Connection, type ProgressEvent, type Run, type RunSnapshot, type State } from './run.js';

/** How long a tab waits to be made the leader before it asks for itself. */
const electionMs = 50;

/** What is said between tabs: a run, or only that its leader lives and what it knows. */
interface Told {
  id: string;
  version: number;
  state?: State | undefined;
  run?: Run;
}

/**
 * Watches one run for all who subscribe to it: over the shared stream, by asking, or
 * by listening to the tab that does. It runs while it has subscribers, the page is
 * shown and the run has not ended.
 */
export class Watch implements Sleeper {
  readonly id: string;
  snapshot: RunSnapshot;
  readonly #env: Env;
  readonly #idle: (watch: Watch) => void;
  readonly #checker: Checker;
  readonly #subscribers = new Set<() => void>();
  #lingering: Cancel | undefined;
  #begun = false;
  #leading = false;
  #leaveHub: Cancel | undefined;
  #resign: Cancel | undefined;
  #unhear: Cancel | undefined;
  #beat: Cancel | undefined;
  #applied = 0;
  #checked: ((changed: boolean) => void) | undefined;

  constructor(env: Env, id: string, seed: Seed | undefined, idle: (watch: Watch) => void) {
    this.#env = env;
    this.id = id;
    this.#idle = idle;
    this.snapshot = snapshotOf(id, seed?.run, undefined, isTerminal(seed?.run) ? 'closed' : 'idle');
    this.#checker = new Checker(env, id, seed, {
      read: (run, mark) => this.#read(run, mark),
      mark: () => this.#applied,
      failed: () => this.#answered(true),
      asking: (how) => this.#show({ connection: how }),
      fatal: (error) => this.#stop(error),
    });
  }

  /** Has fn called whenever the snapshot is another, and soon if there is one to see. */
  subscribe(fn: () => void): Cancel {
    let on = true;
    const tell = (): void => {
      if (on) fn();
    };
    if (this.#subscribers.size === 0) this.#reopen();
    this.#subscribers.add(tell);
    this.#lingering?.();
    this.#lingering = undefined;
    if (this.snapshot.run || this.snapshot.error) this.#env.notifier.tell([tell]);
    if (!this.#begun && this.snapshot.connection !== 'closed') this.#begin(0);
    return () => {
      on = false;
      if (!this.#subscribers.delete(tell) || this.#subscribers.size > 0) return;
      if (this.snapshot.connection === 'closed') {
        this.#idle(this);
        return;
      }
      // a page that mounts twice unmounts in between: that must not cost a stream
      this.#lingering = after(this.#env.clock, 0, () => {
        this.#lingering = undefined;
        this.#halt('idle');
        this.#idle(this);
      });
    };
  }

  /** Asks now, also when the run had ended or could not be had. */
  refresh(): void {
    if (this.#subscribers.size === 0) return;
    this.#reopen(true);
    if (!this.#begun) this.#begin(0);
    if (this.#begun) this.#checker.now();
  }

  /** What ended in an error is tried again by who comes anew. */
  #reopen(ended = false): void {
    const { connection, run, error } = this.snapshot;
    if (connection !== 'closed' || error instanceof ClosedError || (isTerminal(run) && !ended)) return;
    this.snapshot = snapshotOf(this.id, run, undefined, 'idle');
  }

  /** Takes what an answer to another request, or another tab, says of the run. */
  accept(run: Run): boolean {
    const known = this.snapshot.run;
    if (run.id !== this.id || !newer(known, run)) return false;
    this.#applied++;
    this.#show({ run });
    if (this.#leading) this.#post(run);
    if (isTerminal(run)) this.#stop(undefined);
    return true;
  }

  sleep(): void {
    if (this.#begun) this.#halt(this.#asleep());
  }

  wake(delayMs: number): void {
    if (!this.#begun && this.#subscribers.size > 0 && this.snapshot.connection !== 'closed') this.#begin(delayMs);
  }

  overdue(): boolean {
    return !this.snapshot.run || this.#checker.remaining() === 0;
  }

  intervalMs(): number {
    return Math.max(this.#env.floorMs, this.snapshot.run?.next_poll_ms ?? 5000);
  }

  destroy(): void {
    this.#lingering?.();
    this.#lingering = undefined;
    if (this.snapshot.connection !== 'closed') this.#stop(new ClosedError());
  }

  #asleep(): Connection {
    return this.#env.page.hidden ? 'paused' : this.#env.page.offline ? 'offline' : 'connecting';
  }

  #begin(delayMs: number): void {
    const asleep = this.#asleep();
    this.#env.sleepers.add(this);
    this.#show({ connection: asleep });
    if (asleep !== 'connecting') return;
    this.#begun = true;
    const { tabs, lead, clock } = this.#env;
    if (!tabs || !lead) {
      this.#lead(delayMs);
      return;
    }
    this.#unhear = tabs.hear((message) => this.#hear(message));
    this.#beat = after(clock, this.overdue() ? electionMs : 3 * this.intervalMs(), () => this.#silent());
    this.#show({ connection: 'follower' });
    this.#resign = lead.join(this.id, {
      lead: () => {
        if (this.#begun && !this.#leading) this.#lead(delayMs);
      },
      tell: () => {
        if (this.#leading && this.snapshot.run) this.#post(this.snapshot.run);
      },
    });
  }

  #lead(delayMs: number): void {
    this.#leading = true;
    if (this.#env.tabs) this.#pulse();
    this.#show({ connection: 'connecting' });
    const { hub } = this.#env;
    const due = this.snapshot.run ? this.#checker.remaining() : 0;
    const wait = due > 0 ? due : delayMs;
    if (hub) this.#leaveHub = hub.join(this.id, this.#sink(wait));
    else this.#checker.set(this.#env.transport === 'poll' ? 'poll' : 'longpoll', wait);
  }

  /** Every change of transport asks once with the last ETag; only the first, when the
   * run is known already, may wait. */
  #sink(wait: number): HubSink {
    const only = this.#env.transport === 'sse';
    const first = (): number => {
      const ms = wait;
      wait = 0;
      return ms;
    };
    return {
      up: (delayMs) => {
        this.#show({ connection: 'sse' });
        this.#checker.set('once', delayMs);
      },
      lost: () => {
        this.#show({ connection: 'connecting' });
        // until the stream speaks the run is asked for at its interval
        this.#checker.set(only ? 'once' : 'poll', first());
      },
      down: () => this.#checker.set(only ? 'once' : 'longpoll', first()),
      event: (type, data) => this.#event(type, data),
      check: () => {
        this.#answered(false);
        this.#checker.now();
        return new Promise((resolve) => (this.#checked = resolve));
      },
    };
  }

  #answered(changed: boolean): void {
    this.#checked?.(changed);
    this.#checked = undefined;
  }

  #event(type: string, data: unknown): void {
    if (type === 'gone') {
      this.#checker.set('once');
    } else if (type === 'progress') {
      const news = data as ProgressEvent;
      const { run } = this.snapshot;
      if (run) {
        const { version, progress, eta, next_poll_ms } = news;
        this.accept({ ...run, version, progress, eta, next_poll_ms });
      }
    } else if (isRun(data)) {
      this.accept(data);
    }
  }

  #read(run: Run | undefined, mark: number): void {
    // an answer that was overtaken may say of the same version what is no longer so
    const stale = run?.version === this.snapshot.run?.version && mark !== this.#applied;
    const known = this.snapshot.run?.version ?? -1;
    if (run && !stale && !this.accept(run) && isTerminal(this.snapshot.run)) this.#stop(undefined);
    this.#answered((run?.version ?? -1) > known);
  }

  #hear(message: unknown): void {
    if (typeof message !== 'object' || message === null) return;
    const told = message as Partial<Told>;
    if (told.id !== this.id || this.#leading) return;
    this.#beat?.();
    this.#beat = after(this.#env.clock, 3 * this.intervalMs(), () => this.#silent());
    const { run } = this.snapshot;
    if (isRun(told.run)) this.accept(told.run);
    else if (run && typeof told.version === 'number' && differs(run, told.version, told.state)) this.#checker.set('once');
  }

  /** The leader has not been heard of for three intervals: this tab asks, once. */
  #silent(): void {
    this.#checker.set('once');
    this.#beat = after(this.#env.clock, 3 * this.intervalMs(), () => this.#silent());
  }

  /** A leader whose run does not change still shows that it lives. */
  #pulse(): void {
    this.#beat?.();
    this.#beat = after(this.#env.clock, this.intervalMs(), () => this.#post(undefined));
  }

  #post(run: Run | undefined): void {
    const version = this.snapshot.run?.version ?? 0;
    const told: Told = run ? { id: this.id, version, run } : { id: this.id, version, state: this.snapshot.state };
    this.#env.tabs?.post(told);
    if (this.#env.tabs) this.#pulse();
  }

  #stop(error: Error | undefined): void {
    this.#halt('closed');
    this.#env.sleepers.delete(this);
    if (error) this.#show({ error });
  }

  #halt(connection: Connection): void {
    this.#begun = this.#leading = false;
    this.#beat?.();
    this.#beat = undefined;
    this.#leaveHub?.();
    this.#leaveHub = undefined;
    this.#checker.set('off');
    this.#answered(false);
    this.#unhear?.();
    this.#unhear = undefined;
    if (this.snapshot.connection !== 'closed') this.#show({ connection });
    if (connection === 'idle') this.#env.sleepers.delete(this);
    const resign = this.#resign;
    this.#resign = undefined;
    resign?.(); // which may end the watching for other tabs, of this run too
  }

  #show(change: { run?: Run; error?: Error; connection?: Connection }): void {
    const was = this.snapshot;
    const run = change.run ?? was.run;
    const connection = change.connection ?? was.connection;
    if (run === was.run && connection === was.connection && !change.error) return;
    this.snapshot = snapshotOf(this.id, run, change.error, connection);
    this.#env.notifier.tell(this.#subscribers);
  }
}

/** Whether the leader knows of the run what this tab, which was hidden, does not. */
function differs(run: Run, version: number, state: State | undefined): boolean {
  return version > run.version || (version === run.version && state !== undefined && state !== run.state);
}

export function snapshotOf(id: string, run: Run | undefined, error: Error | undefined, connection: Connection): RunSnapshot {
  const failed = run && isTerminal(run) && run.state !== 'succeeded' ? new RunFailedError(run) : undefined;
  return {
    id,
    run,
    state: run?.state,
    progress: run?.progress ?? undefined,
    error: error ?? failed,
    connection,
  };
}
