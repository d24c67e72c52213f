import { JsonView } from '../parts/json.tsx';
import { ended, type Run } from '../shape.ts';

/** What went in and came out, and what the run has published. */
export function Data({ run }: { run: Run }) {
  const values = Object.entries(run.values ?? {});
  return (
    <div class="data">
      <section>
        <h3>Input</h3>
        {run.input ? <JsonView text={run.input.text} label="input" /> : <p class="faint">The server does not tell it.</p>}
      </section>
      <section>
        <h3>Result</h3>
        {run.state === 'succeeded' && run.result ? <JsonView text={run.result.text} label="result" /> : <p class="faint">{none(run)}</p>}
      </section>
      {values.map(([key, value]) => (
        <section key={key}>
          <h3>
            <span class="faint">Published</span> {key}
          </h3>
          <JsonView text={value.text} label={`published ${key}`} />
        </section>
      ))}
    </div>
  );
}

function none(run: Run): string {
  if (run.state === 'succeeded') return 'Reading it…';
  return ended(run.state) ? 'It ended without one.' : 'There is none yet.';
}
