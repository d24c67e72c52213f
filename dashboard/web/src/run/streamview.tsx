import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { bide, quiet } from '../live/client.ts';
import { visible } from '../live/clock.ts';
import { Notice, Problem } from '../parts/notice.tsx';
import { isAbort } from '../http.ts';
import { add, empty, type Streamed } from './streamed.ts';

/** What the run's steps stream, as it comes; it follows the end while that is in view. */
export function StreamView({ id }: { id: string }) {
  const streamed = useSignal<Streamed>(empty);
  const error = useSignal<Error | undefined>(undefined);
  const box = useRef<HTMLDivElement>(null);
  const follow = useRef(true);
  const client = bide.value;
  const on = !quiet.value && visible.value;
  useEffect(() => {
    if (!on) return undefined;
    const abort = new AbortController();
    let due: Streamed = streamed.peek();
    let frame = 0;
    const show = (): void => {
      frame = 0;
      streamed.value = due;
    };
    const run = async (): Promise<void> => {
      for await (const piece of client.run(id).stream({ signal: abort.signal, after: due.seq })) {
        due = add(due, piece);
        frame ||= requestAnimationFrame(show);
      }
    };
    run().catch((e: unknown) => {
      if (!isAbort(e)) error.value = e instanceof Error ? e : new Error(String(e));
    });
    return () => {
      abort.abort();
      cancelAnimationFrame(frame);
      streamed.value = due;
    };
  }, [id, on, client]);
  useEffect(() => {
    const b = box.current;
    if (b && follow.current) b.scrollTop = b.scrollHeight;
  }, [streamed.value]);
  const s = streamed.value;
  const scrolled = (): void => {
    const b = box.current;
    if (b) follow.current = b.scrollHeight - b.scrollTop - b.clientHeight < 40;
  };
  return (
    <>
      <Problem error={error.value} />
      {s.parts.length === 0 && <Notice>{s.over ? 'The run has streamed nothing.' : 'Nothing is streamed yet.'}</Notice>}
      <div class="streamed" ref={box} onScroll={scrolled} tabIndex={0} role="log" aria-label="Stream" aria-live="off">
        {s.parts.map((p) => (
          <section key={`${p.path} ${p.attempt}`}>
            <h3>
              {p.name} {p.attempt > 1 && <span class="tag">attempt {p.attempt}</span>}
              {p.cut > 0 && <span class="faint"> the first {p.cut} characters are left out</span>}
            </h3>
            <pre>{p.text}</pre>
          </section>
        ))}
      </div>
      {s.over && s.parts.length > 0 && <p class="faint">The run is {s.over}: this is all.</p>}
    </>
  );
}
