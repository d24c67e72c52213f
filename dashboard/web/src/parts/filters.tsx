import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { query, setQuery } from '../route.ts';
import type { Filter } from '../run/filter.ts';
import { states, type State, type Status } from '../shape.ts';
import { grouped } from '../words/span.ts';
import { Icon } from './icon.tsx';
import { stateName } from './state.tsx';

/** The counts by state, which choose what the list shows, and the search. */
export function Filters({ filter, status }: { filter: Filter; status: Status | undefined }) {
  const counts = countsOf(status, filter);
  const toggle = (state: State): void => {
    const next = filter.states.includes(state) ? filter.states.filter((s) => s !== state) : [...filter.states, state];
    setQuery({ state: states.filter((s) => next.includes(s)).join(','), page: '' });
  };
  const workflows = [...new Set([...(status?.counts ?? []).map((c) => c.workflow), ...(filter.workflow ? [filter.workflow] : [])])].sort();
  return (
    <div class="filters">
      <div class="chips" role="group" aria-label="Runs by state; choose which are shown">
        {states.map((state) => (
          <button
            key={state}
            type="button"
            class={`chip state-${state}`}
            aria-pressed={filter.states.includes(state)}
            data-none={(counts?.get(state) ?? 0) === 0}
            onClick={() => toggle(state)}
          >
            <Icon name={state} />
            <span>{stateName(state)}</span>
            <b class="num">{counts ? grouped(counts.get(state) ?? 0) : '·'}</b>
          </button>
        ))}
      </div>
      <div class="search">
        <Search text={filter.search} />
        <label>
          <span class="hidden">Workflow</span>
          <select value={filter.workflow} onChange={(e) => setQuery({ workflow: e.currentTarget.value, page: '' })}>
            <option value="">All workflows</option>
            {workflows.map((w) => (
              <option key={w} value={w} selected={w === filter.workflow}>
                {w}
              </option>
            ))}
          </select>
        </label>
        {query.value.size > 0 && (
          <button type="button" class="small quiet" onClick={() => setQuery({ state: '', workflow: '', queue: '', q: '', page: '' })}>
            Clear
          </button>
        )}
      </div>
    </div>
  );
}

function countsOf(status: Status | undefined, filter: Filter): Map<State, number> | undefined {
  if (!status) return undefined;
  const counts = new Map<State, number>();
  for (const c of status.counts) {
    if ((filter.workflow && c.workflow !== filter.workflow) || (filter.queue && c.queue !== filter.queue)) continue;
    counts.set(c.state, (counts.get(c.state) ?? 0) + c.runs);
  }
  return counts;
}

const typingMs = 300;

function Search({ text }: { text: string }) {
  const typed = useSignal(text);
  useEffect(() => {
    if (typed.value !== text) typed.value = text;
  }, [text]);
  useEffect(() => {
    if (typed.value === text) return undefined;
    const timer = window.setTimeout(() => setQuery({ q: typed.value.trim(), page: '' }, 'replace'), typingMs);
    return () => window.clearTimeout(timer);
  }, [typed.value]);
  return (
    <label class="search-field">
      <span class="hidden">Search by id or label</span>
      <Icon name="search" />
      <input type="search" placeholder="id, or label=value" spellcheck={false} autocomplete="off" value={typed.value} onInput={(e) => (typed.value = e.currentTarget.value)} />
    </label>
  );
}
