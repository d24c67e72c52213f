import { useSignal } from '@preact/signals';
import { runPath, send } from '../http.ts';
import { Act } from '../parts/act.tsx';
import { Dialog } from '../parts/dialog.tsx';
import { Editor, jsonOf, problemOf } from '../parts/editor.tsx';
import { Notice } from '../parts/notice.tsx';
import { keyReadsOnly, readOnly } from '../setting.ts';
import type { Run, Wait } from '../shape.ts';
import { barred, kindName, whyNotWait, type WaitAction, type Why } from './action.ts';
import { ReasonDialog } from './reason.tsx';

/** What a person can do to a live wait in the place of the world. */
export function WaitActions({ run, wait, accept }: { run: Run; wait: Wait; accept(run: Run): void }) {
  const shown = useSignal<'extend' | 'complete' | 'fail' | undefined>(undefined);
  const said = useSignal('');
  const wrong = useSignal('');
  const name = `${kindName(wait.kind)} ${wait.name ?? wait.path ?? ''}`;
  const why = (action: WaitAction): Why => whyNotWait(action, wait) ?? barred({ readOnly: readOnly.value, keyReadsOnly: keyReadsOnly.value });
  const close = (): void => void (shown.value = undefined);
  const act = async (action: WaitAction, body?: string): Promise<boolean> => {
    said.value = wrong.value = '';
    try {
      accept(await send<Run>('POST', `${runPath(run.id)}/waits/${encodeURIComponent(wait.path ?? '')}/${action}`, body));
      said.value = { check: 'It looks now.', extend: 'The deadline is moved.', complete: 'Completed.', fail: 'Failed.' }[action] + ' It is in the history.';
      return true;
    } catch (error) {
      wrong.value = error instanceof Error ? error.message : String(error);
      return false;
    }
  };
  return (
    <div class="wait-actions">
      <span class="acts" role="group" aria-label={`Actions on ${name}`}>
        <Act onAct={() => act('check').then(() => {})} why={why('check')}>
          Check now
        </Act>
        <Act onAct={() => void (shown.value = 'extend')} why={why('extend')}>
          Extend…
        </Act>
        <Act onAct={() => void (shown.value = 'complete')} why={why('complete')}>
          Complete…
        </Act>
        <Act onAct={() => void (shown.value = 'fail')} why={why('fail')} kind="danger">
          Fail…
        </Act>
      </span>
      <span class="said faint" role="status">
        {said.value}
      </span>
      {wrong.value && <Notice kind="bad">{wrong.value}</Notice>}
      {shown.value === 'extend' && <ExtendDialog name={name} onClose={close} onExtend={(by) => act('extend', JSON.stringify({ by }))} />}
      {shown.value === 'complete' && <CompleteDialog name={name} onClose={close} onValue={(value) => act('complete', value)} />}
      {shown.value === 'fail' && (
        <ReasonDialog
          title={`Fail ${name}`}
          what="The workflow gets this as the wait’s error. It cannot be undone."
          verb="Fail it"
          onClose={close}
          onReason={(reason) => act('fail', JSON.stringify({ reason })).then(() => {})}
        />
      )}
    </div>
  );
}

function ExtendDialog({ name, onClose, onExtend }: { name: string; onClose(): void; onExtend(by: string): Promise<boolean> }) {
  const by = useSignal('1h');
  const submit = async (e: Event): Promise<void> => {
    e.preventDefault();
    await onExtend(by.value.trim().replace('−', '-'));
    onClose();
  };
  return (
    <Dialog title={`Move the deadline of ${name}`} onClose={onClose}>
      <form onSubmit={(e) => void submit(e)}>
        <div class="field">
          <label for="extend-by">By</label>
          <input id="extend-by" required autofocus value={by.value} onInput={(e) => (by.value = e.currentTarget.value)} />
          <p class="faint">Such as 90s, 30m or 72h; −30m brings it nearer.</p>
        </div>
        <div class="buttons">
          <button type="button" onClick={onClose}>
            Close
          </button>
          <button type="submit" class="primary">
            Move it
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function CompleteDialog({ name, onClose, onValue }: { name: string; onClose(): void; onValue(value: string): Promise<boolean> }) {
  const value = useSignal('');
  const submit = async (e: Event): Promise<void> => {
    e.preventDefault();
    await onValue(jsonOf(value.value));
    onClose();
  };
  return (
    <Dialog title={`Complete ${name}`} onClose={onClose}>
      <form onSubmit={(e) => void submit(e)}>
        <p>The workflow gets this value, as if it had come from the world. It cannot be undone.</p>
        <Editor text={value} label="Value" rows={6} />
        <div class="buttons">
          <button type="button" onClick={onClose}>
            Close
          </button>
          <button type="submit" class="primary" disabled={problemOf(value.value) !== undefined}>
            Complete
          </button>
        </div>
      </form>
    </Dialog>
  );
}
