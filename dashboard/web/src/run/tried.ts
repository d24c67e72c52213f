import type { PollLog } from '../shape.ts';
import { instant } from '../words/span.ts';

/** An attempt of a step that failed. */
export interface Tried {
  number: number;
  from: number;
  to: number;
  outcome: string;
  error: string;
}

/** The failed attempts of a step that are kept, the last ten of so many. */
export function triedOf(log: PollLog | undefined, failed: number): Tried[] {
  const lines = log?.checks ?? [];
  return lines.map((line, i) => {
    const from = instant(line.at) ?? 0;
    return { number: Math.max(lines.length, failed) - lines.length + i + 1, from, to: Math.max(from, instant(line.last) ?? from), outcome: line.outcome, error: line.error ?? line.outcome };
  });
}
