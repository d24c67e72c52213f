import { build } from 'esbuild';
import { Window } from 'happy-dom';
import assert from 'node:assert/strict';
import { dirname, join } from 'node:path';
import { it } from 'node:test';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));

/** A page of useRun, bundled as a Preact project does it. */
const page = `
import { h, render } from 'preact';
import { createBide } from '@bide/client';
import { BideProvider, useRun } from '@bide/react';
const run = { id: 'a', workflow: 'w', state: 'succeeded', version: 1, progress: null, next_poll_ms: null, result: 42, error: null };
const bide = createBide({ baseUrl: 'http://bide', transport: 'poll', fetch: async () => Response.json(run) });
function Page() {
  const { status, run } = useRun('a');
  return h('p', null, (status ?? 'loading') + ' ' + (run?.result ?? ''));
}
const root = document.body.appendChild(document.createElement('div'));
render(h(BideProvider, { bide }, h(Page)), root);
export const text = () => root.textContent;
export const end = () => { render(null, root); bide.destroy(); };
`;

it('works with preact/compat in the place of react', async () => {
  const window = new Window({ url: 'http://page/' });
  Object.assign(globalThis, { window, document: window.document });
  const bundle = await build({
    stdin: { contents: page, resolveDir: join(here, '..') },
    alias: { react: 'preact/compat' },
    bundle: true, write: false, format: 'esm',
  });
  const source = bundle.outputFiles[0]?.text ?? '';
  assert.ok(!source.includes('react.production'));
  const { text, end } = (await import('data:text/javascript,' + encodeURIComponent(source))) as { text(): string; end(): void };
  assert.equal(text(), 'loading ');
  for (let i = 0; i < 500 && text() !== 'succeeded 42'; i++) await new Promise((resolve) => setTimeout(resolve, 10));
  assert.equal(text(), 'succeeded 42');
  end();
  window.close();
});
