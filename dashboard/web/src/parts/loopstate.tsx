import type { Loop } from '../shape.ts';
import { Icon, type IconName } from './icon.tsx';
import { times } from '../words/span.ts';

/** Where a loop stands, in a word with its shape. */
export function LoopState({ loop }: { loop: Loop }) {
  const [look, icon, word] = standing(loop);
  return (
    <span class={`state state-${look}`}>
      <Icon name={icon} />
      <span>{word}</span>
    </span>
  );
}

function standing(l: Loop): [look: string, icon: IconName, word: string] {
  if (l.stopped) return ['terminated', 'terminated', 'stopped'];
  if (l.paused) return ['paused', 'paused', 'paused'];
  if (l.breaker === 'open') return ['failed', 'timed_out', 'breaker open'];
  if (l.breaker === 'half_open') return ['canceling', 'waiting', 'breaker half open'];
  if (l.in_flight_since) return ['running', 'running', 'at work'];
  if (l.failures > 0) return ['failed', 'failed', times(l.failures, 'failure')];
  if (l.skipped) return ['canceled', 'canceled', `passed over: ${l.skipped}`];
  return l.iterations === 0 ? ['queued', 'queued', 'not begun'] : ['succeeded', 'succeeded', 'works'];
}
