import { usePoll } from '@bide/react';
import { useState } from 'react';

interface Model {
  busy: number;
  words: number;
}

/** Whether the model writes, and what it has written: after a cancel it stands still. */
export function ModelLine() {
  const [model, setModel] = useState<Model>();
  const { state } = usePoll<Model>(
    'model',
    async ({ signal, share }) => {
      const response = await fetch('/model', { signal });
      if (!response.ok) return false;
      share((await response.json()) as Model);
      return true;
    },
    { intervalMs: 2000, runImmediately: true, receive: setModel },
  );
  const away = state !== undefined && state.failures > 0;
  return (
    <p className="model">
      <span className={`dot ${away ? 'bad' : model?.busy ? 'live' : ''}`} />
      {away ? 'The service does not answer' : model ? `${model.busy ? `Model writing ${model.busy}` : 'Model idle'} · ${model.words} words` : 'Asking for the model…'}
    </p>
  );
}
