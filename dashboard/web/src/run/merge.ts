import type { Run } from '../shape.ts';

/** The rows as they stand, each as new as it is known: none comes, goes or moves. */
export function merge(rows: readonly Run[], news: readonly Run[]): Run[] {
  const byId = new Map(news.map((r) => [r.id, r]));
  let changed = false;
  const merged = rows.map((row) => {
    const next = byId.get(row.id);
    if (!next || !newer(row, next)) return row;
    changed = true;
    return next;
  });
  return changed ? merged : (rows as Run[]);
}

/** Whether next takes the place of run. Queued and running change without a commit. */
export function newer(run: Run | undefined, next: Run): boolean {
  if (!run) return true;
  if (next.version !== run.version) return next.version > run.version;
  return next.state !== run.state || (run.partial === true && !next.partial);
}

/** How many runs of the newest page are not shown. */
export function newIds(rows: readonly Run[], newest: readonly Run[]): number {
  const known = new Set(rows.map((r) => r.id));
  const last = rows[0];
  let count = 0;
  for (const run of newest) {
    if (known.has(run.id)) continue;
    if (last && run.created_at < last.created_at) continue;
    count++;
  }
  return count;
}
