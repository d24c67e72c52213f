import { useSignal } from '@preact/signals';
import { runPath, send } from '../http.ts';
import { cancelRun } from '../live/live.ts';
import { Act } from '../parts/act.tsx';
import { Notice } from '../parts/notice.tsx';
import { keyReadsOnly, readOnly } from '../setting.ts';
import type { Run } from '../shape.ts';
import { barred, whyNot, type RunAction, type Why } from './action.ts';
import { AgainDialog } from './again.tsx';
import { ReasonDialog } from './reason.tsx';
import { SignalDialog } from './signal.tsx';

/** What can be done to a run; what cannot says why. */
export function RunActions({ run, accept }: { run: Run; accept(run: Run): void }) {
  const shown = useSignal<'signal' | 'again' | 'terminate' | undefined>(undefined);
  const wrong = useSignal('');
  const why = (action: RunAction): Why => whyNot(action, run) ?? barred({ readOnly: readOnly.value, keyReadsOnly: keyReadsOnly.value });
  const close = (): void => void (shown.value = undefined);
  const trying = (act: () => Promise<void>) => async (): Promise<void> => {
    wrong.value = '';
    try {
      await act();
    } catch (error) {
      wrong.value = error instanceof Error ? error.message : String(error);
    }
  };
  const post = (verb: string, body?: string) => trying(async () => accept(await send<Run>('POST', `${runPath(run.id)}/${verb}`, body)));
  return (
    <div class="run-actions">
      <div class="acts" role="group" aria-label="Actions on the run">
        <Act onAct={trying(() => cancelRun(run.id))} why={why('cancel')}>
          Cancel
        </Act>
        <Act onAct={() => void (shown.value = 'terminate')} why={why('terminate')} kind="danger">
          Terminate…
        </Act>
        {run.state === 'paused' ? (
          <Act onAct={post('resume')} why={why('resume')}>
            Resume
          </Act>
        ) : (
          <Act onAct={post('pause')} why={why('pause')}>
            Pause
          </Act>
        )}
        <Act onAct={post('retry')} why={why('retry')}>
          Retry
        </Act>
        <Act onAct={() => void (shown.value = 'signal')} why={why('signal')}>
          Signal…
        </Act>
        <Act onAct={() => void (shown.value = 'again')} why={why('again')}>
          Start again…
        </Act>
      </div>
      {wrong.value && <Notice kind="bad">{wrong.value}</Notice>}
      {shown.value === 'terminate' && (
        <ReasonDialog title="Terminate the run" what="It ends at once, without clean-up. To let it clean up, cancel it." verb="Terminate" onClose={close} onReason={(reason) => post('terminate', JSON.stringify({ reason }))()} />
      )}
      {shown.value === 'signal' && <SignalDialog run={run} onClose={close} />}
      {shown.value === 'again' && <AgainDialog run={run} onClose={close} />}
    </div>
  );
}
