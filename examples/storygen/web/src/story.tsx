import { isTerminal, type Connection, type State } from '@bide/client';
import { useRun } from '@bide/react';
import { useLayoutEffect, useRef, useState } from 'react';
import type { Request, Story } from './start.ts';
import { useText } from './text.ts';

const words: Record<State, string> = {
  queued: 'Queued', running: 'Writing', waiting: 'Waiting', paused: 'Paused', canceling: 'Canceling',
  succeeded: 'Written', failed: 'Failed', canceled: 'Canceled', terminated: 'Terminated', timed_out: 'Timed out',
};

/** How news of the story come, where that is not as it should be. */
const troubles: Partial<Record<Connection, string>> = {
  longpoll: 'No stream: asking now and then',
  poll: 'No stream: asking now and then',
  paused: 'Resting while the page is hidden',
  offline: 'Offline: goes on when the network is back',
};

/** One story: its state, its progress, its text as it comes, and a way to stop it. */
export function StoryCard({ id, onClose }: { id: string; onClose: () => void }) {
  const { run, status, progress, error, connection, cancel } = useRun<Story>(id);
  const story = status === 'succeeded' ? run?.result : undefined;
  const text = useText(id, status !== undefined && status !== 'succeeded');
  const box = useEnd(text);
  const [asked, setAsked] = useState(false);
  const [refused, setRefused] = useState<Error>();

  const ended = isTerminal(run);
  const request = run?.input as Request | undefined;
  const title = story?.title ?? (request ? `A story of the ${request.project}` : 'A story');
  const stop = async (): Promise<void> => {
    if (asked) return;
    setAsked(true);
    setRefused(undefined);
    try {
      await cancel('canceled on the page');
    } catch (error) {
      setRefused(error as Error);
      setAsked(false);
    }
  };

  const percent = Math.round(progress?.percent ?? 0);
  const step = progress?.step;
  const state = status ? words[status] : error ? 'Not followed' : 'Looking for it';
  const detail = step && !ended ? `chapter ${step.index} of ${step.count}` : request ? `${request.chapters} ${request.chapters === 1 ? 'chapter' : 'chapters'}` : '';
  return (
    <article className="card story" data-state={status ?? 'unknown'} aria-label={title}>
      <header>
        <h2>{title}</h2>
        <span className="state" role="status">{state}</span>
      </header>
      <div className="progress">
        <progress max={100} value={percent} aria-label="Progress" />
        <span className="percent">{percent} %</span>
        <span className="detail">{detail}</span>
      </div>
      {error && status !== 'canceled' && <p className="error" role="alert">{error.message}</p>}
      {refused && <p className="error" role="alert">It could not be canceled: {refused.message}</p>}
      {text.error && !error && <p className="error" role="alert">Its text cannot be followed: {text.error.message}</p>}
      <div className="text" ref={box} role="region" tabIndex={0} aria-label={`Text of ${title}`}>
        {story ? (
          story.text.trim().split('\n\n').map((paragraph, i) => <p key={i}>{paragraph}</p>)
        ) : text.chapters.length > 0 ? (
          text.chapters.map((chapter) => <p key={chapter.path} className={ended ? '' : 'growing'}>{chapter.text}</p>)
        ) : (
          <p className="faint">{text.queued ? 'Its text follows when another story is done.' : ended || error ? 'Nothing was written.' : 'Thinking of a title…'}</p>
        )}
      </div>
      <footer>
        <code title="The id of its run">{id}</code>
        {!ended && troubles[connection] && <span className="trouble">{troubles[connection]}</span>}
        {status && !ended && (
          <button type="button" className="danger" aria-disabled={asked} onClick={() => void stop()}>{asked ? 'Canceling…' : 'Cancel'}</button>
        )}
        <button type="button" onClick={onClose} aria-label={`Close ${title}`} title="It goes on without being shown">Close</button>
      </footer>
    </article>
  );
}

/** Keeps the end of a box in sight while it fills, unless its reader has gone back. */
function useEnd(content: unknown) {
  const box = useRef<HTMLDivElement>(null);
  const last = useRef(0);
  useLayoutEffect(() => {
    const at = box.current;
    if (!at) return;
    if (at.scrollTop >= last.current - 2) at.scrollTop = at.scrollHeight;
    last.current = at.scrollTop;
  }, [content]);
  return box;
}
