// The page in a real browser, against the service as it is.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { after, afterEach, before, beforeEach, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { bundle } from '../bundle.mjs';
import { serve, until } from './site.mjs';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

let site;
let browser;
let context;
let page;
let errors;

before(async () => {
  site = await serve();
  // a sandbox needs rights that a container's root has not
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox'] });
});
after(async () => {
  await browser?.close();
  await site?.close();
});
beforeEach(async () => {
  context = await browser.newContext({ reducedMotion: 'reduce' });
  await open();
});
afterEach(async () => {
  await context.close();
  await until('the end of all streams', () => site.streams().length === 0);
  assert.deepEqual(errors, []); // a violation of the policy is one
});

async function open(query = '') {
  page = await context.newPage();
  errors = [];
  page.on('pageerror', (error) => errors.push(String(error)));
  page.on('console', (m) => {
    // the browser logs each answer that is a refusal
    if (m.type() === 'error' && !/status of 40[04]/.test(m.text())) errors.push(m.text());
  });
  await page.goto(site.url + query);
  await page.getByRole('button', { name: 'Start' }).waitFor();
}

/** Starts a story and gives its card. */
async function start(chapters) {
  const cards = await page.locator('.story').count();
  await page.getByLabel('Chapters').fill(String(chapters));
  await page.getByRole('button', { name: 'Start' }).click();
  await until('a card', async () => (await page.locator('.story').count()) === cards + 1);
  const id = new URL(page.url()).searchParams.getAll('story')[0];
  return { id, card: page.locator('.story', { has: page.getByText(id, { exact: true }) }) };
}

const state = (card) => card.getByRole('status').innerText();
const text = (card) => card.locator('.text').innerText();
const words = async (card) => (await text(card)).split(/\s+/).length;
const is = (card, wanted) => until(wanted, async () => (await state(card)) === wanted);

it('a story is started, followed and read', async () => {
  const { card } = await start(3);
  await until('the first words', async () => (await card.locator('.growing').count()) === 1 && (await words(card)) > 3);
  await card.getByText('chapter 2 of 3').waitFor();
  assert.equal(await card.getByRole('progressbar').getAttribute('value'), '33');
  assert.equal(await card.locator('.percent').innerText(), '33 %');
  await card.getByText('chapter 3 of 3').waitFor();
  await is(card, 'Written');
  assert.equal(await card.locator('.percent').innerText(), '100 %');
  assert.equal(await card.locator('.text p').count(), 3);
  assert.equal(await words(card), 180);
  assert.equal(await card.getByRole('button', { name: 'Cancel' }).count(), 0);
});

it('what the service refuses is told at its field', async () => {
  await page.getByText('fox', { exact: true }).click();
  await page.getByRole('button', { name: 'Start' }).click();
  const group = page.getByRole('group', { name: 'Project' });
  const alert = group.getByRole('alert');
  await alert.waitFor();
  assert.equal(await alert.innerText(), 'project "fox" has no outline yet; write one before you ask for its story');
  assert.equal(await group.getAttribute('aria-invalid'), 'true');
  assert.equal(await group.getAttribute('aria-describedby'), await alert.getAttribute('id'));
  assert.equal(await page.locator('.story').count(), 0);
  await page.getByText('owl', { exact: true }).click();
  assert.equal(await alert.count(), 0);

  await page.getByLabel('Chapters').fill('21');
  await page.getByRole('button', { name: 'Start' }).click();
  await page.locator('#chapters-error').waitFor();
  assert.equal(await page.getByLabel('Chapters').getAttribute('aria-invalid'), 'true');
  assert.equal(await page.locator('#chapters-error').innerText(), 'chapters is 21; it must be from 1 to 20');
});

it('an answer that was lost does not make two stories of one', async () => {
  let lost = 0;
  const keys = [];
  await page.route('**/stories', async (route) => {
    keys.push(route.request().headers()['idempotency-key']);
    if (lost++ > 0) return route.continue();
    await route.fetch(); // it was carried out
    return route.abort();
  });
  const before = (await site.get('/v1/runs')).runs.length;
  await page.getByLabel('Chapters').fill('1');
  await page.getByRole('button', { name: 'Start' }).click();
  await page.getByText('it will not be two stories').waitFor();
  errors.splice(0); // the browser's of the connection
  const { card } = await start(1);
  await is(card, 'Written');
  assert.equal((await site.get('/v1/runs')).runs.length, before + 1);
  assert.equal(keys[0], keys[1]);
});

it('a cancel stops the model', async () => {
  const { id, card } = await start(20);
  await until('words', async () => (await words(card)) > 5);
  assert.equal((await site.get('/model')).busy, 1);
  const began = Date.now();
  await card.getByRole('button', { name: 'Cancel' }).click();
  await is(card, 'Canceled');
  const took = Date.now() - began;
  assert.ok(took < 1000, `canceled after ${took} ms`);
  const stopped = await until('the model to stop', async () => ((await site.get('/model')).busy === 0 ? site.get('/model') : undefined), 1000);
  await new Promise((resolve) => setTimeout(resolve, 200)); // a dozen words of the model
  assert.deepEqual(await site.get('/model'), stopped);
  assert.equal((await site.get('/v1/runs/' + id)).state, 'canceled');
  assert.match(await text(card), /\w+ \w+/); // what was written stays
});

it('a reload finds the stories again', async () => {
  const { id, card } = await start(3);
  await until('words', async () => (await words(card)) > 10);
  await page.reload();
  assert.equal(new URL(page.url()).search, `?story=${id}`);
  await until('words again', async () => (await words(card)) > 10);
  await is(card, 'Written');
  const written = await text(card);
  const streams = site.asked.filter(({ path }) => path === `/v1/runs/${id}/stream`).length;
  await page.reload();
  await is(card, 'Written');
  assert.equal(await text(card), written);
  assert.equal(site.asked.filter(({ path }) => path === `/v1/runs/${id}/stream`).length, streams); // the result has it all
});

it('a story that is not there is said so, once', async () => {
  await open('?story=none');
  const card = page.locator('.story');
  await card.getByRole('alert').waitFor();
  assert.equal(await state(card), 'Not followed');
  await card.getByRole('button', { name: 'Close' }).click();
  await page.getByText('No story yet').waitFor();
  assert.equal(new URL(page.url()).search, '');
});

it('a story that is closed is followed no more, and goes on', async () => {
  const { id, card } = await start(20);
  await until('words', async () => (await words(card)) > 5);
  assert.deepEqual(site.streams(), [`/v1/runs/${id}/stream`]);
  await card.getByRole('button', { name: 'Close' }).click();
  await until('the end of the connections', () => !site.open.some(({ path }) => path.startsWith('/v1/')));
  assert.equal((await site.get('/v1/runs/' + id)).state, 'running');
  await fetch(new URL('/v1/runs/' + id, site.target), { method: 'DELETE' });
});

it('stories go side by side, and leave connections for a cancel', async () => {
  const stories = [];
  for (let i = 0; i < 7; i++) stories.push(await start(i === 6 ? 20 : 2));
  let most = 0;
  const last = stories[6].card;
  await last.getByRole('button', { name: 'Cancel' }).click();
  await is(last, 'Canceled');
  for (const { card } of stories.slice(0, 6)) {
    await until('Written', async () => {
      most = Math.max(most, site.streams().length);
      return (await state(card)) === 'Written';
    });
    assert.equal(await words(card), 120);
  }
  assert.ok(most <= 2, `${most} streams`);
});

it('two windows of a story have one connection for its state', async () => {
  const { id, card } = await start(20);
  await until('words', async () => (await words(card)) > 5);
  const one = page;
  await open(`?story=${id}`);
  const other = page.locator('.story');
  await until('words', async () => (await words(other)) > 5);
  const watching = site.open.filter(({ path }) => path.startsWith('/v1/') && !path.endsWith('/stream'));
  assert.equal(watching.length, 1, JSON.stringify(watching));
  await other.getByRole('button', { name: 'Cancel' }).click();
  await is(one.locator('.story'), 'Canceled');
});

it('StrictMode gives one stream', async () => {
  const script = (await bundle('development')).get('app.js');
  assert.match(script.toString(), /doubleInvokeEffects/); // else it would prove nothing
  await context.route('**/app.js', (route) => route.fulfill({ body: script, contentType: 'text/javascript' }));
  await page.close();
  await open();
  const from = site.asked.length;
  const { id, card } = await start(1);
  await is(card, 'Written');
  const asked = site.asked.slice(from).map(({ path }) => path);
  assert.equal(asked.filter((path) => path === `/v1/runs/${id}/stream`).length, 1);
  assert.equal(asked.filter((path) => path.endsWith('/events')).length, 1);
});

it('it works by keyboard alone', async () => {
  await page.keyboard.press('Tab'); // the projects, owl chosen
  await page.keyboard.press('Tab'); // chapters
  await page.keyboard.press('Control+A');
  await page.keyboard.type('20');
  await page.keyboard.press('Enter');
  const card = page.locator('.story');
  await until('words', async () => (await card.count()) === 1 && (await words(card)) > 5);
  for (let i = 0; i < 3; i++) await page.keyboard.press('Tab'); // Start, the text, Cancel
  await page.keyboard.press('Enter');
  await is(card, 'Canceled');
});

for (const colorScheme of ['light', 'dark']) {
  it(`it can be read in ${colorScheme}, and on a phone`, async () => {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    const { card: canceled } = await start(20);
    await until('words', async () => (await words(canceled)) > 5);
    await canceled.getByRole('button', { name: 'Cancel' }).click();
    await is(canceled, 'Canceled');
    const { card: written } = await start(1);
    await is(written, 'Written');
    const { card: running } = await start(20);
    await running.getByText('chapter 2 of 20').waitFor();
    await page.getByText('fox', { exact: true }).click();
    await page.getByRole('button', { name: 'Start' }).click();
    await page.getByRole('alert').waitFor();
    for (const width of [1280, 360]) {
      await page.setViewportSize({ width, height: 800 });
      await page.screenshot({ path: fileURLToPath(new URL(`shots/${colorScheme}-${width}.png`, import.meta.url)), fullPage: true });
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${width} px: it scrolls sideways`);
      await page.evaluate(axe);
      const { violations } = await page.evaluate(() => window.axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'] }));
      assert.deepEqual(violations.map(({ id, nodes }) => [id, nodes.map((node) => node.html)]), []);
    }
    await running.getByRole('button', { name: 'Cancel' }).click();
    await is(running, 'Canceled');
  });
}
