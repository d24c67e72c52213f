import { after, type Cancel, type Clock } from './clock.js';
import type { Tabs } from './tabs.js';

/** A run that this tab wants to know of, or anyRun. */
export interface Led {
  /** This tab asks the server for it from now on. */
  lead(): void;
  /** Tells the other tabs what is known of it. */
  tell(): void;
}

/** How often a tab says what it wants; who is silent for three of these is gone. */
const wantMs = 20_000;

/** What tabs say: that one leads, which asks the others what they want; and that. */
interface Said {
  lead: string;
  tab: string;
  want: string[];
}

/**
 * Makes one tab ask for all that share: it watches the runs that the others want as
 * if they were its own, so that a browser has one stream.
 */
export class Lead {
  readonly #tabs: Tabs;
  readonly #clock: Clock;
  readonly #tab: string;
  /** Watches a run for another tab. */
  readonly #watch: (id: string) => Cancel;
  readonly #members = new Map<string, Led>();
  readonly #others = new Map<string, { want: Set<string>; gone: Cancel }>();
  readonly #guests = new Map<string, Cancel>();
  #leading = false;
  #resign: Cancel | undefined;
  #unhear: Cancel | undefined;
  #again: Cancel | undefined;
  #saying = false;

  constructor(tabs: Tabs, clock: Clock, tab: string, watch: (id: string) => Cancel) {
    this.#tabs = tabs;
    this.#clock = clock;
    this.#tab = tab;
    this.#watch = watch;
  }

  /** Has led called if this tab leads or comes to, until the returned function is called. */
  join(id: string, led: Led): Cancel {
    this.#members.set(id, led);
    if (this.#leading) led.lead();
    else this.#say();
    if (!this.#resign) this.#stand();
    return () => {
      if (this.#members.get(id) !== led) return;
      this.#members.delete(id);
      if (this.#members.size === 0) this.#stop();
      else if (!this.#leading) this.#say();
    };
  }

  #stand(): void {
    this.#unhear = this.#tabs.hear((message) => this.#hear(message));
    this.#resign = this.#tabs.stand('runs', () => {
      this.#leading = true;
      this.#again?.();
      this.#tabs.post({ lead: this.#tab });
      for (const led of [...this.#members.values()]) led.lead();
    });
  }

  #stop(): void {
    if (!this.#leading) this.#tabs.post({ tab: this.#tab, want: [] });
    this.#leading = false;
    this.#again?.();
    this.#resign?.();
    this.#resign = undefined;
    this.#unhear?.();
    for (const { gone } of this.#others.values()) gone();
    this.#others.clear();
    this.#entertain();
  }

  /** Says what this tab wants, once for all that changes before the running code ends. */
  #say(): void {
    if (this.#saying) return;
    this.#saying = true;
    queueMicrotask(() => {
      this.#saying = false;
      if (this.#leading || this.#members.size === 0) return;
      this.#tabs.post({ tab: this.#tab, want: [...this.#members.keys()] });
      this.#again?.();
      this.#again = after(this.#clock, wantMs, () => this.#say());
    });
  }

  #hear(message: unknown): void {
    if (typeof message !== 'object' || message === null) return;
    const { lead, tab, want } = message as Partial<Said>;
    if (lead !== undefined && !this.#leading) this.#say();
    if (this.#leading && typeof tab === 'string' && Array.isArray(want)) this.#take(tab, new Set(want));
  }

  #take(tab: string, want: Set<string>): void {
    const before = this.#others.get(tab);
    before?.gone();
    const gone = after(this.#clock, 3 * wantMs, () => {
      this.#others.delete(tab);
      this.#entertain();
    });
    this.#others.set(tab, { want, gone });
    if (want.size === 0) {
      gone();
      this.#others.delete(tab);
    }
    this.#entertain();
    for (const id of want) if (!before?.want.has(id)) this.#members.get(id)?.tell();
  }

  /** Watches what the other tabs want, and nothing that none wants any more. */
  #entertain(): void {
    const wanted = new Set([...this.#others.values()].flatMap(({ want }) => [...want]));
    for (const [id, stop] of this.#guests) {
      if (wanted.has(id)) continue;
      this.#guests.delete(id);
      stop();
    }
    // one that stopped may have been all that this tab led for
    for (const id of wanted) if (this.#leading && !this.#guests.has(id)) this.#guests.set(id, this.#watch(id));
  }
}
