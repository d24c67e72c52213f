import { now } from '../live/clock.ts';
import { oneLine } from '../exact/print.ts';
import { Icon } from '../parts/icon.tsx';
import { At } from '../parts/time.tsx';
import type { CheckLine, HistoryRecord, PollLog, Run, Wait } from '../shape.ts';
import { explainPoll } from '../words/interval.ts';
import { fine, instant, span } from '../words/span.ts';

export interface PollView {
  key: string;
  name: string;
  log: PollLog;
  wait?: Wait;
  record?: HistoryRecord;
}

/** The polls of a run: those that are live, then those that are over, the last first. */
export function pollsOf(run: Run, records: readonly HistoryRecord[]): PollView[] {
  const live = run.waiting.filter((w) => w.kind === 'poll').map((w) => ({ key: `live ${w.path}`, name: w.name ?? '', log: w.poll?.log ?? {}, wait: w }));
  const over = records.filter((r) => r.kind === 'poll').map((r) => ({ key: String(r.seq), name: r.name ?? '', log: r.poll ?? {}, record: r }));
  return [...live, ...over.reverse()];
}

const most = 50;

export function Polls({ polls }: { polls: readonly PollView[] }) {
  return (
    <div class="polls">
      {polls.slice(0, most).map((p) => (
        <PollCard key={p.key} poll={p} />
      ))}
      {polls.length > most && <p class="faint">The last {most} are shown; the history has all.</p>}
    </div>
  );
}

function PollCard({ poll }: { poll: PollView }) {
  const { log, wait, record } = poll;
  const counts = Object.entries(log.counts ?? {}).map(([name, n]) => `${n} ${name}`);
  return (
    <article class="poll">
      <h3>
        <Icon name="poll" /> {poll.name}
        {wait && <span class="tag">live</span>}
        {record?.error && <span class="tag bad">failed</span>}
      </h3>
      <p class="faint">
        {counts.join(', ') || 'no check yet'}
        {record?.took_ns ? `, in ${fine(record.took_ns / 1e6)}` : ''}
        {record?.by ? `, settled by hand: ${record.by}` : ''}
      </p>
      {wait && (
        <ul class="why-next">
          {explainPoll(wait, now.value).map((line) => (
            <li key={line}>{line}</li>
          ))}
        </ul>
      )}
      {record?.error && <p class="bad">{record.error.message}</p>}
      {(log.values ?? []).length > 0 && <Values log={log} />}
      {(log.checks ?? []).length > 0 && <Checks lines={log.checks ?? []} />}
    </article>
  );
}

function Values({ log }: { log: PollLog }) {
  return (
    <table class="plain observed">
      <caption>What it saw change</caption>
      <tbody>
        {(log.values ?? []).toReversed().map((v, i) => (
          <tr key={i}>
            <td class="num">
              <At at={v.at} />
            </td>
            <td class="num right">{v.percent ? `${Math.round(v.percent)} %` : ''}</td>
            <td>{v.value ? <code>{oneLine(v.value.text, 300)}</code> : <span class="faint">too large to be kept here</span>}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

const words: Record<string, string> = { manual: 'by hand', webhook: 'after a webhook', final: 'at the deadline', resume: 'after a crash' };

function Checks({ lines }: { lines: readonly CheckLine[] }) {
  return (
    <table class="plain checks">
      <caption>Its checks, the last first</caption>
      <tbody>
        {lines.toReversed().map((c, i) => (
          <tr key={i} class={good(c) ? '' : 'failed'}>
            <td class="num">
              <At at={c.at} />
            </td>
            <td>
              <Icon name={good(c) ? (c.outcome === 'succeeded' ? 'succeeded' : 'waiting') : 'failed'} /> {c.outcome}
              {(c.count ?? 1) > 1 && (
                <span class="faint">
                  {' '}
                  × {c.count}, over {span((instant(c.last) ?? 0) - (instant(c.at) ?? 0))}
                </span>
              )}
            </td>
            <td class="faint">{c.trigger ? (words[c.trigger] ?? c.trigger) : ''}</td>
            <td class="bad">{c.error ?? ''}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function good(c: CheckLine): boolean {
  return c.outcome === 'pending' || c.outcome === 'succeeded';
}
