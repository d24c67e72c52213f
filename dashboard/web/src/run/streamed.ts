import type { StreamPiece } from '@bide/client';

/** What one step has streamed in its newest attempt. */
export interface StreamPart {
  path: string;
  name: string;
  attempt: number;
  text: string;
  /** Characters at the beginning that are not kept any more. */
  cut: number;
}

export interface Streamed {
  parts: readonly StreamPart[];
  seq: number;
  /** The state that the run has ended in. */
  over: string;
}

export const empty: Streamed = { parts: [], seq: 0, over: '' };

/** A page keeps so much of what a step has streamed; in UTF-16 units. */
const kept = 200_000;

/** Adds a piece. A new attempt takes the place of what the step streamed before. */
export function add(s: Streamed, piece: StreamPiece): Streamed {
  if (piece.type === 'end') return { ...s, over: piece.state };
  const { path, name, attempt } = piece;
  const at = s.parts.findIndex((p) => p.path === path);
  const was = s.parts[at];
  const begun: StreamPart = was && was.attempt === attempt ? was : { path, name, attempt, text: '', cut: 0 };
  let next = begun;
  let seq = s.seq;
  if (piece.type === 'chunk') {
    seq = Math.max(seq, piece.seq);
    const text = begun.text + (piece.text ?? `[${Math.floor(((piece.data?.length ?? 0) * 3) / 4)} bytes that are no text]`);
    const over = text.length > kept * 1.25 ? text.length - kept : 0;
    next = { ...begun, text: text.slice(over), cut: begun.cut + over };
  }
  const parts = at < 0 ? [...s.parts, next] : s.parts.with(at, next);
  return { parts, seq, over: s.over };
}
