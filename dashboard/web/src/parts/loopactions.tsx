import { useSignal } from '@preact/signals';
import { loopPath, send } from '../http.ts';
import { barred, type Why } from '../run/action.ts';
import { keyReadsOnly, readOnly } from '../setting.ts';
import type { Loop } from '../shape.ts';
import { Act } from './act.tsx';

/** What can be done to a loop. */
export function LoopActions({ loop, after }: { loop: Loop; after(): void }) {
  const said = useSignal('');
  const bad = useSignal(false);
  const none = barred({ readOnly: readOnly.value, keyReadsOnly: keyReadsOnly.value }) ?? (loop.stopped ? 'The loop is stopped.' : undefined);
  const act = (verb: string, body?: string) => async (): Promise<void> => {
    try {
      const answer = await send<{ iteration?: number; coalesced?: boolean } | undefined>('POST', `${loopPath(loop.name)}/${verb}`, body);
      said.value = verb === 'trigger' ? `Iteration ${answer?.iteration ?? '?'}${answer?.coalesced ? ', after the one in flight' : ''}` : '';
      bad.value = false;
    } catch (error) {
      said.value = error instanceof Error ? error.message : String(error);
      bad.value = true;
    }
    after();
  };
  return (
    <span class="acts">
      <Act onAct={act('trigger', loop.paused ? '{"force":true}' : undefined)} why={none}>
        {loop.paused ? 'Run once' : 'Trigger'}
      </Act>
      {loop.paused ? (
        <Act onAct={act('resume')} why={none}>
          Resume
        </Act>
      ) : (
        <Act onAct={act('pause')} why={none}>
          Pause
        </Act>
      )}
      <Act onAct={act('reset-backoff')} why={none ?? noBackoff(loop)}>
        Reset
      </Act>
      <span class={bad.value ? 'bad said' : 'faint said'} role="status">
        {said.value}
      </span>
    </span>
  );
}

function noBackoff(loop: Loop): Why {
  return loop.failures === 0 && loop.multiplier === 1 && (loop.breaker ?? 'closed') === 'closed' ? 'There is no back-off to reset.' : undefined;
}
