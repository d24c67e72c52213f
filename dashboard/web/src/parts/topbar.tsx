import { connection } from '../live/live.ts';
import { now } from '../live/clock.ts';
import { heardAt } from '../http.ts';
import { href, page } from '../route.ts';
import { paused, theme, type Theme } from '../setting.ts';
import { span } from '../words/span.ts';
import { helpShown } from './help.tsx';
import { Icon, type IconName } from './icon.tsx';

const pages = [
  { name: 'runs', title: 'Runs', at: '/runs', also: 'run' },
  { name: 'loops', title: 'Loops', at: '/loops', also: 'loop' },
  { name: 'queues', title: 'Queues', at: '/queues', also: '' },
  { name: 'start', title: 'Start', at: '/start', also: '' },
];

export function TopBar() {
  const current = page.value.name;
  return (
    <header class="topbar">
      <a class="brand" href={href('/runs')} aria-label="bide, all runs">
        bide
      </a>
      <nav aria-label="Pages">
        {pages.map((p) => (
          <a key={p.name} href={href(p.at)} aria-current={current === p.name ? 'page' : current === p.also ? 'true' : undefined}>
            {p.title}
          </a>
        ))}
      </nav>
      <div class="tools">
        <ConnectionState />
        <button type="button" class="small" aria-pressed={paused.value} title={paused.value ? 'Go on asking the server' : 'Ask the server for nothing'} onClick={() => (paused.value = !paused.value)}>
          <Icon name={paused.value ? 'running' : 'paused'} />
          <span class="wide">{paused.value ? 'Resume updates' : 'Pause updates'}</span>
          <span class="narrow">{paused.value ? 'Resume' : 'Pause'}</span>
        </button>
        <ThemeButton />
        <button type="button" class="small quiet" aria-label="Keyboard shortcuts" onClick={() => (helpShown.value = true)}>
          <Icon name="help" />
        </button>
      </div>
    </header>
  );
}

const words = { live: 'live', polling: 'polling', connecting: 'connecting', offline: 'offline' };

/** How news come, and how old what is shown is. */
function ConnectionState() {
  const state = paused.value ? 'paused' : connection.value;
  const word = paused.value ? 'paused' : words[connection.value];
  const age = heardAt.value === 0 ? '' : ageText(now.value - heardAt.value);
  return (
    <span class={`connection connection-${state}`} data-connection={state}>
      <span class="dot" aria-hidden="true" />
      <span role="status">{word}</span>
      <span class="age num" title="How long ago the server last answered">
        {age}
      </span>
    </span>
  );
}

function ageText(ms: number): string {
  return ms < 2000 ? 'now' : span(ms);
}

const nextTheme: Record<Theme, Theme> = { system: 'light', light: 'dark', dark: 'system' };
const themeIcon: Record<Theme, IconName> = { system: 'screen', light: 'sun', dark: 'moon' };

function ThemeButton() {
  const is = theme.value;
  return (
    <button type="button" class="small quiet" aria-label={`Theme: ${is}. Change to ${nextTheme[is]}`} title={`Theme: ${is}`} onClick={() => (theme.value = nextTheme[is])}>
      <Icon name={themeIcon[is]} />
    </button>
  );
}
