import { computed, effect, signal } from '@preact/signals';
import { createBide, createPollScheduler, type Bide } from '@bide/client';
import { heard, isAbort, unreachable } from '../http.ts';
import { root, server } from '../root.ts';
import { apiKey, needsKey, paused } from '../setting.ts';

/** Nothing is asked by itself: the reader has said so, or there is no key to ask with. */
export const quiet = computed(() => paused.value || needsKey.value);

/** Overdue lists come back within this, however long the server was away. */
const maxMultiplier = 4;

export const scheduler = createPollScheduler({ leader: false, maxMultiplier, minIntervalMs: 500 });

/** The client of whoever's key it is; another key is another user. */
export const bide = signal<Bide>(make(apiKey.peek()));

effect(() => {
  const key = apiKey.value;
  const made = make(key);
  bide.peek().destroy();
  bide.value = made;
});

function make(key: string): Bide {
  return createBide({
    baseUrl: server,
    fetch: (url, init) => observed(url, init, key),
    getHeaders: (): Record<string, string> => (key ? { Authorization: `Bearer ${key}` } : {}),
    scope: `${root}#${hash(key)}`,
    minIntervalMs: 500,
  });
}

/** Tells users apart, whose tabs must not share; no secret can be had from it. */
function hash(text: string): string {
  let h = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 0x01000193) >>> 0;
  return h.toString(36);
}

async function observed(url: string, init: RequestInit, key: string): Promise<Response> {
  try {
    const response = await fetch(url, init);
    heard(response, key);
    return response;
  } catch (error) {
    if (!isAbort(error)) unreachable.value = true;
    throw error;
  }
}
