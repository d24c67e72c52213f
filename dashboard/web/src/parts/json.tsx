import { useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import { indented, longString, Printer, type Line, type Piece } from '../exact/print.ts';
import { grouped } from '../words/span.ts';
import { Copy } from './copy.tsx';

const firstLines = 100;
const moreLines = 500;

/**
 * JSON, digit by digit as it stands in the store. However large it is, only the
 * lines that were asked for are made.
 */
export function JsonView({ text, label }: { text: string; label: string }) {
  const wanted = useSignal(firstLines);
  const printer = useMemo(() => ({ of: new Printer(text), lines: [] as Line[] }), [text]);
  if (printer.lines.length < wanted.value) printer.lines.push(...printer.of.lines(wanted.value - printer.lines.length));
  const more = !printer.of.done;
  return (
    <div class="json">
      <div class="json-head">
        <span class="faint">{size(text.length)}</span>
        <Copy what={label} text={() => indented(text)} />
      </div>
      <pre tabIndex={0} role="region" aria-label={label}>
        {printer.lines.slice(0, wanted.value).map((line, i) => (
          <LineView key={i} line={line} />
        ))}
      </pre>
      {more && (
        <div class="json-more">
          <button type="button" class="small" onClick={() => (wanted.value += moreLines)}>
            Show {moreLines} more lines
          </button>
          <span class="faint">{grouped(wanted.value)} lines shown; there are more</span>
        </div>
      )}
    </div>
  );
}

function LineView({ line }: { line: Line }) {
  return (
    <>
      {'  '.repeat(line.depth)}
      {line.pieces.map((p, i) => (
        <PieceView key={i} piece={p} />
      ))}
      {'\n'}
    </>
  );
}

function PieceView({ piece }: { piece: Piece }) {
  const wanted = useSignal(longString);
  if (piece.text.length <= wanted.value) return piece.kind === 'mark' ? <>{piece.text}</> : <span class={`json-${piece.kind}`}>{piece.text}</span>;
  const rest = piece.text.length - wanted.value;
  return (
    <span class={`json-${piece.kind}`}>
      {piece.text.slice(0, wanted.value)}
      <button type="button" class="small" onClick={() => (wanted.value += 50_000)}>
        … {grouped(rest)} more characters
      </button>
    </span>
  );
}

/** How much text there is. */
export function size(length: number): string {
  if (length < 1024) return `${length} characters`;
  if (length < 1024 * 1024) return `${(length / 1024).toFixed(1)} Ki characters`;
  return `${(length / 1024 / 1024).toFixed(1)} Mi characters`;
}
