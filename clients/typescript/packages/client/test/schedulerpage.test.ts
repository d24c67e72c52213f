import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { createPollScheduler, type PollScheduler, type PollSchedulerOptions } from '../src/index.js';
import { FakeClock, settle } from './clock.js';
import { FakePage } from './page.js';

let clock: FakeClock;
let page: FakePage;
const made: PollScheduler[] = [];
let began: number;

beforeEach(() => {
  clock = new FakeClock();
  page = new FakePage();
  began = clock.now();
});

afterEach(async () => {
  for (const scheduler of made.splice(0)) scheduler.destroy();
  await settle();
  page.remove();
  assert.equal(clock.timers.size, 0, 'timers are left after destroy');
});

function scheduler(options: PollSchedulerOptions = {}): PollScheduler {
  const made1 = createPollScheduler({ clock, random: () => 0.5, leader: false, ...options });
  made.push(made1);
  return made1;
}

/** A function that notes when it ran, and ends as it is told. */
function noting(outcome: (turn: number) => boolean | void | Promise<boolean | void> = () => undefined) {
  const at: number[] = [];
  const fn = (): boolean | void | Promise<boolean | void> => {
    at.push(clock.now() - began);
    return outcome(at.length);
  };
  return { at, fn };
}

describe('a hidden page', () => {
  it('pauses, then starts what is overdue 150 ms apart by interval, and resumes the rest', async () => {
    const s = scheduler();
    const order: [string, number][] = [];
    const add = (name: string, intervalMs: number): void => {
      s.register(name, () => void order.push([name, clock.now() - began]), { intervalMs });
    };
    add('stocks', 20_000);
    add('news', 30_000);
    add('weather', 30_000);
    add('notifications', 10_000);
    add('daily', 400_000);
    await clock.advance(5000);
    page.hide();
    assert.equal(clock.timers.size, 0);
    await clock.advance(300_000);
    assert.deepEqual(order, []);
    page.show();
    await clock.advance(2000);
    assert.deepEqual(order, [['notifications', 305_300], ['stocks', 305_450], ['news', 305_600], ['weather', 305_750]]);
    order.length = 0;
    await clock.advance(93_000);
    assert.deepEqual(order.at(-1), ['daily', 400_000]);
  });

  it('that hides again takes back what was to start', async () => {
    const s = scheduler();
    const { at, fn } = noting();
    for (const name of ['a', 'b', 'c', 'd']) s.register(name, fn, { intervalMs: 10_000 });
    page.hide();
    await clock.advance(20_000);
    page.show();
    await clock.advance(300 + 200);
    page.hide();
    await clock.advance(10_000);
    assert.equal(at.length, 2);
    assert.equal(clock.timers.size, 0);
  });

  it('aborts reads in flight, which is no failure, and keeps writes', async () => {
    const s = scheduler();
    const read = s.register('read', ({ signal }) => new Promise((_, reject) => {
      signal.addEventListener('abort', () => reject(new TypeError('aborted')));
    }), { intervalMs: 1000 });
    const write = s.register('write', () => clock.sleep(2000).then(() => true), { intervalMs: 1000 });
    await clock.advance(1500);
    page.hide();
    await clock.advance(5000);
    assert.equal(read.backoffState().failures, 0);
    assert.equal(read.backoffState().inFlight, false);
    assert.equal(write.backoffState().lastSuccessAt, began + 3000);
    assert.equal(clock.timers.size, 0);
  });

  it('does not wait out the jitter of what is overdue', async () => {
    const { at, fn } = noting();
    scheduler({ random: () => 0.999 }).register('news', fn, { intervalMs: 10_000 });
    await clock.advance(5000);
    page.hide();
    await clock.advance(5000);
    page.show();
    await clock.advance(500);
    assert.deepEqual(at, [10_300]);
  });

  it('may go on more rarely instead', async () => {
    const { at, fn } = noting();
    scheduler({ hidden: { multiplier: 10 } }).register('news', fn, { intervalMs: 10_000 });
    page.hide();
    await clock.advance(210_000);
    assert.deepEqual(at, [10_000, 110_000, 210_000]);
    await clock.advance(50_000);
    page.show();
    await clock.advance(15_000);
    assert.deepEqual(at.slice(3), [260_300, 270_300]);
  });

  it('runs at most four at once', async () => {
    const s = scheduler();
    let running = 0;
    let most = 0;
    for (let i = 0; i < 12; i++) {
      s.register(`l${i}`, async () => {
        most = Math.max(most, ++running);
        await clock.sleep(5000);
        running--;
      }, { intervalMs: 10_000 });
    }
    page.hide();
    await clock.advance(60_000);
    page.show();
    await clock.advance(16_000);
    assert.equal(most, 4);
    for (const loop of Array.from({ length: 12 }, (_, i) => s.register(`l${i}`, () => undefined, { intervalMs: 10_000 }))) {
      assert.equal(loop.backoffState().iteration >= 1, true);
    }
  });

  it('tells subscribers of one flush once', async () => {
    const s = scheduler({ staggerMs: 0 });
    const loops = ['a', 'b', 'c'].map((name) => s.register(name, () => undefined, { intervalMs: 10_000 }));
    let told = 0;
    let rounds = 0;
    const seen = (): void => {
      if (told++ === 0) queueMicrotask(() => rounds++);
    };
    for (const loop of loops) loop.subscribe(seen);
    loops.forEach((loop) => loop.pause());
    loops.forEach((loop) => loop.pause());
    await settle();
    assert.equal(told, 3);
    assert.equal(rounds, 1);
  });
});

describe('offline', () => {
  it('pauses, and returns within 2 s', async () => {
    const { at, fn } = noting();
    const loop = scheduler({ random: () => 0.5 }).register('news', fn, { intervalMs: 10_000 });
    page.offline();
    await clock.advance(60_000);
    assert.deepEqual(at, []);
    page.online();
    await clock.advance(1000);
    assert.deepEqual(at, [61_000]);
    assert.equal(loop.backoffState().failures, 0);
  });

  it('a fetch that fails without a network is not counted', async () => {
    const loop = scheduler().register('news', async () => {
      await clock.sleep(100);
      throw new TypeError('Failed to fetch');
    }, { intervalMs: 10_000 });
    await clock.advance(10_050);
    page.navigator.onLine = false;
    page.window.dispatchEvent(new Event('offline'));
    await clock.advance(1000);
    assert.equal(loop.backoffState().failures, 0);
    page.online();
    await clock.advance(12_000);
    assert.equal(loop.backoffState().failures, 1, 'with a network it is');
    page.offline();
    loop.trigger();
    await clock.advance(1000);
    assert.equal(loop.backoffState().failures, 1, 'nor when it was asked for');
  });
});
