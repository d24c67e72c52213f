import { useSignal } from '@preact/signals';
import { apiKey, keyReadsOnly, needsKey } from '../setting.ts';
import { Dialog } from './dialog.tsx';

/** Asks for an API key when the server wants one. */
export function KeyPrompt({ onKey }: { onKey(): void }) {
  const typed = useSignal('');
  if (!needsKey.value) return null;
  const had = apiKey.value !== '';
  const submit = (e: Event): void => {
    e.preventDefault();
    if (typed.value.trim() === '') return;
    apiKey.value = typed.value.trim();
    typed.value = '';
    keyReadsOnly.value = false;
    needsKey.value = false;
    onKey();
  };
  return (
    <Dialog title="API key" onClose={() => {}}>
      <form onSubmit={submit}>
        <p>{had ? 'The server does not know this key, or it was revoked or has expired.' : 'The server asks for an API key.'}</p>
        <p class="faint">
          One is made with <code>bide token create me --scope read</code>. This tab keeps it until it is closed.
        </p>
        <div class="field">
          <label for="api-key">Key</label>
          <input id="api-key" type="password" autocomplete="off" autofocus value={typed.value} onInput={(e) => (typed.value = e.currentTarget.value)} />
        </div>
        <div class="buttons">
          <button type="submit" class="primary">
            Use this key
          </button>
        </div>
      </form>
    </Dialog>
  );
}
