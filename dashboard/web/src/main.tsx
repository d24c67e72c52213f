import { render } from 'preact';
import { App } from './app.tsx';
import { startShortcuts } from './parts/help.tsx';
import { startRouting } from './route.ts';

const at = document.getElementById('app');
if (at) {
  // After a change of page the reader is at its beginning, also one who only hears it.
  startRouting(() => {
    window.scrollTo(0, 0);
    document.getElementById('main')?.focus({ preventScroll: true });
  });
  startShortcuts();
  // A relative address would be another once the page's own has changed.
  for (const icon of document.querySelectorAll<HTMLLinkElement>('link[rel=icon]')) icon.setAttribute('href', icon.href);
  render(<App />, at);
}
