// The wall in a real browser, in virtual time: the page's clock stands still unless a
// test moves it, and what it asks for is noted with the time of that clock.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { after, afterEach, before, beforeEach, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { serve, until } from './site.mjs';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const all = ['stocks', 'weather', 'notifications', 'news']; // by interval, the shortest first

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
  context = await browser.newContext();
  page = await context.newPage();
  errors = [];
  page.on('pageerror', (error) => errors.push(String(error)));
  page.on('console', (m) => {
    // the browser logs each answer that is a refusal, and each that it cannot ask for
    if (m.type() === 'error' && !/status of 503|ERR_INTERNET_DISCONNECTED/.test(m.text())) errors.push(m.text());
  });
  await page.clock.install({ time: new Date('2030-01-01T09:00:00Z') });
  await page.addInitScript(() => {
    window.asked = [];
    Math.random = () => 0.5; // no jitter
    const { fetch } = window;
    window.fetch = (url, init) => {
      window.asked.push({ name: url.replace('/api/', ''), at: Date.now() });
      return fetch(url, init);
    };
    // a headless browser shows all of its pages
    let hidden = false;
    Object.defineProperty(document, 'hidden', { get: () => hidden });
    Object.defineProperty(document, 'visibilityState', { get: () => (hidden ? 'hidden' : 'visible') });
    window.setHidden = (value) => {
      hidden = value;
      document.dispatchEvent(new Event('visibilitychange'));
    };
  });
});
afterEach(async () => {
  await context.close();
  assert.deepEqual(errors, []); // a violation of the policy is one
});

/** Opens the wall, with answers of one's own for some loops, and stops its clock once
 * each loop has had a turn. */
async function open(answers = {}) {
  for (const [name, answer] of Object.entries(answers)) await page.route(`**/api/${name}`, answer);
  await page.goto(site.url);
  await page.clock.pauseAt(new Date('2030-01-01T09:01:00Z'));
  await settled();
}

/** No turn is in flight: those that the clock has begun are over. */
async function settled(names = all) {
  for (const name of names) await until(`the end of ${name}'s turn`, async () => (await turns(name)) > 0 && (await part(name, 'state')) !== 'in flight');
}

const part = (name, which) => page.locator(`#${name} .${which}`).innerText();
const turns = async (name) => Number(await part(name, 'turns'));
const press = (name, button) => page.locator(`#${name}`).getByRole('button', { name: button }).click();
const asked = (name) => page.evaluate((n) => window.asked.filter((one) => !n || one.name === n), name);
const setHidden = (hidden) => page.evaluate((h) => window.setHidden(h), hidden);
const ok = (value) => (route) => route.fulfill({ json: value });
const weather = { place: 'Here', celsius: 20, sky: 'clear' };

it('each card shows what its loop has read, how old it is and what comes next', async () => {
  await open({ weather: ok(weather) });
  assert.equal(await part('weather', 'big'), '20.0 °C');
  assert.equal(await page.locator('#news li').count(), 3);
  assert.equal(await page.locator('#stocks tr').count(), 3);
  assert.match(await part('notifications', 'big'), /^(None|[1-6] unread)$/);
  for (const name of all) assert.equal(await part(name, 'state'), 'waiting');
  assert.equal(await part('news', 'interval'), '8 s');
  const began = (await turns('news')) + 1;
  await press('news', 'Now'); // it ends while the clock stands still
  await until('the turn', async () => (await turns('news')) === began);
  await settled(['news']);
  await page.clock.runFor(5_000);
  assert.equal(await part('news', 'age'), '5 s');
  assert.equal(await part('news', 'next'), 'in 3 s');
  await page.clock.runFor(3_000);
  await until('the next turn', async () => (await turns('news')) === began + 1);
  await settled(['news']);
  assert.equal(await part('news', 'age'), '0 s');
});

it('a hidden wall asks for nothing; shown again it asks for what is overdue, 150 ms apart', async () => {
  await open({ weather: ok(weather) });
  await setHidden(true);
  for (const name of all) assert.equal(await part(name, 'state'), 'hidden');
  const before = (await asked()).length;
  await page.clock.runFor(600_000);
  assert.equal((await asked()).length, before);

  const shown = await page.evaluate(() => Date.now());
  await setHidden(false);
  await page.clock.runFor(900);
  const flush = (await asked()).slice(before);
  assert.deepEqual(flush.map(({ name }) => name), all);
  assert.deepEqual(flush.map(({ at }) => at - shown), [300, 450, 600, 750]);
  await settled();
});

it('a wall that is hidden for a moment does not ask again', async () => {
  await open({ weather: ok(weather) });
  await press('stocks', 'Pause');
  const before = (await asked()).length;
  await setHidden(true);
  await page.clock.runFor(1_000);
  await setHidden(false);
  await page.clock.runFor(1_000);
  assert.equal((await asked()).length, before); // the others have 4 s and more
  await setHidden(true);
  await page.clock.runFor(60_000);
  await setHidden(false);
  await page.clock.runFor(310); // one has begun, and is dropped with the rest
  await setHidden(true);
  await page.clock.runFor(60_000);
  assert.equal((await asked()).length, before + 1);
});

it('weather that fails backs off, and comes back', async () => {
  let bad = true;
  await open({ weather: (route) => (bad ? route.fulfill({ status: 503, body: 'no' }) : ok(weather)(route)) });
  await until('eight intervals', async () => {
    await page.clock.runFor(40_000);
    await settled(['weather']);
    return (await part('weather', 'interval')) === '4 s × 8 = 32 s';
  });
  const failures = async () => Number((await part('weather', 'error')).match(/answered 503, (\d+) times in a row/)[1]);
  const many = await failures();
  await press('weather', 'Now'); // it ends while the clock stands still
  await until('one more failure', async () => (await failures()) === many + 1);
  const before = (await asked('weather')).length;
  await page.clock.runFor(31_999);
  assert.equal((await asked('weather')).length, before);
  await page.clock.runFor(1);
  await until('another', async () => (await failures()) === many + 2);
  assert.equal((await asked('weather')).length, before + 1);
  assert.equal(await part('weather', 'interval'), '4 s × 8 = 32 s'); // the most

  await press('weather', 'Reset back-off');
  assert.equal(await part('weather', 'interval'), '4 s');
  assert.equal(await part('weather', 'next'), 'in 4 s');
  await page.clock.runFor(4_000);
  await until('two intervals', async () => (await part('weather', 'interval')) === '4 s × 2 = 8 s');

  bad = false;
  await press('weather', 'Now');
  await until('20 degrees', async () => (await page.locator('#weather .big').count()) === 1);
  assert.equal(await part('weather', 'interval'), '4 s');
  assert.equal(await page.locator('#weather .error').isVisible(), false);
  assert.equal(await page.locator('#weather .reset').getAttribute('aria-disabled'), 'true');
});

it('the service itself fails so often that one can see it', async () => {
  await open();
  const seen = new Set();
  await until('four intervals, and one again', async () => {
    await page.clock.runFor(40_000);
    await settled(['weather']);
    seen.add(await part('weather', 'interval'));
    return seen.has('4 s × 4 = 16 s') && seen.has('4 s × 8 = 32 s') && seen.has('4 s');
  });
});

it('however often one asks while a turn is in flight, one more follows', async () => {
  let held;
  await open({ notifications: (route) => (held === undefined ? ok({ unread: 1, latest: 'x' })(route) : held.push(route)) });
  held = [];
  const before = await turns('notifications');
  await press('notifications', 'Now');
  await until('a turn', () => held.length === 1);
  assert.equal(await part('notifications', 'state'), 'in flight');
  for (let i = 0; i < 3; i++) await press('notifications', 'Now');
  assert.equal(await part('notifications', 'state'), 'in flight, one more follows');
  assert.equal(held.length, 1);
  await ok({ unread: 2, latest: 'x' })(held[0]);
  await until('the one more', () => held.length === 2);
  assert.equal(await part('notifications', 'state'), 'in flight');
  await ok({ unread: 3, latest: 'x' })(held[1]);
  await until('its value', async () => (await part('notifications', 'big')) === '3 unread');
  await page.clock.runFor(1_000);
  assert.equal(held.length, 2);
  assert.equal(await turns('notifications'), before + 2);
});

it('a paused loop waits, and one that is overdue goes on at once', async () => {
  await open({ weather: ok(weather) });
  await press('stocks', 'Pause');
  assert.equal(await part('stocks', 'state'), 'paused');
  const before = (await asked('stocks')).length;
  await page.clock.runFor(60_000);
  assert.equal((await asked('stocks')).length, before);
  await press('stocks', 'Now'); // by hand it still goes, once
  await until('a turn', async () => (await asked('stocks')).length === before + 1);
  await until('its end', async () => (await part('stocks', 'state')) === 'paused');
  await page.clock.runFor(60_000);
  assert.equal((await asked('stocks')).length, before + 1);
  await press('stocks', 'Resume');
  await until('the overdue turn', async () => (await asked('stocks')).length === before + 2);
  await settled(['stocks']);
});

it('without a network all loops wait, and nothing counts as a failure', async () => {
  await open({ weather: ok(weather) });
  await context.setOffline(true);
  await until('offline', async () => (await part('stocks', 'state')) === 'offline');
  await page.getByText('Offline: all loops wait').waitFor();
  const before = (await asked()).length;
  await page.clock.runFor(120_000);
  assert.equal((await asked()).length, before);
  await context.setOffline(false);
  await until('online', async () => (await part('stocks', 'state')) === 'waiting');
  await page.clock.runFor(2_500);
  for (const name of all) assert.ok((await asked(name)).at(-1).at >= (await page.evaluate(() => Date.now())) - 2_500, name);
  await settled();
  for (const name of all) assert.doesNotMatch(await part(name, 'interval'), /×/);
});

it('it can be read in light and in dark, and on a phone', async () => {
  let bad = false;
  await open({ weather: (route) => (bad ? route.fulfill({ status: 503, body: 'no' }) : ok(weather)(route)) });
  bad = true;
  for (let i = 0; i < 2; i++) {
    await press('weather', 'Now');
    await until('a failure', async () => (await part('weather', 'interval')) === ['4 s × 2 = 8 s', '4 s × 4 = 16 s'][i]);
  }
  await press('stocks', 'Pause');
  await page.clock.runFor(1_000);
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme });
    for (const width of [1280, 360]) {
      await page.setViewportSize({ width, height: 800 });
      await page.screenshot({ path: fileURLToPath(new URL(`shots/${colorScheme}-${width}.png`, import.meta.url)), fullPage: true });
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${width} px: it scrolls sideways`);
      await page.evaluate(axe);
      await page.clock.resume(); // axe takes its time
      const { violations } = await page.evaluate(() => window.axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'] }));
      assert.deepEqual(violations.map(({ id, nodes }) => [id, nodes.map((node) => node.html)]), []);
    }
  }
});
