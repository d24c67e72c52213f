// The page of the browser tests: what it knows of a run and a loop is on window.
import { createBide, createPollScheduler } from '@bide/client';

const query = new URLSearchParams(location.search);
const scope = query.get('scope') ?? undefined;
const bide = createBide({ scope });
const run = bide.run(query.get('run') ?? 'a');
run.subscribe(() => {});
let changes = 0;
bide.changes(() => changes++);

const scheduler = createPollScheduler({ scope, minIntervalMs: 500, jitter: 0 });
const got: number[] = [];
const loop = scheduler.register<number>(
  'news',
  async ({ signal, share }) => share((await (await fetch('/news', { signal })).json()) as number),
  { intervalMs: 500, receive: (n) => got.push(n) },
);

Object.assign(window, {
  seen: () => ({ connection: run.snapshot.connection, state: run.snapshot.state, version: run.snapshot.run?.version }),
  changes: () => changes,
  loop: () => ({ leading: loop.backoffState().leading, got }),
  setHidden: (hidden: boolean) => {
    Object.defineProperty(document, 'visibilityState', { value: hidden ? 'hidden' : 'visible', configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
  },
  end: () => {
    bide.destroy();
    scheduler.destroy();
  },
});
