import { computed, effect, signal, untracked } from '@preact/signals';
import { ProblemError, type Connection as HowNewsCome, type PollHandle, type Run as ClientRun, type StartOptions } from '@bide/client';
import { heardAt, noteRefusal, unreachable } from '../http.ts';
import { bide, quiet, scheduler } from './client.ts';

// All that this page asks for by itself goes through here, so that it can be stopped
// and seen. Runs are watched by one stream that the tabs of a browser share, which also
// says when to read a list again: the client knows its way in it. What it does not tell
// of, and all when there is none, is asked for at an interval.

const handles = new Set<PollHandle>();
let named = 0;

export interface Errand {
  /** Does it now, and once more if it is being done. */
  trigger(): void;
  /** Has another interval from now on. */
  pace(intervalMs: number): void;
  stop(): void;
}

/** Does something at an interval while the page is seen; at once, too. */
export function every(name: string, intervalMs: number, fn: (signal: AbortSignal) => Promise<void>): Errand {
  const own = `${name}#${++named}`;
  const register = (ms: number): PollHandle => scheduler.register(own, ({ signal }) => fn(signal), { intervalMs: ms, runImmediately: true });
  let h = register(intervalMs);
  handles.add(h);
  const once = new AbortController();
  if (quiet.peek()) {
    h.pause();
    fn(once.signal).catch(() => {}); // the reader has come to another page: that is asked for, once
  }
  const drop = (): void => {
    handles.delete(h);
    h.stop();
  };
  return {
    trigger: () => h.trigger({ force: true }),
    pace: (ms) => {
      const next = register(ms);
      drop();
      h = next;
      handles.add(h);
    },
    stop: () => {
      once.abort();
      drop();
    },
  };
}

/** Asks for everything again that is shown. */
export function everythingAgain(): void {
  for (const h of handles) h.trigger();
  for (const { id } of watching.keys()) if (id) bide.peek().run(id).refresh();
}

effect(() => {
  const pause = quiet.value;
  for (const h of handles) {
    if (pause) h.pause({ abort: true });
    else h.resume();
  }
});

let away = false;
effect(() => {
  const now = unreachable.value;
  if (away && !now) untracked(everythingAgain);
  away = now;
});

export type Connection = 'live' | 'polling' | 'connecting' | 'offline';

interface Watching {
  /** Of a run; without one it is whatever has changed. */
  id?: string;
}

/** How the news come of each that is watched. */
const watching = new Map<Watching, HowNewsCome>();
const worst = signal<HowNewsCome | undefined>(undefined);

function noteConnections(): void {
  const all = [...watching.values()].filter((c) => c !== 'closed' && c !== 'idle');
  worst.value = (['connecting', 'offline', 'poll', 'longpoll', 'follower', 'sse'] as const).find((c) => all.includes(c));
}

export const connection = computed<Connection>(() => {
  if (unreachable.value || worst.value === 'offline') return 'offline';
  switch (worst.value) {
    case 'sse':
    case 'follower':
      return 'live';
    case 'connecting':
      return 'connecting';
    default:
      return 'polling';
  }
});

/** Has fn called with a run whenever it has changed, until the returned function is called. */
export function watchRun(id: string, fn: (run: ClientRun) => void): () => void {
  const own: Watching = { id };
  return effect(() => {
    const client = bide.value;
    if (quiet.value) return undefined;
    let last: ClientRun | undefined;
    const stop = client.run(id).subscribe(({ run, connection: how }) => {
      watching.set(own, how);
      noteConnections();
      if (!run || run === last) return;
      last = run;
      heardAt.value = Date.now();
      fn(run);
    });
    return () => {
      stop();
      watching.delete(own);
      noteConnections();
    };
  });
}

/**
 * Has fn called with true whenever any run may have changed, once a second at most,
 * until the returned function is called; with false when that is told no more.
 */
export function watchChanges(fn: (told: boolean) => void): () => void {
  const own: Watching = {};
  return effect(() => {
    const client = bide.value;
    if (quiet.value) return undefined;
    const stop = client.changes((told) => {
      watching.set(own, told ? 'sse' : 'poll');
      noteConnections();
      fn(told);
    });
    return () => {
      stop();
      watching.delete(own);
      noteConnections();
      fn(false);
    };
  });
}

/** Watches a set of runs that changes. */
export class Watched {
  readonly #stops = new Map<string, () => void>();
  readonly #fn: (run: ClientRun) => void;
  constructor(fn: (run: ClientRun) => void) {
    this.#fn = fn;
  }

  set(ids: readonly string[]): void {
    const wanted = new Set(ids);
    for (const [id, stop] of this.#stops) {
      if (wanted.has(id)) continue;
      stop();
      this.#stops.delete(id);
    }
    for (const id of wanted) {
      if (!this.#stops.has(id)) this.#stops.set(id, watchRun(id, this.#fn));
    }
  }
}

/** What is refused for good is noted, so that the page does not offer it again. */
async function change<T>(act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    if (error instanceof ProblemError) noteRefusal(error.code);
    throw error;
  }
}

/** Starts a run with an input given as JSON text, and answers with its id. */
export async function startRun(workflow: string, inputText: string, options: StartOptions): Promise<string> {
  return change(async () => (await bide.peek().start(workflow, undefined, { ...options, inputText })).id);
}

/** Watches a run again whose watching had ended, as the run had. */
export function refreshRun(id: string): void {
  bide.peek().run(id).refresh();
}

/** Asks a run to end. */
export async function cancelRun(id: string): Promise<void> {
  await change(() => bide.peek().run(id).cancel());
}
