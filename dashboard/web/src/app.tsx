import { useEffect, useRef } from 'preact/hooks';
import { KeyPrompt } from './parts/key.tsx';
import { TopBar } from './parts/topbar.tsx';
import { Help, helpShown } from './parts/help.tsx';
import { LoopPage } from './pages/loop.tsx';
import { LoopsPage } from './pages/loops.tsx';
import { QueuesPage } from './pages/queues.tsx';
import { RunPage } from './pages/run.tsx';
import { RunsPage } from './pages/runs.tsx';
import { StartPage } from './pages/start.tsx';
import { now } from './live/clock.ts';
import { connection, everythingAgain } from './live/live.ts';
import { heardAt } from './http.ts';
import { page } from './route.ts';
import { paused, readOnly } from './setting.ts';
import { moment } from './words/span.ts';

export function App() {
  const main = useRef<HTMLElement>(null);
  const where = page.value;
  useEffect(() => {
    document.title = `${title()} · bide`;
  });
  return (
    <>
      <a class="skip" href="#main" onClick={(e) => (e.preventDefault(), main.current?.focus())}>
        Skip to the content
      </a>
      <TopBar />
      {readOnly.value && (
        <p class="read-only" role="status">
          Read only: this server changes nothing.
        </p>
      )}
      {connection.value === 'offline' && !paused.value && <Offline />}
      <main id="main" tabIndex={-1} ref={main} key={where.name === 'run' ? where.id : where.name === 'loop' ? where.loop : where.name}>
        <Current />
      </main>
      <KeyPrompt onKey={everythingAgain} />
      {helpShown.value && <Help />}
    </>
  );
}

function Offline() {
  return (
    <div class="offline" role="alert">
      <span>
        The server cannot be reached{heardAt.value > 0 ? `: what is shown is of ${moment(heardAt.value, now.value)}` : ''}. It is asked again by itself.
      </span>
      <button type="button" class="small" onClick={everythingAgain}>
        Try now
      </button>
    </div>
  );
}

function title(): string {
  const p = page.value;
  switch (p.name) {
    case 'run':
      return p.id;
    case 'loop':
      return `loop ${p.loop}`;
    case 'queues':
      return 'Queues and workers';
    case 'unknown':
      return 'Not found';
    default:
      return p.name[0]?.toUpperCase() + p.name.slice(1);
  }
}

function Current() {
  const p = page.value;
  switch (p.name) {
    case 'runs':
      return <RunsPage />;
    case 'run':
      return <RunPage id={p.id} />;
    case 'loops':
      return <LoopsPage />;
    case 'loop':
      return <LoopPage name={p.loop} />;
    case 'queues':
      return <QueuesPage />;
    case 'start':
      return <StartPage />;
    case 'unknown':
      return (
        <div class="page">
          <h1>There is nothing here</h1>
        </div>
      );
  }
}
