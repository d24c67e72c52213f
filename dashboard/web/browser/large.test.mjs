// A run with 10,000 records.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { launch, strict, until } from './page.mjs';
import { folder, serve, stopAll } from './server.mjs';

let browser, place, server;
before(async () => {
  place = folder();
  server = await serve('dev', place.db);
  browser = await launch(['--enable-precise-memory-info', '--js-flags=--expose-gc']);
});
after(async () => {
  await browser?.close();
  await stopAll();
  place?.remove();
});

/** What the largest of a browser's renderers has in memory: its proportional share of
 * what processes share, where the system tells that, else all that it has resident. */
async function memoryOf(browser) {
  const session = await browser.newBrowserCDPSession();
  const { processInfo } = await session.send('SystemInfo.getProcessInfo');
  await session.detach();
  const sizes = processInfo.filter((p) => p.type === 'renderer').map(({ id }) => {
    try {
      return { bytes: 1024 * Number(/^Pss:\s+(\d+) kB/m.exec(readFileSync(`/proc/${id}/smaps_rollup`, 'utf8'))[1]), of: 'PSS' };
    } catch {
      return { bytes: 4096 * Number(readFileSync(`/proc/${id}/statm`, 'utf8').split(' ')[1]), of: 'RSS' };
    }
  });
  assert.ok(sizes.length > 0, 'there is a renderer');
  return sizes.reduce((most, size) => (size.bytes > most.bytes ? size : most));
}

test('it is painted within a second, and keeps less than 150 MB', async () => {
  const page = await browser.newPage();
  await page.goto(server.url + '/queues');
  const times = [];
  for (let i = 0; i < 3; i++) {
    await page.goto(server.url + '/runs/fixture-long', { waitUntil: 'commit' });
    await page.locator('.timeline .row').first().waitFor();
    times.push(await page.evaluate(() => performance.now()));
  }
  const painted = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime);
  await until('all is read', async () => /10000\b(?!\+)/.test(await page.getByRole('tab', { name: /History/ }).innerText()), 20_000);
  const whole = await page.evaluate(() => performance.now());
  await page.locator('.timeline .rows').evaluate((box) => (box.scrollTop = box.scrollHeight));
  await page.locator('.timeline .row[data-path="10000"]').waitFor();
  const session = await page.context().newCDPSession(page);
  await session.send('HeapProfiler.collectGarbage');
  const { usedSize } = await session.send('Runtime.getHeapUsage');
  const { metrics } = await session.send('Performance.enable').then(() => session.send('Performance.getMetrics'));
  const nodes = metrics.find((m) => m.name === 'Nodes').value;
  const { bytes: resident, of } = await memoryOf(browser);
  console.log(`first paint ${painted.toFixed(0)} ms; rows after ${times.map((t) => t.toFixed(0)).join(', ')} ms; all 10,000 after ${whole.toFixed(0)} ms; heap ${(usedSize / 1e6).toFixed(1)} MB, ${nodes} nodes, renderer ${(resident / 1e6).toFixed(1)} MB (${of})`);
  const typical = times.toSorted((a, b) => a - b)[1];
  assert.ok((strict ? Math.max(...times) : typical) < 1000, `${times} ms`);
  assert.ok(usedSize < 150e6, `${usedSize} bytes`);
  assert.ok(resident < 150e6, `the renderer has ${resident} bytes`);
  await page.close();
});
