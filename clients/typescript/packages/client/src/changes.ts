import { after, type Cancel } from './clock.js';
import type { Env, Sleeper } from './env.js';
import { anyRun, type HubSink } from './hub.js';

/**
 * Hears that some run has changed, over the shared stream: the tab that leads has it
 * and tells the others. A stream's first word counts as a change, for there may have
 * been one before it.
 */
export class Changes implements Sleeper {
  readonly #env: Env;
  readonly #subscribers = new Set<(told: boolean) => void>();
  #lingering: Cancel | undefined;
  #begun = false;
  #leading = false;
  #told = false;
  #leaveHub: Cancel | undefined;
  #resign: Cancel | undefined;
  #unhear: Cancel | undefined;

  constructor(env: Env) {
    this.#env = env;
  }

  subscribe(fn: (told: boolean) => void): Cancel {
    const own = (told: boolean): void => fn(told);
    this.#subscribers.add(own);
    this.#lingering?.();
    this.#lingering = undefined;
    this.#env.sleepers.add(this);
    if (this.#begun) this.#env.notifier.tell([() => void (this.#subscribers.has(own) && own(this.#told))]);
    else this.wake();
    return () => {
      if (!this.#subscribers.delete(own) || this.#subscribers.size > 0) return;
      // a list that is asked for anew ends in between: that must not cost a stream
      this.#lingering = after(this.#env.clock, 0, () => this.destroy());
    };
  }

  sleep(): void {
    this.#begun = this.#leading = this.#told = false;
    this.#leaveHub?.();
    this.#leaveHub = undefined;
    this.#unhear?.();
    this.#unhear = undefined;
    const resign = this.#resign;
    this.#resign = undefined;
    resign?.(); // which may end the watching for other tabs
  }

  wake(): void {
    const { page, tabs, lead, hub } = this.#env;
    if (this.#begun || this.#subscribers.size === 0 || page.hidden || page.offline || !hub) return;
    this.#begun = true;
    const begin = (): void => {
      if (!this.#begun || this.#leading) return;
      this.#leading = true;
      this.#leaveHub = hub.join(anyRun, this.#sink());
    };
    if (!tabs || !lead) {
      begin();
      return;
    }
    this.#unhear = tabs.hear((message) => this.#hear(message));
    this.#resign = lead.join(anyRun, { lead: begin, tell: () => this.#post() });
  }

  overdue(): boolean {
    return false;
  }

  intervalMs(): number {
    return 0;
  }

  destroy(): void {
    this.#lingering?.();
    this.#lingering = undefined;
    this.#subscribers.clear();
    this.sleep();
    this.#env.sleepers.delete(this);
  }

  #sink(): HubSink {
    let first = true; // what the leader before has told holds until the stream is up
    return {
      up: () => this.#tell(true),
      lost: () => {
        if (!first) this.#lose();
        first = false;
      },
      down: () => this.#lose(),
      event: () => this.#tell(true),
      check: () => Promise.resolve(false),
    };
  }

  #lose(): void {
    if (this.#told) this.#tell(false);
  }

  #hear(message: unknown): void {
    if (typeof message !== 'object' || message === null || this.#leading) return;
    const { changes } = message as { changes?: unknown };
    if (changes === true || (changes === false && this.#told)) this.#say(changes);
  }

  #tell(told: boolean): void {
    this.#say(told);
    this.#post();
  }

  #post(): void {
    if (this.#leading) this.#env.tabs?.post({ changes: this.#told });
  }

  #say(told: boolean): void {
    this.#told = told;
    this.#env.notifier.tell([...this.#subscribers].map((fn) => () => void (this.#subscribers.has(fn) && fn(told))));
  }
}
