import type { ComponentChildren } from 'preact';
import { now } from '../live/clock.ts';
import { Copy } from '../parts/copy.tsx';
import { StateBadge } from '../parts/state.tsx';
import { Ago, At } from '../parts/time.tsx';
import { href } from '../route.ts';
import type { Run } from '../shape.ts';
import { instant, span } from '../words/span.ts';
import { RunActions } from './actions.tsx';

export function Header({ run, accept }: { run: Run; accept(run: Run): void }) {
  const began = instant(run.started_at);
  const lasts = began === undefined ? undefined : (instant(run.finished_at) ?? now.value) - began;
  return (
    <header class="run-head">
      <div class="title">
        <h1 class="mono">{run.id}</h1>
        <Copy text={() => run.id} what="the id" />
        <StateBadge state={run.state} />
      </div>
      <dl class="facts">
        <Fact name="Workflow">
          <a href={href('/runs?workflow=' + encodeURIComponent(run.workflow))}>{run.workflow}</a>
        </Fact>
        <Fact name="Queue">
          <a href={href('/runs?queue=' + encodeURIComponent(run.queue))}>{run.queue}</a>
        </Fact>
        <Fact name="Made">
          <Ago at={run.created_at} />
        </Fact>
        <Fact name={run.finished_at ? 'Lasted' : 'Lasts'}>{lasts === undefined ? <span class="faint">not begun</span> : <span class="num">{span(lasts)}</span>}</Fact>
        {run.deadline_at && (
          <Fact name="Deadline">
            <At at={run.deadline_at} />
          </Fact>
        )}
        {run.finished_at && (
          <Fact name="Ended">
            <Ago at={run.finished_at} />
          </Fact>
        )}
        {run.expires_at && (
          <Fact name="Removed">
            <At at={run.expires_at} />
          </Fact>
        )}
        {(run.generation ?? 0) > 0 && <Fact name="Continued">{run.generation} times</Fact>}
        {run.trace && (
          <Fact name="Trace">
            <span class="mono" title={run.trace}>
              {run.trace.split('-')[1]?.slice(0, 12)}…
            </span>
          </Fact>
        )}
        {Object.entries(run.labels ?? {}).map(([name, value]) => (
          <Fact name={name} key={name}>
            <a href={href('/runs?q=' + encodeURIComponent(`${name}=${value}`))}>{value}</a>
          </Fact>
        ))}
      </dl>
      <RunActions run={run} accept={accept} />
    </header>
  );
}

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
