import { useComputed } from '@preact/signals';
import { read } from '../http.ts';
import { usePolled } from '../live/polled.ts';
import { now } from '../live/clock.ts';
import { Commands } from '../parts/commands.tsx';
import { FailureView } from '../parts/failure.tsx';
import { Notice, Problem } from '../parts/notice.tsx';
import { ProgressBar } from '../parts/progress.tsx';
import { Tabs } from '../parts/tabs.tsx';
import { runPath } from '../http.ts';
import { href, query, setQuery } from '../route.ts';
import { ended, type Run, type Worker } from '../shape.ts';
import { etaOf } from '../run/now.ts';
import { useRun, type Shown } from '../run/userun.ts';
import { Children } from '../run/children.tsx';
import { Data } from '../run/data.tsx';
import { Header } from '../run/header.tsx';
import { History } from '../run/history.tsx';
import { NowCard } from '../run/nowcard.tsx';
import { Polls, pollsOf } from '../run/polls.tsx';
import { StreamView } from '../run/streamview.tsx';
import { Timeline } from '../timeline/view.tsx';

const workersMs = 5000;

export function RunPage({ id }: { id: string }) {
  const shown = useRun(id);
  const workers = usePolled<{ workers: Worker[] }>('/v1/workers', workersMs, (signal) => read('/v1/workers', signal));
  const run = shown.run.value;
  return (
    <div class="page">
      <p class="crumbs">
        <a href={href('/runs')}>Runs</a>
        {run?.parent && (
          <>
            {' / child of '}
            <a href={href('/runs/' + encodeURIComponent(run.parent))}>{run.parent}</a>
          </>
        )}
      </p>
      <Problem error={shown.error.value} />
      {!run && !shown.error.value && <p class="faint">Loading…</p>}
      {run && (
        <>
          <Header run={run} accept={shown.accept} />
          {run.progress && <Progressing run={run} />}
          {run.error && run.state !== 'succeeded' && (
            <section class="card card-bad" aria-label="Why it ended">
              <h2>Why it ended</h2>
              {run.error.failure ? <FailureView failure={run.error.failure} /> : <p>{run.error.detail}</p>}
            </section>
          )}
          <NowCard run={run} workers={workers.data.value?.workers} accept={shown.accept} />
          <Timeline run={shown.run} records={shown.records} />
          <Parts shown={shown} run={run} />
          <Commands path={runPath(id)} words={['show', id]} />
        </>
      )}
    </div>
  );
}

function Progressing({ run }: { run: Run }) {
  const p = run.progress;
  const eta = ended(run.state) ? '' : etaOf(run, now.value);
  if (!p) return null;
  return (
    <section class="progressing" aria-label="Progress">
      <ProgressBar progress={p} label="progress" />
      <p>
        {p.step && (
          <span class="faint">
            step {p.step.index} of {p.step.count}
            {p.step.name ? `, ${p.step.name}` : ''} ·{' '}
          </span>
        )}
        {p.message}
        {eta && <span class="faint"> · {eta}</span>}
      </p>
    </section>
  );
}

const names = ['history', 'polls', 'data', 'stream', 'children'] as const;
type Part = (typeof names)[number];

function Parts({ shown, run }: { shown: Shown; run: Run }) {
  const wanted = query.value.get('tab');
  const tab: Part = names.find((n) => n === wanted) ?? 'history';
  const polls = useComputed(() => (shown.run.value ? pollsOf(shown.run.value, shown.records.value) : []));
  const titles: Record<Part, string> = {
    history: `History${shown.records.value.length > 0 ? ` (${shown.records.value.length}${shown.complete.value ? '' : '+'})` : ''}`,
    polls: `Polls${polls.value.length > 0 ? ` (${polls.value.length})` : ''}`,
    data: 'Input and output',
    stream: 'Stream',
    children: 'Children',
  };
  return (
    <Tabs names={names} titles={titles} current={tab} onTab={(t) => setQuery({ tab: t === 'history' ? '' : t }, 'replace')}>
      {tab === 'history' && <History records={shown.records} complete={shown.complete} />}
      {tab === 'polls' && (polls.value.length > 0 ? <Polls polls={polls.value} /> : <Notice>This run has not polled.</Notice>)}
      {tab === 'data' && <Data run={run} />}
      {tab === 'stream' && <StreamView id={run.id} />}
      {tab === 'children' && <Children id={run.id} />}
    </Tabs>
  );
}
