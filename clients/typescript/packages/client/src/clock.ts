/** What time it is and what is woken by it; tests bring their own. */
export interface Clock {
  /** Milliseconds since 1970. */
  now(): number;
  setTimeout(fn: () => void, ms: number): unknown;
  clearTimeout(timer: unknown): void;
}

export const systemClock: Clock = {
  now: () => Date.now(),
  setTimeout: (fn, ms) => setTimeout(fn, ms),
  clearTimeout: (timer) => clearTimeout(timer as ReturnType<typeof setTimeout>),
};

export type Cancel = () => void;

/** How long one timer of the browser is trusted. It also splits delays above
 * 2³¹−1 ms, at which a browser fires at once. */
const stretch = 30_000;

/**
 * Calls fn once, after ms. The wall clock is looked at every 30 s: a clock that
 * jumped forward, or a machine that slept, is noticed by then; one that was set
 * back makes nothing later than ms.
 */
export function after(clock: Clock, ms: number, fn: () => void): Cancel {
  const due = clock.now() + ms;
  let left = Math.max(0, ms);
  let timer: unknown;
  const arm = (): void => {
    const part = Math.min(left, stretch);
    timer = clock.setTimeout(() => {
      left = Math.min(left - part, due - clock.now());
      if (left > 0) arm();
      else fn();
    }, part);
  };
  arm();
  return () => clock.clearTimeout(timer);
}
