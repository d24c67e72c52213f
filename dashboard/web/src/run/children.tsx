import { read } from '../http.ts';
import { usePolled } from '../live/polled.ts';
import { Problem } from '../parts/notice.tsx';
import { RunTable } from '../parts/runtable.tsx';
import type { RunPage } from '../shape.ts';

const everyMs = 2000;
const toldMs = 10_000;
const most = 100;

/** The runs that this one has started. */
export function Children({ id }: { id: string }) {
  const path = `/v1/runs?parent=${encodeURIComponent(id)}&page_size=${most}`;
  const list = usePolled<RunPage>(path, everyMs, (signal) => read(path, signal), toldMs);
  const page = list.data.value;
  return (
    <>
      <Problem error={list.error.value} />
      <RunTable runs={page?.runs ?? []} empty={page ? 'It has no children.' : 'Loading…'} />
      {page?.next_page_token && <p class="faint">The newest {most} are shown.</p>}
    </>
  );
}
