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

const listMs = 2000;
const countsMs = 2000;

/** All runs: how many are in which state, and a page of them that does not move by itself. */
export function RunsPage() {
  const filter = filterOf(query.value);
  const asked = listQuery(filter);
  const list = usePolled<Page>('/v1/runs?' + asked, listMs, (signal) => read('/v1/runs?' + asked, signal));
  const status = usePolled<Status>('/v1/status', countsMs, (signal) => read('/v1/status', signal));
  const rows = useSignal<Run[]>([]);
  const shown = useSignal('');
  const fresh = list.data.value;
  useEffect(() => {
    if (!fresh) return;
    rows.value = shown.value === list.of.value ? merge(rows.value, fresh.runs) : fresh.runs;
    shown.value = list.of.value;
  }, [fresh]);
  const watched = useMemo(() => new Watched((run) => (rows.value = merge(rows.value, [lift(run)]))), []);
  useEffect(() => watched.set(rows.value.filter((r) => !ended(r.state)).map((r) => r.id)), [rows.value]);
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

function emptyText(asked: string, loaded: boolean): string {
  if (!loaded) return 'Loading…';
  return page.value.name === 'runs' && asked === 'page_size=50' ? 'No runs yet. Start one, or see bide demo.' : 'No run is like that.';
}
