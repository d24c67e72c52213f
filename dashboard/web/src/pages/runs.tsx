import { useSignal } from '@preact/signals';
import { useEffect, useMemo } from 'preact/hooks';
import { read } from '../http.ts';
import { usePolled } from '../live/polled.ts';
import { lift } from '../live/lift.ts';
import { Watched } from '../live/live.ts';
import { Commands } from '../parts/commands.tsx';
import { Problem } from '../parts/notice.tsx';
import { RunTable } from '../parts/runtable.tsx';
import { Filters } from '../parts/filters.tsx';
import { page, query, setQuery } from '../route.ts';
import { filterOf, listQuery, listWords } from '../run/filter.ts';
import { merge, newIds } from '../run/merge.ts';
import { ended, type Run, type RunPage as Page, type Status } from '../shape.ts';

/** How often is asked where the server does not tell of changes, and where it does. */
const everyMs = 2000;
const toldMs = 10_000;

/** All runs: how many are in which state, and a page of them that does not move by itself. */
export function RunsPage() {
  const filter = filterOf(query.value);
  const asked = listQuery(filter);
  const list = usePolled<Page>('/v1/runs?' + asked, everyMs, (signal) => read('/v1/runs?' + asked, signal), toldMs);
  const status = usePolled<Status>('/v1/status', everyMs, (signal) => read('/v1/status', signal), toldMs);
  const rows = useSignal<Run[]>([]);
  const shown = useSignal('');
  const fresh = list.data.value;
  useEffect(() => {
    if (!fresh) return;
    rows.value = shown.value === list.of.value && rows.value.length > 0 ? merge(rows.value, fresh.runs) : fresh.runs;
    shown.value = list.of.value;
  }, [fresh]);
  const watched = useMemo(() => new Watched((run) => (rows.value = merge(rows.value, [lift(run)]))), []);
  // what the answer no longer holds, since it is older now or of another state, still stands here
  useEffect(() => watched.set(left(rows.value, fresh?.runs)), [rows.value, fresh]);
  useEffect(() => () => watched.set([]), []);
  const added = fresh && shown.value === list.of.value ? newIds(rows.value, fresh.runs) : 0;
  const showNew = (): void => {
    if (fresh) rows.value = fresh.runs;
  };
  const loading = shown.value !== '/v1/runs?' + asked;
  return (
    <div class="page">
      <h1 class="hidden">Runs</h1>
      <Filters filter={filter} status={status.data.value} />
      <Problem error={list.error.value} />
      <div class="list-head" aria-live="polite">
        {added > 0 && filter.page === '' && (
          <button type="button" class="pill" onClick={showNew}>
            {added} new
          </button>
        )}
      </div>
      <RunTable runs={rows.value} busy={loading} empty={emptyText(asked, fresh !== undefined && !loading)} />
      <nav class="paging" aria-label="Pages of the list">
        <button type="button" class="small" disabled={filter.page === ''} onClick={() => setQuery({ page: '' })}>
          Newest
        </button>
        <button type="button" class="small" disabled={!fresh?.next_page_token} onClick={() => setQuery({ page: fresh?.next_page_token ?? '' })}>
          Older
        </button>
      </nav>
      <Commands path={`/v1/runs?${asked}`} words={listWords(filter)} />
    </div>
  );
}

/** The rows that go on and that a new answer does not tell of. */
function left(rows: readonly Run[], fresh: readonly Run[] | undefined): string[] {
  const told = new Set(fresh?.map((r) => r.id));
  return rows.filter((r) => !ended(r.state) && !told.has(r.id)).map((r) => r.id);
}

function emptyText(asked: string, loaded: boolean): string {
  if (!loaded) return 'Loading…';
  return page.value.name === 'runs' && asked === 'page_size=50' ? 'No runs yet. Start one, or see bide demo.' : 'No run is like that.';
}
