import { isTerminal, type Connection, type Progress, type Run, type RunSnapshot, type State } from '@bide/client';
import { useCallback, useEffect, useMemo, useRef, useSyncExternalStore } from 'react';
import { useBide } from './provider.js';

export interface UseRunOptions<T> {
  /** false: nothing is asked for. */
  enabled?: boolean;
  /** Called once when the run that was watched ends, well or not. */
  onDone?: (run: Run<T>) => void;
}

export interface UseRunResult<T> {
  run: Run<T> | undefined;
  /** The run's state, undefined until it is known. */
  status: State | undefined;
  progress: Progress | undefined;
  /** Why the run ended otherwise than well, or why it is no longer watched. */
  error: Error | undefined;
  connection: Connection;
  /** Asks the run to end. */
  cancel: (reason?: string) => Promise<Run<T>>;
  /** Asks now, also after an error. */
  refresh: () => void;
}

/**
 * Follows a run for as long as the component is mounted. However many components
 * follow one run, it is watched once.
 */
export function useRun<T = unknown>(id: string | null | undefined, options: UseRunOptions<T> = {}): UseRunResult<T> {
  const { enabled = true, onDone } = options;
  const bide = useBide();
  const handle = useMemo(() => (id ? bide.run<T>(id) : undefined), [bide, id]);
  const subscribe = useCallback(
    (fn: () => void) => (handle && enabled ? handle.subscribe(fn) : nothing),
    [handle, enabled],
  );
  const read = (): RunSnapshot<T> | undefined => handle?.snapshot;
  const snapshot = useSyncExternalStore(subscribe, read, read);

  const run = snapshot?.run;
  const ended = enabled && isTerminal(run);
  const latest = useRef({ run, onDone });
  const told = useRef<string>(undefined);
  useEffect(() => {
    latest.current = { run, onDone };
  });
  useEffect(() => {
    const { run, onDone } = latest.current;
    if (!ended || !run || told.current === run.id) return;
    told.current = run.id; // an effect that StrictMode runs twice tells once
    onDone?.(run);
  }, [ended, id]);

  const cancel = useCallback(
    (reason?: string) => (handle ? handle.cancel(reason) : Promise.reject(new TypeError('there is no run to cancel: id is empty'))),
    [handle],
  );
  const refresh = useCallback(() => handle?.refresh(), [handle]);
  return {
    run,
    status: snapshot?.state,
    progress: snapshot?.progress,
    error: snapshot?.error,
    connection: snapshot?.connection ?? 'idle',
    cancel,
    refresh,
  };
}

function nothing(): void {}
