import { useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useId } from 'preact/hooks';
import type { Why } from '../run/action.ts';

interface Props {
  onAct(): Promise<void> | void;
  /** Why it cannot be done now. */
  why?: Why;
  kind?: 'plain' | 'danger' | 'primary';
  children: ComponentChildren;
}

/**
 * A button that does something on the server. One that cannot now stays in reach of
 * the keyboard, so that its reason can be read.
 */
export function Act({ onAct, why, kind = 'plain', children }: Props) {
  const busy = useSignal(false);
  const id = useId();
  const act = async (): Promise<void> => {
    if (why !== undefined || busy.value) return;
    busy.value = true;
    try {
      await onAct();
    } finally {
      busy.value = false;
    }
  };
  return (
    <span class="act">
      <button
        type="button"
        class={`small ${kind}`}
        aria-disabled={why !== undefined || busy.value}
        aria-describedby={why === undefined ? undefined : id}
        aria-busy={busy.value}
        onClick={() => void act()}
      >
        {children}
      </button>
      {why !== undefined && (
        <span id={id} role="tooltip" class="why">
          {why}
        </span>
      )}
    </span>
  );
}
