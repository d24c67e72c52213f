import { useComputed, useSignal, type ReadonlySignal } from '@preact/signals';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { now } from '../live/clock.ts';
import { iconOf } from '../parts/icon.tsx';
import { ended, type HistoryRecord, type Run } from '../shape.ts';
import { fine, full, instant, span, times } from '../words/span.ts';
import { rows, type Row, type Segment } from './rows.ts';
import { pieces, place, ticks, type Piece } from './scale.ts';

const rowHeight = 22;
const axisHeight = 20;
/** Rows beyond those in view that are drawn too, so that scrolling shows no blanks. */
const spare = 8;
const tallest = 14 * rowHeight;

/** What happened when: a row a step, poll, timer, child or phase. Only the rows in
 * view are drawn, so that 10,000 cost what 30 do. */
export function Timeline({ run, records }: { run: ReadonlySignal<Run | undefined>; records: ReadonlySignal<readonly HistoryRecord[]> }) {
  const box = useRef<HTMLDivElement>(null);
  const width = useSignal(0);
  const top = useSignal(0);
  useLayoutEffect(() => {
    const el = box.current;
    if (!el) return undefined;
    const watch = new ResizeObserver(() => (width.value = el.clientWidth));
    watch.observe(el);
    width.value = el.clientWidth;
    return () => watch.disconnect();
  }, []);
  const drawn = useComputed(() => {
    const r = run.value;
    if (!r) return undefined;
    const at = ended(r.state) ? (instant(r.finished_at) ?? 0) : now.value;
    return { run: r, at, rows: rows(r, records.value, at) };
  });
  const d = drawn.value;
  const list = d?.rows ?? [];
  const labelWidth = width.value < 560 ? 116 : 220;
  const chart = Math.max(80, width.value - labelWidth - 12);
  const scale = d ? scaleOf(d.run, list, d.at, chart) : [];
  const from = Math.max(0, Math.floor(top.value / rowHeight) - spare);
  const to = Math.min(list.length, Math.ceil((top.value + tallest) / rowHeight) + spare);
  return (
    <section class="card timeline" aria-label="Timeline">
      <h2>
        Timeline <span class="faint">{list.length > 0 ? times(list.length, 'row') : ''}</span>
        <Legend />
      </h2>
      <div ref={box}>
        {width.value > 0 && d && list.length > 0 && (
          <>
            <Axis scale={scale} left={labelWidth} width={width.value} />
            <div class="rows" style={{ maxHeight: `${tallest}px` }} onScroll={(e) => (top.value = e.currentTarget.scrollTop)} tabIndex={0} role="region" aria-label="Rows of the timeline; the history tells the same in words">
              <svg width={width.value} height={list.length * rowHeight} role="img" aria-label={times(list.length, 'row')}>
                <Grid scale={scale} left={labelWidth} height={list.length * rowHeight} />
                {list.slice(from, to).map((row, i) => (
                  <RowView key={`${row.path} ${row.kind}`} row={row} y={(from + i) * rowHeight} left={labelWidth} scale={scale} />
                ))}
              </svg>
            </div>
          </>
        )}
        {d && list.length === 0 && <p class="faint">{ended(d.run.state) ? 'It ended without a step or a wait.' : 'Nothing has begun yet.'}</p>}
      </div>
    </section>
  );
}

function scaleOf(run: Run, list: readonly Row[], at: number, width: number): Piece[] {
  const begun = instant(run.started_at) ?? instant(run.created_at) ?? at;
  let from = begun;
  let to = Math.max(at, begun + 1);
  const moments: number[] = [];
  const busy: { from: number; to: number }[] = [];
  for (const row of list) {
    for (const s of row.segments) {
      from = Math.min(from, s.from);
      to = Math.max(to, s.look === 'backoff' ? s.to : Math.min(s.to, to));
      moments.push(s.from, s.to);
      if (s.look === 'work') busy.push(s);
    }
    for (const m of row.marks) {
      moments.push(m.at);
      if (m.look === 'next') to = Math.max(to, m.at);
    }
  }
  return pieces(from, to, moments, busy, width);
}

function Legend() {
  return (
    <span class="legend faint" aria-hidden="true">
      <svg width="200" height="12">
        <rect x="0" y="2" width="16" height="8" class="seg seg-work" />
        <text x="20" y="10">work</text>
        <rect x="56" y="2" width="16" height="8" class="seg seg-wait" />
        <text x="76" y="10">waiting</text>
        <rect x="126" y="2" width="16" height="8" class="seg seg-backoff" />
        <text x="146" y="10">back-off</text>
      </svg>
    </span>
  );
}

function Axis({ scale, left, width }: { scale: Piece[]; left: number; width: number }) {
  const zero = scale[0]?.from ?? 0;
  return (
    <svg class="axis" width={width} height={axisHeight} aria-hidden="true">
      {ticks(scale).map((t) => (
        <text key={t.x} x={left + t.x} y={14}>
          {t.after === 0 ? fullClock(zero) : `+${t.label}`}
        </text>
      ))}
      {scale
        .filter((p) => p.idle)
        .map((p) => (
          <text key={p.from} class="idle-text" x={left + (p.x0 + p.x1) / 2} y={14} text-anchor="middle">
            {p.x1 - p.x0 > idleText ? `⋯ ${span(p.to - p.from)} ⋯` : '⋯'}
            <title>{`idle for ${span(p.to - p.from)}`}</title>
          </text>
        ))}
    </svg>
  );
}

function fullClock(t: number): string {
  return full(t).slice(11, 19);
}

function Grid({ scale, left, height }: { scale: Piece[]; left: number; height: number }) {
  return (
    <g class="grid" aria-hidden="true">
      <defs>
        <pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <line x1="0" y1="0" x2="0" y2="6" class="hatch" />
        </pattern>
      </defs>
      {ticks(scale).map((t) => (
        <line key={t.x} x1={left + t.x} x2={left + t.x} y1={0} y2={height} />
      ))}
      {scale
        .filter((p) => p.idle)
        .map((p) => (
          <rect key={p.from} class="idle" x={left + p.x0} y={0} width={p.x1 - p.x0} height={height}>
            <title>{`idle for ${span(p.to - p.from)}`}</title>
          </rect>
        ))}
    </g>
  );
}

const charWidth = 6.6;
/** An idle stretch as wide as this has room to say how long it is. */
const idleText = 90;

function RowView({ row, y, left, scale }: { row: Row; y: number; left: number; scale: Piece[] }) {
  const indent = Math.min(row.depth, 5) * 10;
  const room = Math.floor((left - 26 - indent) / charWidth);
  const name = row.name || row.kind;
  return (
    <g class={`row${row.failed ? ' failed' : ''}${row.live ? ' live' : ''}`} data-path={row.path}>
      <rect class="hit" x={0} y={y} width="100%" height={rowHeight} />
      <text class={`row-kind kind-${iconOf(row.kind)}`} x={4 + indent} y={y + 15}>
        {row.failed ? '✕' : row.live ? '▸' : '·'}
      </text>
      <text class="row-name" x={18 + indent} y={y + 15}>
        {name.length > room ? name.slice(0, Math.max(1, room - 1)) + '…' : name}
        <title>{`${row.path} ${row.kind} ${row.name}`}</title>
      </text>
      {[...row.segments].sort((a, b) => rank(a) - rank(b)).map((s, i) => {
        const x0 = left + place(scale, s.from);
        const x1 = left + place(scale, s.to);
        const title = `${row.name || row.kind}: ${s.title}, ${fine(s.to - s.from)}`;
        if (s.look === 'phase') return <path key={i} class="phase" d={`M${x0} ${y + 16}v-6h${Math.max(2, x1 - x0)}v6`} />;
        return (
          <rect key={i} class={`seg seg-${s.look}${s.failed ? ' failed' : ''}${s.open ? ' open' : ''}`} x={x0} y={y + 5} width={Math.max(s.failed && s.look === 'work' ? 4 : 2, x1 - x0)} height={12} rx={2}>
            <title>{title}</title>
          </rect>
        );
      })}
      {row.marks.map((m, i) => (
        <Marker key={i} look={m.look} x={left + place(scale, m.at)} y={y} title={m.title} />
      ))}
    </g>
  );
}

/** What was done is drawn over the pauses around it, however short it was. */
function rank(s: Segment): number {
  return s.look === 'work' ? 1 : 0;
}

function Marker({ look, x, y, title }: { look: string; x: number; y: number; title: string }) {
  const shape = { tick: `M${x} ${y + 7}v8`, error: `M${x - 3} ${y + 8}l6 6M${x + 3} ${y + 8}l-6 6`, note: `M${x} ${y + 6}l4 5-4 5-4-5z`, next: `M${x} ${y + 4}v14` }[look] ?? '';
  return (
    <path class={`mark mark-${look}`} d={shape}>
      <title>{title}</title>
    </path>
  );
}
