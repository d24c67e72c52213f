import { useState } from 'react';
import { Form } from './form.tsx';
import { ModelLine } from './model.tsx';
import { StoryCard } from './story.tsx';

/** The page: its address holds the ids of its stories, so that a reload, or whoever is
 * sent the link, finds them again. */
export function App() {
  const [ids, setIds] = useState(() => [...new Set(new URLSearchParams(location.search).getAll('story'))].filter(Boolean));
  const show = (next: string[]): void => {
    setIds(next);
    const query = new URLSearchParams(next.map((id) => ['story', id])).toString();
    history.replaceState(null, '', query ? `?${query}` : location.pathname);
  };
  return (
    <>
      <header>
        <div>
          <h1>Storygen</h1>
          <p>Stories written chapter by chapter, word by word. Leave when you like: they go on.</p>
        </div>
        <ModelLine />
      </header>
      <main>
        <Form onStarted={(id) => show([id, ...ids.filter((other) => other !== id)])} />
        {ids.length === 0 ? (
          <p className="empty">No story yet. Choose what it is about, and start one, or several.</p>
        ) : (
          <ul className="stories" aria-label="Stories">
            {ids.map((id) => (
              <li key={id}>
                <StoryCard id={id} onClose={() => show(ids.filter((other) => other !== id))} />
              </li>
            ))}
          </ul>
        )}
      </main>
    </>
  );
}
