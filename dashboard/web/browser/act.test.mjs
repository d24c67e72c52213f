// What a person does from the page: to runs and waits, by keyboard alone, with a key,
// where nothing may be changed, and under a prefix.
import assert from 'node:assert/strict';
import { createServer, request } from 'node:http';
import { after, before, test } from 'node:test';
import { launch, shownState, until, watchErrors } from './page.mjs';
import { api, bide, folder, serve, stopAll } from './server.mjs';

let browser, place, server;
before(async () => {
  place = folder();
  server = await serve('demo', place.db, { more: ['--job', '60s'] });
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await stopAll();
  place?.remove();
});

test('by keyboard alone: find a run, read why it cannot be retried, answer it', async () => {
  const page = await browser.newPage();
  const errors = watchErrors(page);
  await page.goto(server.url + '/runs');
  await page.locator('tr[data-run="demo-approval"]').waitFor();
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.className), 'skip');
  await page.keyboard.press('Enter');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'main');
  await page.keyboard.press('/');
  await page.keyboard.type('demo-approval');
  await page.waitForURL(/q=demo-approval/);
  await until('one row', async () => (await page.locator('tr[data-run]').count()) === 1);
  await tabTo(page, 'demo-approval');
  await page.keyboard.press('Enter');
  await page.locator('.run-head').waitFor();
  await tabTo(page, 'Retry');
  await page.locator('[role=tooltip] >> text=Only a run that has ended can be retried.').waitFor({ state: 'visible' });
  await tabTo(page, 'Signal…');
  await page.keyboard.press('Enter');
  await page.locator('dialog[open]').waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.value), 'approval', 'the name that it waits for is at hand');
  await page.keyboard.press('Tab');
  await page.keyboard.type('{"approved":true}');
  await tabTo(page, 'Send');
  await page.keyboard.press('Enter');
  await until('it succeeds', async () => (await shownState(page)) === 'succeeded');
  errors.none();
  await page.close();
});

/** Goes on with Tab until what is focused says the text. */
async function tabTo(page, text) {
  for (let i = 0; i < 60; i++) {
    await page.keyboard.press('Tab');
    const here = await page.evaluate(() => {
      const e = document.activeElement;
      return { text: e.textContent.trim(), outlined: getComputedStyle(e).outlineStyle !== 'none' };
    });
    if (here.text === text) {
      assert.ok(here.outlined, `the focus on ${text} can be seen`);
      return;
    }
  }
  throw new Error(`Tab does not come to ${text}`);
}

test('a wait with no worker alive: the page says so, and what is done is kept', async () => {
  const page = await browser.newPage();
  await page.goto(server.url + '/runs/fixture-sleep');
  await page.locator('.notice >> text=No worker is alive').waitFor();
  await page.getByRole('button', { name: 'Complete…' }).click();
  await page.locator('dialog').getByRole('button', { name: 'Complete' }).click();
  await page.locator('.said >> text=Completed.').waitFor();
  await page.close();
});

test('a live poll is looked at, extended and settled by hand', async () => {
  const run = await api(server.url, 'POST', '/v1/runs', { workflow: 'demo-research', input: 'anything' });
  const page = await browser.newPage();
  await page.goto(`${server.url}/runs/${run.id}`);
  await page.locator('.wait[data-wait="deep-research"]').waitFor({ timeout: 20_000 });
  await page.getByRole('button', { name: 'Check now' }).click();
  await page.locator('.said >> text=It looks now.').waitFor();
  await page.getByRole('button', { name: 'Extend…' }).click();
  await page.getByRole('textbox', { name: 'By' }).fill('5h');
  await page.getByRole('button', { name: 'Move it' }).click();
  await page.locator('.sentence >> text=gives up in 5 h').waitFor();
  await page.getByRole('button', { name: 'Complete…' }).click();
  await page.getByRole('textbox', { name: 'Value' }).fill('{"state":"completed","percent":100,"due":"2026-01-01T00:00:00Z"}');
  await page.locator('dialog').getByRole('button', { name: 'Complete' }).click();
  await page.getByRole('tab', { name: 'Stream' }).click();
  await page.locator('.streamed pre >> text=In short').waitFor({ timeout: 20_000 });
  await until('it succeeds', async () => (await shownState(page)) === 'succeeded', 20_000);
  await page.getByRole('tab', { name: /History/ }).click();
  await page.locator('.record >> text=by hand: complete').waitFor();
  await page.close();
});

test('a loop is paused, run once, resumed', async () => {
  const page = await browser.newPage();
  await page.goto(server.url + '/loops');
  const row = page.locator('tr[data-loop="demo-prices"]');
  await row.getByRole('button', { name: 'Pause' }).click();
  await row.locator('.state >> text=paused').waitFor();
  await row.getByRole('button', { name: 'Run once' }).click();
  await row.locator('.said >> text=Iteration').waitFor();
  await row.getByRole('button', { name: 'Resume' }).click();
  await row.getByRole('button', { name: 'Trigger' }).waitFor();
  await page.close();
});

test('a run is started from what the workers announce', async () => {
  const page = await browser.newPage();
  await page.goto(server.url + '/start');
  await page.locator('.offers >> text=demo-hello').click();
  await page.getByRole('textbox', { name: 'Input' }).fill('{"no": json}');
  await page.locator('.wrong >> text=Line 1, column 8').waitFor();
  await page.getByRole('textbox', { name: 'Input' }).fill('"page"');
  await page.getByRole('button', { name: 'Start', exact: true }).click();
  await page.waitForURL(/\/runs\/run_/);
  await until('it succeeds', async () => (await page.locator('.run-head').count()) > 0 && (await shownState(page)) === 'succeeded');
  await page.close();
});

test('a server for reading says so, and offers nothing else', async () => {
  const place = folder();
  const own = await serve('serve', place.db, { more: ['--read-only'] });
  const page = await browser.newPage();
  const errors = watchErrors(page);
  await page.goto(own.url + '/runs/fixture-retry');
  await page.locator('.read-only').waitFor();
  for (const name of ['Cancel', 'Terminate…', 'Signal…', 'Check now']) {
    const button = page.getByRole('button', { name, exact: true });
    await button.waitFor();
    assert.equal(await button.getAttribute('aria-disabled'), 'true', name);
  }
  await page.screenshot({ path: new URL('shots/read-only.png', import.meta.url).pathname });
  errors.none();
  await page.close();
  await own.stop();
  place.remove();
});

test('a server with keys asks for one, and the tab keeps it', async () => {
  const place = folder();
  const said = await bide('token', 'create', 'reader', '--scope', 'read', '--db', place.db);
  const key = /bide_[\w-]+/.exec(said)[0];
  const own = await serve('serve', place.db);
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(own.url + '/runs/fixture-retry');
  await page.locator('dialog[open] >> text=The server asks for an API key.').waitFor();
  await page.screenshot({ path: new URL('shots/key.png', import.meta.url).pathname });
  await page.getByRole('textbox', { name: 'Key' }).fill('bide_wrong');
  await page.keyboard.press('Enter');
  await page.locator('dialog[open] >> text=does not know this key').waitFor();
  await page.getByRole('textbox', { name: 'Key' }).fill(key);
  await page.keyboard.press('Enter');
  await page.locator('.run-head').waitFor();
  await page.locator('[data-connection=live]').waitFor();
  await page.reload();
  await page.locator('.run-head').waitFor();
  assert.equal(await page.locator('dialog[open]').count(), 0);
  assert.equal(await page.evaluate(() => JSON.stringify(localStorage).includes('bide_')), false);
  await page.getByRole('button', { name: 'Cancel', exact: true }).click();
  await page.locator('.notice-bad >> text=scope').waitFor();
  assert.equal(await page.getByRole('button', { name: 'Signal…' }).getAttribute('aria-disabled'), 'true');
  await context.close();
  await own.stop();
  place.remove();
});

test('it works behind a prefix that only a proxy knows of', async () => {
  const target = new URL(server.url);
  const proxy = createServer((from, to) => {
    if (!from.url.startsWith('/tools/bide/')) {
      to.writeHead(404).end();
      return;
    }
    const passed = request({ host: target.hostname, port: target.port, method: from.method, path: from.url.slice('/tools/bide'.length), headers: { ...from.headers, host: target.host } }, (answer) => {
      to.writeHead(answer.statusCode, answer.headers);
      answer.pipe(to);
    });
    from.pipe(passed);
    to.on('close', () => passed.destroy());
    passed.on('error', () => to.destroy());
  });
  await new Promise((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  const base = `http://127.0.0.1:${proxy.address().port}/tools/bide`;
  const page = await browser.newPage();
  const errors = watchErrors(page);
  await page.goto(base + '/runs/demo-research');
  await page.locator('.run-head').waitFor();
  await page.locator('[data-connection=live]').waitFor();
  await page.getByRole('link', { name: 'Queues' }).click();
  await page.waitForURL(base + '/queues');
  await page.locator('text=demo-hello').first().waitFor();
  await page.reload();
  await page.locator('text=demo-hello').first().waitFor();
  errors.none();
  await page.close();
  proxy.closeAllConnections();
  proxy.close();
});
