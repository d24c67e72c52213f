import { read } from '../http.ts';
import { usePolled } from '../live/polled.ts';
import { Commands } from '../parts/commands.tsx';
import { Notice, Problem } from '../parts/notice.tsx';
import { Since, Until } from '../parts/time.tsx';
import { stateName } from '../parts/state.tsx';
import { Icon } from '../parts/icon.tsx';
import { href } from '../route.ts';
import { states, type Queue, type Worker } from '../shape.ts';
import { grouped } from '../words/span.ts';

/** Workers come and go without a word; queues change with their runs. */
const everyMs = 2000;
const toldMs = 10_000;

export function QueuesPage() {
  const queues = usePolled('/v1/queues', everyMs, (signal) => read<{ queues: Queue[] }>('/v1/queues', signal), toldMs);
  const workers = usePolled('/v1/workers', everyMs, (signal) => read<{ workers: Worker[] }>('/v1/workers', signal));
  return (
    <div class="page">
      <h1>Queues</h1>
      <Problem error={queues.error.value ?? workers.error.value} />
      <QueueTable queues={queues.data.value?.queues} />
      <h2>Workers</h2>
      <WorkerTable workers={workers.data.value?.workers} />
      <Commands path="/v1/queues" words={['list', '--state', 'queued']} />
    </div>
  );
}

function QueueTable({ queues }: { queues: Queue[] | undefined }) {
  if (!queues) return <p class="faint">Loading…</p>;
  if (queues.length === 0) return <Notice>There is no queue yet: a queue is there once a run or a worker names it.</Notice>;
  return (
    <table class="plain stack">
      <thead>
        <tr>
          <th scope="col">Queue</th>
          <th scope="col">Runs</th>
          <th scope="col">Waits longest</th>
          <th scope="col" class="right">
            Workers
          </th>
        </tr>
      </thead>
      <tbody>
        {queues.map((q) => (
          <tr key={q.name}>
            <th scope="row">
              <a href={href('/runs?queue=' + encodeURIComponent(q.name))}>{q.name}</a>
            </th>
            <td>
              <span class="counts">
                {states
                  .filter((s) => (q.runs[s] ?? 0) > 0)
                  .map((s) => (
                    <a key={s} class={`state state-${s}`} href={href(`/runs?queue=${encodeURIComponent(q.name)}&state=${s}`)}>
                      <Icon name={s} />
                      <span class="num">{grouped(q.runs[s] ?? 0)}</span> {stateName(s)}
                    </a>
                  ))}
              </span>
            </td>
            <td data-th="Waits longest">{q.oldest ? <Since at={q.oldest} /> : <span class="faint">nothing waits</span>}</td>
            <td class="right num" data-th="Workers">
              {q.workers === 0 && (q.runs['queued'] ?? 0) > 0 ? (
                <span class="bad">
                  <Icon name="warn" /> none
                </span>
              ) : (
                q.workers
              )}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function WorkerTable({ workers }: { workers: Worker[] | undefined }) {
  if (!workers) return <p class="faint">Loading…</p>;
  if (workers.length === 0) return <Notice>No worker is alive. Runs are kept, and begin when one comes.</Notice>;
  return (
    <table class="plain stack">
      <thead>
        <tr>
          <th scope="col">Worker</th>
          <th scope="col">Queues</th>
          <th scope="col">Workflows</th>
          <th scope="col" class="right">
            Holds
          </th>
          <th scope="col">Its leases lapse</th>
        </tr>
      </thead>
      <tbody>
        {workers.map((w) => (
          <tr key={w.id}>
            <th scope="row" class="mono">
              {w.id}
            </th>
            <td data-th="Queues">{w.queues.join(', ')}</td>
            <td data-th="Workflows">{w.workflows.join(', ')}</td>
            <td class="right num" data-th="Holds">
              {grouped(w.held)} of {grouped(w.max)}
            </td>
            <td data-th="Its leases lapse">
              <Until at={w.expires_at} due="now" />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
