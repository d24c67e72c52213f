import { useSignal } from '@preact/signals';
import { runPath, send } from '../http.ts';
import { Dialog } from '../parts/dialog.tsx';
import { Editor, jsonOf, problemOf } from '../parts/editor.tsx';
import { Notice } from '../parts/notice.tsx';
import type { Run } from '../shape.ts';

/** Sends a signal; the names that the run waits for are at hand. */
export function SignalDialog({ run, onClose }: { run: Run; onClose(): void }) {
  const names = [...new Set(run.waiting.filter((w) => w.kind === 'signal' && w.name).map((w) => w.name ?? ''))];
  const name = useSignal(names[0] ?? '');
  const body = useSignal('');
  const wrong = useSignal('');
  const submit = async (e: Event): Promise<void> => {
    e.preventDefault();
    try {
      await send('POST', `${runPath(run.id)}/signal/${encodeURIComponent(name.value.trim())}`, jsonOf(body.value));
      onClose();
    } catch (error) {
      wrong.value = error instanceof Error ? error.message : String(error);
    }
  };
  return (
    <Dialog title="Send a signal" onClose={onClose}>
      <form onSubmit={(e) => void submit(e)}>
        <div class="field">
          <label for="signal-name">Name</label>
          <input id="signal-name" list="signal-names" required autofocus autocomplete="off" value={name.value} onInput={(e) => (name.value = e.currentTarget.value)} />
          <datalist id="signal-names">
            {names.map((n) => (
              <option key={n} value={n} />
            ))}
          </datalist>
          {names.length > 0 && <p class="faint">The run waits for {names.join(', ')}. Any other is kept until it asks for it.</p>}
        </div>
        <Editor text={body} label="Value" rows={6} />
        {wrong.value && <Notice kind="bad">{wrong.value}</Notice>}
        <div class="buttons">
          <button type="button" onClick={onClose}>
            Close
          </button>
          <button type="submit" class="primary" disabled={problemOf(body.value) !== undefined || name.value.trim() === ''}>
            Send
          </button>
        </div>
      </form>
    </Dialog>
  );
}
