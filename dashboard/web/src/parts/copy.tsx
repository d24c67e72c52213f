import { useSignal } from '@preact/signals';

/** Puts a text on the clipboard, and says whether it did. */
export function Copy({ text, what }: { text: () => string; what: string }) {
  const said = useSignal('');
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text());
      said.value = 'Copied';
    } catch {
      said.value = 'Not allowed';
    }
    window.setTimeout(() => (said.value = ''), 1500);
  };
  return (
    <button type="button" class="small quiet" onClick={() => void copy()} aria-label={said.value ? undefined : `Copy ${what}`}>
      <span aria-live="polite">{said.value || 'Copy'}</span>
    </button>
  );
}
