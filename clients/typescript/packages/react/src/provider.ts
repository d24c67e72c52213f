import type { Bide, PollScheduler } from '@bide/client';
import { createContext, createElement, useContext, useMemo, type ReactElement, type ReactNode } from 'react';

interface Value {
  bide: Bide | undefined;
  scheduler: PollScheduler | undefined;
}

const Context = createContext<Value>({ bide: undefined, scheduler: undefined });

export interface BideProviderProps {
  bide?: Bide;
  scheduler?: PollScheduler;
  children?: ReactNode;
}

/** Gives the client and the scheduler to the hooks below it. It owns neither: who
 * created them destroys them. */
export function BideProvider({ bide, scheduler, children }: BideProviderProps): ReactElement {
  const value = useMemo(() => ({ bide, scheduler }), [bide, scheduler]);
  return createElement(Context.Provider, { value }, children);
}

/** The client of the nearest BideProvider. */
export function useBide(): Bide {
  const { bide } = useContext(Context);
  if (!bide) throw new Error('no client: put <BideProvider bide={createBide(…)}> around the page');
  return bide;
}

/** The scheduler of the nearest BideProvider. */
export function useScheduler(): PollScheduler {
  const { scheduler } = useContext(Context);
  if (!scheduler) throw new Error('no scheduler: put <BideProvider scheduler={createPollScheduler(…)}> around the page');
  return scheduler;
}
