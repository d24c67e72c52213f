import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { createPollScheduler, ProblemError, type PollScheduler, type PollSchedulerOptions } from '../src/index.js';
import { FakeClock, seeded, settle } from './clock.js';
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

const gaps = (at: number[]): number[] => at.slice(1).map((t, i) => t - (at[i] ?? 0));

describe('backoff', () => {
  it('doubles with each failure up to 8, and returns to 1 at once', async () => {
    const { at, fn } = noting((turn) => turn > 5);
    const loop = scheduler().register('news', fn, { intervalMs: 10_000 });
    await clock.advance(330_000);
    assert.deepEqual(gaps(at).slice(0, 6), [20_000, 40_000, 80_000, 80_000, 80_000, 10_000]);
    const state = loop.backoffState();
    assert.equal(state.failures, 0);
    assert.equal(state.multiplier, 1);
  });

  it('takes an error as a failure, true and nothing as success', async () => {
    const { at, fn } = noting((turn) => {
      if (turn === 1) throw new Error('no');
      return turn === 2 ? true : undefined;
    });
    const loop = scheduler().register('news', fn, { intervalMs: 1000 });
    await clock.advance(1000);
    assert.equal((loop.backoffState().lastError as Error).message, 'no');
    assert.equal(loop.backoffState().effectiveIntervalMs, 2000);
    await clock.advance(4000);
    assert.deepEqual(at, [1000, 3000, 4000, 5000]);
    assert.equal(loop.backoffState().lastError, undefined);
  });

  it('runs first after one interval, or at once if asked to', async () => {
    const late = noting();
    const early = noting();
    const s = scheduler();
    s.register('late', late.fn, { intervalMs: 5000 });
    s.register('early', early.fn, { intervalMs: 5000, runImmediately: true });
    await clock.advance(5000);
    assert.deepEqual(late.at, [5000]);
    assert.deepEqual(early.at, [0, 5000]);
  });

  it('counts from the end of a turn', async () => {
    const { at, fn } = noting(() => clock.sleep(3000));
    scheduler().register('slow', fn, { intervalMs: 1000 });
    await clock.advance(9000);
    assert.deepEqual(at, [1000, 5000, 9000]);
  });

  it('a condition that is false counts as nothing', async () => {
    let open = true;
    const { at, fn } = noting(() => false);
    const loop = scheduler().register('news', fn, { intervalMs: 1000, condition: () => open });
    await clock.advance(1000);
    open = false;
    const before = loop.backoffState();
    await clock.advance(10_000);
    const { failures, lastRunAt, effectiveIntervalMs, iteration } = loop.backoffState();
    assert.deepEqual([failures, lastRunAt, effectiveIntervalMs, iteration], [1, before.lastRunAt, 2000, 1]);
    assert.deepEqual(at, [1000]);
    open = true;
    await clock.advance(2000);
    assert.equal(at.length, 2);
  });

  it('resetBackoff returns to the plain interval, now if that is over', async () => {
    const { at, fn } = noting(() => false);
    const loop = scheduler().register('news', fn, { intervalMs: 10_000 });
    await clock.advance(30_000); // at 10 and 30; next 70
    await clock.advance(5000);
    loop.resetBackoff();
    assert.equal(loop.backoffState().multiplier, 1);
    await clock.advance(5000);
    assert.deepEqual(at, [10_000, 30_000, 40_000]);
    await clock.advance(15_000);
    loop.resetBackoff();
    await clock.advance(1);
    assert.equal(at.at(-1), 55_000);
  });

  it('is spread by a tenth, and never below the floor', async () => {
    const { at, fn } = noting();
    scheduler({ random: seeded(5) }).register('news', fn, { intervalMs: 10_000 });
    await clock.advance(400_000);
    const g = gaps(at);
    assert.ok(Math.min(...g) >= 9000 && Math.max(...g) <= 11_000 && new Set(g).size > 10);
    const fast = noting();
    scheduler({ random: seeded(5) }).register('fast', fast.fn, { intervalMs: 100 });
    await clock.advance(20_000);
    assert.ok(Math.min(...gaps(fast.at)) >= 1000);
  });

  it('honours the hint of an answer and of a refusal', async () => {
    const s = scheduler();
    const at: number[] = [];
    s.register('hinted', ({ hint }) => {
      at.push(clock.now() - began);
      if (at.length === 1) hint(30_000);
      if (at.length === 2) throw new ProblemError(429, undefined, 60_000);
    }, { intervalMs: 10_000, runImmediately: true });
    await clock.advance(110_000);
    assert.deepEqual(at, [0, 31_500, 94_500, 104_500]);
  });

  it('is exact over delays that a browser would cut to nothing', async () => {
    const { at, fn } = noting();
    const month = 30 * 24 * 3_600_000;
    scheduler().register('monthly', fn, { intervalMs: month });
    await clock.advance(month - 1);
    assert.deepEqual(at, []);
    await clock.advance(1);
    assert.deepEqual(at, [month]);
    assert.ok(Math.max(...clock.delays) < 2 ** 31);
  });
});

describe('trigger', () => {
  it('runs at once and begins the countdown anew', async () => {
    const { at, fn } = noting();
    const loop = scheduler().register('news', fn, { intervalMs: 10_000 });
    await clock.advance(7000);
    assert.deepEqual(loop.trigger(), { iteration: 1, coalesced: false, skipped: false });
    await clock.advance(10_000);
    assert.deepEqual(at, [7000, 17_000]);
  });

  it('is followed by exactly one turn when one is in flight', async () => {
    const { at, fn } = noting((turn) => (turn < 3 ? clock.sleep(4000) : undefined));
    const loop = scheduler().register('news', fn, { intervalMs: 10_000, runImmediately: true });
    await clock.advance(1000);
    for (let i = 0; i < 5; i++) assert.deepEqual(loop.trigger(), { iteration: 2, coalesced: true, skipped: false });
    await clock.advance(3500);
    assert.deepEqual(at, [0, 4000]);
    await clock.advance(13_400);
    assert.deepEqual(at, [0, 4000], 'one, and no more');
    await clock.advance(200);
    assert.deepEqual(at, [0, 4000, 18_000]);
  });

  it('of a paused loop is an error unless forced', async () => {
    const { at, fn } = noting();
    const loop = scheduler().register('news', fn, { intervalMs: 1000 });
    loop.pause();
    assert.throws(() => loop.trigger(), /is paused; resume it, or trigger with \{force: true\}/);
    loop.trigger({ force: true });
    await clock.advance(10_000);
    assert.deepEqual(at, [0]);
  });

  it('obeys the condition and says so', async () => {
    const { at, fn } = noting();
    const loop = scheduler().register('news', fn, { intervalMs: 1000, condition: () => false });
    assert.equal(loop.trigger().skipped, true);
    await settle();
    assert.deepEqual(at, []);
  });
});

describe('pause', () => {
  it('lets the turn in flight finish and schedules nothing', async () => {
    const { at, fn } = noting(() => clock.sleep(500));
    const loop = scheduler().register('news', fn, { intervalMs: 1000 });
    await clock.advance(1100);
    loop.pause();
    await clock.advance(60_000);
    assert.deepEqual(at, [1000]);
    assert.equal(loop.backoffState().lastSuccessAt, began + 1500);
    assert.equal(clock.timers.size, 0);
  });

  it('can abort it, which is no failure', async () => {
    const loop = scheduler().register('news', ({ signal }) => new Promise((_, reject) => {
      signal.addEventListener('abort', () => reject(new Error('aborted')));
    }), { intervalMs: 1000 });
    await clock.advance(1100);
    loop.pause({ abort: true });
    await settle();
    assert.equal(loop.backoffState().failures, 0);
    assert.equal(loop.backoffState().inFlight, false);
  });

  it('keeps the remaining time, or runs at once when it is over', async () => {
    const { at, fn } = noting();
    const loop = scheduler().register('news', fn, { intervalMs: 10_000 });
    await clock.advance(6000);
    loop.pause();
    await clock.advance(2000);
    loop.resume();
    await clock.advance(2000);
    assert.deepEqual(at, [10_000]);
    loop.pause();
    await clock.advance(300_000);
    loop.resume();
    await clock.advance(10_000);
    assert.deepEqual(at, [10_000, 310_000, 320_000], 'one run for all that were missed');
  });
});

describe('register', () => {
  it('of a known name updates it, keeps its state, and has one timer', async () => {
    const s = scheduler();
    const one = noting(() => false);
    const two = noting();
    const first = s.register('news', one.fn, { intervalMs: 10_000 });
    await clock.advance(10_000);
    const second = s.register('news', two.fn, { intervalMs: 4000 });
    assert.equal(second.backoffState().failures, 1);
    await clock.advance(8000);
    assert.deepEqual([one.at, two.at], [[10_000], [18_000]]);
    first.stop();
    await clock.advance(4000);
    assert.deepEqual(two.at, [18_000, 22_000], 'the other owner keeps it');
    second.stop();
    second.stop();
    assert.equal(clock.timers.size, 0);
  });

  it('refuses what cannot be meant', () => {
    const s = scheduler();
    for (const intervalMs of [0, -1, Number.NaN, Infinity]) {
      assert.throws(() => s.register('news', () => undefined, { intervalMs }), /intervalMs must be above 0/);
    }
    assert.throws(() => scheduler({ maxConcurrent: 0 }), /maxConcurrent must be at least 1/);
    assert.throws(() => scheduler({ minIntervalMs: 10 }), /minIntervalMs must be at least 500/);
  });

  it('never runs a loop twice at once', async () => {
    const random = seeded(11);
    const s = scheduler({ random, maxConcurrent: 2 });
    const running = new Map<string, number>();
    const loops = ['a', 'b', 'c', 'd'].map((name) => s.register(name, async () => {
      assert.equal(running.get(name) ?? 0, 0, `${name} runs twice`);
      running.set(name, 1);
      await clock.sleep(random() * 4000);
      running.set(name, 0);
      if (random() < 0.3) throw new Error('no');
      return random() < 0.7;
    }, { intervalMs: 1000 + random() * 5000 }));
    for (let i = 0; i < 600; i++) {
      const loop = loops[Math.floor(random() * 4)];
      const dice = random();
      if (dice < 0.2) loop?.trigger({ force: true });
      else if (dice < 0.3) loop?.pause();
      else if (dice < 0.5) loop?.resume();
      else if (dice < 0.55) loop?.resetBackoff();
      else if (dice < 0.65) page.hide();
      else if (dice < 0.8) page.show();
      else if (dice < 0.85) page.offline();
      else if (dice < 0.95) page.online();
      await clock.advance(random() * 2000);
      assert.ok([...running.values()].reduce((a, b) => a + b, 0) <= 2);
    }
    page.show();
    page.online();
    loops.forEach((loop) => loop.resume());
    await clock.advance(60_000);
    const settled = loops.map((loop) => loop.backoffState().iteration);
    await clock.advance(120_000);
    loops.forEach((loop, i) => assert.ok(loop.backoffState().iteration > (settled[i] ?? 0), `${loop.name} stands still`));
  });
});
