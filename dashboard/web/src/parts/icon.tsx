/** Shapes on a field of 16; each is told from the others without its colour. */
const shapes = {
  queued: 'M8 2.5a5.5 5.5 0 1 1 0 11 5.5 5.5 0 0 1 0-11z',
  running: 'M5 3.2v9.6L13 8z',
  waiting: 'M4 2h8M4 14h8M5 2v2.5L8 8l3-3.5V2M5 14v-2.5L8 8l3 3.5V14',
  paused: 'M5.5 3v10M10.5 3v10',
  canceling: 'M8 2.5a5.5 5.5 0 1 1-4.8 2.8M3 2.5v3h3M6 6l4 4M10 6l-4 4',
  succeeded: 'M2.5 8.5l3.5 3.5 7.5-8',
  failed: 'M3.5 3.5l9 9M12.5 3.5l-9 9',
  canceled: 'M8 2.5a5.5 5.5 0 1 1 0 11 5.5 5.5 0 0 1 0-11zM4.2 11.8l7.6-7.6',
  terminated: 'M3.5 3.5h9v9h-9z',
  timed_out: 'M8 2.5a5.5 5.5 0 1 1 0 11 5.5 5.5 0 0 1 0-11zM8 5v3.2l2.3 1.5',
  step: 'M3 4.5h10v7H3z',
  sleep: 'M12.5 10A5.5 5.5 0 0 1 6 3.5a5.5 5.5 0 1 0 6.5 6.5z',
  signal: 'M8 8v5M5 10.5a4 4 0 1 1 6 0M3 12.5a6.5 6.5 0 1 1 10 0',
  webhook: 'M6 10.5L3.5 13M10 5.5L12.5 3M5 7.5l3.5 3.5M7.5 5L11 8.5',
  poll: 'M13 8a5 5 0 1 1-1.6-3.7M13 2.5V5.2h-2.7',
  child: 'M4 3v6.5h8M9.5 7L12 9.5 9.5 12',
  phase: 'M3 5V3.5h10V5M3 11v1.5h10V11',
  loop: 'M4 10.5A4.5 4.5 0 0 1 8 3.5h4M10 1.5l2 2-2 2M12 5.5a4.5 4.5 0 0 1-4 7H4M6 14.5l-2-2 2-2',
  work: 'M5 3.2v9.6L13 8z',
  note: 'M8 4v5M8 11.5v.8',
  warn: 'M8 2.5L14 13H2zM8 6.5v3M8 11v.6',
  left: 'M10 3L5 8l5 5',
  right: 'M6 3l5 5-5 5',
  search: 'M7 2.5a4.5 4.5 0 1 1 0 9 4.5 4.5 0 0 1 0-9zM10.5 10.5L14 14',
  sun: 'M8 5a3 3 0 1 1 0 6 3 3 0 0 1 0-6zM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M3 13l1-1M12 4l1-1',
  moon: 'M12.5 10A5.5 5.5 0 0 1 6 3.5a5.5 5.5 0 1 0 6.5 6.5z',
  screen: 'M2 3h12v8H2zM6 13.5h4',
  help: 'M6 6a2 2 0 1 1 2.5 2c-.4.2-.5.5-.5 1v.5M8 12v.5',
} as const;

export type IconName = keyof typeof shapes;

/** The icon of a state or of a kind of wait or record. */
export function iconOf(kind: string): IconName {
  if (kind in shapes) return kind as IconName;
  return kind === 'retry' || kind === 'step_started' ? 'step' : kind === 'stuck' ? 'warn' : kind === 'queue' ? 'queued' : 'note';
}

/** An icon; what it means is always said in words beside it. */
export function Icon({ name }: { name: IconName }) {
  return (
    <svg class={`icon icon-${name}`} viewBox="0 0 16 16" width="14" height="14" aria-hidden="true" focusable="false">
      <path d={shapes[name]} />
    </svg>
  );
}
