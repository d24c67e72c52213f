import type { BackoffState, PollScheduler } from '@bide/client';

export interface Card<T> {
  /** The loop's name, and the path below /api/ that it asks. */
  name: string;
  title: string;
  intervalMs: number;
  show: (value: T) => Node[];
}

/** Puts a card on the wall and begins its loop. The function it gives draws the card
 * anew, for what changes by itself. */
export function addCard<T>(scheduler: PollScheduler, { name, title, intervalMs, show }: Card<T>): () => void {
  const card = (document.querySelector<HTMLTemplateElement>('#card')?.content.firstElementChild as HTMLElement).cloneNode(true) as HTMLElement;
  const part = <E extends HTMLElement = HTMLElement>(selector: string): E => card.querySelector(selector) as E;
  const heading = part('h2');
  heading.textContent = title;
  heading.id = `${name}-title`;
  card.id = name;
  card.setAttribute('aria-labelledby', heading.id);
  document.querySelector('#wall')?.append(card);

  const loop = scheduler.register<T>(
    name,
    async ({ signal, share }) => {
      const response = await fetch(`/api/${name}`, { signal });
      if (!response.ok) throw new Error(`The service answered ${response.status}`);
      share((await response.json()) as T);
    },
    { intervalMs, runImmediately: true, receive: (value) => part('.value').replaceChildren(...show(value)) },
  );

  let asked = 0; // the turn that was asked for by hand
  const draw = (): void => {
    const state = loop.backoffState();
    const word = stateOf(state);
    card.dataset.state = word;
    set('.state', state.inFlight && asked > state.iteration ? 'in flight, one more follows' : word);
    set('.age', state.lastSuccessAt === undefined ? '–' : seconds(Date.now() - state.lastSuccessAt));
    set('.next', nextOf(state, word));
    set('.interval', state.multiplier === 1 ? seconds(intervalMs) : `${seconds(intervalMs)} × ${state.multiplier} = ${seconds(state.effectiveIntervalMs)}`);
    set('.turns', String(state.iteration));
    const error = state.lastError === undefined ? '' : `${(state.lastError as Error).message}, ${state.failures === 1 ? 'once' : `${state.failures} times in a row`}`;
    set('.error', error);
    part('.error').hidden = !error;
    set('.pause', state.paused ? 'Resume' : 'Pause');
    part('.reset').ariaDisabled = String(state.failures === 0);
  };
  const set = (selector: string, text: string): void => {
    const at = part(selector);
    if (at.textContent !== text) at.textContent = text; // only what is new is read out
  };
  // four cards have the same buttons
  for (const button of card.querySelectorAll('button')) button.setAttribute('aria-describedby', heading.id);

  loop.subscribe(draw);
  part('.trigger').addEventListener('click', () => {
    asked = loop.trigger({ force: true }).iteration; // also while the loop is paused
    draw();
  });
  part('.pause').addEventListener('click', () => (loop.backoffState().paused ? loop.resume() : loop.pause()));
  part('.reset').addEventListener('click', () => {
    if (loop.backoffState().failures > 0) loop.resetBackoff();
  });
  return draw;
}

function stateOf({ inFlight, paused }: BackoffState): string {
  if (inFlight) return 'in flight';
  if (paused) return 'paused';
  if (document.hidden) return 'hidden';
  return navigator.onLine ? 'waiting' : 'offline';
}

function nextOf({ nextRunAt }: BackoffState, state: string): string {
  if (state === 'in flight') return 'now';
  if (state !== 'waiting' || nextRunAt === undefined) return '–';
  return `in ${seconds(Math.max(0, nextRunAt - Date.now()))}`;
}

function seconds(ms: number): string {
  const s = Math.round(ms / 1000);
  return s < 90 ? `${s} s` : `${Math.round(s / 60)} min`;
}
