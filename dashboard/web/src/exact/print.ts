/** A piece of printed JSON, with what it is for its colour. */
export interface Piece {
  kind: 'key' | 'string' | 'number' | 'word' | 'mark';
  text: string;
}

export interface Line {
  depth: number;
  pieces: Piece[];
}

/** A string longer than this is cut where it is shown; in UTF-16 units. */
export const longString = 2000;

const space = /[\s]*/y;
const scalar = /"(?:[^"\\]|\\.)*"|[^\s,\]}[{:"]+/y;

/**
 * Prints JSON line by line as it is asked for: of 2 MiB only the lines that are
 * looked at are made. Numbers and strings are printed as they stand in the text.
 */
export class Printer {
  private at = 0;
  private readonly open: string[] = [];
  private readonly text: string;
  constructor(text: string) {
    this.text = text;
  }

  get done(): boolean {
    this.blank();
    return this.at >= this.text.length;
  }

  /** The next lines, at most count. */
  lines(count: number): Line[] {
    const lines: Line[] = [];
    while (lines.length < count && !this.done) lines.push(this.line());
    return lines;
  }

  private line(): Line {
    const pieces: Piece[] = [];
    let depth = this.open.length;
    const first = this.text[this.at];
    if (first === '}' || first === ']') {
      this.open.pop();
      depth--;
      this.mark(pieces);
    } else {
      this.key(pieces);
      this.valueStart(pieces);
    }
    this.blank();
    if (this.text[this.at] === ',') this.mark(pieces);
    return { depth, pieces };
  }

  private key(pieces: Piece[]): void {
    if (this.open.at(-1) !== '{') return;
    pieces.push({ kind: 'key', text: this.scalar() });
    this.blank();
    this.at++; // the colon
    pieces.push({ kind: 'mark', text: ': ' });
  }

  private valueStart(pieces: Piece[]): void {
    this.blank();
    const c = this.text[this.at];
    if (c !== '{' && c !== '[') {
      const text = this.scalar();
      pieces.push({ kind: text.startsWith('"') ? 'string' : /^[-\d]/.test(text) ? 'number' : 'word', text });
      return;
    }
    this.mark(pieces);
    this.blank();
    const next = this.text[this.at];
    if (next === '}' || next === ']') this.mark(pieces);
    else this.open.push(c);
  }

  private mark(pieces: Piece[]): void {
    const text = this.text[this.at++] ?? '';
    const last = pieces.at(-1);
    if (last?.kind === 'mark') last.text += text;
    else pieces.push({ kind: 'mark', text });
  }

  private scalar(): string {
    scalar.lastIndex = this.at;
    const match = scalar.exec(this.text);
    const text = match?.[0] ?? this.text[this.at] ?? '';
    this.at += text.length;
    return text;
  }

  private blank(): void {
    space.lastIndex = this.at;
    space.exec(this.text);
    this.at = space.lastIndex;
  }
}

/** JSON on one line, cut to a length. */
export function oneLine(text: string, limit: number): string {
  let out = '';
  for (const match of text.slice(0, limit * 4).matchAll(/"(?:[^"\\]|\\.)*"?|[^\s"]+|\s+/g)) {
    if (!/^\s/.test(match[0])) out += match[0];
    if (out.length > limit) return out.slice(0, limit) + '…';
  }
  return text.length > limit * 4 ? out + '…' : out;
}

/** JSON with indents, whole. */
export function indented(text: string): string {
  return new Printer(text)
    .lines(Infinity)
    .map((l) => '  '.repeat(l.depth) + l.pieces.map((p) => p.text).join(''))
    .join('\n');
}
