import { effect, signal } from '@preact/signals';
import { paused } from '../setting.ts';

/** What time it is, to the second. It stands while nobody looks, or all is paused. */
export const now = signal(Date.now());

export const visible = signal(!document.hidden);

document.addEventListener('visibilitychange', () => (visible.value = !document.hidden));

effect(() => {
  if (!visible.value || paused.value) return undefined;
  let timer = 0;
  const tick = (): void => {
    now.value = Date.now();
    timer = window.setTimeout(tick, 1000 - (Date.now() % 1000));
  };
  tick();
  return () => window.clearTimeout(timer);
});
