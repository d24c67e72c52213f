/** The part of Headers that a hint is read from. */
type Fields = Pick<Headers, 'get'>;

/**
 * How long a server wants to be left alone, in milliseconds: Retry-After, as
 * seconds or as a date, which is read by the server's own clock where it tells it.
 * What is malformed or past is no hint.
 */
export function retryAfter(headers: Fields, now: number): number | undefined {
  const value = headers.get('Retry-After')?.trim();
  if (!value) return undefined;
  if (/^\d+$/.test(value)) return positive(Number(value) * 1000);
  const at = Date.parse(value);
  const date = Date.parse(headers.get('Date') ?? '');
  return positive(at - (Number.isNaN(date) ? now : date));
}

/** A number of milliseconds that came from elsewhere, if it is one. */
export function positive(ms: unknown): number | undefined {
  return typeof ms === 'number' && Number.isFinite(ms) && ms > 0 ? ms : undefined;
}
