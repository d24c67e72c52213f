// Each page is there, in both themes and widths, without a violation of the policy or
// a serious fault of accessibility.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { launch, until, watchErrors } from './page.mjs';
import { folder, serve, stopAll } from './server.mjs';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const shots = fileURLToPath(new URL('shots/', import.meta.url));

let browser, place, server;
before(async () => {
  place = folder();
  server = await serve('demo', place.db, { more: ['--job', '10m'] });
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await stopAll();
  place?.remove();
});

/** Where the page is, what shows that it is there, and what is clicked before it is looked at. */
const pages = [
  { name: 'runs', path: '/runs', ready: 'tr[data-run="demo-research"]' },
  { name: 'runs-filtered', path: '/runs?state=failed,terminated', ready: 'tr[data-run="fixture-failed"]' },
  { name: 'runs-empty', path: '/runs?q=nothing-like-it', ready: 'tr.empty >> text=No run is like that' },
  { name: 'run-poll', path: '/runs/demo-research', ready: '.now .wait' },
  { name: 'run-signal', path: '/runs/demo-approval', ready: '.wait[data-wait="approval"]' },
  { name: 'run-failed', path: '/runs/fixture-failed', ready: '.card-bad >> text=declined' },
  { name: 'run-retry', path: '/runs/fixture-retry', ready: '.now >> text=402: no funds' },
  { name: 'run-nobody', path: '/runs/fixture-poll?tab=polls', ready: '.poll' },
  { name: 'run-data', path: '/runs/fixture-exact?tab=data', ready: '.json-number >> nth=0' },
  { name: 'run-children', path: '/runs/fixture-parent?tab=children', ready: '.panel tr[data-run]' },
  { name: 'run-stream', path: '/runs/demo-research?tab=stream', ready: '.panel' },
  { name: 'run-long', path: '/runs/fixture-long', ready: '.timeline .row' },
  { name: 'run-none', path: '/runs/no-such-run', ready: '.notice-bad >> text=no such run' },
  { name: 'run-signal-dialog', path: '/runs/demo-approval', ready: '.wait', click: 'text=Signal…', then: 'dialog[open]' },
  { name: 'loops', path: '/loops', ready: 'tr[data-loop="demo-prices"]' },
  { name: 'loop', path: '/loops/demo-prices', ready: '.outcomes' },
  { name: 'queues', path: '/queues', ready: 'text=demo-hello' },
  { name: 'start', path: '/start', ready: '.offers' },
  { name: 'help', path: '/queues', ready: 'table', click: 'button[aria-label="Keyboard shortcuts"]', then: 'dialog[open]' },
];

for (const theme of ['light', 'dark']) {
  for (const width of [1280, 360]) {
    test(`every page, ${theme}, ${width} px`, async () => {
      const context = await browser.newContext({ colorScheme: theme, viewport: { width, height: 800 }, reducedMotion: 'reduce' });
      const faults = {};
      for (const p of pages) {
        const page = await context.newPage();
        const errors = watchErrors(page, /the server responded with a status of 404/);
        await page.addInitScript(() => {
          window.violations = [];
          document.addEventListener('securitypolicyviolation', (e) => window.violations.push(`${e.violatedDirective} ${e.blockedURI}`));
        });
        await page.goto(server.url + p.path);
        await page.locator(p.ready).first().waitFor({ timeout: 10_000 });
        if (p.click) {
          await page.locator(p.click).first().click();
          await page.locator(p.then).waitFor();
        }
        await page.screenshot({ path: `${shots}${p.name}-${theme}-${width}.png`, fullPage: true });
        assert.deepEqual(await page.evaluate(() => window.violations), [], p.name);
        assert.ok((await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)) <= 0, `${p.name} scrolls sideways`);
        const found = await serious(page);
        if (found.length > 0) faults[p.name] = found;
        errors.none();
        await page.close();
      }
      await context.close();
      assert.deepEqual(faults, {});
    });
  }
}

/** What axe finds that keeps people out. It is run past the policy, as a debugger is. */
async function serious(page) {
  await page.evaluate(axe);
  const found = await page.evaluate(() => window.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'] }));
  return found.violations.filter((v) => v.impact === 'serious' || v.impact === 'critical').map((v) => `${v.id}: ${v.nodes.map((n) => `${n.html} ${n.failureSummary}`).join(' | ')}`);
}

test('what a service said is text, whatever is in it', async () => {
  const page = await browser.newPage();
  await page.goto(server.url + '/runs/fixture-failed');
  await page.locator('.card-bad .cause >> text=<img src=x').first().waitFor();
  assert.equal(await page.locator('main img').count(), 0);
  assert.equal(await page.title(), 'fixture-failed · bide');
  await page.close();
});

test('each attempt of a step is seen, with the pauses between them', async () => {
  const page = await browser.newPage();
  await page.goto(server.url + '/runs/fixture-failed');
  const row = page.locator('.timeline .row[data-path="1.1"]');
  await row.waitFor();
  assert.deepEqual([await row.locator('.seg-work.failed').count(), await row.locator('.seg-backoff').count()], [3, 2]);
  assert.match(await row.locator('.seg-work title').first().textContent(), /attempt 1: declined/);
  await page.locator('.segmented >> text=full').click();
  assert.deepEqual((await page.locator('.attempts tr td:first-child').allInnerTexts()).map((t) => t.trim()), ['try 3', 'try 2', 'try 1']);
  await page.close();
});

test('numbers are shown digit by digit, and stay so in what is started again', async () => {
  const page = await browser.newPage();
  const errors = watchErrors(page);
  await page.goto(server.url + '/runs/fixture-exact?tab=data');
  await page.locator('.json-number').first().waitFor();
  const numbers = await page.locator('.data section').first().locator('.json-number').allInnerTexts();
  assert.deepEqual(numbers, ['9007199254740993', '1.10', '0.1000000000000000055']);
  await page.getByRole('button', { name: 'Start again…' }).click();
  const field = page.getByRole('textbox', { name: 'Input' });
  assert.match(await field.inputValue(), /9007199254740993/);
  await field.fill('{"order":9007199254740995}');
  const sent = page.waitForRequest((r) => r.method() === 'POST' && r.url().endsWith('/v1/runs'));
  await page.locator('dialog').getByRole('button', { name: 'Start', exact: true }).click();
  assert.match((await sent).postData(), /"input":\{"order":9007199254740995\}/);
  await page.waitForURL(/\/runs\/run_/);
  await page.getByRole('tab', { name: 'Input and output' }).click();
  await page.locator('.json-number >> text=9007199254740995').waitFor();
  errors.none();
  await page.close();
});

test('an input of 2 MiB does not freeze the page', async () => {
  const page = await browser.newPage();
  await page.goto(server.url + '/runs/fixture-large');
  await page.locator('.run-head').waitFor();
  const took = await page.evaluate(async () => {
    const began = performance.now();
    document.querySelector('[data-tab=data]').click();
    await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
    return performance.now() - began;
  });
  await page.locator('.data pre').first().waitFor();
  console.log(`2 MiB of input shown in ${took.toFixed(0)} ms`);
  assert.ok(took < 1000, `${took} ms`);
  await page.locator('text=Show 500 more lines').first().click();
  await until('more lines', async () => (await page.locator('.data pre').first().innerText()).split('\n').length > 500);
  await page.close();
});
