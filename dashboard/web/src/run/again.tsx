import { useSignal } from '@preact/signals';
import { startRun } from '../live/live.ts';
import { Dialog } from '../parts/dialog.tsx';
import { Editor, jsonOf, problemOf } from '../parts/editor.tsx';
import { Notice } from '../parts/notice.tsx';
import { indented } from '../exact/print.ts';
import { go, runHref } from '../route.ts';
import type { Run } from '../shape.ts';

/** An input above this is edited as it is, without indents: a field has its limits. */
const prettyLimit = 100_000;

/** Starts another run of the workflow, with the input of this one as it is edited. */
export function AgainDialog({ run, onClose }: { run: Run; onClose(): void }) {
  const given = run.input?.text ?? '';
  const input = useSignal(given.length > prettyLimit ? given : indented(given));
  const wrong = useSignal('');
  const submit = async (e: Event): Promise<void> => {
    e.preventDefault();
    try {
      const id = await startRun(run.workflow, jsonOf(input.value), { queue: run.queue, ...(run.labels && { labels: run.labels }) });
      onClose();
      go(runHref(id));
    } catch (error) {
      wrong.value = error instanceof Error ? error.message : String(error);
    }
  };
  return (
    <Dialog title={`Start ${run.workflow} again`} onClose={onClose}>
      <form onSubmit={(e) => void submit(e)}>
        {!run.input && <p class="faint">The server does not tell this run’s input.</p>}
        <Editor text={input} label="Input" rows={12} />
        <p class="faint">It is another run, in the same queue and with the same labels; this one stays as it is.</p>
        {wrong.value && <Notice kind="bad">{wrong.value}</Notice>}
        <div class="buttons">
          <button type="button" onClick={onClose}>
            Close
          </button>
          <button type="submit" class="primary" disabled={problemOf(input.value) !== undefined}>
            Start
          </button>
        </div>
      </form>
    </Dialog>
  );
}
