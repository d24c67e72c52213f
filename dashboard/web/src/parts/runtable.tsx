import { memo } from '../memo.ts';
import { now } from '../live/clock.ts';
import { runHref } from '../route.ts';
import { nowOf } from '../run/now.ts';
import { ended, type Run } from '../shape.ts';
import { instant, span } from '../words/span.ts';
import { ProgressBar } from './progress.tsx';
import { StateBadge } from './state.tsx';
import { Ago } from './time.tsx';

/** Runs as rows; on a narrow screen as cards. */
export function RunTable({ runs, busy = false, empty }: { runs: readonly Run[]; busy?: boolean; empty: string }) {
  return (
    <table class="runs" aria-busy={busy}>
      <thead>
        <tr>
          <th scope="col">State</th>
          <th scope="col">Run</th>
          <th scope="col">Now</th>
          <th scope="col">Progress</th>
          <th scope="col" class="right">
            Lasts
          </th>
          <th scope="col" class="right">
            Made
          </th>
        </tr>
      </thead>
      <tbody>
        {runs.map((run) => (
          <Row key={run.id} run={run} />
        ))}
        {runs.length === 0 && (
          <tr class="empty">
            <td colSpan={6}>{empty}</td>
          </tr>
        )}
      </tbody>
    </table>
  );
}

const Row = memo(function Row({ run }: { run: Run }) {
  const labels = Object.entries(run.labels ?? {});
  return (
    <tr data-run={run.id}>
      <td class="cell-state">
        <StateBadge state={run.state} />
      </td>
      <td class="cell-run">
        <a href={runHref(run.id)} class="id">
          {run.id}
        </a>
        {run.workflow !== run.id && <span class="workflow">{run.workflow}</span>}
        {labels.slice(0, 3).map(([name, value]) => (
          <span class="label" key={name}>
            {name}={value}
          </span>
        ))}
        {labels.length > 3 && <span class="faint">+{labels.length - 3}</span>}
      </td>
      <td class="cell-now">
        <Now run={run} />
      </td>
      <td class="cell-progress">{run.progress && <ProgressBar progress={run.progress} label={`progress of ${run.id}`} />}</td>
      <td class="cell-lasts num right">
        <Lasts run={run} />
      </td>
      <td class="cell-made right">
        <Ago at={run.created_at} />
      </td>
    </tr>
  );
});

function Now({ run }: { run: Run }) {
  const at = ended(run.state) ? 0 : now.value;
  const text = nowOf(run, at);
  return <span title={text}>{text}</span>;
}

function Lasts({ run }: { run: Run }) {
  const from = instant(run.started_at);
  if (from === undefined) return <span class="faint">–</span>;
  return <>{span((instant(run.finished_at) ?? now.value) - from)}</>;
}
