import { now } from '../live/clock.ts';
import { Icon, iconOf } from '../parts/icon.tsx';
import { Notice } from '../parts/notice.tsx';
import { JsonView } from '../parts/json.tsx';
import { FailureView } from '../parts/failure.tsx';
import { runHref } from '../route.ts';
import { server } from '../root.ts';
import { ended, type Run, type Wait, type Worker } from '../shape.ts';
import { describe } from '../words/describe.ts';
import { explainPoll } from '../words/interval.ts';
import { isLoop, workersFor } from './action.ts';
import { Attempts } from './attempts.tsx';
import { nowOf } from './now.ts';
import { triedOf } from './tried.ts';
import { WaitActions } from './waitactions.tsx';

/** What the run does or waits for now, from the store: it holds with no worker alive. */
export function NowCard({ run, workers, accept }: { run: Run; workers: Worker[] | undefined; accept(run: Run): void }) {
  if (ended(run.state)) return null;
  const nobody = workers !== undefined && workersFor(run, workers).length === 0;
  return (
    <section class="card now" aria-label="Now">
      <h2>Now</h2>
      {nobody && <NoWorker run={run} />}
      {run.waiting.length === 0 && <p>{nowOf(run, now.value)}</p>}
      {run.waiting.map((w) => (
        <LiveWait key={`${w.path ?? ''} ${w.kind}`} run={run} wait={w} accept={accept} />
      ))}
    </section>
  );
}

function NoWorker({ run }: { run: Run }) {
  return (
    <Notice kind="bad">
      <p>
        No worker is alive that takes <b>{run.workflow}</b> from queue <b>{run.queue}</b>. Nothing is lost: what you do here is kept, and takes effect when one comes.
      </p>
      <p>
        To start one, run the program that registers the workflow; one on another machine connects to <code>{server}</code>.
      </p>
    </Notice>
  );
}

function LiveWait({ run, wait, accept }: { run: Run; wait: Wait; accept(run: Run): void }) {
  const why = wait.kind === 'poll' ? explainPoll(wait, now.value) : [];
  const failing = wait.last_error && (wait.kind !== 'poll' || (wait.streak ?? 0) > 0);
  return (
    <div class="wait" data-wait={wait.name ?? wait.path}>
      <p class="sentence">
        <Icon name={iconOf(wait.kind)} />
        <span>{describe(wait, now.value)}</span>
      </p>
      {wait.kind === 'child' && wait.name && (
        <p class="child">
          <a href={runHref(wait.name)}>{wait.name}</a>
        </p>
      )}
      {why.length > 0 && (
        <ul class="why-next">
          {why.map((line) => (
            <li key={line}>{line}</li>
          ))}
        </ul>
      )}
      {wait.kind === 'retry' && (wait.poll?.log?.checks ?? []).length > 1 && (
        <details>
          <summary>Failed attempts</summary>
          <Attempts tried={triedOf(wait.poll?.log, wait.attempt ?? 0)} />
        </details>
      )}
      {failing && wait.last_error && (
        <details>
          <summary>Last error</summary>
          <FailureView failure={wait.last_error} />
        </details>
      )}
      {wait.last_value && (
        <details>
          <summary>Last value</summary>
          <JsonView text={wait.last_value.text} label="last value" />
        </details>
      )}
      {wait.details && (
        <details>
          <summary>Last heartbeat</summary>
          <JsonView text={wait.details.text} label="last heartbeat" />
        </details>
      )}
      {wait.path && !isLoop(run) && <WaitActions run={run} wait={wait} accept={accept} />}
    </div>
  );
}
