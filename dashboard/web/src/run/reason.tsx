import { useSignal } from '@preact/signals';
import { Dialog } from '../parts/dialog.tsx';

interface Props {
  title: string;
  what: string;
  verb: string;
  onClose(): void;
  onReason(reason: string): Promise<void>;
}

/** Asks for the reason of something that cannot be undone. */
export function ReasonDialog({ title, what, verb, onClose, onReason }: Props) {
  const reason = useSignal('');
  const submit = async (e: Event): Promise<void> => {
    e.preventDefault();
    await onReason(reason.value.trim());
    onClose();
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <form onSubmit={(e) => void submit(e)}>
        <p>{what}</p>
        <div class="field">
          <label for="reason">Reason</label>
          <input id="reason" autofocus value={reason.value} placeholder="kept in the history" onInput={(e) => (reason.value = e.currentTarget.value)} />
        </div>
        <div class="buttons">
          <button type="button" onClick={onClose}>
            Leave it
          </button>
          <button type="submit" class="danger">
            {verb}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
