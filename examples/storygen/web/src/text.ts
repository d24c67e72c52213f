import { useBide } from '@bide/react';
import { useEffect, useState } from 'react';

/** What a chapter says so far. */
export interface Chapter {
  path: string;
  attempt: number;
  name: string;
  text: string;
}

export interface Text {
  chapters: Chapter[];
  /** Other stories are followed; this one's turn comes. */
  queued: boolean;
  error: Error | undefined;
}

const nothing: Text = { chapters: [], queued: false, error: undefined };

/** The text of a story as it is written, from its beginning, for as long as the
 * component is mounted and follow is true. */
export function useText(id: string, follow: boolean): Text {
  const bide = useBide();
  const [text, setText] = useState(nothing);
  useEffect(() => {
    if (!follow) return;
    const stop = new AbortController();
    const { signal } = stop;
    const read = async (): Promise<void> => {
      setText({ ...nothing, queued: places === 0 });
      const leave = await enter(signal);
      try {
        setText(nothing);
        for await (const piece of bide.run(id).stream({ signal })) {
          if (piece.type === 'segment') setText((old) => ({ ...old, chapters: begun(old.chapters, piece) }));
          else if (piece.type === 'chunk') setText((old) => ({ ...old, chapters: grown(old.chapters, piece.path, piece.text ?? '') }));
        }
      } finally {
        leave();
      }
    };
    read().catch((error: Error) => {
      if (!signal.aborted) setText((old) => ({ ...old, error }));
    });
    return () => stop.abort();
  }, [bide, id, follow]);
  return text;
}

/** An attempt begins: what an earlier one of the same chapter has written is void. */
function begun(chapters: Chapter[], { path, attempt, name }: Omit<Chapter, 'text'>): Chapter[] {
  return [...chapters.filter((chapter) => chapter.path !== path), { path, attempt, name, text: '' }];
}

function grown(chapters: Chapter[], path: string, text: string): Chapter[] {
  return chapters.map((chapter) => (chapter.path === path ? { ...chapter, text: chapter.text + text } : chapter));
}

/** A browser has six connections to a server over HTTP/1.1, for all its tabs. A text
 * takes one for as long as it is written, so a window follows two: two windows then
 * still have room for the states of all stories, and for a cancel. */
let places = 2;
const queue = new Set<() => void>();

/** Waits for a place and gives what leaves it. */
async function enter(signal: AbortSignal): Promise<() => void> {
  while (places === 0) {
    await new Promise<void>((resolve) => {
      const go = (): void => {
        queue.delete(go);
        resolve();
      };
      queue.add(go);
      signal.addEventListener('abort', go, { once: true });
    });
    signal.throwIfAborted();
  }
  places--;
  return () => {
    places++;
    for (const go of [...queue]) go();
  };
}
