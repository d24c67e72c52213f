import { useSignal, type ReadonlySignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { isAbort } from '../http.ts';
import { every } from './live.ts';

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
 * old data stands. An empty key asks for nothing.
 */
export function usePolled<T>(key: string, intervalMs: number, ask: (signal: AbortSignal) => Promise<T>): Polled<T> {
  const data = useSignal<T | undefined>(undefined);
  const error = useSignal<Error | undefined>(undefined);
  const of = useSignal('');
  const handle = useRef<{ trigger(): void }>({ trigger() {} });
  const latest = useRef(ask);
  latest.current = ask;
  useEffect(() => {
    if (key === '') return undefined;
    let over = false;
    const h = every(key, intervalMs, async (signal) => {
      try {
        const value = await latest.current(signal);
        if (over) return;
        data.value = value;
        error.value = undefined;
        of.value = key;
      } catch (e) {
        if (!over && !isAbort(e)) error.value = e instanceof Error ? e : new Error(String(e));
        throw e;
      }
    });
    handle.current = h;
    return () => {
      over = true;
      h.stop();
    };
  }, [key, intervalMs]);
  return { data, error, of, again: () => handle.current.trigger() };
}
