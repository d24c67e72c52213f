import type { ComponentChildren } from 'preact';
import { Icon } from './icon.tsx';

/** Something that should not be overlooked. */
export function Notice({ kind = 'info', children }: { kind?: 'info' | 'bad'; children: ComponentChildren }) {
  return (
    <div class={`notice notice-${kind}`} role={kind === 'bad' ? 'alert' : 'status'}>
      <Icon name={kind === 'bad' ? 'warn' : 'note'} />
      <div>{children}</div>
    </div>
  );
}

/** What went wrong with what the page shows, if something did. */
export function Problem({ error }: { error: Error | undefined }) {
  return error ? <Notice kind="bad">{error.message}</Notice> : null;
}
