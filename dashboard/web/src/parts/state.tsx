import type { State } from '../shape.ts';
import { Icon } from './icon.tsx';

export function stateName(state: State): string {
  return state === 'timed_out' ? 'timed out' : state;
}

/** A state: shape, word and colour. */
export function StateBadge({ state }: { state: State }) {
  return (
    <span class={`state state-${state}`}>
      <Icon name={state} />
      <span>{stateName(state)}</span>
    </span>
  );
}
