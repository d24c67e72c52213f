import { ProblemError } from './error.js';
import type { SourceEnd } from './source.js';

const firstCooldownMs = 60_000;
const lastCooldownMs = 600_000;

/** Says when a stream that is over is opened anew: soon, or, once it cannot be had,
 * after 60 s, 120 s and so on up to 10 min. */
export class Reopening {
  readonly #random: () => number;
  #failed = 0;
  #cooldownMs = 0;

  constructor(random: () => number) {
    this.#random = random;
  }

  /** The stream has spoken, which makes up for all failures before. */
  spoke(): void {
    this.#failed = 0;
    this.#cooldownMs = 0;
  }

  forget(): void {
    this.#failed = 0;
  }

  /** The pause after a stream that did or did not speak; down: it is given up until
   * then. closing: the server said that it stops. */
  pause(why: SourceEnd, spoke: boolean, closing: boolean): { ms: number; down: boolean } {
    const problem = why.error instanceof ProblemError ? why.error : undefined;
    const never = problem !== undefined && [404, 406, 501].includes(problem.status);
    const cooling = this.#cooldownMs > 0;
    if (!spoke && !why.over) this.#failed++;
    if (never || this.#failed >= 2 || (!spoke && cooling)) {
      this.#failed = 0;
      this.#cooldownMs = Math.min(lastCooldownMs, cooling ? this.#cooldownMs * 2 : firstCooldownMs);
      return { ms: this.#cooldownMs, down: true };
    }
    const told = why.retryMs ?? (closing ? 1000 + 9000 * this.#random() : 2500 + 1000 * this.#random());
    return { ms: Math.max(told, problem?.retryAfterMs ?? 0), down: false };
  }
}
