/**
 * JSON as it stood in the answer. What workflows take and give is not read by
 * JSON.parse, in which 9007199254740993 becomes 9007199254740992.
 */
export class Raw {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

/** The members of the API's objects that hold JSON of a user's making. */
const opaque = new Set(['input', 'result', 'data', 'last_value', 'value', 'details']);

/**
 * Reads an answer of the API: as JSON.parse does, but what is the user's own JSON
 * stays text, as {@link Raw}.
 */
export function parseAnswer(text: string): unknown {
  const reader = new Reader(text);
  const value = reader.value(false);
  reader.end();
  return value;
}

/** Whether the text is JSON, and if not, what is wrong and where. */
export function checkJSON(text: string): { ok: true } | { ok: false; at: number; problem: string } {
  try {
    JSON.parse(text);
    return { ok: true };
  } catch {
    const reader = new Reader(text);
    try {
      reader.skip();
      reader.end();
    } catch (error) {
      if (error instanceof SyntaxError) return { ok: false, at: reader.at, problem: error.message };
    }
    return { ok: false, at: text.length, problem: 'is not JSON' };
  }
}

const number = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;

class Reader {
  at = 0;
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }

  end(): void {
    this.space();
    if (this.at < this.text.length) this.fail('something follows the value');
  }

  /** Reads a value. In a map the members are the user's: none has a meaning to us. */
  value(map: boolean): unknown {
    this.space();
    switch (this.text[this.at]) {
      case '{':
        return this.object(map);
      case '[':
        return this.array();
      case '"':
        return this.string();
      default: {
        const from = this.at;
        this.skip();
        return JSON.parse(this.text.slice(from, this.at)) as unknown;
      }
    }
  }

  private object(map: boolean): Record<string, unknown> {
    const object: Record<string, unknown> = {};
    this.members((key) => {
      const own = !map && opaque.has(key);
      if (own) object[key] = this.raw();
      else if (!map && key === 'values' && this.peek() === '{') object[key] = this.rawMembers();
      else define(object, key, this.value(!map && key === 'labels'));
    });
    return object;
  }

  private rawMembers(): Record<string, Raw> {
    const object: Record<string, Raw> = {};
    this.members((key) => define(object, key, this.raw()));
    return object;
  }

  private raw(): Raw {
    this.space();
    const from = this.at;
    this.skip();
    return new Raw(this.text.slice(from, this.at));
  }

  private array(): unknown[] {
    const list: unknown[] = [];
    this.items(() => list.push(this.value(false)));
    return list;
  }

  private string(): string {
    const from = this.at;
    this.skipString();
    return JSON.parse(this.text.slice(from, this.at)) as string;
  }

  private peek(): string | undefined {
    this.space();
    return this.text[this.at];
  }

  private members(each: (key: string) => void): void {
    this.at++;
    if (this.peek() === '}') {
      this.at++;
      return;
    }
    for (;;) {
      if (this.peek() !== '"') this.fail('a name in quotes is missing');
      const key = this.string();
      if (this.peek() !== ':') this.fail('a colon is missing');
      this.at++;
      each(key);
      if (this.closes('}')) return;
    }
  }

  private items(each: () => void): void {
    this.at++;
    if (this.peek() === ']') {
      this.at++;
      return;
    }
    for (;;) {
      each();
      if (this.closes(']')) return;
    }
  }

  private closes(bracket: string): boolean {
    const c = this.peek();
    if (c !== ',' && c !== bracket) this.fail(`a comma or ${bracket} is missing`);
    this.at++;
    return c === bracket;
  }

  /** Passes over a value. */
  skip(): void {
    switch (this.peek()) {
      case '{':
        return this.members(() => this.skip());
      case '[':
        return this.items(() => this.skip());
      case '"':
        return this.skipString();
      case 't':
        return this.word('true');
      case 'f':
        return this.word('false');
      case 'n':
        return this.word('null');
      case undefined:
        return this.fail('a value is missing');
    }
    number.lastIndex = this.at;
    if (!number.test(this.text)) this.fail('this is no value');
    this.at = number.lastIndex;
  }

  private word(word: string): void {
    if (!this.text.startsWith(word, this.at)) this.fail('this is no value');
    this.at += word.length;
  }

  private skipString(): void {
    for (let i = this.at + 1; ; i++) {
      const c = this.text.charCodeAt(i);
      if (c === 34) {
        this.at = i + 1;
        return;
      }
      if (c === 92) i++;
      else if (Number.isNaN(c)) this.fail('the quote at the end is missing');
    }
  }

  private space(): void {
    for (let c = this.text.charCodeAt(this.at); c === 32 || c === 10 || c === 13 || c === 9; ) c = this.text.charCodeAt(++this.at);
  }

  private fail(problem: string): never {
    throw new SyntaxError(problem);
  }
}

/** Sets a member; one that is called __proto__ is a member like any other. */
function define(object: Record<string, unknown>, key: string, value: unknown): void {
  if (key === '__proto__') Object.defineProperty(object, key, { value, enumerable: true, configurable: true, writable: true });
  else object[key] = value;
}
