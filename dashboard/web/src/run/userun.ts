import { effect, useComputed, useSignal, type ReadonlySignal, type Signal } from '@preact/signals';
import { useEffect, useMemo } from 'preact/hooks';
import { parseAnswer } from '../exact/parse.ts';
import { isAbort, open, read, runPath } from '../http.ts';
import { lift } from '../live/lift.ts';
import { every, refreshRun, watchChanges, watchRun } from '../live/live.ts';
import { ended, type HistoryRecord, type RecordPage, type Run } from '../shape.ts';
import { Errand } from './coalesce.ts';
import { newer } from './merge.ts';

export interface Shown {
  run: ReadonlySignal<Run | undefined>;
  error: ReadonlySignal<Error | undefined>;
  records: ReadonlySignal<readonly HistoryRecord[]>;
  /** All of the history that there is has been read. */
  complete: ReadonlySignal<boolean>;
  /** Takes what an answer says of the run. */
  accept(run: Run): void;
}

const historyPage = 1000;
/** How often a run that may have changed unheard is looked at. */
const lookMs = 1000;
/** A run whose answer is large is read whole less often: 1 MiB, once a second. */
const restMsPerUnit = 1000 / (1 << 20);

/**
 * A run, live: the client tells that it has changed and what can be told at once;
 * what must be exact is then read as text. The history is read on from where it was.
 */
export function useRun(id: string): Shown {
  const run = useSignal<Run | undefined>(undefined);
  const error = useSignal<Error | undefined>(undefined);
  const records = useSignal<readonly HistoryRecord[]>([]);
  const complete = useSignal(false);
  const over = useComputed(() => run.value !== undefined && ended(run.value.state));
  const accept = useMemo(
    () => (next: Run): void => {
      const known = run.peek();
      if (!newer(known, next)) return;
      if (known && ended(known.state) && !ended(next.state)) refreshRun(id); // it was retried
      if ((run.peek()?.generation ?? 0) !== (next.generation ?? 0)) records.value = [];
      run.value = next.partial ? withKept(next, run.peek()) : next;
    },
    [id],
  );
  useEffect(() => {
    const abort = new AbortController();
    const failed = (e: unknown): void => {
      if (!isAbort(e)) error.value = e instanceof Error ? e : new Error(String(e));
    };
    let told = -1; // the version up to which the history is asked for
    const tell = (version: number): void => {
      if (version <= told) return;
      told = version;
      history.ask();
    };
    let etag = '';
    let last: Run | undefined; // of the exact answers
    const exact = new Errand(async () => {
      try {
        const answer = await open('GET', runPath(id), { signal: abort.signal, ...(etag && { headers: { 'If-None-Match': etag } }) });
        error.value = undefined;
        if (answer.status === 304) {
          const known = run.peek();
          if (last && known?.partial && last.version >= known.version) run.value = last; // news that was late
          return;
        }
        const text = await answer.text();
        etag = answer.headers.get('ETag') ?? '';
        exact.restMs = text.length * restMsPerUnit;
        last = parseAnswer(text) as Run;
        accept(last);
        tell(last.version);
      } catch (e) {
        failed(e);
      }
    });
    const history = new Errand(() => readOn(id, records, complete, abort.signal).catch(failed));
    exact.ask();
    history.ask();
    let newsVersion = -1;
    // The stream tells of changes to what it has told, not of each step; and it cannot
    // know what an answer in between has said.
    const look = every(runPath(id), lookMs, async () => {
      const known = run.peek();
      if (known && !ended(known.state) && (known.state !== 'waiting' || known.partial || known.version > newsVersion)) exact.ask();
    });
    const stop = watchRun(id, (news) => {
      newsVersion = news.version;
      tell(news.version);
      if ((run.peek()?.version ?? -1) === news.version && run.peek()?.state === news.state) return;
      accept(lift(news));
      exact.ask();
    });
    // The stream has no more to tell of a run that has ended; it may be retried.
    const unhear = effect(() => (over.value ? watchChanges((told) => told && exact.ask()) : undefined));
    return () => {
      unhear();
      stop();
      look.stop();
      abort.abort();
      exact.end();
      history.end();
    };
  }, [id]);
  return { run, error, records, complete, accept };
}

/** What the live client left out stands as it was, until it is read. */
function withKept(next: Run, known: Run | undefined): Run {
  if (!known) return next;
  const waiting = next.waiting.map((w) => {
    const was = known.waiting.find((k) => k.path === w.path && k.kind === w.kind);
    const poll = w.poll && was?.poll?.log ? { ...w.poll, log: was.poll.log } : w.poll;
    return { ...w, ...(poll && { poll }), ...(!w.last_value && was?.last_value && { last_value: was.last_value }) };
  });
  const kept: Run = { ...next, waiting, result: known.result };
  if (known.input) kept.input = known.input;
  if (known.values) kept.values = known.values;
  if (ended(next.state) && !ended(known.state)) kept.result = null;
  return kept;
}

async function readOn(id: string, records: Signal<readonly HistoryRecord[]>, complete: Signal<boolean>, signal: AbortSignal): Promise<void> {
  for (;;) {
    const after = records.peek().at(-1)?.seq ?? 0;
    const page = await read<RecordPage>(`${runPath(id)}/history?after=${after}&limit=${historyPage}`, signal);
    // the run may have been continued as new meanwhile
    if ((records.peek().at(-1)?.seq ?? 0) === after && page.records.length > 0) records.value = [...records.peek(), ...page.records];
    if (page.next_after === null) {
      complete.value = true;
      return;
    }
  }
}
