// Two tabs of a real browser, with its own locks, channels and EventSource. A tab is
// hidden by what the page is told: a headless browser shows all of its tabs.
import { build } from 'esbuild';
import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { serve } from './server.mjs';

let script;
let browser;
let context;
let server;

before(async () => {
  const entry = fileURLToPath(new URL('page.ts', import.meta.url));
  const bundle = await build({ entryPoints: [entry], bundle: true, write: false, format: 'esm' });
  script = bundle.outputFiles[0].text;
  // a sandbox needs rights that a container's root has not
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox'] });
});
after(() => browser?.close());

beforeEach(async () => {
  server = await serve(script);
  context = await browser.newContext();
});
afterEach(async () => {
  await context.close();
  await server.close();
});

async function open(tab, scope = 'alice', run = 'a') {
  const page = await context.newPage();
  await page.goto(`${server.url}?tab=${tab}&scope=${scope}&run=${run}`);
  await page.waitForFunction(() => typeof window.seen === 'function');
  return page;
}

/** Waits for a run's connection, and for a version if one is given. */
const until = (page, connection, version) =>
  page.waitForFunction(([c, v]) => window.seen().connection === c && (!v || window.seen().version === v), [connection, version], { timeout: 20_000 });

const streaming = () => [...server.streams].map((stream) => stream.tab);

describe('two tabs', () => {
  it('have one stream and one poller, and both follow', async () => {
    const one = await open('one');
    await until(one, 'sse');
    const two = await open('two');
    await until(two, 'follower');
    assert.deepEqual(streaming(), ['one']);
    const version = server.set('running');
    await until(one, 'sse', version);
    await until(two, 'follower', version);
    await two.waitForFunction(() => window.loop().got.length >= 2);
    assert.deepEqual([...new Set(server.news)], ['one']);
  });

  it('that look at different runs have one stream for both and for hints', async () => {
    const one = await open('one');
    await until(one, 'sse');
    const two = await open('two', 'alice', 'b');
    await until(two, 'follower');
    await two.waitForFunction(() => window.seen().version === 1 && window.changes() > 0);
    for (let i = 0; i < 100 && server.streams.size !== 1; i++) await two.evaluate(() => new Promise((r) => setTimeout(r, 20)));
    assert.deepEqual([...server.streams].map(({ tab, ids, hints }) => [tab, ids, hints]), [['one', ['a', 'b'], true]]);
    const asked = server.asked.length;
    const told = await two.evaluate(() => window.changes());
    const version = server.set('running', 'b');
    await until(two, 'follower', version);
    await two.waitForFunction((n) => window.changes() > n, told);
    assert.ok(!server.asked.slice(asked).includes('two'), 'it is told, and asks for nothing');
    await one.close();
    await until(two, 'sse');
    assert.deepEqual([...server.streams].map(({ tab, ids, hints }) => [tab, ids, hints]), [['two', ['b'], true]]);
  });

  it('change places when the leader is hidden, and not again when it is shown', async () => {
    const one = await open('one');
    await until(one, 'sse');
    const two = await open('two');
    await until(two, 'follower');
    await one.evaluate(() => window.setHidden(true));
    await until(two, 'sse');
    await until(one, 'paused');
    const version = server.set('running');
    await until(two, 'sse', version);
    assert.deepEqual(streaming(), ['two']);
    await two.waitForFunction(() => window.loop().leading);

    await one.evaluate(() => window.setHidden(false));
    await until(one, 'follower', version);
    assert.deepEqual(streaming(), ['two']);
  });

  it('change places when the leader is closed, or goes to another page', async () => {
    const one = await open('one');
    await until(one, 'sse');
    const two = await open('two');
    const three = await open('three');
    await until(two, 'follower');
    await one.close();
    await until(two, 'sse');
    await until(three, 'follower');
    await two.goto('about:blank');
    await until(three, 'sse', server.set('running'));
    assert.deepEqual(streaming(), ['three']);
  });

  it('of two users share nothing', async () => {
    const one = await open('one', 'alice');
    const two = await open('two', 'bob');
    await until(one, 'sse');
    await until(two, 'sse');
    assert.equal(server.streams.size, 2);
  });

  it('leave nothing open once destroyed', async () => {
    const one = await open('one');
    await until(one, 'sse');
    await one.evaluate(() => window.end());
    await until(one, 'closed');
    const held = await one.evaluate(async () => (await navigator.locks.query()).held.length);
    assert.equal(held, 0);
    for (let i = 0; i < 100 && server.streams.size > 0; i++) await one.evaluate(() => new Promise((r) => setTimeout(r, 20)));
    assert.equal(server.streams.size, 0);
  });
});

describe('a blocked stream', () => {
  it('is replaced by polling, and nothing is lost', async () => {
    await context.route('**/events*', (route) => route.abort());
    const page = await open('one');
    await page.waitForFunction(() => ['poll', 'longpoll'].includes(window.seen().connection));
    const version = server.set('running');
    await page.waitForFunction((v) => window.seen().version === v, version, { timeout: 20_000 });
    await page.waitForFunction(() => window.seen().connection !== 'sse');
    const asked = server.asked.length;
    const last = server.set('succeeded');
    await until(page, 'closed', last);
    assert.ok(server.asked.length > asked);
    assert.equal(server.streams.size, 0);
  });
});
