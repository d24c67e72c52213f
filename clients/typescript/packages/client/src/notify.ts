/** Throws where nobody's work is broken off: one subscriber's error is not another's,
 * but the page's console should have it. */
export function report(error: unknown): void {
  setTimeout(() => {
    throw error;
  });
}

/**
 * Tells subscribers that something has changed, once for all that changes before the
 * running code ends: a page that comes back and hears of twenty runs renders once.
 */
export class Notifier {
  readonly #due = new Set<() => void>();
  #queued = false;

  tell(fns: Iterable<() => void>): void {
    for (const fn of fns) this.#due.add(fn);
    if (this.#queued || this.#due.size === 0) return;
    this.#queued = true;
    queueMicrotask(() => {
      this.#queued = false;
      const due = [...this.#due];
      this.#due.clear();
      for (const fn of due) {
        try {
          fn();
        } catch (error) {
          report(error);
        }
      }
    });
  }
}
