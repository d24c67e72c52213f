import { after } from './clock.js';
import type { Env } from './env.js';
import { aborted, ProblemError, transient } from './error.js';
import { spread } from './pace.js';

const attempts = 6;
const longestMs = 10_000;

/**
 * Sends a request that may be sent again (a read, or a write that the server knows
 * by its key) until it is answered, six times at most: 1 s, 2 s, 4 s … apart, or
 * as long as the server says.
 */
export async function insist<T>(env: Pick<Env, 'clock' | 'random' | 'jitter'>, send: () => Promise<T>, signal?: AbortSignal): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await send();
    } catch (error) {
      if (attempt === attempts || signal?.aborted || !transient(error)) throw error;
      const hint = error instanceof ProblemError ? (error.retryAfterMs ?? 0) : 0;
      await pause(env, spread(Math.min(longestMs, 1000 * 2 ** (attempt - 1)), hint, 0, env.jitter, env.random), signal);
    }
  }
}

/** Waits; an aborted signal ends it with an error. */
export function pause(env: Pick<Env, 'clock'>, ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(aborted(signal));
      return;
    }
    const abort = (): void => {
      stop();
      reject(aborted(signal as AbortSignal));
    };
    const stop = after(env.clock, ms, () => {
      signal?.removeEventListener('abort', abort);
      resolve();
    });
    signal?.addEventListener('abort', abort, { once: true });
  });
}
