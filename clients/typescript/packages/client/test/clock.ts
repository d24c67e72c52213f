import type { Clock } from '../src/clock.js';

interface Timer {
  due: number;
  fn: () => void;
}

/** Lets everything that is not waiting for time come to rest. */
export async function settle(): Promise<void> {
  for (let i = 0; i < 4; i++) await new Promise((resolve) => setImmediate(resolve));
}

/** A clock that stands still until it is told to go on. */
export class FakeClock implements Clock {
  /** What the wall says; skew is how far it was set forward or back. */
  skew = 0;
  readonly timers = new Set<Timer>();
  readonly delays: number[] = [];
  readonly #slept = new Set<Timer>();
  #now = Date.UTC(2026, 0, 1);

  now(): number {
    return this.#now + this.skew;
  }

  setTimeout(fn: () => void, ms: number): unknown {
    this.delays.push(ms);
    // as a browser does with what does not fit 31 bits
    const timer = { due: this.#now + (ms > 2 ** 31 - 1 ? 1 : Math.max(0, ms)), fn };
    this.timers.add(timer);
    return timer;
  }

  clearTimeout(timer: unknown): void {
    this.timers.delete(timer as Timer);
  }

  /** What a test waits for, which is no timer of what is tested. */
  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.#slept.add({ due: this.#now + ms, fn: resolve });
    });
  }

  async advance(ms: number): Promise<void> {
    const until = this.#now + ms;
    await settle();
    for (;;) {
      let next: Timer | undefined;
      for (const timer of [...this.#slept, ...this.timers]) if (timer.due <= until && (!next || timer.due < next.due)) next = timer;
      if (!next) break;
      this.timers.delete(next);
      this.#slept.delete(next);
      this.#now = Math.max(this.#now, next.due);
      next.fn();
      await settle();
    }
    this.#now = until;
    await settle();
  }
}

/** Random numbers that are the same each time (mulberry32). */
export function seeded(seed: number): () => number {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}
