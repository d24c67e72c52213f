import assert from 'node:assert/strict';
import { it } from 'node:test';
import { createBide } from '../src/index.js';
import { runQueryOptions } from '../src/tanstack.js';
import { runOf } from './server.js';

// without a window TanStack Query takes this for a server, and asks for nothing again
Object.assign(globalThis, { window: new EventTarget() });
const { QueryClient, QueryObserver } = await import('@tanstack/query-core');

it('TanStack Query asks when the server says, and not after the end', async () => {
  let asked = 0;
  const bide = createBide({
    baseUrl: 'http://bide',
    fetch: async () => Response.json(runOf('a', { next_poll_ms: 20, version: ++asked, state: asked < 3 ? 'running' : 'succeeded' })),
  });
  const client = new QueryClient();
  client.mount();
  const options = runQueryOptions<string>(bide, 'a');
  assert.deepEqual(options.queryKey, ['bide', 'run', 'a']);
  const { refetchInterval } = options;
  assert.equal(refetchInterval({ state: {} }), 2000);
  assert.equal(refetchInterval({ state: { data: runOf('a', { next_poll_ms: 700 }) } }), 700);
  const observer = new QueryObserver(client, options);
  await new Promise<void>((resolve) => {
    observer.subscribe((result) => {
      if (result.data?.state === 'succeeded') resolve();
    });
  });
  assert.equal(asked, 3);
  assert.equal(refetchInterval(client.getQueryCache().find({ queryKey: options.queryKey }) ?? { state: {} }), false);
  client.clear();
  client.unmount();
  bide.destroy();
});
