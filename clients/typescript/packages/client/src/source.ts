import { after, type Cancel, type Clock } from './clock.js';
import { ProblemError } from './error.js';
import { discard, type Http } from './http.js';
import { parseSse, type SseEvent } from './sse.js';

/** A server that is alive writes something every 15 s: silence for two of these and
 * 5 s is death. */
export const silenceMs = 2 * 15_000 + 5000;

/** What a source of events tells. */
export interface SourceSink {
  /** The server has begun to stream. */
  open(): void;
  event(event: SseEvent): void;
  /** The source is over, for this reason; it does not come again by itself. */
  close(why: SourceEnd): void;
}

export interface SourceEnd {
  /** The server had begun to stream. */
  opened: boolean;
  /** Why not, where that can be told: a native EventSource does not say. */
  error?: unknown;
  /** 204: there is nothing more to come. */
  over?: boolean;
  /** When to come again, if the server said. */
  retryMs?: number | undefined;
}

/** Opens a stream; the returned function closes it without a word. */
export type OpenSource = (path: string, types: readonly string[], lastId: string, sink: SourceSink) => Cancel;

/** A stream over fetch, which can carry headers and hears the comments. */
export function fetchSource(http: Http, clock: Clock): OpenSource {
  return (path, _types, lastId, sink) => {
    const abort = new AbortController();
    let opened = false;
    let retryMs: number | undefined;
    let silence: Cancel = () => {};
    const finish = (end: Omit<SourceEnd, 'opened'>): void => {
      silence();
      if (abort.signal.aborted) return;
      abort.abort();
      sink.close({ opened, retryMs, ...end });
    };
    const heard = (): void => {
      silence();
      silence = after(clock, silenceMs, () => finish({ error: new Error(`the stream was silent for ${silenceMs} ms`) }));
    };
    const read = async (): Promise<void> => {
      heard();
      const headers: Record<string, string> = { Accept: 'text/event-stream' };
      if (lastId) headers['Last-Event-ID'] = lastId;
      const response = await http.open('GET', path, { headers, signal: abort.signal });
      if (response.status === 204) return finish({ over: true });
      if (!response.body || !/^text\/event-stream\b/i.test(response.headers.get('Content-Type') ?? '')) {
        discard(response);
        throw new ProblemError(406, undefined, undefined, 'the server does not stream');
      }
      const feed = parseSse({
        event: (event) => {
          if (!abort.signal.aborted) sink.event(event);
        },
        comment: () => {},
        retry: (ms) => (retryMs = ms),
      });
      const decoder = new TextDecoder();
      const reader = response.body.getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (abort.signal.aborted || done) return finish({});
        if (!opened) {
          opened = true;
          sink.open();
        }
        heard();
        feed(decoder.decode(value, { stream: true }));
      }
    };
    read().catch((error: unknown) => finish({ error }));
    return () => {
      silence();
      abort.abort();
    };
  };
}

/** A stream over the browser's EventSource. It tells neither comments nor why it
 * could not be opened, and would come again by itself, which here is the caller's. */
export function nativeSource(http: Http): OpenSource {
  return (path, types, lastId, sink) => {
    const query = lastId ? `${path.includes('?') ? '&' : '?'}last_event_id=${encodeURIComponent(lastId)}` : '';
    const source = new EventSource(http.url(path + query));
    let opened = false;
    const close = (): void => {
      source.onopen = source.onerror = null;
      source.close();
    };
    source.onopen = () => {
      opened = true;
      sink.open();
    };
    source.onerror = () => {
      close();
      sink.close({ opened });
    };
    for (const type of types) {
      source.addEventListener(type, (e) => {
        if (source.readyState !== EventSource.CLOSED) sink.event({ type, data: String(e.data), id: e.lastEventId });
      });
    }
    return close;
  };
}
