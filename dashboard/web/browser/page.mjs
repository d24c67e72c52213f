// Pages of a browser, which fail the test on any error that they log.
import assert from 'node:assert/strict';
import { chromium } from 'playwright-core';

/** With BIDE_STRICT=1, on a machine that does nothing else, what is measured must be
 * as it is promised; else only as good as a busy machine can be. */
export const strict = process.env.BIDE_STRICT === '1';

/** A browser for the tests of one file. */
export function launch(args = []) {
  return chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox', ...args] });
}

/** What a page has logged that it should not have; a policy's violation is an error. */
export function watchErrors(page, allowed = /^$/) {
  const errors = [];
  page.on('console', (m) => {
    if (m.type() === 'error' && !allowed.test(m.text())) errors.push(m.text());
  });
  page.on('pageerror', (e) => errors.push(String(e)));
  return { none: () => assert.deepEqual(errors, []) };
}

/** Waits until a function is true, and says what it was about if it never is. */
export async function until(what, fn, ms = 10_000) {
  const end = Date.now() + ms;
  let last;
  while (Date.now() < end) {
    last = await fn();
    if (last) return last;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error(`${what}: not within ${ms} ms`);
}

/** Lets a page be hidden and shown, which a headless browser does not do by itself. */
export async function hideable(page) {
  await page.addInitScript(() => {
    let hidden = false;
    Object.defineProperty(document, 'hidden', { get: () => hidden });
    Object.defineProperty(document, 'visibilityState', { get: () => (hidden ? 'hidden' : 'visible') });
    window.setHidden = (value) => {
      hidden = value;
      document.dispatchEvent(new Event('visibilitychange'));
    };
  });
  return (hidden) => page.evaluate((h) => window.setHidden(h), hidden);
}

/** Counts the requests that a page makes to the API. */
export function requests(page) {
  const list = [];
  page.on('request', (r) => {
    if (new URL(r.url()).pathname.includes('/v1/')) list.push({ method: r.method(), path: new URL(r.url()).pathname, at: Date.now() });
  });
  return list;
}

/** The streams that a page has open, by path and query. */
export function streams(page) {
  const open = new Map();
  page.on('request', (r) => {
    if (r.headers().accept === 'text/event-stream') open.set(r, r.url().replace(/^https?:\/\/[^/]+/, ''));
  });
  for (const end of ['requestfinished', 'requestfailed']) page.on(end, (r) => open.delete(r));
  return () => [...open.values()];
}

/** The state that the run's page shows. */
export const shownState = (page) => page.locator('.run-head .state').innerText();
