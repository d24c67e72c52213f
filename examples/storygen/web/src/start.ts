import { ProblemError, type Problem } from '@bide/client';

/** What the service is asked for. */
export interface Request {
  project: string;
  chapters: number;
}

/** What a run returns. */
export interface Story {
  title: string;
  text: string;
}

/** A key for one story: sent again with it, it does not give two. */
export function newKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** Asks the service for a story and gives the id of its run. What the service refuses
 * is a ProblemError, with the field that is wrong. */
export async function start(request: Request, key: string): Promise<string> {
  const response = await fetch('/stories', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', 'Idempotency-Key': key },
    body: JSON.stringify(request),
  });
  const answer: unknown = await response.json().catch(() => undefined);
  if (!response.ok) throw new ProblemError(response.status, answer as Problem | undefined, undefined);
  return (answer as { id: string }).id;
}
