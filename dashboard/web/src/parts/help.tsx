import { signal } from '@preact/signals';
import { go, href } from '../route.ts';
import { paused, shortcuts } from '../setting.ts';
import { Dialog } from './dialog.tsx';

export const helpShown = signal(false);

const keys: { key: string; what: string; act(): void }[] = [
  { key: '/', what: 'Search among the runs', act: search },
  { key: 'r', what: 'Runs', act: () => go(href('/runs')) },
  { key: 'l', what: 'Loops', act: () => go(href('/loops')) },
  { key: 'q', what: 'Queues and workers', act: () => go(href('/queues')) },
  { key: 's', what: 'Start a run', act: () => go(href('/start')) },
  { key: 'p', what: 'Pause or resume the updates', act: () => (paused.value = !paused.value) },
  { key: '?', what: 'This list', act: () => (helpShown.value = true) },
];

function search(): void {
  const field = document.querySelector<HTMLInputElement>('input[type=search]');
  if (field) field.focus();
  else {
    go(href('/runs'));
    requestAnimationFrame(() => document.querySelector<HTMLInputElement>('input[type=search]')?.focus());
  }
}

/** Listens for the shortcuts, but not where somebody types. */
export function startShortcuts(): void {
  document.addEventListener('keydown', (e) => {
    if (!shortcuts.value || e.defaultPrevented || e.ctrlKey || e.metaKey || e.altKey) return;
    const at = e.target instanceof Element ? e.target : null;
    if (at?.closest('input, textarea, select, dialog, [contenteditable]')) return;
    const found = keys.find((k) => k.key === e.key);
    if (!found) return;
    e.preventDefault();
    found.act();
  });
}

export function Help() {
  const close = (): void => void (helpShown.value = false);
  return (
    <Dialog title="Keyboard shortcuts" onClose={close}>
      <dl class="keys">
        {keys.map((k) => (
          <div key={k.key}>
            <dt>
              <kbd>{k.key}</kbd>
            </dt>
            <dd>{k.what}</dd>
          </div>
        ))}
      </dl>
      <label class="check">
        <input type="checkbox" checked={shortcuts.value} onChange={(e) => (shortcuts.value = e.currentTarget.checked)} />
        Shortcuts of one key are on
      </label>
      <div class="buttons">
        <button type="button" class="primary" onClick={close}>
          Close
        </button>
      </div>
    </Dialog>
  );
}
