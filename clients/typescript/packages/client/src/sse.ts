/** One server-sent event. */
export interface SseEvent {
  type: string;
  data: string;
  /** The last id that the stream has told, "" if none. */
  id: string;
}

/** What a stream's text says, as it comes. */
export interface SseSink {
  event(event: SseEvent): void;
  /** A comment, which shows that the stream lives. */
  comment(): void;
  /** How long to wait before coming again, in milliseconds. */
  retry(ms: number): void;
}

/**
 * Returns a function that reads the text of a stream piece by piece, as the HTML
 * standard has it: lines end with LF, CR or CRLF, wherever a piece was cut; an event
 * that the stream broke off in is not told.
 */
export function parseSse(sink: SseSink): (piece: string) => void {
  let rest = '';
  let type = '';
  let data: string[] = [];
  let id = '';
  let first = true;
  let afterCr = false;

  const line = (text: string): void => {
    if (text === '') {
      if (data.length > 0) sink.event({ type: type || 'message', data: data.join('\n'), id });
      type = '';
      data = [];
      return;
    }
    const colon = text.indexOf(':');
    if (colon === 0) {
      sink.comment();
      return;
    }
    const field = colon < 0 ? text : text.slice(0, colon);
    let value = colon < 0 ? '' : text.slice(colon + 1);
    if (value.startsWith(' ')) value = value.slice(1);
    if (field === 'event') type = value;
    else if (field === 'data') data.push(value);
    else if (field === 'id' && !value.includes('\0')) id = value;
    else if (field === 'retry' && /^\d+$/.test(value)) sink.retry(Number(value));
  };

  return (piece) => {
    if (first && piece !== '') {
      first = false;
      if (piece.startsWith('\uFEFF')) piece = piece.slice(1);
    }
    if (afterCr && piece !== '') {
      afterCr = false;
      if (piece.startsWith('\n')) piece = piece.slice(1);
    }
    rest += piece;
    let from = 0;
    for (const match of rest.matchAll(/\r\n|\n|\r/g)) {
      line(rest.slice(from, match.index));
      from = match.index + match[0].length;
    }
    if (from > 0) {
      afterCr = rest.endsWith('\r');
      rest = rest.slice(from);
    }
  };
}
