import { createBide, createPollScheduler } from '@bide/client';
import { BideProvider } from '@bide/react';
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { App } from './app.tsx';

// Nobody logs in here, so all tabs are one user's: they share what they follow.
const scope = 'everybody';
const bide = createBide({ scope });
const scheduler = createPollScheduler({ scope });

const at = document.getElementById('app');
if (at) {
  createRoot(at).render(
    <StrictMode>
      <BideProvider bide={bide} scheduler={scheduler}>
        <App />
      </BideProvider>
    </StrictMode>,
  );
}
