import { effect, signal } from '@preact/signals';
import { serverReadsOnly } from './root.ts';

// What the reader has set. A browser may forbid storage: then it lasts as long as the page.

function stored(area: 'localStorage' | 'sessionStorage', name: string): string {
  try {
    return window[area].getItem(name) ?? '';
  } catch {
    return '';
  }
}

function store(area: 'localStorage' | 'sessionStorage', name: string, value: string): void {
  try {
    if (value === '') window[area].removeItem(name);
    else window[area].setItem(name, value);
  } catch {
    // it is only not remembered
  }
}

export type Theme = 'system' | 'light' | 'dark';

const wanted = stored('localStorage', 'bide.theme');
export const theme = signal<Theme>(wanted === 'light' || wanted === 'dark' ? wanted : 'system');

/** Shortcuts of one character can be switched off: they are in the way of speech input. */
export const shortcuts = signal(stored('localStorage', 'bide.shortcuts') !== 'off');

/** The API key, kept for this tab only. */
export const apiKey = signal(stored('sessionStorage', 'bide.key'));

/** The server asks for a key, or another one. */
export const needsKey = signal(false);

/** The reader has stopped all that asks the server by itself. */
export const paused = signal(false);

/** The server, or the key, lets nothing be changed. */
export const readOnly = signal(serverReadsOnly);
export const keyReadsOnly = signal(false);

effect(() => {
  if (theme.value === 'system') delete document.documentElement.dataset['theme'];
  else document.documentElement.dataset['theme'] = theme.value;
  store('localStorage', 'bide.theme', theme.value === 'system' ? '' : theme.value);
});
effect(() => store('localStorage', 'bide.shortcuts', shortcuts.value ? '' : 'off'));
effect(() => store('sessionStorage', 'bide.key', apiKey.value));
