import type { ComponentChildren } from 'preact';
import { loopPath, read, runPath } from '../http.ts';
import { usePolled } from '../live/polled.ts';
import { Commands } from '../parts/commands.tsx';
import { FailureView } from '../parts/failure.tsx';
import { JsonView } from '../parts/json.tsx';
import { LoopActions } from '../parts/loopactions.tsx';
import { LoopState } from '../parts/loopstate.tsx';
import { Problem } from '../parts/notice.tsx';
import { Outcomes, summary } from '../parts/outcomes.tsx';
import { Ago, At, Until } from '../parts/time.tsx';
import { href } from '../route.ts';
import type { Loop, Run } from '../shape.ts';
import { explainLoop } from '../words/interval.ts';
import { grouped } from '../words/span.ts';

const everyMs = 1000;
const toldMs = 5000;

export function LoopPage({ name }: { name: string }) {
  const loop = usePolled(loopPath(name), everyMs, (signal) => read<Loop>(loopPath(name), signal), toldMs);
  const run = usePolled(runPath('loop:' + name), 2 * everyMs, (signal) => read<Run>(runPath('loop:' + name), signal), toldMs);
  const l = loop.data.value;
  const values = Object.entries(run.data.value?.values ?? {});
  return (
    <div class="page">
      <p class="crumbs">
        <a href={href('/loops')}>Loops</a>
      </p>
      <div class="title">
        <h1>{name}</h1>
        {l && <LoopState loop={l} />}
      </div>
      <Problem error={loop.error.value} />
      {l && (
        <>
          <LoopActions loop={l} after={loop.again} />
          <section class="card" aria-label="Its pace">
            <Outcomes outcomes={l.outcomes} />
            <p class="faint">{summary(l.outcomes.slice(-100))}</p>
            <dl class="facts">
              <Fact name="Interval">{explainLoop(l)}</Fact>
              <Fact name="Next">{l.in_flight_since ? 'after the one in flight' : <><Until at={l.next_at} due="now" />{l.next_at && <> · <At at={l.next_at} /></>}</>}</Fact>
              {l.in_flight_since && <Fact name="In flight"><Ago at={l.in_flight_since} /></Fact>}
              <Fact name="Iterations">{grouped(l.iterations)}</Fact>
              <Fact name="Last">
                <Ago at={l.last_at} />
              </Fact>
              <Fact name="Last success">
                <Ago at={l.last_success_at} />
              </Fact>
              {l.breaker && <Fact name="Breaker">{l.breaker.replace('_', ' ')}</Fact>}
              {l.skipped && <Fact name="Passed over">{l.skipped}</Fact>}
            </dl>
          </section>
          {l.last_error && (
            <section class="card">
              <h2>
                Last error <Ago at={l.last_error_at} />
              </h2>
              <FailureView failure={l.last_error} />
            </section>
          )}
        </>
      )}
      <section class="card">
        <h2>Last value</h2>
        {values.length === 0 && <p class="faint">It has published none.</p>}
        {values.map(([key, value]) => (
          <div key={key} class="value">
            <h3>{key}</h3>
            <JsonView text={value.text} label={`value ${key}`} />
          </div>
        ))}
      </section>
      <Commands path={loopPath(name)} words={['loop', 'show', name]} />
    </div>
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
