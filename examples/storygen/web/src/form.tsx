import { ProblemError } from '@bide/client';
import { useRef, useState, type ReactNode, type SubmitEvent } from 'react';
import { newKey, start } from './start.ts';

const projects = [
  { name: 'owl', about: 'An owl that waits for the moon' },
  { name: 'fox', about: 'A fox; nobody has written its outline' },
];

/** Asks for a story. What is right is for the service to say: its refusal is shown at
 * the field that it names. */
export function Form({ onStarted }: { onStarted: (id: string) => void }) {
  const [project, setProject] = useState('owl');
  const [chapters, setChapters] = useState('3');
  const [error, setError] = useState<Error>();
  const [busy, setBusy] = useState(false);
  // Kept after an answer that was lost: to try again is to ask for the same story.
  const key = useRef<string>(undefined);

  const change = (set: (value: string) => void) => (value: string) => {
    set(value);
    setError(undefined);
    key.current = undefined;
  };
  const submit = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    if (busy) return;
    setBusy(true);
    setError(undefined);
    try {
      const id = await start({ project, chapters: Number(chapters) }, (key.current ??= newKey()));
      key.current = undefined;
      onStarted(id);
    } catch (error) {
      setError(error as Error);
    } finally {
      setBusy(false);
    }
  };

  const field = error instanceof ProblemError ? error.field : undefined;
  const about = (name: string): ReactNode => field === name && <p className="error" id={`${name}-error`} role="alert">{error?.message}</p>;
  const marked = (name: string) => (field === name ? { 'aria-invalid': true, 'aria-describedby': `${name}-error` } : {});
  return (
    <form className="card" noValidate onSubmit={(event) => void submit(event)}>
      <h2>A new story</h2>
      <div className="fields">
        <fieldset {...marked('project')}>
          <legend>Project</legend>
          <div className="choices">
            {projects.map(({ name, about }) => (
              <label key={name} className="choice">
                <input type="radio" name="project" value={name} checked={project === name} onChange={() => change(setProject)(name)} />
                <span>
                  <strong>{name}</strong>
                  <small>{about}</small>
                </span>
              </label>
            ))}
          </div>
          {about('project')}
        </fieldset>
        <div className="field">
          <label htmlFor="chapters">Chapters</label>
          <input id="chapters" type="number" inputMode="numeric" min={1} max={20} value={chapters}
            onChange={(event) => change(setChapters)(event.target.value)} {...marked('chapters')} />
          {about('chapters')}
        </div>
        <button className="primary" type="submit" aria-disabled={busy}>{busy ? 'Starting…' : 'Start'}</button>
      </div>
      {error && field !== 'project' && field !== 'chapters' && (
        <p className="error" role="alert">{error instanceof TypeError ? 'The service cannot be reached. Start again: it will not be two stories.' : error.message}</p>
      )}
    </form>
  );
}
