import type { Bide } from './bide.js';
import { isTerminal, type Run } from './run.js';

/** The part of a TanStack query that the interval is read from. */
interface Query {
  state: { data?: unknown };
}

export interface RunQueryOptions<T> {
  queryKey: readonly ['bide', 'run', string];
  queryFn(context: { signal: AbortSignal }): Promise<Run<T>>;
  refetchInterval(query: Query): number | false;
}

/**
 * Options for TanStack Query's useQuery, for who lives in its cache: the server says
 * when to ask again, and a run that has ended is asked for no more. It polls; a page
 * that wants the stream and the leader among tabs uses a run's handle.
 */
export function runQueryOptions<T = unknown>(bide: Pick<Bide, 'request'>, id: string): RunQueryOptions<T> {
  return {
    queryKey: ['bide', 'run', id],
    queryFn: ({ signal }) => bide.request('GET', '/v1/runs/{id}', { path: { id }, signal }) as Promise<Run<T>>,
    refetchInterval: (query) => {
      const run = query.state.data as Run<T> | undefined;
      return isTerminal(run) ? false : (run?.next_poll_ms ?? 2000);
    },
  };
}
