import { useSignal } from '@preact/signals';
import { useId } from 'preact/hooks';
import { read } from '../http.ts';
import { usePolled } from '../live/polled.ts';
import { startRun } from '../live/live.ts';
import { Act } from '../parts/act.tsx';
import { Commands } from '../parts/commands.tsx';
import { Editor, jsonOf, problemOf } from '../parts/editor.tsx';
import { Notice, Problem } from '../parts/notice.tsx';
import { go, query, runHref } from '../route.ts';
import { barred } from '../run/action.ts';
import { searched } from '../run/filter.ts';
import { keyReadsOnly, readOnly } from '../setting.ts';
import type { Worker } from '../shape.ts';

const everyMs = 3000;

/** Starts a run of what the workers say that they know. */
export function StartPage() {
  const workers = usePolled('/v1/workers', everyMs, (signal) => read<{ workers: Worker[] }>('/v1/workers', signal));
  const workflow = useSignal(query.value.get('workflow') ?? '');
  const queue = useSignal('');
  const input = useSignal('');
  const id = useSignal('');
  const labels = useSignal('');
  const delay = useSignal('');
  const timeout = useSignal('');
  const wrong = useSignal('');
  const known = offers(workers.data.value?.workers ?? []);
  const queues = known.get(workflow.value);
  const why = barred({ readOnly: readOnly.value, keyReadsOnly: keyReadsOnly.value }) ?? missing(workflow.value, input.value);
  const start = async (): Promise<void> => {
    wrong.value = '';
    try {
      const chosen = queue.value || (queues && !queues.includes('default') ? queues[0] : '');
      const run = await startRun(workflow.value, jsonOf(input.value), {
        ...(id.value && { id: id.value }),
        ...(chosen && { queue: chosen }),
        ...(delay.value && { delay: delay.value }),
        ...(timeout.value && { timeout: timeout.value }),
        ...(labels.value.trim() && { labels: Object.fromEntries(searched(labels.value).labels) }),
      });
      go(runHref(run));
    } catch (error) {
      wrong.value = error instanceof Error ? error.message : String(error);
    }
  };
  return (
    <div class="page narrow-page">
      <h1>Start a run</h1>
      <Problem error={workers.error.value} />
      {workers.data.value && known.size === 0 && <Notice>No worker is alive that says what it knows. A run of any name can be started; it stays queued until a worker knows it.</Notice>}
      <form onSubmit={(e) => (e.preventDefault(), why === undefined && void start())}>
        <WorkflowField workflow={workflow} known={known} />
        <Editor text={input} label="Input" rows={10} />
        <details class="more">
          <summary>More</summary>
          <div class="grid">
            <Field label="Id" text={id} hint="empty: the store makes one" />
            <Field label="Queue" text={queue} hint={queues ? `empty: ${queues.includes('default') ? 'default' : queues[0]}` : 'empty: default'} />
            <Field label="Labels" text={labels} hint="name=value name=value" />
            <Field label="Begin after" text={delay} hint="such as 90s or 2h" />
            <Field label="Time out after" text={timeout} hint="such as 72h; empty: never" />
          </div>
        </details>
        {wrong.value && <Notice kind="bad">{wrong.value}</Notice>}
        <div class="buttons">
          <Act kind="primary" onAct={start} why={why}>
            Start
          </Act>
        </div>
      </form>
      <Commands path="/v1/workers" words={['start', workflow.value || 'WORKFLOW', '--input', jsonOf(input.value)]} />
    </div>
  );
}

function missing(workflow: string, input: string): string | undefined {
  if (!workflow) return 'Choose a workflow.';
  return problemOf(input) === undefined ? undefined : 'The input is no JSON.';
}

/** The workflows that workers announce, with the queues that they take them from. */
export function offers(workers: readonly Worker[]): Map<string, string[]> {
  const found = new Map<string, Set<string>>();
  for (const w of workers) {
    for (const workflow of w.workflows) {
      if (workflow.startsWith('loop:') || workflow.startsWith('bide.')) continue;
      const queues = found.get(workflow) ?? new Set();
      for (const q of w.queues) queues.add(q);
      found.set(workflow, queues);
    }
  }
  return new Map([...found].sort(([a], [b]) => (a < b ? -1 : 1)).map(([w, q]) => [w, [...q].sort()]));
}

function WorkflowField({ workflow, known }: { workflow: { value: string }; known: Map<string, string[]> }) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>Workflow</label>
      <input id={id} list={`${id}-known`} required spellcheck={false} autocomplete="off" value={workflow.value} onInput={(e) => (workflow.value = e.currentTarget.value)} />
      <datalist id={`${id}-known`}>
        {[...known].map(([name, queues]) => (
          <option key={name} value={name}>
            {queues.join(', ')}
          </option>
        ))}
      </datalist>
      {known.size > 0 && (
        <div class="offers" role="group" aria-label="Known to workers">
          {[...known.keys()].slice(0, 12).map((name) => (
            <button key={name} type="button" class="chip" aria-pressed={workflow.value === name} onClick={() => (workflow.value = name)}>
              {name}
            </button>
          ))}
        </div>
      )}
      {workflow.value && known.size > 0 && !known.has(workflow.value) && <p class="faint">No worker that is alive knows it: the run stays queued until one does.</p>}
    </div>
  );
}

function Field({ label, text, hint }: { label: string; text: { value: string }; hint: string }) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input id={id} placeholder={hint} spellcheck={false} autocomplete="off" value={text.value} onInput={(e) => (text.value = e.currentTarget.value)} />
    </div>
  );
}
