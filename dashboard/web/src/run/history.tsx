import { useSignal, type ReadonlySignal } from '@preact/signals';
import { oneLine } from '../exact/print.ts';
import { FailureView } from '../parts/failure.tsx';
import { Icon, iconOf } from '../parts/icon.tsx';
import { JsonView } from '../parts/json.tsx';
import { At } from '../parts/time.tsx';
import { memo } from '../memo.ts';
import { runHref } from '../route.ts';
import type { HistoryRecord } from '../shape.ts';
import { branchOf } from '../timeline/path.ts';
import { fine, grouped } from '../words/span.ts';
import { Attempts } from './attempts.tsx';
import { rawRecord } from './rawrecord.ts';
import { triedOf } from './tried.ts';

type Mode = 'compact' | 'full' | 'raw';
const modes: Mode[] = ['compact', 'full', 'raw'];
const chunk = 100;

/** What the run has done. Compact leaves out what only bide needs, but no failure. */
export function History({ records, complete }: { records: ReadonlySignal<readonly HistoryRecord[]>; complete: ReadonlySignal<boolean> }) {
  const mode = useSignal<Mode>('compact');
  const failures = useSignal(false);
  const newest = useSignal(false);
  const shown = useSignal(chunk);
  const all = records.value;
  const failed = all.filter((r) => r.error).length;
  let list = mode.value === 'compact' ? all.filter((r) => r.error || !minor.has(r.kind)) : all;
  if (failures.value) list = list.filter((r) => r.error);
  const ordered = newest.value ? list.toReversed() : list;
  const more = ordered.length - shown.value;
  return (
    <div class="history">
      <div class="bar-of-tools">
        <div class="segmented" role="group" aria-label="How much is shown">
          {modes.map((m) => (
            <button key={m} type="button" class="small" aria-pressed={mode.value === m} onClick={() => (mode.value = m)}>
              {m}
            </button>
          ))}
        </div>
        <button type="button" class="small" aria-pressed={newest.value} onClick={() => (newest.value = !newest.value)}>
          Newest first
        </button>
        {failed > 0 && (
          <button type="button" class="small" aria-pressed={failures.value} onClick={() => (failures.value = !failures.value)}>
            <Icon name="failed" /> {failed} failed
          </button>
        )}
        {!complete.value && <span class="faint">reading…</span>}
      </div>
      {all.length === 0 && complete.value && <p class="faint">Nothing is recorded yet.</p>}
      <ol class={`records records-${mode.value}`}>
        {ordered.slice(0, shown.value).map((r) => (
          <RecordView key={r.seq} record={r} mode={mode.value} />
        ))}
      </ol>
      {more > 0 && (
        <button type="button" class="small" onClick={() => (shown.value += 5 * chunk)}>
          Show {Math.min(more, 5 * chunk)} more of {grouped(more)}
        </button>
      )}
    </div>
  );
}

/** Records that say only where a step, race or branch stands. */
const minor = new Set(['step_started', 'join', 'race', 'branch']);

const RecordView = memo(function RecordView({ record: r, mode }: { record: HistoryRecord; mode: Mode }) {
  if (mode === 'raw') {
    return (
      <li>
        <JsonView text={rawRecord(r)} label={`record ${r.seq}`} />
      </li>
    );
  }
  return mode === 'full' ? <Full record={r} /> : <Compact record={r} />;
});

function Head({ record: r }: { record: HistoryRecord }) {
  const depth = branchOf(r.path) === '' ? 0 : branchOf(r.path).split('.').length;
  return (
    <>
      <span class="num faint path" style={{ paddingInlineStart: `${Math.min(depth, 6) * 8}px` }}>
        {r.path}
      </span>
      <span class="kind">
        <Icon name={r.error ? 'failed' : iconOf(r.kind)} />
        <span>{r.kind.replace('_', ' ')}</span>
      </span>
      <span class="name">
        {r.name ?? ''}
        {(r.attempt ?? 0) > 1 && <span class="tag">attempt {r.attempt}</span>}
        {r.by && <span class="tag">by hand: {r.by}</span>}
      </span>
    </>
  );
}

function Compact({ record: r }: { record: HistoryRecord }) {
  return (
    <li class={r.error ? 'record failed' : 'record'}>
      <Head record={r} />
      <span class="what">
        {r.error ? <b class="bad">{r.error.message}</b> : <Data record={r} />}
        {!r.error && <Before record={r} />}
      </span>
      <span class="num faint took">{r.took_ns ? fine(r.took_ns / 1e6) : ''}</span>
      <span class="num faint at">
        <At at={r.at} />
      </span>
    </li>
  );
}

/** What went wrong before it went well. */
function Before({ record: r }: { record: HistoryRecord }) {
  const last = r.kind === 'step' ? r.poll?.checks?.at(-1) : undefined;
  return last ? <span class="bad"> before: {last.error || last.outcome}</span> : null;
}

function Data({ record: r }: { record: HistoryRecord }) {
  const child = r.kind === 'child' ? childOf(r) : undefined;
  if (child) return <a href={runHref(child)}>{child}</a>;
  return <code>{r.data ? oneLine(r.data.text, 160) : ''}</code>;
}

/** The child that a record is of. */
export function childOf(r: HistoryRecord): string | undefined {
  const match = /^\{"child":("(?:[^"\\]|\\.)*")\}$/.exec(r.data?.text ?? '');
  return match?.[1] ? (JSON.parse(match[1]) as string) : undefined;
}

function Full({ record: r }: { record: HistoryRecord }) {
  return (
    <li class={r.error ? 'record-full failed' : 'record-full'}>
      <div class="record">
        <Head record={r} />
        <span class="num faint">#{r.seq}</span>
        <span class="num faint took">{r.took_ns ? fine(r.took_ns / 1e6) : ''}</span>
        <span class="num faint at">
          <At at={r.at} />
        </span>
      </div>
      {r.error && <FailureView failure={r.error} />}
      {r.kind === 'step' && <Attempts tried={triedOf(r.poll, (r.attempt ?? 1) - (r.error || r.by ? 0 : 1))} />}
      {r.poll?.counts && (
        <p class="faint">
          {Object.entries(r.poll.counts)
            .map(([name, n]) => `${n} ${name}`)
            .join(', ')}
        </p>
      )}
      {r.data && <JsonView text={r.data.text} label={`data of ${r.kind} ${r.name ?? r.path}`} />}
    </li>
  );
}
