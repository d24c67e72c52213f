import { At } from '../parts/time.tsx';
import { fine } from '../words/span.ts';
import type { Tried } from './tried.ts';

/** The failed attempts of a step, the last first. */
export function Attempts({ tried }: { tried: readonly Tried[] }) {
  if (tried.length === 0) return null;
  return (
    <table class="plain checks attempts">
      <caption class="hidden">Failed attempts, the last first</caption>
      <tbody>
        {tried.toReversed().map((a) => (
          <tr key={a.number} class="failed">
            <td class="num">try {a.number}</td>
            <td class="num">
              <At at={new Date(a.from).toISOString()} />
            </td>
            <td class="num right">{fine(a.to - a.from)}</td>
            <td class="bad">{a.error}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
