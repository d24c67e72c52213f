import type { Run, Wait, Worker } from '../shape.ts';
import { ended } from '../shape.ts';

export type RunAction = 'cancel' | 'terminate' | 'pause' | 'resume' | 'retry' | 'signal' | 'again';

/** Why something cannot be done now; undefined: it can. */
export type Why = string | undefined;

/** Why nothing can be changed at all, whatever the run. */
export type Barred = { readOnly: boolean; keyReadsOnly: boolean };

export function barred(b: Barred): Why {
  if (b.readOnly) return 'This server is for reading only.';
  if (b.keyReadsOnly) return 'Your API key may only read.';
  return undefined;
}

export function whyNot(action: RunAction, run: Run): Why {
  const over = ended(run.state);
  switch (action) {
    case 'cancel':
      if (over) return `The run has ended: it is ${said(run)}.`;
      return run.state === 'canceling' ? 'It is canceling already.' : undefined;
    case 'terminate':
      return over ? `The run has ended: it is ${said(run)}.` : undefined;
    case 'pause':
      if (over) return `The run has ended: it is ${said(run)}.`;
      if (run.state === 'canceling') return 'A run that is canceling cannot be paused.';
      return run.state === 'paused' ? 'It is paused already.' : undefined;
    case 'resume':
      return run.state === 'paused' ? undefined : `Only a paused run can be resumed; it is ${said(run)}.`;
    case 'retry':
      if (!over) return 'Only a run that has ended can be retried.';
      return run.state === 'succeeded' ? 'It succeeded: there is no failed step to go on from.' : undefined;
    case 'signal':
      return over ? 'The run has ended: nothing receives a signal.' : undefined;
    case 'again':
      return isLoop(run) ? 'A loop is begun by the worker that defines it.' : undefined;
  }
}

export function said(run: Run): string {
  return run.state === 'timed_out' ? 'timed out' : run.state;
}

export function isLoop(run: { id: string }): boolean {
  return run.id.startsWith('loop:');
}

export type WaitAction = 'check' | 'extend' | 'complete' | 'fail';

const settled = new Set(['poll', 'sleep', 'signal', 'webhook', 'child', 'retry']);
const looks = new Set(['poll', 'retry', 'loop']);

/** Why a live wait cannot be acted on so; undefined: it can. */
export function whyNotWait(action: WaitAction, w: Wait): Why {
  if (!w.path) return 'This is no wait of the workflow.';
  if (action === 'check') return looks.has(w.kind) ? undefined : `There is nothing to look at: the ${kindName(w.kind)} comes by itself.`;
  if (!settled.has(w.kind)) return `A ${kindName(w.kind)} cannot be settled by hand.`;
  if (action === 'extend' && !w.until) return 'It has no deadline.';
  return undefined;
}

export function kindName(kind: string): string {
  return kind === 'retry' ? 'step' : kind;
}

/** The workers that would take the run. */
export function workersFor(run: Run, workers: readonly Worker[]): Worker[] {
  return workers.filter((w) => w.queues.includes(run.queue) && w.workflows.includes(run.workflow));
}
