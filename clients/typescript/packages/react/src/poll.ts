import type { BackoffState, LoopFn, LoopOptions, PollHandle, Triggered } from '@bide/client';
import { useCallback, useEffect, useRef, useState, useSyncExternalStore } from 'react';
import { useScheduler } from './provider.js';

export interface UsePollOptions<T> extends LoopOptions<T> {
  /** false: the loop is not registered. */
  enabled?: boolean;
}

export interface UsePollResult {
  /** undefined until the loop is registered. */
  state: BackoffState | undefined;
  trigger: (options?: { force?: boolean }) => Triggered | undefined;
  pause: (options?: { abort?: boolean }) => void;
  resume: () => void;
  resetBackoff: () => void;
}

/**
 * A loop of the page's scheduler for as long as the component is mounted. The
 * function, condition and receive of the last render are the ones that are called;
 * only another name, interval or scheduler registers anew.
 */
export function usePoll<T = unknown>(name: string, fn: LoopFn<T>, options: UsePollOptions<T>): UsePollResult {
  const { enabled = true, intervalMs, runImmediately } = options;
  const scheduler = useScheduler();
  const latest = useRef({ fn, options });
  useEffect(() => {
    latest.current = { fn, options };
  });
  const receives = options.receive !== undefined;
  const [handle, setHandle] = useState<PollHandle>();

  useEffect(() => {
    if (!enabled) return;
    const handle = scheduler.register<T>(name, (context) => latest.current.fn(context), {
      intervalMs,
      runImmediately,
      condition: () => latest.current.options.condition?.() ?? true,
      receive: receives ? (data) => latest.current.options.receive?.(data) : undefined,
    });
    setHandle(handle);
    return () => {
      handle.stop();
      setHandle(undefined);
    };
  }, [scheduler, name, intervalMs, runImmediately, enabled, receives]);

  const subscribe = useCallback((fn: () => void) => handle?.subscribe(fn) ?? nothing, [handle]);
  const read = (): BackoffState | undefined => handle?.backoffState();
  const state = useSyncExternalStore(subscribe, read, read);
  return {
    state,
    trigger: useCallback((options) => handle?.trigger(options), [handle]),
    pause: useCallback((options) => handle?.pause(options), [handle]),
    resume: useCallback(() => handle?.resume(), [handle]),
    resetBackoff: useCallback(() => handle?.resetBackoff(), [handle]),
  };
}

function nothing(): void {}
