import { useSignal, type Signal } from '@preact/signals';
import { useId } from 'preact/hooks';
import { checkJSON } from '../exact/parse.ts';

/** A field for JSON, which says where it is none. Empty is null. */
export function Editor({ text, label, rows = 8 }: { text: Signal<string>; label: string; rows?: number }) {
  const id = useId();
  const touched = useSignal(false);
  const wrong = touched.value ? problemOf(text.value) : undefined;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <textarea
        id={id}
        rows={rows}
        spellcheck={false}
        autocomplete="off"
        value={text.value}
        aria-invalid={wrong !== undefined}
        aria-describedby={`${id}-wrong`}
        onInput={(e) => {
          text.value = e.currentTarget.value;
          touched.value = true;
        }}
      />
      <p id={`${id}-wrong`} class={wrong ? 'wrong' : 'faint'} aria-live="polite">
        {wrong ?? 'JSON; numbers are kept digit by digit. Empty is null.'}
      </p>
    </div>
  );
}

/** What is wrong with a text as JSON; undefined: nothing. */
export function problemOf(text: string): string | undefined {
  if (text.trim() === '') return undefined;
  const checked = checkJSON(text);
  if (checked.ok) return undefined;
  const before = text.slice(0, checked.at).split('\n');
  return `Line ${before.length}, column ${(before.at(-1)?.length ?? 0) + 1}: ${checked.problem}.`;
}

/** The JSON that a field stands for. */
export function jsonOf(text: string): string {
  return text.trim() === '' ? 'null' : text;
}
