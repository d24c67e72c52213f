import { report } from './notify.js';

type Hear = (message: unknown) => void;

/**
 * What the tabs of one user at one server share: who leads what, by Web Locks, and
 * what the leader learns, by a BroadcastChannel. The scope must name the user, or
 * one account would see another's.
 */
export class Tabs {
  readonly #scope: string;
  readonly #locks: LockManager;
  readonly #channel: BroadcastChannel;
  readonly #hearers = new Set<Hear>();

  private constructor(scope: string, locks: LockManager) {
    this.#scope = scope;
    this.#locks = locks;
    this.#channel = new BroadcastChannel(scope);
    this.#channel.onmessage = (e: MessageEvent<unknown>) => {
      for (const hear of [...this.#hearers]) hear(e.data);
    };
  }

  /** The tabs of a scope; undefined where there are none, or no Web Locks (they need
   * a secure context), so that each tab asks for itself. */
  static of(scope: string | undefined, leader: 'auto' | false | undefined): Tabs | undefined {
    if (!scope || leader === false || typeof document === 'undefined') return undefined;
    if (typeof BroadcastChannel === 'undefined' || typeof navigator === 'undefined') return undefined;
    const locks = navigator.locks as LockManager | undefined;
    return locks && new Tabs('bide:' + scope, locks);
  }

  post(message: unknown): void {
    try {
      this.#channel.postMessage(message);
    } catch (error) {
      report(error); // not to be cloned; this tab goes on
    }
  }

  hear(fn: Hear): () => void {
    this.#hearers.add(fn);
    return () => this.#hearers.delete(fn);
  }

  /**
   * Stands for the lead of something; lead is called once it is this tab's. The
   * returned function gives it up, or stands no longer.
   */
  stand(what: string, lead: () => void): () => void {
    const abort = new AbortController();
    let release: () => void = () => {};
    const held = new Promise<void>((resolve) => (release = resolve));
    this.#locks
      .request(`${this.#scope}:${what}`, { signal: abort.signal }, () => {
        if (abort.signal.aborted) return undefined;
        lead();
        return held;
      })
      .catch(() => {
        // refused, as in a sandboxed frame: each tab then asks for itself
        if (!abort.signal.aborted) lead();
      });
    return () => {
      abort.abort();
      release();
    };
  }

  close(): void {
    this.#hearers.clear();
    this.#channel.close();
  }
}

/** How far each tab's checks are spread where all of them check. */
export const crowdJitter = 0.3;
export const jitter = 0.1;

/** The jitter of a page that shares with no other tab although it would. */
export function jitterOf(tabs: Tabs | undefined, leader: 'auto' | false | undefined): number {
  return !tabs && leader !== false && typeof document !== 'undefined' ? crowdJitter : jitter;
}
