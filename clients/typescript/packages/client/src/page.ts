import { after, type Cancel, type Clock } from './clock.js';

/** A page that was just shown may be hidden again at once. */
const showMs = 300;

export interface PageEvents {
  hide(): void;
  show(): void;
  offline(): void;
  online(): void;
}

/**
 * Whether the page can be seen and has a network. Hiding is told at once, showing
 * once it has lasted 300 ms. Where there is no page (a server, a test) it counts as
 * shown and online.
 */
export class Page {
  hidden: boolean;
  offline: boolean;
  readonly #clock: Clock;
  readonly #events: PageEvents;
  readonly #unlisten: Cancel[] = [];
  #showing: Cancel | undefined;
  /** Frozen, or in the back-forward cache. */
  #asleep = false;

  constructor(clock: Clock, events: PageEvents) {
    this.#clock = clock;
    this.#events = events;
    const doc = typeof document === 'undefined' ? undefined : document;
    const win = typeof window === 'undefined' ? undefined : window;
    this.hidden = doc?.visibilityState === 'hidden';
    // onLine false is certain; true proves nothing
    this.offline = doc !== undefined && typeof navigator !== 'undefined' && navigator.onLine === false;
    this.#listen(doc, 'visibilitychange', () => this.#look());
    this.#listen(doc, 'freeze', () => this.#sleep(true));
    this.#listen(doc, 'resume', () => this.#sleep(false));
    this.#listen(win, 'pagehide', () => this.#sleep(true));
    this.#listen(win, 'pageshow', () => this.#sleep(false));
    this.#listen(win, 'offline', () => this.#net(true));
    this.#listen(win, 'online', () => this.#net(false));
  }

  destroy(): void {
    this.#showing?.();
    for (const unlisten of this.#unlisten.splice(0)) unlisten();
  }

  #listen(target: EventTarget | undefined, type: string, fn: () => void): void {
    if (!target) return;
    target.addEventListener(type, fn);
    this.#unlisten.push(() => target.removeEventListener(type, fn));
  }

  #sleep(asleep: boolean): void {
    this.#asleep = asleep;
    this.#look();
  }

  #look(): void {
    const hidden = this.#asleep || (typeof document !== 'undefined' && document.visibilityState === 'hidden');
    this.#showing?.();
    this.#showing = undefined;
    if (hidden === this.hidden) return;
    if (hidden) {
      this.hidden = true;
      this.#events.hide();
      return;
    }
    this.#showing = after(this.#clock, showMs, () => {
      this.#showing = undefined;
      this.hidden = false;
      this.#events.show();
    });
  }

  #net(offline: boolean): void {
    if (offline === this.offline) return;
    this.offline = offline;
    if (offline) this.#events.offline();
    else this.#events.online();
  }
}
