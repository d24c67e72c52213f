import { useSignal, type ReadonlySignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { isAbort } from '../http.ts';
import { Errand } from '../run/coalesce.ts';
import { quiet } from './client.ts';
import { visible } from './clock.ts';
import { every, watchChanges } from './live.ts';

/** What took a second to answer is not asked for again for two, whatever changes. */
const restFactor = 2;

export interface Polled<T> {
  data: ReadonlySignal<T | undefined>;
  error: ReadonlySignal<Error | undefined>;
  /** Of which key the data is. */
  of: ReadonlySignal<string>;
  /** Asks at once. */
  again(): void;
}

/**
 * Asks the server for something at an interval, while the page is seen and not
 * paused; and at once when the key changes. While a new key's answer is awaited the
 * old data stands. An empty key asks for nothing. With toldMs it asks whenever the
 * server says that a run has changed, and at intervalMs only where that is not told;
 * toldMs is then the interval, for what changes without a word.
 */
export function usePolled<T>(key: string, intervalMs: number, ask: (signal: AbortSignal) => Promise<T>, toldMs?: number): Polled<T> {
  const data = useSignal<T | undefined>(undefined);
  const error = useSignal<Error | undefined>(undefined);
  const of = useSignal('');
  const handle = useRef<{ trigger(): void }>({ trigger() {} });
  const latest = useRef(ask);
  latest.current = ask;
  useEffect(() => {
    if (key === '') return undefined;
    let over = false;
    let finished = (): void => {};
    const h = every(key, intervalMs, async (signal) => {
      const began = Date.now();
      try {
        const value = await latest.current(signal);
        if (over) return;
        data.value = value;
        error.value = undefined;
        of.value = key;
      } catch (e) {
        if (!over && !isAbort(e)) error.value = e instanceof Error ? e : new Error(String(e));
        throw e;
      } finally {
        hinted.restMs = restFactor * (Date.now() - began);
        finished();
      }
    });
    handle.current = h;
    const hinted = new Errand(async () => {
      if (!visible.peek() || quiet.peek()) return;
      h.trigger();
      await new Promise<void>((resolve) => (finished = resolve));
    });
    const heard = (told: boolean): void => {
      if (over) return;
      h.pace(told ? (toldMs ?? intervalMs) : intervalMs);
      if (told) hinted.ask();
    };
    const unhear = toldMs === undefined ? undefined : watchChanges(heard);
    return () => {
      over = true;
      hinted.end();
      unhear?.();
      h.stop();
    };
  }, [key, intervalMs, toldMs]);
  return { data, error, of, again: () => handle.current.trigger() };
}
